"""`torch.vmap`: a function of one example becomes one of a batch of them. How it batches is in batch.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch.core.tensor import Tensor
from tabtorch.func.batch import Level, enter, leave, unwrap_level
from tabtorch.utils import _pytree as pytree


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """`func` for every example of a batch at once.

    in_dims: the dimension of each argument along which its examples lie, None where it is the same for all: an int for all
        arguments, or a tuple with the structure of the arguments. out_dims: likewise for the results.
    randomness: "error", "same" or "different": what random operations in `func` do.
    chunk_size: how many examples are computed at once (default: all).
    ValueError for dimensions that do not fit; RuntimeError for what cannot be batched, such as `.item()`.
    https://docs.pytorch.org/docs/stable/generated/torch.vmap.html
    """
    _check_randomness(randomness)
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not isinstance(out_dims, int):
            pytree.tree_map_(lambda d: _check_out_dim(d, func, out_dims), out_dims)
        size, dims, flat, spec = _inputs(in_dims, args, func)
        if chunk_size is None:
            return _run(func, size, dims, flat, spec, out_dims, randomness, kwargs)
        return _chunked(func, size, dims, flat, spec, out_dims, randomness, kwargs, chunk_size)

    return wrapped


def _check_randomness(randomness: str) -> None:
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")


def _name(func: Any) -> str:
    if hasattr(func, "__name__"):
        return str(func.__name__)
    if isinstance(func, functools.partial):
        return f"functools.partial({_name(func.func)}, ...)"
    return repr(func)


def _check_out_dim(d: Any, func: Any, out_dims: Any) -> None:
    if not (d is None or isinstance(d, int)):
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
            "representing where in the outputs the vmapped dimension should appear."
        )


def _inputs(in_dims: Any, args: tuple[Any, ...], func: Any) -> tuple[int, list[int | None], list[Any], Any]:
    """(size of the batch, dimension of each leaf, the leaves, their structure)."""
    who = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>): "
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{who}expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got: "
            f"{type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
            "function with no inputs. The latter is unsupported."
        )
    flat, spec = pytree.tree_flatten(args)
    dims = pytree._broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{who}in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{pytree.tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    sizes = []
    for i, (x, d) in enumerate(zip(flat, dims)):
        if d is None:
            continue
        if not isinstance(d, int):
            raise ValueError(
                f"{who}Got in_dim={d} for an input but in_dim must be either an integer dimension or None."
            )
        if not isinstance(x, Tensor):
            raise ValueError(
                f"{who}Got in_dim={d} for an input but the input is of type {type(x)}. We cannot vmap over non-Tensor "
                "arguments, please use None as the respective in_dim"
            )
        n = x.dim()
        if not -n <= d < n:
            raise ValueError(
                f"{who}Got in_dim={d} for some input, but that input is a Tensor of dimensionality {n} so expected in_dim to "
                f"satisfy -{n} <= in_dim < {n}."
            )
        dims[i] = d % n
        sizes.append(x.size(d))
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(n != sizes[0] for n in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0], dims, flat, spec


def _run(
    func: Any, size: int, dims: Any, flat: list[Any], spec: Any, out_dims: Any, randomness: str, kwargs: dict[str, Any]
) -> Any:
    with Level(size, randomness) as level:
        ones = [x if d is None else enter(x, level, d) for x, d in zip(flat, dims)]
        written = [(x, d, t, t._tab_storage.version) for x, d, t in zip(flat, dims, ones) if d is not None]
        out = func(*pytree.tree_unflatten(ones, spec), **kwargs)
        for x, d, t, version in written:
            if t._tab_storage.version != version:  # a write to an example is one to the argument
                x.copy_(leave(t, level, d))
        return _outputs(func, out, out_dims, level)


def _outputs(func: Any, out: Any, out_dims: Any, level: Level) -> Any:
    flat, spec = pytree.tree_flatten(out)
    dims: Any
    if isinstance(out, Tensor):
        dims = [out_dims] if out_dims is None or isinstance(out_dims, int) else None
        if isinstance(out_dims, tuple) and len(out_dims) == 1:
            dims = list(out_dims)
    else:
        dims = pytree._broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
            f"`outputs`. out_dims has structure {pytree.tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )
    name = _name(func)
    return pytree.tree_unflatten([_output(name, t, d, level) for t, d in zip(flat, dims)], spec)


def _output(name: str, t: Any, d: int | None, level: Level) -> Any:
    if d is None:
        if isinstance(t, Tensor) and unwrap_level(t._tab_storage.node, level):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return t
    if not isinstance(t, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(t)}. "
            "Did you mean to set out_dims= to None for output?"
        )
    n = t.dim() + 1
    if not -n <= d < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {d})")
    return leave(t, level, d % n)


def _chunked(
    func: Any,
    size: int,
    dims: list[int | None],
    flat: list[Any],
    spec: Any,
    out_dims: Any,
    randomness: str,
    kwargs: dict[str, Any],
    chunk_size: int,
) -> Any:
    state = _lazy.random.get_rng_state() if randomness == "same" else None
    parts: list[list[Any]] = []
    out_spec: Any = None
    for start in range(0, size, chunk_size):
        n = min(chunk_size, size - start)
        if state is not None:
            _lazy.random.set_rng_state(state)
        given = [x if d is None else x.narrow(d, start, n) for x, d in zip(flat, dims)]
        leaves, out_spec = pytree.tree_flatten(_run(func, n, dims, given, spec, out_dims, randomness, kwargs))
        parts.append(leaves)
    where = pytree._broadcast_to_and_flatten(out_dims, out_spec)
    if where is None:  # one tensor, and its dimension in a tuple
        where = list(out_dims)
    joined = [p[0] if d is None else _lazy.ops.cat(p, dim=d) for p, d in zip(zip(*parts), where)]
    return pytree.tree_unflatten(joined, out_spec)


__all__ = ["vmap"]
