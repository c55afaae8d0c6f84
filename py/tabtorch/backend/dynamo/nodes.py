"""What a node of AOTAutograd's graphs is: asked while a graph is written as a program (lower.py)."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._higher_order_ops.effects import with_effects

#: operations that draw random numbers by sizes and plain numbers alone; of a tensor they take its size and type
_DRAWS = frozenset(
    "rand randn randint randperm rand_like randn_like randint_like uniform normal_functional exponential geometric cauchy "
    "log_normal random bernoulli.p normal.float_float".split()
)


def draws(n: torch.fx.Node) -> bool:
    """Whether a node draws what can be drawn before the function runs: by PyTorch's generator, as it is for an eager call."""
    if not isinstance(n.target, torch._ops.OpOverload) or n.kwargs.get("generator") is not None:
        return False
    space, _, plain = n.target._schema.name.partition("::")
    overload = n.target._schema.overload_name
    if space != "aten" or _DRAWS.isdisjoint((plain, f"{plain}.{overload}")):
        return False
    known_sizes = not torch.fx.experimental.symbolic_shapes.free_unbacked_symbols(n.meta["val"])
    return known_sizes and not any(isinstance(a, torch.fx.Node) and is_tensor(a) for a in n.args[1:])


def is_node(o: Any) -> bool:
    return isinstance(o, torch.fx.Node)


def is_result(o: Any) -> bool:
    """Whether the value of an output is a tensor that is computed, and no argument."""
    return (
        isinstance(o, torch.fx.Node)
        and o.op in ("call_function", "get_attr")
        and isinstance(o.meta.get("val"), torch.Tensor)
        and not is_token(o)
    )


def is_token(n: torch.fx.Node) -> bool:
    """Whether a value is none, but stands for the order of calls with effects: it is None here."""
    if n.op == "placeholder":
        return bool(n.users) and all(u.target is with_effects and u.args[0] is n for u in n.users)
    return n.target is operator.getitem and n.args[1] == 0 and getattr(n.args[0], "target", None) is with_effects


def order_of(traced: torch.Tensor) -> list[int] | None:
    """A tensor's dimensions from outermost to innermost; None where that is their order, or where it cannot be told."""
    strides = []
    for s in traced.stride():
        hint = s.node.hint if isinstance(s, torch.SymInt) else s
        if hint is None:
            return None
        strides.append(hint)
    order = sorted(range(len(strides)), key=lambda d: -strides[d])
    return None if order == list(range(len(strides))) else order


def memory_of(n: torch.fx.Node) -> int:
    return int(n.meta["val"].untyped_storage()._cdata)


def on_host(n: torch.fx.Node) -> bool:
    """Whether PyTorch has the arguments of a call on the CPU."""
    vals = [m.meta.get("val") for m in n.all_input_nodes]
    return any(isinstance(v, torch.Tensor) and v.device.type == "cpu" for v in vals)


#: torch 2.10 has it by the second name alone
_dense = (
    getattr(torch._prims_common, "is_non_overlapping_and_dense_or_false", None)
    or torch._prims_common.is_non_overlapping_and_dense
)


def shows_each_once(val: torch.Tensor) -> bool:
    """Whether a tensor shows each element of its memory once."""
    shown = val.numel() * val.element_size()
    if isinstance(shown, torch.SymInt) or isinstance(val.untyped_storage().nbytes(), torch.SymInt):
        return val.is_contiguous() and torch.fx.experimental.symbolic_shapes.guard_or_false(
            val.untyped_storage().nbytes() == shown
        )
    return shown == val.untyped_storage().nbytes() and _dense(val)


def is_tensor(n: torch.fx.Node) -> bool:
    v = n.meta.get("val")
    return (
        n.op == "get_attr"
        or isinstance(v, torch.Tensor)
        or (isinstance(v, (list, tuple)) and any(isinstance(x, torch.Tensor) for x in v))
    )


def type_of(n: torch.fx.Node) -> str:
    """A comment with the type and sizes of a value."""
    v = n.meta.get("val")
    if not isinstance(v, torch.Tensor):
        return ""
    return f"  # {str(v.dtype)[6:]}[{', '.join(map(str, v.shape))}]"
