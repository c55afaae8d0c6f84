"""Programs as data: what a step is, how to run one with a torch-like module, what can be seen of its tensors.

A program is a list of steps, a step is `[kind, name, arguments, keywords]`, all of it JSON. Nothing here needs more than the
module that is tried, so that a program recorded with PyTorch can be run where PyTorch is not.

Arguments: numbers, strings, None; `["T", i]` tensor number i of the program; `["tuple", ...]`, `["list", ...]`, `["slice", a, b, c]`,
`["..."]`, `["dtype", name]`, `["complex", re, im]`, `["data", a list]`.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

Step = list[Any]

#: in place of what could not be seen
UNKNOWN = "unknown"

#: words that only say where a tensor is
_PLACES = {"webgpu.": "", "cuda.": "", "WebGPU": "CPU"}


class Program:
    """A program while it runs: its tensors, in the order in which they came."""

    def __init__(self, lib: Any, device: str) -> None:
        self.lib = lib
        self.device = device
        self.tensors: list[Any] = []
        self.modes: list[Any] = []
        self.log: list[Any] = []  # gradients that hooks were given
        self.seen: dict[int, int] = {}  # id -> number

    # ---- arguments

    def decode(self, a: Any) -> Any:
        if type(a) is not list:
            return a
        kind, *rest = a
        if kind == "T":
            return self.tensors[rest[0]]
        if kind == "data":
            return rest[0]
        if kind == "tuple":
            return tuple([self.decode(x) for x in rest])
        if kind == "list":
            return [self.decode(x) for x in rest]
        if kind == "slice":
            return slice(*[self.decode(x) for x in rest])
        if kind == "...":
            return Ellipsis
        if kind == "dtype":
            return getattr(self.lib, rest[0])
        if kind == "complex":
            return complex(*rest)
        raise ValueError(f"no argument: {a}")

    # ---- results

    def keep(self, r: Any) -> Any:
        """What a step gave, as data; new tensors get the next numbers."""
        if isinstance(r, self.lib.Tensor):
            known = self.seen.get(id(r))
            if known is not None:
                return ["T", known]
            n = self.seen[id(r)] = len(self.tensors)
            self.tensors.append(r)
            return ["new", n, *self.look(r, False)]
        if isinstance(r, (tuple, list)):
            if type(r).__name__ == "Size":
                return [int(n) for n in r]
            return ["several", *[self.keep(x) for x in r]]
        if isinstance(r, (bool, int, float, str)) or r is None:
            return r
        if isinstance(r, complex):
            return [r.real, r.imag]
        return type(r).__name__

    def look(self, t: Any, all_of_it: bool = True) -> list[Any]:
        """What can be seen of a tensor without its values."""
        out = [list(t.shape), list(t.stride()), t.storage_offset(), str(t.dtype)]
        if not all_of_it:
            return out
        for see in SEEN:
            try:
                out.append(see(self, t))
            except Exception as e:
                if "INTERNAL ASSERT" in str(
                    e
                ):  # PyTorch has lost its way, and what it says then is not to be had again
                    return [*out, *[UNKNOWN] * (4 + len(SEEN) - len(out))]
                out.append(error_of(e))
        return out

    def base(self, t: Any) -> Any:
        b = t._base
        return None if b is None else self.seen.get(id(b), "another")

    # ---- running

    def run(self, step: Step) -> Any:
        """What came of a step: `["ok", result]` or `["error", type, first line of its message]`."""
        kind, name, args, kw = step
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                a = [self.decode(x) for x in args]
                k = {n: self.decode(x) for n, x in kw.items()}
                return ["ok", self.keep(KINDS[kind](self, name, a, k))]
        except Exception as e:
            return error_of(e)

    def close(self) -> None:
        while self.modes:
            self.modes.pop().__exit__(None, None, None)

    # ---- the kinds of steps

    def new(self, name: str, a: list[Any], kw: dict[str, Any]) -> Any:
        values, shape, dtype = a
        if dtype.is_complex:
            values = [complex(*v) for v in values]
        t = self.lib.tensor(values, dtype=dtype, device=self.device).reshape(shape).clone()
        if kw.get("order"):  # the same values, the dimensions in another order in memory
            order = kw["order"]
            back = sorted(range(len(order)), key=order.__getitem__)
            t = t.permute(order).contiguous().permute(back).detach()
        return t.requires_grad_() if kw.get("requires_grad") else t.detach()

    def enter(self, name: str, a: list[Any], kw: dict[str, Any]) -> None:
        mode = getattr(self.lib, name)(*a)
        mode.__enter__()
        self.modes.append(mode)

    def leave(self, name: str, a: list[Any], kw: dict[str, Any]) -> None:
        if self.modes:
            self.modes.pop().__exit__(None, None, None)

    def hook(self, name: str, a: list[Any], kw: dict[str, Any]) -> None:
        t, factor = a
        _ = t.grad_fn  # PyTorch crashes on a hook for a view whose base was written to, unless its history is there
        log = self.log

        def scale(g: Any) -> Any:
            if g is None:  # as PyTorch gives it for one of several outputs that has none
                return None
            log.append(g.detach().clone())
            return None if factor is None else g * factor

        t.register_hook(scale)

    def loss(self, tensors: Any) -> Any:
        """A sum in which every tensor has another weight."""
        total = None
        for k, t in enumerate(tensors):
            part = t * (0.5 + 0.25 * k)
            part = (part.real if part.is_complex() else part).sum()
            part = part.to(self.lib.float32)
            total = part if total is None else total + part
        return total

    def grad(self, name: str, a: list[Any], kw: dict[str, Any]) -> Any:
        outputs, inputs = a
        return self.lib.autograd.grad(self.loss(outputs), inputs, **kw)

    def backward(self, name: str, a: list[Any], kw: dict[str, Any]) -> Any:
        self.loss(a[0]).backward(**kw)

    def probe(self, name: str, a: list[Any], kw: dict[str, Any]) -> Any:
        """Everything that can be seen of every tensor; which of them share memory."""
        tables = [self.look(t) for t in self.tensors]
        groups: dict[Any, int] = {}
        for i, (table, t) in enumerate(zip(tables, self.tensors)):
            try:
                ptr = t.untyped_storage().data_ptr()
            except RuntimeError:  # PyTorch's storages of no bytes, now and then
                table += [UNKNOWN, UNKNOWN]
                continue
            table.append(groups.setdefault(ptr, i) if ptr and t.numel() else None)
            table.append(t.data_ptr() - ptr if t.numel() else None)
        return ["seen", tables]


def _grad_name(p: Program, t: Any) -> Any:
    fn = t.grad_fn
    return None if fn is None else fn.name()


SEEN: list[Callable[[Program, Any], Any]] = [
    lambda p, t: t.requires_grad,
    lambda p, t: t.is_leaf,
    lambda p, t: t._version,
    lambda p, t: t._is_view(),
    Program.base,
    _grad_name,
    lambda p, t: t.output_nr,
    lambda p, t: t.is_contiguous(),
    lambda p, t: t.is_inference(),
    lambda p, t: t.retains_grad,
    lambda p, t: t.is_conj(),
    lambda p, t: t.is_neg(),
]
FIELDS = (
    "shape stride storage_offset dtype requires_grad is_leaf _version _is_view _base grad_fn output_nr is_contiguous "
    "is_inference retains_grad is_conj is_neg memory data_ptr"
).split()

KINDS: dict[str, Callable[[Program, str, list[Any], dict[str, Any]], Any]] = {
    "method": lambda p, name, a, kw: getattr(a[0], name)(*a[1:], **kw),
    "functional": lambda p, name, a, kw: getattr(p.lib.nn.functional, name)(*a, **kw),
    "function": lambda p, name, a, kw: getattr(p.lib, name)(*a, **kw),
    "get": lambda p, name, a, kw: getattr(a[0], name),
    "set": lambda p, name, a, kw: setattr(a[0], name, a[1]),
    "getitem": lambda p, name, a, kw: a[0][a[1]],
    "setitem": lambda p, name, a, kw: operator.setitem(*a),
    "operator": lambda p, name, a, kw: getattr(operator, name)(*a),
    "augmented": lambda p, name, a, kw: operator.setitem(a[0], a[1], getattr(operator, name)(a[0][a[1]], a[2])),
    "new": Program.new,
    "enter": Program.enter,
    "leave": Program.leave,
    "hook": Program.hook,
    "grad": Program.grad,
    "backward": Program.backward,
    "probe": lambda p, name, a, kw: None,
}


def error_of(e: Exception) -> list[str]:
    text = str(e).split("\n")[0]
    for word, plain_word in _PLACES.items():
        text = text.replace(word, plain_word)
    text = re.sub(
        r"\b(?:CPU|webgpu)(\w+)Type\b", r"torch.\1Tensor", text
    )  # real PyTorch's words for a device of a backend
    return ["error", type(e).__name__, text]


def run_step(p: Program, step: Step) -> Any:
    if step[0] == "probe":
        return p.probe("", [], {})
    return p.run(step)


def plain(t: Any) -> list[Any]:
    """The elements row by row, as numbers that JSON has."""
    flat = [t.tolist()]
    while flat and type(flat[0]) is list:
        flat = [x for part in flat for x in part]
    return numbers(flat)


def numbers(flat: list[Any]) -> list[Any]:
    if flat and isinstance(flat[0], complex):
        return [part for z in flat for part in (z.real, z.imag)]
    return flat
