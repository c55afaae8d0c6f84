"""`jvp` and `linearize`: derivatives along a direction, over autograd/forward_ad.py."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.autograd import forward_ad
from tabtorch.base.thread_state import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.func.nesting import Function, only_tensors, picked, replaced, settled, with_aux
from tabtorch.utils import _pytree as pytree

_WHO = "jvp(f, primals, tangents)"


def jvp(func: Function, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """(func(*primals), its derivative along `tangents`), and aux if `has_aux`.

    primals, tangents: tuples of one structure. strict: RuntimeError for an output that does not depend on the inputs.
    """
    return jvp_of(func, primals, tangents, None, has_aux, strict)


def _tensors(values: list[Any], what: str) -> None:
    if not values:
        raise RuntimeError(f"{_WHO}: Expected {what} to contain at least one Tensor.")
    for x in values:
        if not isinstance(x, Tensor):
            raise RuntimeError(f"{_WHO}: Expected {what} to only contain Tensors, got {type(x)}")


class _Call:
    """`func` over a list of tensors, as forward_ad calls it; the structure of its output, and aux, are kept."""

    def __init__(self, func: Function, spec: Any, place: Any, has_aux: bool) -> None:
        self.func, self.spec, self.place, self.has_aux = func, spec, place, has_aux
        self.aux: Any = None

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        STATE.nesting += 1
        try:
            out = self.func(*self.place(pytree.tree_unflatten(tensors, self.spec)))
        finally:
            STATE.nesting -= 1
        if self.has_aux:
            out, self.aux = with_aux(_WHO, out)
        flat, self.out_spec = pytree.tree_flatten(out)
        only_tensors(flat, _WHO)
        return flat


def jvp_of(func: Function, primals: Any, tangents: Any, argnums: Any, has_aux: bool, strict: bool = False) -> Any:
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{_WHO}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    flat, spec = pytree.tree_flatten(primals if argnums is None else picked(primals, argnums))
    moved, moved_spec = pytree.tree_flatten(tangents)
    if spec != moved_spec:
        raise RuntimeError(
            f"{_WHO}: Expected primals and tangents to have the same python structure. For example, if primals is a tuple of "
            f"3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure {moved_spec}"
        )
    _tensors(flat, "primals")
    _tensors(moved, "tangents")
    call = _Call(func, spec, (lambda x: x) if argnums is None else (lambda x: replaced(primals, x, argnums)), has_aux)
    if strict:
        outs, push = forward_ad.linearize(call, flat)
        found = push(moved)
        if any(t is None for t in found):
            raise RuntimeError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed "
                "with strict=True."
            )
    else:
        outs, found = forward_ad.jvp(call, flat, moved)
    out, pushed = (pytree.tree_unflatten(settled(x, True), call.out_spec) for x in (outs, found))
    return (out, pushed, call.aux) if has_aux else (out, pushed)


def linearize(func: Function, *primals: Any) -> tuple[Any, Function]:
    """(func(*primals), the function that gives its derivative there along tangents): the function itself runs once.

    RuntimeError for tangents of another structure, shape, device or dtype than the primals.
    """
    flat, spec = pytree.tree_flatten(primals)
    call = _Call(func, spec, lambda x: x, False)
    outs, push = forward_ad.linearize(call, flat)

    def jvp_fn(*tangents: Any) -> Any:
        given, given_spec = pytree.tree_flatten(tangents)
        if given_spec != spec:
            raise RuntimeError(f"Expected the tangents {given_spec} to have the same argspec as the primals {spec}")
        for k, (t, p) in enumerate(zip(given, flat)):
            for what in ("shape", "device", "dtype"):
                have, want = getattr(t, what), getattr(p, what)
                if have != want:
                    raise RuntimeError(
                        f"tangent:{k} with {what} {have} in flattened pytree doesn't match the {what} {want} of the "
                        "corresponding primal."
                    )
        found = [_lazy.ops.zeros_like(o) if t is None else t for o, t in zip(outs, push(given))]
        return pytree.tree_unflatten(settled(found, True), call.out_spec)

    return pytree.tree_unflatten(outs, call.out_spec), jvp_fn


__all__ = ["jvp", "linearize"]
