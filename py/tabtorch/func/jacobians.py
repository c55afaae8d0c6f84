"""`jacrev`, `jacfwd` and `hessian`: a Jacobian is a batch of products with the vectors of the standard basis."""

from __future__ import annotations

import functools
from typing import Any

from tabtorch import ops
from tabtorch.core.tensor import Tensor
from tabtorch.func.forward import jvp_of
from tabtorch.func.mapping import vmap
from tabtorch.func.nesting import Function, no_complex, picked
from tabtorch.func.transforms import vjp_of
from tabtorch.utils import _pytree as pytree


def _basis(tensors: list[Tensor], start: int, end: int) -> list[Tensor]:
    """Rows `start` to `end` of the unit matrix over the elements of all tensors, shaped as they are."""
    out = []
    at = 0
    for t in tensors:
        n = t.numel()
        own: Tensor = ops.zeros((end - start, n), dtype=t.dtype, device=t.device)
        low, high = max(start, at), min(end, at + n)
        if low < high:
            own[low - start : high - start, low - at : high - at] = ops.eye(high - low, dtype=t.dtype, device=t.device)
        out.append(own.view(end - start, *t.shape))
        at += n
    return out


def jacrev(
    func: Function,
    argnums: Any = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Function:
    """The Jacobian of `func`, by reverse mode: a tensor of shape (*output, *input) for every output and input.

    argnums, has_aux: as `grad`. chunk_size: how many rows are computed at once (default: all).
    RuntimeError for complex inputs or outputs; ValueError for a chunk_size that is not positive.
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args: Any) -> Any:
        no_complex("jacrev", args, True)
        output, vjp_fn, *aux = vjp_of(func, args, argnums, has_aux)
        outputs, out_spec = pytree.tree_flatten(output)
        no_complex("jacrev", outputs, False)
        inputs, in_spec = pytree.tree_flatten(picked(args, argnums))
        sizes = [t.numel() for t in outputs]
        total = sum(sizes)
        step = min(chunk_size or total, total) or 1
        parts = []
        for start in range(0, max(total, 1), step):
            basis = _basis(outputs, start, min(start + step, total))
            if step == 1 and chunk_size == 1:  # a plain loop, without what vmap cannot do
                rows = vjp_fn(pytree.tree_unflatten([t.squeeze(0) for t in basis], out_spec))
                parts.append([r.unsqueeze(0) for r in pytree.tree_leaves(rows)])
            else:
                parts.append(pytree.tree_leaves(vmap(vjp_fn)(pytree.tree_unflatten(basis, out_spec))))
        rows = parts[0] if len(parts) == 1 else [ops.cat(p, 0) for p in zip(*parts)]
        by_input = [r.split(sizes, 0) for r in rows]
        result = []
        for k, out in enumerate(outputs):
            own = [s[k].view((*out.shape, *x.shape)) for s, x in zip(by_input, inputs)]
            tree = pytree.tree_unflatten(own, in_spec)
            result.append(tree[0] if isinstance(argnums, int) else tree)
        jacobian = pytree.tree_unflatten(result, out_spec)
        return (jacobian, aux[0]) if has_aux else jacobian

    return wrapper


def jacfwd(func: Function, argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error") -> Function:
    """The Jacobian of `func`, by forward mode: as `jacrev`. randomness: as `vmap`."""

    @functools.wraps(func)
    def wrapper(*args: Any) -> Any:
        no_complex("jacfwd", args, True)
        inputs, in_spec = pytree.tree_flatten(args if argnums is None else picked(args, argnums))
        sizes = [x.numel() for x in inputs]
        basis = pytree.tree_unflatten(_basis(inputs, 0, sum(sizes)), in_spec)

        def push(tangents: Any) -> Any:
            out, moved, *aux = jvp_of(func, args, tangents, argnums, has_aux)
            no_complex("jacfwd", out, False)
            return (moved, aux[0]) if has_aux else moved

        columns = vmap(push, randomness=randomness)(basis)
        aux: Any = None
        if has_aux:
            columns, aux = columns
            aux = pytree.tree_map(lambda t: t[0], aux)
        flat, out_spec = pytree.tree_flatten(columns)
        result = []
        for c in flat:
            parts = c.movedim(0, -1).split(sizes, -1)
            own = [p.reshape((*p.shape[:-1], *x.shape)) for p, x in zip(parts, inputs)]
            tree = pytree.tree_unflatten(own, in_spec)
            result.append(tree[0] if isinstance(argnums, int) else tree)
        jacobian = pytree.tree_unflatten(result, out_spec)
        return (jacobian, aux) if has_aux else jacobian

    return wrapper


def hessian(func: Function, argnums: Any = 0) -> Function:
    """The matrix of second derivatives of `func`: forward mode over reverse mode."""
    return jacfwd(jacrev(func, argnums), argnums)


__all__ = ["hessian", "jacfwd", "jacrev"]
