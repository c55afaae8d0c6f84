"""`torch.library.infer_schema`: the schema of a function, from its annotations."""

from __future__ import annotations

import collections.abc
import inspect
import typing
from collections.abc import Callable, Iterable
from types import GenericAlias, UnionType
from typing import Any, NoReturn

from tabtorch.base.device import device
from tabtorch.base.dtypes import dtype
from tabtorch.core.tensor import Tensor
from tabtorch.types import Number

#: Python's type; the schema's; whether there are lists of it, lists that may have None for one, None for the whole list
_BASES: tuple[tuple[Any, str, bool, bool, bool], ...] = (
    (Tensor, "Tensor", True, True, False),
    (int, "SymInt", True, False, True),
    (float, "float", True, False, True),
    (bool, "bool", True, False, True),
    (str, "str", False, False, False),
    (Number, "Scalar", True, False, False),
    (dtype, "ScalarType", False, False, False),
    (device, "Device", False, False, False),
)


def _lists(kind: Any) -> tuple[Any, ...]:
    return (
        typing.Sequence[kind],
        typing.List[kind],  # noqa: UP006
        GenericAlias(collections.abc.Sequence, (kind,)),
        GenericAlias(list, (kind,)),
    )


def _parameter_types() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for base, name, many, holes, none in _BASES:
        found[base] = name
        found[typing.Optional[base]] = f"{name}?"  # noqa: UP045
        if many:
            found.update(dict.fromkeys(_lists(base), f"{name}[]"))
        if holes:
            found.update(dict.fromkeys(_lists(typing.Optional[base]), f"{name}?[]"))  # noqa: UP045
        if none:
            found.update({typing.Optional[kind]: f"{name}[]?" for kind in _lists(base)})  # noqa: UP045
    return found


SUPPORTED_PARAM_TYPES = _parameter_types()
SUPPORTED_RETURN_TYPES: dict[Any, str] = {
    Tensor: "Tensor",
    typing.List[Tensor]: "Tensor[]",  # noqa: UP006
    list[Tensor]: "Tensor[]",
    int: "SymInt",
    float: "float",
    bool: "bool",
    Number: "Scalar",
}


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
    tags: Any = (),
) -> str:
    """The schema of a function, "(Tensor x, float y) -> Tensor", which its annotations tell; after `op_name`, if there is one.

    mutates_args: the arguments that it writes to, or "unknown": any tensor.
    """
    signature = inspect.signature(prototype_function)
    if not isinstance(mutates_args, str):
        mutates_args = tuple(mutates_args)

    def wrong(what: str) -> NoReturn:
        raise ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    def real(kind: Any) -> Any:
        """An annotation that is text, or has some in it, as the type."""
        if isinstance(kind, str):
            try:
                return eval(kind, prototype_function.__globals__)  # as `typing` does
            except NameError as e:
                wrong(
                    f"Unsupported type annotation {kind}. It is not a type. ({e}). If you are using 'from __future__ import "
                    "annotations', note that annotations are evaluated lazily as strings; make sure all types referenced in "
                    "annotations are importable at module scope, not only inside a local function."
                )
            except Exception as e:
                wrong(f"Unsupported type annotation {kind}. It is not a type. ({type(e).__name__}: {e})")
        origin = typing.get_origin(kind)
        if origin is not None and origin is not UnionType:
            inner = tuple(real(a) for a in typing.get_args(kind))
            if any(a is not b for a, b in zip(inner, typing.get_args(kind))):
                return GenericAlias(origin, inner)
        return kind

    params: list[str] = []
    for i, (name, param) in enumerate(signature.parameters.items()):
        if param.kind not in (param.POSITIONAL_OR_KEYWORD, param.KEYWORD_ONLY):
            wrong("We do not support positional-only args, varargs, or varkwargs.")
        if param.kind is param.KEYWORD_ONLY and "*" not in params:
            params.append("*")
        if param.annotation is param.empty:
            wrong(f"Parameter {name} must have a type annotation.")
        found = _supported(real(param.annotation), SUPPORTED_PARAM_TYPES)
        if found is None:
            wrong(_refusal(name, param.annotation, real(param.annotation)))
        if (
            mutates_args == "unknown"
            and found.startswith("Tensor")
            or mutates_args != "unknown"
            and name in mutates_args
        ):
            if not found.startswith("Tensor"):
                wrong(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated")
            found = f"Tensor(a{i}!){found[len('Tensor') :]}"
        params.append(f"{found} {name}" + _default(name, param, wrong))
    missing = set() if mutates_args == "unknown" else set(mutates_args) - set(signature.parameters)
    if missing:
        wrong(
            f"{missing} in mutates_args were not found in the custom op's signature. mutates_args should contain the names of "
            "all args that the custom op mutates, or just the string 'unknown' if you don't know."
        )
    return f"{op_name or ''}({', '.join(params)}) -> {_returned(real(signature.return_annotation), wrong)}"


def _supported(kind: Any, table: dict[Any, str]) -> str | None:
    try:
        return table.get(kind)
    except TypeError:  # an annotation that cannot be hashed
        return None


def _refusal(name: str, shown: Any, kind: Any) -> str:
    if typing.get_origin(kind) is not tuple:
        return f"Parameter {name} has unsupported type {shown}. The valid types are: {SUPPORTED_PARAM_TYPES.keys()}."
    args = [a for a in typing.get_args(kind) if a is not Ellipsis]
    alike: Any = list if not args else GenericAlias(list, (typing.Union.__getitem__(tuple(args)),))
    example = f"For example, {alike}.\n\n" if _supported(alike, SUPPORTED_PARAM_TYPES) else "\n\n"
    return (
        f"Parameter {name} has unsupported type {shown}. We do not support Tuple inputs in schema. As a workaround, please try to "
        f"use List instead. {example}The valid types are: {SUPPORTED_PARAM_TYPES.keys()}."
    )


def _default(name: str, param: inspect.Parameter, wrong: Callable[[str], NoReturn]) -> str:
    value = param.default
    if value is param.empty:
        return ""
    if value is None or isinstance(value, int | float):
        return f"={value}"
    if isinstance(value, str | device):
        return f'="{value}"'
    if isinstance(value, dtype):
        return f"={str(value).removeprefix('torch.')}"
    wrong(
        f"Parameter {name} has an unsupported default value type {type(value)}. "
        "Please file an issue on GitHub so we can prioritize this."
    )


def _returned(kind: Any, wrong: Callable[[str], NoReturn]) -> str:
    if kind is None:
        return "()"
    if kind is inspect.Parameter.empty:
        wrong("No return type annotation was provided. Please add one.")
    parts = typing.get_args(kind) if typing.get_origin(kind) is tuple else None
    names = [_supported(k, SUPPORTED_RETURN_TYPES) for k in (parts if parts is not None else (kind,))]
    if None in names:
        wrong(f"Return has unsupported type {kind}. The valid types are: {SUPPORTED_RETURN_TYPES}.")
    text = ", ".join(str(n) for n in names)
    if parts is None:
        return text
    return f"(({text}))" if len(parts) == 1 else f"({text})"
