"""`torch.fx.operator_schemas`: the arguments of a call, put in the places that a signature has for them.

Functions that PyTorch writes in Python have their own signature. Of others it is what ATen's schema says, if tabtorch knows it; it
knows none of those that write into `out`.
"""

from __future__ import annotations

import inspect
import numbers
import types
import typing
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import tabtorch
from tabtorch.core.tensor import Tensor
from tabtorch.export import schemas
from tabtorch.fx import _names
from tabtorch.ops.aten import Packet

__all__ = [
    "ArgsKwargsPair",
    "check_for_mutable_operation",
    "create_type_hint",
    "get_signature_for_torch_op",
    "normalize_function",
    "normalize_module",
    "type_matches",
]


class ArgsKwargsPair(NamedTuple):
    """Arguments by position and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_KINDS = {"T": Tensor, "S": numbers.Number, "i": int, "f": float, "b": bool, "s": str, "d": int, "m": int, "l": int}


def _annotation(p: Any) -> Any:
    kind: Any = tabtorch.device if p.kind == "D" else _KINDS.get(p.kind, Any)
    if p.many:
        kind = list[kind | None if p.elements_optional else kind]  # type: ignore[misc]
    return kind | None if p.optional else kind


def _signature(schema: Any) -> inspect.Signature:
    made: list[inspect.Parameter] = []
    for p in schema.parameters:
        default = inspect.Parameter.empty if p.default is schemas.REQUIRED else p.default
        kind: Any = inspect.Parameter.KEYWORD_ONLY if p.keyword else inspect.Parameter.POSITIONAL_OR_KEYWORD
        name = "input" if p.name == "self" else p.name
        if name == "from":  # no name that Python could call it by
            kind = inspect.Parameter.POSITIONAL_ONLY
            made = [q.replace(kind=kind) for q in made]
        made.append(inspect.Parameter(name, kind, default=default, annotation=_annotation(p)))
    return inspect.Signature(made)


def _schemas(op: Any) -> tuple[Any, ...] | None:
    """Those of a function of ours that PyTorch has compiled; None for others, and where none is known."""
    if isinstance(op, Packet):
        name, overload = op._name, getattr(op, "_overloadname", "")
        found = schemas.schemas(name)
        if overload:
            found = tuple([s for s in found if s.overload == overload.removesuffix("default")])
        return found or None
    space, _, short = (_names.public(op) or "").rpartition(".")
    if space not in ("torch", "torch._C._nn", "torch._C._fft", "torch._C._linalg", "torch._C._special"):
        return None
    return schemas.schemas(short) or None


def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signatures of a compiled function, one for each overload; None where they are not known."""
    found = _schemas(op)
    if found is None:
        return (None, None) if return_schemas else None
    signatures = [_signature(s) for s in found]
    return (signatures, list(found)) if return_schemas else signatures


def check_for_mutable_operation(target: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """RuntimeError for a call that writes to what it is given."""
    name = target._name if isinstance(target, Packet) else (_names.public(target) or "").rpartition(".")[2]
    ours = isinstance(target, Packet) or _names.public(target) is not None
    if ours and (kwargs.get("out") is not None or (name.endswith("_") and not name.endswith("__"))):
        raise RuntimeError(
            f"Tried to trace mutable operation {name}. FX only supports functional code, so operations that mutate operands in-place "
            "(e.g. via `out` arguments) are not supported"
        )


def create_type_hint(x: Any) -> Any:
    """A list or tuple of types as the type of such a list or tuple."""
    if not isinstance(x, (list, tuple)):
        return x

    def of(t: Any) -> Any:
        return list[t] if isinstance(x, list) else tuple[t, ...]

    try:
        if not x:
            return of(Any)
        base = x[0]
        for t in x:
            if issubclass(base, t):
                base = t
            elif not issubclass(t, base):
                return of(Any)
        return of(base)
    except Exception:
        warnings.warn(f"We were not able to successfully create type hint from the type {x}", stacklevel=2)
    return x


def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Whether an argument of one type fits a parameter of the other."""
    if signature_type is argument_type:
        return True
    origin = typing.get_origin(signature_type)
    if origin in (typing.Union, types.UnionType):
        return any(type_matches(t, argument_type) for t in typing.get_args(signature_type))
    if origin is list:
        element = typing.get_args(signature_type)[0]
        if argument_type is int and element is int:  # one number stands for all
            return True
        if not inspect.isclass(element):
            warnings.warn(
                f"Does not support nested parametric types, got {signature_type}. Please file a bug.", stacklevel=2
            )
            return False
        inner = typing.get_args(argument_type)
        if typing.get_origin(argument_type) is list:
            return issubclass(inner[0], element)
        return typing.get_origin(argument_type) is tuple and all(t is ... or issubclass(t, element) for t in inner)
    if signature_type is int and argument_type is tabtorch.dtype:
        return True
    if signature_type is numbers.Number and argument_type in (int, float):
        return True
    return (
        inspect.isclass(argument_type) and inspect.isclass(signature_type) and issubclass(argument_type, signature_type)
    )


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call with all defaults, by position as far as they were, or all by name. None: the signature is not known.

    arg_types, kwarg_types: types of the arguments, where several overloads take them. RuntimeError if it is not clear which.
    """
    kwargs = kwargs or {}
    only = normalize_to_only_use_kwargs
    signatures = get_signature_for_torch_op(target)
    if signatures is None:
        space = (_names.public(target) or "").rpartition(".")[0]
        if isinstance(target, Packet) or space == "torch" or space.startswith("torch._C."):
            return None
        return _normalized(_names.signature(target), args, kwargs, only)
    fitting = []
    for s in signatures:
        try:
            s.bind(*args, **kwargs)
        except TypeError:
            continue
        fitting.append(s)
    if len(fitting) == 1:
        return _normalized(fitting[0], args, kwargs, only)
    if not fitting:
        return None
    if arg_types is None and kwarg_types is None:
        said = "\n".join(map(str, fitting))
        raise RuntimeError(
            f"Tried to normalize arguments to {tabtorch.typename(target)} but the schema match was ambiguous! Please provide argument "
            f"types to the normalize_arguments() call. Available schemas:\n{said}"
        )
    for s in fitting:
        try:
            types = s.bind(*(arg_types or ()), **(kwarg_types or {})).arguments
        except TypeError:
            continue
        if all(type_matches(s.parameters[name].annotation, t) for name, t in types.items()):
            return _normalized(s, args, kwargs, only)
    return None


def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The same of a call of a submodule, if its class is one of torch.nn."""
    try:
        submod = root.get_submodule(target)
    except AttributeError as e:
        raise RuntimeError(f"Tried to normalize node with target {target} but root did not have that target!") from e
    if getattr(tabtorch.nn, type(submod).__name__, None) is not type(submod):
        return None
    sig = _names.signature(submod.forward)
    return _normalized(sig, args, kwargs or {}, normalize_to_only_use_kwargs)


def _normalized(sig: inspect.Signature, args: Any, kwargs: Any, only_kwargs: bool) -> ArgsKwargsPair | None:
    allowed = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(p.kind not in allowed for p in sig.parameters.values()):
        if list(sig.parameters) != ["input", "from", "to", "generator"]:  # of `random_`, which has no other name for it
            return None
    bound = sig.bind(*args, **kwargs)
    bound.apply_defaults()
    n = 0 if only_kwargs else len(args)
    names = list(sig.parameters)
    values = bound.arguments
    return ArgsKwargsPair(tuple([values[k] for k in names[:n]]), {k: values[k] for k in names[n:]})
