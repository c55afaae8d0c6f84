"""`torch.utils.flop_counter`: how many floating-point operations the products and convolutions of a program are.

As in PyTorch, a multiplication and an addition are two, and nothing else is counted. What backward does is counted while it
runs: each operand that needs a gradient costs a product as large as the first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache, partial
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.interception.code_swapping import Hook, Layer
from tabtorch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from tabtorch.ops.aten import Packet
from tabtorch.ops.machinery import registry

__all__ = ["FlopCounterMode"]


def _product(a: Any, out: Any) -> int:
    """Of `a @ b`: every element of the result is a sum over the last dimension of `a`."""
    return 2 * out.numel() * a.shape[-1]


def _convolution(x: Any, w: Any, out: Any, transposed: bool) -> int:
    """Every element of the result (of the input, if transposed) meets one filter's elements."""
    return 2 * (x if transposed else out).numel() * math.prod(w.shape[1:])


def _attention(q: Any, k: Any, v: Any) -> int:
    return 2 * q.numel() * k.shape[-2] + 2 * math.prod(q.shape[:-1]) * k.shape[-2] * v.shape[-1]


def _einsum(equation: str, operands: Any) -> int:
    """Of a sum over pairs: every combination of the letters meets once, for each factor after the first."""
    tensors = list(operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands)
    sizes: dict[str, int] = {}
    rest = 1
    for letters, t in zip(equation.replace(" ", "").partition("->")[0].split(","), tensors, strict=True):
        before, dots, after = letters.partition("...")
        end = t.ndim - len(after)
        sizes |= dict(zip(before, t.shape)) | dict(zip(after, t.shape[end:]))
        if dots:
            rest = max(rest, math.prod(t.shape[len(before) : end]))
    return 2 * rest * math.prod(sizes.values()) * (len(tensors) - 1)


def _first(args: tuple[Any, ...], kw: dict[str, Any], *names: str) -> list[Any]:
    """The leading arguments, given by position or by name."""
    given = list(args[: len(names)])
    return given + [kw[n] for n in names[len(given) :]]


#: operation -> (its names in aten forward and backward, the positions and names of the factors)
_COUNTED = {
    "mm": ("mm", "mm", (0, 1), ("input", "mat2")),
    "mv": ("mm", "mm", (0, 1), ("input", "vec")),
    "bmm": ("bmm", "bmm", (0, 1), ("input", "mat2")),
    "matmul": ("mm", "mm", (0, 1), ("input", "other")),
    "linear": ("mm", "mm", (0, 1), ("input", "weight")),
    "addmm": ("addmm", "mm", (1, 2), ("input", "mat1", "mat2")),
    "baddbmm": ("baddbmm", "bmm", (1, 2), ("input", "batch1", "batch2")),
    **{
        f"conv{t}{n}d": ("convolution", "convolution_backward", (0, 1), ("input", "weight"))
        for n in (1, 2, 3)
        for t in ("", "_transpose")
    },
    "einsum": ("bmm", "bmm", (), ()),
    "scaled_dot_product_attention": ("bmm", "bmm", (0, 1, 2), ("query", "key", "value")),
}


@cache
def _packet(name: str) -> Any:
    """What stands for an operation in the tables: `torch.ops.aten.NAME`."""
    return getattr(torch.ops.aten, name) if registry.function(name) else Packet(name, None)


_on: list[FlopCounterMode] = []
_inside = False


