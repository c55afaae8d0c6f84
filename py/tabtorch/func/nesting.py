"""What `grad`, `vjp` and the others do with the tape: arguments that a transform tracks, and results that leave it.

There is one tape. A tracked argument is an alias of what was given, recorded as its own function, so that a gradient for it
ends there, and goes on to what the argument came from where an outer transform asks. A result is cut from the tape where
nothing outside of the transform can be reached from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd import engine
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import LEAF, GradFn, edge, grad_class, next_seq
from tabtorch.core.tensor import Tensor
from tabtorch.ops.machinery import registry
from tabtorch.utils import _pytree as pytree

_new = object.__new__


class Nesting:
    """One transform. While its function runs, gradients may be taken with respect to what it tracks."""

    __slots__ = ("active", "recorded")

    def __enter__(self) -> Nesting:
        self.recorded = STATE.enabled()  # whether there was somebody outside to record for
        self.active = True
        STATE.nesting += 1
        STATE.enable(True)
        return self

    def __exit__(self, *exc: Any) -> None:
        self.active = False
        STATE.nesting -= 1
        STATE.enable(self.recorded)


class Alias(GradFn):
    """A tracked argument."""

    level: Nesting
    real = True  # it counts as a leaf

    def apply(self, g: Any) -> Any:
        return (g,)


def track(x: Any, level: Nesting) -> Tensor:
    """An alias of `x` that `level` can take gradients for. Another one stands for its place on the tape: see `place`."""
    if not isinstance(x, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
    if x._tab_meta.dtype.category < 2:
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    t = Tensor._view_of(x, x._tab_meta)
    fn: Any = _new(grad_class("AliasBackward0", Alias))
    fn.edges = ((x._tab_grad_fn or edge(x)) if x._tab_requires_grad and (level.recorded or STATE.duals) else None,)
    fn.metas = (x._tab_meta,)
    fn.outs = x._tab_meta
    fn.level = level
    fn.seq = next_seq()
    t._tab_requires_grad = True
    t._tab_grad_fn = fn
    return t


def places(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Stand-ins that keep the tensors' places on the tape, whatever is written to them."""
    return [t._tab_shallow() for t in tensors]


def alive(roots: Iterable[Tensor], own: Nesting | None = None) -> bool:
    """Whether a gradient of one of them could be asked for from outside of `own`."""
    stack = [t._tab_grad_fn or edge(t) for t in roots if t._tab_requires_grad]
    seen: set[Any] = set()
    duals: Any = ()
    if STATE.duals:
        duals = _lazy.forward_ad.STACK
    while stack:
        e = stack.pop()
        if e is None:
            continue
        if e.edge_kind == LEAF:
            return True
        fn = e.fn
        if fn in seen:
            continue
        seen.add(fn)
        if isinstance(fn, Alias):
            if fn.level.active and fn.level is not own:
                return True
        elif fn.tangents and any(level in fn.tangents for level in duals):
            return True
        stack.extend(fn.edges)
    return False


def originals(given: Any, tracked: Any) -> dict[int, tuple[Any, Any, Any]]:
    """For `settled`: what was tracked, by the id of what stands for it."""
    pairs = zip(pytree.tree_leaves(given), pytree.tree_leaves(tracked), strict=True)
    return {id(t): (x, t, t._tab_grad_fn) for x, t in pairs}


def settled(tree: Any, recorded: bool, given: dict[int, tuple[Any, Any, Any]] | None = None) -> Any:
    """A transform's result as it is outside: not on the tape if nothing was recorded there. `given`: what `originals` gave."""

    recorded = recorded or bool(STATE.duals)

    def one(t: Any) -> Any:
        if given is not None and id(t) in given:
            x, _, fn = given[id(t)]
            if t._tab_grad_fn is fn:  # nothing was written to it: it is what the transform was given
                return x
        if not isinstance(t, Tensor) or not t._tab_requires_grad or (t._tab_grad_fn is None and not t._tab_stale):
            return t
        return t if recorded and alive((t,)) else t.detach()

    return pytree.tree_map(one, tree)


def gradients(
    outputs: list[Tensor], inputs: list[Tensor], cotangents: Any, retain_graph: bool, create_graph: bool
) -> list[Tensor]:
    """Gradients of the outputs; zeros where one does not depend on an input."""
    zeros: Any = registry.function("zeros_like")
    given = cotangents if cotangents is not None else [None] * len(outputs)
    used = [(o, c) for o, c in zip(outputs, given) if o._tab_requires_grad]
    if not used:
        return [zeros(x.detach()) for x in inputs]
    roots, seeds = zip(*used)
    found = engine.grad(roots, inputs, seeds, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True)
    return [zeros(x.detach()) if g is None else g for x, g in zip(inputs, found)]


# ---- which arguments


def picked(args: Any, argnums: Any, as_tuple: bool = True) -> Any:
    """The arguments that `argnums` names. RuntimeError as PyTorch's."""
    if not isinstance(argnums, int) and not isinstance(argnums, tuple):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    numbers = checked(argnums, len(args))
    if isinstance(numbers, int):
        return (args[numbers],) if as_tuple else args[numbers]
    return tuple([args[i] for i in numbers])


def checked(argnums: Any, count: int) -> Any:
    """`argnums`, counted from the front."""
    if isinstance(argnums, int):
        return _wrapped(argnums, count)
    if not isinstance(argnums, tuple):
        raise AssertionError("Should never get here")
    if not argnums:
        raise RuntimeError("argnums must be non-empty")
    if len(set(argnums)) != len(argnums):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return tuple([_wrapped(i, count) for i in argnums])


def _wrapped(i: Any, count: int) -> int:
    if not isinstance(i, int):
        raise RuntimeError(f"argnum must be int, got: {type(i)}")
    if 0 <= i < count:
        return i
    if -count <= i < 0:
        return i + count
    raise RuntimeError(f"Got argnum={i}, but only {count} positional inputs")


def replaced(args: Any, new: Any, argnums: Any) -> tuple[Any, ...]:
    """`args` with those of `argnums` replaced; `new` is what `picked` gave, worked over."""
    numbers = checked(argnums, len(args))
    if isinstance(numbers, int):
        numbers, new = (numbers,), new if isinstance(new, tuple) and len(new) == 1 else (new,)
    out = list(args)
    for i, x in zip(numbers, new, strict=True):
        out[i] = x
    return tuple(out)


# ---- results of the function


def with_aux(who: str, out: Any) -> tuple[Any, Any]:
    if not (isinstance(out, tuple) and len(out) == 2):
        raise RuntimeError(f"{who}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return out


def only_tensors(flat: list[Any], api: str) -> None:
    if not flat:
        raise RuntimeError(f"{api}: Expected f to be a function that has non-empty output (got output = {flat})")
    for t in flat:
        if not isinstance(t, Tensor):
            raise RuntimeError(f"{api}: expected f(*primals) to return only tensors, got unsupported type {type(t)}")


def no_complex(name: str, tree: Any, is_input: bool) -> None:
    for i, x in enumerate(pytree.tree_leaves(tree)):
        if isinstance(x, Tensor) and x.is_complex():
            raise RuntimeError(
                f"{name}: Expected all {'inputs' if is_input else 'outputs'} to be real but received complex tensor at "
                f"flattened input idx: {i}"
            )


Function = Callable[..., Any]
