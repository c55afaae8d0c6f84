"""`torch.library.opcheck`: whether an operator does what it was registered with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tabtorch as torch
from tabtorch import Tensor
from tabtorch._library.schemas import tensors
from tabtorch.library import CustomOpDef, Operator, OperatorPacket, memory
from tabtorch.utils._pytree import tree_map

__all__ = ["OpCheckError", "opcheck"]


class OpCheckError(Exception):
    """A test of `opcheck` that failed."""


def _copied(values: Any) -> Any:
    def copy(x: Any) -> Any:
        return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x

    return tree_map(copy, values)


def _equal(a: Tensor, b: Tensor) -> bool:
    return bool(torch.all(torch.eq(a, b) | (torch.ne(a, a) & torch.ne(b, b))))


def _schema(op: Operator, args: Any, kwargs: Any, **near: Any) -> None:
    """Arguments are written to, and returned, only as the schema says."""
    args, kwargs = _copied((args, kwargs))
    before = _copied((args, kwargs))
    with torch.no_grad():
        result = op(*args, **kwargs)
    schema = op._schema
    names = [a.name for a in schema.positional[: len(args)]]
    given = dict(zip([*names, *kwargs], [*args, *kwargs.values()]))
    old = dict(zip([*names, *kwargs], [*before[0], *before[1].values()]))
    results = result if isinstance(result, tuple) else (result,)
    shown = {r.alias_info.before_set for r in schema.returns if r.alias_info is not None}
    for a in schema.arguments:
        mine = tensors(given.get(a.name))
        if not a.is_write and not all(_equal(x, y) for x, y in zip(mine, tensors(old.get(a.name)))):
            raise RuntimeError(f"Argument {a.name} is not defined as mutable but was mutated")
        alike = a.alias_info is not None and a.alias_info.before_set in shown
        if not alike and {memory(x) for x in mine} & {memory(y) for y in tensors(results)}:
            raise RuntimeError(f"Argument {a.name} is not defined to alias output but was aliasing")
    for i, x in enumerate(results):
        for j in range(i + 1, len(results)):
            if {memory(t) for t in tensors(x)} & {memory(t) for t in tensors(results[j])}:
                raise RuntimeError(f"Outputs {i} and {j} alias unexpectedly")


def _autograd(op: Operator, args: Any, kwargs: Any, **near: Any) -> None:
    """Gradients come of a formula or a kernel for autograd, not of what a kernel of a device happens to record."""
    if not any(t.requires_grad for t in tensors((args, kwargs))):
        return
    known = op._definition is not None or op._formula is not None or "CompositeImplicitAutograd" in op._kernels
    if known or any(key.startswith("Autograd") for key in op._kernels):
        return
    args, kwargs = _copied((args, kwargs))
    kernel = op._kernel(op._own(args, kwargs, tensors((args, kwargs))))
    given = {id(t) for t in tensors((args, kwargs))}
    if any(t.requires_grad and id(t) not in given for t in tensors(kernel(*args, **kwargs))):
        raise AssertionError(
            f"{op.name()}: at least one output of this operator has requires_grad=True but the operator does not have an autograd "
            "kernel defined at an autograd key (e.g. DispatchKey::Autograd). This could mean that you have incorrectly registered "
            "an autograd kernel to a non-Autograd DispatchKey, which may lead to silently incorrect results. If your operator "
            "consists of regular PyTorch operations, consider not using an operator at all or registering your operator as "
            "CompositeImplicitAutograd. If you have an autograd.Function registered to a backend (CPU/CUDA/XPU) key, the correct "
            "location for it is the Autograd key."
        )


def _fake(op: Operator, args: Any, kwargs: Any, **near: Any) -> None:
    """On the meta device it gives tensors of the same shapes, strides and types."""
    args, kwargs = _copied((args, kwargs))
    flat = tree_map(lambda x: x.detach().to("meta") if isinstance(x, Tensor) else x, (args, kwargs))
    with torch.no_grad():
        got, want = tensors(op(*flat[0], **flat[1])), tensors(op(*args, **kwargs))
    if len(got) != len(want):
        raise AssertionError(f"{op}: the fake gives {len(got)} tensors, the operator {len(want)}")
    for a, b in zip(got, want):
        for what, x, y in (
            ("Shapes", a.shape, b.shape),
            ("Dtypes", a.dtype, b.dtype),
            ("Strides", a.stride(), b.stride()),
        ):
            if x != y:
                raise AssertionError(f"{what} {x} and {y} are not equal!")


def _compiled(op: Operator, args: Any, kwargs: Any, **near: Any) -> None:
    """The same values and gradients inside of `torch.compile`; its fake is right."""
    _fake(op, args, kwargs)
    found = []
    for run in (op, torch.compile(lambda *a, **k: op(*a, **k))):
        ours, named = _copied((args, kwargs))
        out = [t for t in tensors(run(*ours, **named)) if isinstance(t, Tensor)]
        wanted = [t for t in tensors((ours, named)) if t.requires_grad]
        follows = [t for t in out if t.requires_grad]
        grads: Any = ()
        if wanted and follows:
            grads = torch.autograd.grad([t.sum() for t in follows], wanted, allow_unused=True)
        found.append([t.detach() for t in (*out, *tensors(ours), *grads) if t is not None])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, **near)


_TESTS: dict[str, Callable[..., None]] = {
    "test_schema": _schema,
    "test_autograd_registration": _autograd,
    "test_faketensor": _fake,
    "test_aot_dispatch_static": _compiled,
    "test_aot_dispatch_dynamic": _compiled,
}


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    test_utils: Any,
    raise_exception: bool,
    rtol: float | None,
    atol: float | None,
) -> dict[str, Any]:
    """See `torch.library.opcheck`."""
    if (rtol is None) != (atol is None):
        raise ValueError("opcheck(op, ...): if you specify one of rtol/atol, you must specify both")
    if isinstance(op, CustomOpDef):
        op = op._opoverload
    if isinstance(op, OperatorPacket) and len(op.overloads()) == 1:
        op = getattr(op, op.overloads()[0])
    if not isinstance(op, Operator):
        raise ValueError(
            "opcheck(op, ...): op must be instance of torch._ops.OpOverload, e.g. torch.ops.aten.sin.default, got "
            f"{type(op)} (here: an operator of torch.library)"
        )
    names = tuple(_TESTS) if test_utils == "ALL" else (test_utils,) if isinstance(test_utils, str) else test_utils
    if not set(names) <= set(_TESTS):
        raise ValueError(
            f"opcheck(op, ..., test_utils={names}), expected test_utils to be subset of {tuple(_TESTS)} but it was not"
        )
    found: dict[str, Any] = {}
    for name in names:
        try:
            _TESTS[name](op, args, kwargs or {}, rtol=rtol, atol=atol)
            found[name] = "SUCCESS"
        except Exception as e:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {e} (scroll up for stack trace)") from e
            found[name] = e
    return found