def _hook(name: str) -> Hook:
    def hook(f: Any, args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        global _inside
        if _inside:  # what a product is made of is not counted again
            return f(*args, **kw)
        _inside = True
        try:
            out = f(*args, **kw)
        finally:
            _inside = False
        _count(name, args, kw, out)
        return out

    return hook


_layer = Layer(20, lambda name: _hook(name) if name in _COUNTED else None)
_layer.meet(torch.nn.functional.linear, _hook("linear"))


def _count(name: str, args: tuple[Any, ...], kw: dict[str, Any], out: Tensor) -> None:
    forward, backward, places, names = _COUNTED[name]
    given = _first(args, kw, *names)
    factors = [given[k] for k in places]
    if name == "einsum":
        flops = _einsum(args[0], args[1:]) if isinstance(args[0], str) else 0
        factors = [t for a in args[1:] for t in (a if isinstance(a, (list, tuple)) else [a])]
        each = [flops] * len(factors)
    elif name == "scaled_dot_product_attention":
        flops = _attention(*factors)
        each = [flops // 2, flops // 2, flops // 2]  # of the two products, a factor's gradient is one; the scores' too
    elif name.startswith("conv"):
        flops = _convolution(factors[0], factors[1], out, "transpose" in name)
        each = [flops, flops]
    else:
        flops = _product(factors[0], out)
        each = [flops, flops]
    if name == "linear":
        bias = args[2] if len(args) > 2 else kw.get("bias")
        forward = "mm" if bias is None else "addmm"
    elif name == "matmul" and min(t.ndim for t in factors) > 2:
        forward = backward = "bmm"
    later = sum(cost for t, cost in zip(factors, each, strict=True) if t.requires_grad)
    if name == "scaled_dot_product_attention" and later and len([t for t in factors if t.requires_grad]) == 3:
        later = 2 * flops
    for mode in list(_on):
        where = mode._path()
        mode._add(where, forward, flops)
        if later and out.requires_grad:
            out.register_hook(partial(_later, mode, where, backward, later))


def _later(mode: FlopCounterMode, where: tuple[str, ...], name: str, flops: int, grad: Tensor) -> None:
    """Called when backward has come to a product."""
    mode._add(where, name, flops)


class FlopCounterMode:
    """Counts what runs within it, for each module that is called and for "Global".

    depth: how deep the modules of the table are. display: prints the table at the end. mods is deprecated and not needed;
    custom_mapping: RuntimeError, for operations of others are not counted.
    """

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: dict[Any, Any] | None = None
    ) -> None:
        if custom_mapping:
            raise RuntimeError("FlopCounterMode: tabtorch counts products and convolutions only, no custom_mapping")
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth = depth
        self.display = display
        self._stack: list[str] = []
        self._names: dict[int, str] = {}
        self._hooks: list[Any] = []

    def get_total_flops(self) -> int:
        """All of them."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Name of a module -> operation -> how many. "Global" is all."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Modules, their numbers and their share of all, a line each."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        rows = [("Module", "FLOP", "% Total")]
        for name, counts in sorted(self.flop_counts.items()):
            level = 0 if name == "Global" else name.count(".") + 1
            if level <= depth:
                share = 100 * sum(counts.values()) / total if total else 0.0
                rows.append((" " * level + name, f"{sum(counts.values()):,}", f"{share:.2f}%"))
                rows += [(" " * level + f" - {op}", f"{n:,}", "") for op, n in counts.items()]
        widths = [max(len(row[k]) for row in rows) for k in range(3)]
        return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows)

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self._hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        _on.append(self)
        _layer.switch(True)
        return self

    def __exit__(self, *exc: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        _on.remove(self)
        _layer.switch(bool(_on))
        self._stack.clear()
        self._names.clear()
        if self.display:
            print(self.get_table())

    def _enter(self, module: Any, args: Any) -> None:
        name = self._names.get(id(module)) or type(module).__name__
        for child, m in module.named_children():
            self._names[id(m)] = f"{name}.{child}"
        self._stack.append(name)

    def _leave(self, module: Any, args: Any, out: Any) -> None:
        self._stack.pop()

    def _path(self) -> tuple[str, ...]:
        return ("Global", *dict.fromkeys(self._stack))

    def _add(self, where: tuple[str, ...], name: str, flops: int) -> None:
        op = _packet(name)
        for place in where:
            self.flop_counts[place][op] += flops
