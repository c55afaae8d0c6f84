"""Programs of `fuzz.aliases` as the text of a function, for a compiler that traces: tensors come in, all that were made go out.

What is no operation on tensors is left out of it: modes, hooks, gradients, probes. So are steps that fail without those.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from .steps import Program, Step

_OPERATORS = {"iadd": "+=", "isub": "-=", "imul": "*=", "itruediv": "/=", "iand": "&=", "ior": "|=", "ixor": "^="}
#: whose results are not defined, or which are no operations in a graph
_NOT = {"resize_", "set_", "detach_", "requires_grad_", "retain_grad", "backward", "as_strided_", "_neg_view"}
_NOT |= {"unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes"}  # whose results may share memory, or may not
_SEEN = ("T", "H", "mT", "mH", "real", "imag")


def written(a: Any) -> str:
    """An argument of a step as Python text."""
    if type(a) is not list:
        return repr(a)
    kind, *rest = a
    parts = [written(x) for x in rest] if kind != "data" else []
    if kind == "T":
        return f"t{rest[0]}"
    if kind == "data":
        return repr(rest[0])
    if kind == "tuple":
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    if kind == "list":
        return f"[{', '.join(parts)}]"
    if kind in ("slice", "complex"):
        return f"{kind}({', '.join(parts)})"
    return "..." if kind == "..." else f"torch.{rest[0]}"


def line(step: Step) -> str | None:
    """A step as a line of Python; None for one that is left out."""
    kind, name, args, kw = step
    if name in _NOT or kw.get("out"):
        return None
    a = [written(x) for x in args]
    named = [f"{k}={written(v)}" for k, v in kw.items()]
    if kind == "method":
        return f"{a[0]}.{name}({', '.join([*a[1:], *named])})"
    if kind == "function":
        return f"torch.{name}({', '.join([*a, *named])})"
    if kind == "functional":
        return f"torch.nn.functional.{name}({', '.join([*a, *named])})"
    if kind == "getitem":
        return f"{a[0]}[{a[1]}]"
    if kind == "setitem":
        return f"{a[0]}[{a[1]}] = {a[2]}"
    if kind == "augmented" and name in _OPERATORS:
        return f"{a[0]}[{a[1]}] {_OPERATORS[name]} {a[2]}"
    if kind == "operator" and name in _OPERATORS:
        return f"{a[0]} {_OPERATORS[name]} {a[1]}"
    return f"{a[0]}.{name}" if kind == "get" and name in _SEEN else None


def _targets(result: Any) -> str:
    """What the results of a step are called; "" if it makes no tensor."""
    if type(result) is list and result[:1] == ["new"]:
        return f"t{result[1]}"
    if type(result) is list and result[:1] == ["several"]:
        parts = [_targets(x) or "_" for x in result[1:]]
        return f"[{', '.join(parts)}]" if any(p != "_" for p in parts) else ""
    return ""


class Traced:
    """text: `def f(t0, …)`, which returns a list of tensors. inputs: their numbers; made: how each is made."""

    def __init__(self, recorded: dict[str, Any], grads: bool) -> None:
        self.grads = grads
        self.made: list[Step] = []
        self.inputs: list[int] = []
        for step, result in zip(recorded["steps"], recorded["results"], strict=True):
            if step[0] == "new" and result[0] == "ok":
                self.made.append(step)
                self.inputs.append(result[1][1])
        names: dict[str, Any] = {"torch": torch, **dict(self.arguments("cpu"))}
        self.lines: list[str] = []
        if grads:  # what requires grad may be written to, but for leaves
            for name, t in list(names.items()):
                if name != "torch" and t.requires_grad:
                    self.lines.append(f"{name} = {name} * 1")
                    exec(self.lines[-1], names)
        for step, result in zip(recorded["steps"], recorded["results"], strict=True):
            text = line(step) if result[0] == "ok" else None
            if text is None:
                continue
            target = _targets(result[1])
            if target:
                text = f"{target} = {text}"
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    exec(text, names)
            except Exception:
                continue
            self.lines.append(text)
        self.outputs = sorted(
            (n for n, t in names.items() if n[0] == "t" and n[1:].isdigit() and isinstance(t, torch.Tensor)),
            key=lambda n: int(n[1:]),
        )

    @property
    def text(self) -> str:
        head = ", ".join(f"t{n}" for n in self.inputs)
        body = "".join(f"    {each}\n" for each in self.lines)
        return f"def f({head}):\n{body}    return [{', '.join(self.outputs)}]\n"

    def arguments(self, device: str) -> list[tuple[str, torch.Tensor]]:
        """(name, tensor) of each argument, new."""
        p = Program(torch, device)
        out = []
        for n, (_, name, args, kw) in zip(self.inputs, self.made, strict=True):
            t = p.new(
                name, [p.decode(a) for a in args], {k: p.decode(v) for k, v in kw.items() if k != "requires_grad"}
            )
            wants = self.grads and bool(kw.get("requires_grad")) and (t.is_floating_point() or t.is_complex())
            out.append((f"t{n}", t.requires_grad_(wants)))
        return out

    def function(self) -> Any:
        names: dict[str, Any] = {"torch": torch}
        exec(self.text, names)
        return names["f"]

    def run(self, device: str, how: Any) -> dict[str, Any]:
        """What is seen after each of three calls of `how(f)` with new arguments. path -> value."""
        f = how(self.function())
        found: dict[str, Any] = {}
        for call in range(3):
            args = [t for _, t in self.arguments(device)]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outs = f(*args)
                found |= self._look(f"call {call} ", args, outs)
        return found

    def _look(self, where: str, args: list[torch.Tensor], outs: list[torch.Tensor]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        memory: dict[int, str] = {}
        known = {id(t): f"t{n}" for n, t in zip(self.inputs, args, strict=True)}
        given = [(f"argument t{n}", t) for n, t in zip(self.inputs, args, strict=True)]
        for name, t in [*given, *zip(self.outputs, outs, strict=True)]:
            path = where + name
            found[path + " kind"] = (str(t.dtype), tuple(t.shape), t.requires_grad, t.is_conj(), t.is_neg())
            strides = [st for st, n in zip(t.stride(), t.shape) if n > 1]  # the others say nothing
            found[path + " strides"] = (strides if t.numel() else None, t.storage_offset())
            if name.startswith("argument"):
                found[path + " written"] = t._version > 0  # how often is the compiler's affair
            else:
                found[path + " object"] = known.get(id(t))
            if t.numel():
                found[path + " memory"] = memory.setdefault(t.untyped_storage().data_ptr(), name)
            found[path] = t.detach().tolist()
        if self.grads:
            total: Any = 0
            for k, t in enumerate(outs):
                if t.requires_grad:
                    part = t * (0.5 + 0.25 * k)
                    total = total + (part.real if part.is_complex() else part).sum().float()
            if isinstance(total, torch.Tensor):
                total.backward()
            for n, t in zip(self.inputs, args, strict=True):
                found[f"{where}gradient of t{n}"] = None if t.grad is None else t.grad.tolist()
        return found
