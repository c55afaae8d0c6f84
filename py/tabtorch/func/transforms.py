"""`grad`, `grad_and_value`, `vjp`, and `functionalize`."""

from __future__ import annotations

import functools
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.func.batch import Batch
from tabtorch.func.nesting import (
    Function,
    Nesting,
    alive,
    gradients,
    only_tensors,
    originals,
    picked,
    places,
    replaced,
    settled,
    track,
    with_aux,
)
from tabtorch.utils import _pytree as pytree


def grad_and_value(func: Function, argnums: Any = 0, has_aux: bool = False) -> Function:
    """`func`, which gives one number, as a function that gives (gradient, value).

    argnums: the argument, or a tuple of them, that the gradient is taken for; it has their structure.
    has_aux: `func` gives (value, aux); the result is (gradient, (value, aux)).
    RuntimeError if the value is no 0-dimensional tensor.
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        who = "grad_and_value(f)(*args)"
        with Nesting() as level:
            wanted = picked(args, argnums, False)
            tracked = pytree.tree_map(lambda x: track(x, level), wanted)
            flat, spec = pytree.tree_flatten(tracked)
            inputs = places(flat)
            one = isinstance(argnums, int)
            output = func(*replaced(args, (tracked,) if one else tracked, argnums), **kwargs)
            aux = None
            if has_aux:
                output, aux = with_aux(who, output)
            if not isinstance(output, Tensor):
                raise RuntimeError(f"{who}: Expected f(*args) to return a Tensor, got {type(output)}")
            if output.dim():
                raise RuntimeError(
                    f"{who}: Expected f(*args) to return a scalar Tensor, got tensor with {output.dim()} dims. Maybe you "
                    "wanted to use the vjp or jacrev APIs instead?"
                )
            again = (level.recorded or bool(STATE.duals)) and alive((output,), level)
            grads = pytree.tree_unflatten(gradients([output], inputs, None, again, again), spec)
        grads, output, aux = settled((grads, output, aux), level.recorded, originals(wanted, tracked))
        return (grads, (output, aux)) if has_aux else (grads, output)

    return wrapper


def grad(func: Function, argnums: Any = 0, has_aux: bool = False) -> Function:
    """`func`, which gives one number, as a function that gives its gradient: see `grad_and_value`."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        grads, rest = both(*args, **kwargs)
        return (grads, rest[1]) if has_aux else grads

    return wrapper


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """(func(*primals), a function from cotangents of that to those of the primals), and aux if `has_aux`.

    RuntimeError for outputs that are no floating point or complex tensors, and for cotangents of another structure.
    """
    return vjp_of(func, primals, None, has_aux)


def vjp_of(func: Function, primals: tuple[Any, ...], argnums: Any, has_aux: bool) -> Any:
    with Nesting() as level:
        wanted = primals if argnums is None else picked(primals, argnums, False)
        tracked = pytree.tree_map(lambda x: track(x, level), wanted)
        flat, spec = pytree.tree_flatten(tracked)
        inputs = places(flat)
        if argnums is None:
            args = tracked
        else:
            args = replaced(primals, (tracked,) if isinstance(argnums, int) else tracked, argnums)
        out = func(*args)
        aux: Any = None
        if has_aux:
            out, aux = with_aux("vjp(f, *primals)", out)
        outputs, out_spec = pytree.tree_flatten(out)
        only_tensors(outputs, "vjp(f, *primals)")
        for t in outputs:
            if t._tab_meta.dtype.category < 2:
                raise RuntimeError(
                    "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor "
                    f"with dtype {t.dtype}"
                )
        outputs = places(outputs)
        lasting = alive(outputs, level)
    results, aux = settled((out, aux), level.recorded, originals(wanted, tracked))

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given, given_spec = pytree.tree_flatten(cotangents)
        if given_spec != out_spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                f"cotangents: {pytree.treespec_pprint(given_spec)}, primal output: {pytree.treespec_pprint(out_spec)}"
            )
        recorded = STATE.enabled() or bool(STATE.duals) if create_graph is None else create_graph
        again = recorded and (lasting or any(isinstance(c, Tensor) and c._tab_requires_grad for c in given))
        grads = gradients(outputs, inputs, given, retain_graph, again)
        return settled(pytree.tree_unflatten(grads, spec), again)

    return (results, vjp_fn, aux) if has_aux else (results, vjp_fn)


def functionalize(func: Function, *, remove: str = "mutations") -> Function:
    """`func` itself: every operation here is functional below, in-place and view operations too, whatever runs them.

    What `func` writes to its arguments is written to them, as in PyTorch. There is no graph to see the difference in.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are:\n"
            "     remove='mutations': all inplace and out= operators will be removed from the program, and replaced with their "
            "out-of-place equivalents.\n"
            "     remove='mutations_and_views': In addition to the above, all aliasing operators {view} will be replaced with "
            "their non-aliasing counterparts, {view}_copy.\n"
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapped


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """What is below a batched tensor: the values of all examples, the innermost batch first. For debugging only."""
    b: Any = tensor._tab_storage.node.buf
    while type(b) is Batch:
        tensor = _lazy.batch.leave(tensor.detach(), b.level)
        b = tensor._tab_storage.node.buf if recurse else None
    return tensor


__all__ = ["debug_unwrap", "functionalize", "grad", "grad_and_value", "vjp"]
