"""PyTorch's words for a call whose arguments fit no overload, for the functions that are called most. Asked only when a call failed."""

from __future__ import annotations

from typing import Any

from tabtorch.base import dtypes
from tabtorch.ops.machinery.arguments import class_name, must_be_tensor
from tabtorch.ops.machinery.registry import missing

_OUT, _OUTS, _DTYPE = "Tensor out = None", "tuple of Tensors out = None", "torch.dtype dtype = None"
_KEEP = "bool keepdim = False"
_SPREAD = (
    f"Tensor input, tuple of ints dim, bool unbiased = True, {_KEEP}, *, {_OUT}",
    f"Tensor input, tuple of ints dim = None, *, Number correction = None, {_KEEP}, {_OUT}",
    "Tensor input, bool unbiased = True",
)
_EXTREME = (
    f"Tensor input, *, {_OUT}",
    f"Tensor input, Tensor other, *, {_OUT}",
    f"Tensor input, int dim, {_KEEP}, *, {_OUTS}",
)
_LOGIC = (
    f"Tensor input, *, {_OUT}",
    f"Tensor input, tuple of ints dim = None, {_KEEP}, *, {_OUT}",
    f"Tensor input, int dim, {_KEEP}, *, {_OUT}",
)
_ARG = (f"Tensor input, int dim = None, {_KEEP}, *, {_OUT}",)
_SCAN = (f"Tensor input, int dim, *, {_DTYPE}, {_OUT}",)
_ORDER = "int dim = -1, bool descending = False"
_TWO = (f"Tensor input, Tensor mat2, *, {_OUT}",)

#: name -> PyTorch's overloads; a method's have no `input` and no `out`
SIGNATURES: dict[str, tuple[str, ...]] = {
    "sum": (f"Tensor input, *, {_DTYPE}", f"Tensor input, tuple of ints dim, {_KEEP}, *, {_DTYPE}, {_OUT}"),
    "mean": (f"Tensor input, *, {_DTYPE}, {_OUT}", f"Tensor input, tuple of ints dim, {_KEEP}, *, {_DTYPE}, {_OUT}"),
    "prod": (f"Tensor input, *, {_DTYPE}", f"Tensor input, int dim, {_KEEP}, *, {_DTYPE}, {_OUT}"),
    "max": _EXTREME,
    "min": _EXTREME,
    "all": _LOGIC,
    "any": _LOGIC,
    "std": _SPREAD,
    "var": _SPREAD,
    "median": ("Tensor input", f"Tensor input, int dim, {_KEEP}, *, {_OUTS}"),
    "sort": (
        f"Tensor input, *, bool stable, {_ORDER}, {_OUTS}",
        f"Tensor input, {_ORDER}, *, {_OUTS}",
    ),
    "argsort": (f"Tensor input, *, bool stable, {_ORDER}, {_OUT}", f"Tensor input, {_ORDER}"),
    "argmax": _ARG,
    "argmin": _ARG,
    "cumsum": _SCAN,
    "cumprod": _SCAN,
    "squeeze": ("Tensor input", "Tensor input, int dim", "Tensor input, tuple of ints dim"),
    "topk": (f"Tensor input, int k, int dim = -1, bool largest = True, bool sorted = True, *, {_OUTS}",),
    "kthvalue": (f"Tensor input, int k, int dim = -1, {_KEEP}, *, {_OUTS}",),
    "matmul": (f"Tensor input, Tensor other, *, {_OUT}",),
    "mm": _TWO,
    "bmm": _TWO,
    "mv": (f"Tensor input, Tensor vec, *, {_OUT}",),
    "dot": (f"Tensor input, Tensor tensor, *, {_OUT}",),
    "outer": (f"Tensor input, Tensor vec2, *, {_OUT}",),
}


#: the options of what makes a new tensor
NEW = (
    "Tensor out = None, torch.dtype dtype = None, torch.layout layout = None, torch.device device = None, "
    "bool pin_memory = False, bool requires_grad = False"
)


def listed(*overloads: str) -> str:
    """Overloads as PyTorch's messages show them."""
    return "one of:\n" + "".join(f" * ({o})\n" for o in overloads)


def types_given(args: tuple[Any, ...], kw: dict[str, Any]) -> str:
    """The types of the arguments of a call, as PyTorch's messages show them."""
    got = ", ".join(map(class_name, args))
    named = "".join(f"{k}={class_name(v)}, " for k, v in kw.items())
    return f"{got}, {named[:-2]}" if got and named else got or named


def wrong_arguments(name: str, args: tuple[Any, ...], kw: dict[str, Any], expected: str) -> TypeError:
    """What PyTorch's parser says of a call that fits none of the overloads that are `expected`."""
    return TypeError(
        f"{name}() received an invalid combination of arguments - got ({types_given(args, kw)}), but expected {expected}"
    )


def spread(name: str, tensor: Any, parameter: str, given: tuple[Any, ...]) -> TypeError:
    """What PyTorch says where a function was given numbers one by one, as only its method takes them."""
    if parameter == "more":
        complain(name, (tensor, *given), {}, False)
    if len(given) > 1:
        return TypeError(f"{name}() takes 2 positional arguments but {1 + len(given)} were given")
    kind = class_name(given[0])
    return TypeError(f"{name}(): argument '{parameter}' (position 2) must be tuple of ints, not {kind}")


def too_many(name: str, least: int, most: int, more: tuple[Any, ...]) -> TypeError:
    """What Python says of arguments by position that a function has no parameters for, had its required ones no defaults."""
    takes = (
        f"{most} positional argument{'' if most == 1 else 's'}"
        if least == most
        else f"from {least} to {most} positional arguments"
    )
    return TypeError(f"{name}() takes {takes} but {most + len(more)} were given")


class Overload:
    """One overload: (type, name, whether it may be left out) of each parameter, those from `positional` on by name only."""

    def __init__(self, text: str, method: bool) -> None:
        parts = [p for p in text.split(", ") if not method or (p != "Tensor input" and " out = " not in p)]
        if parts and parts[-1] == "*":
            parts.pop()
        self.text = ", ".join(parts)
        self.size = max(len(parts), 1)  # as PyTorch counts, with the star
        self.positional = parts.index("*") if "*" in parts else len(parts)
        self.parameters = []
        for p in parts:
            if p != "*":
                head, _, default = p.partition(" = ")
                kind, _, name = head.rpartition(" ")
                self.parameters.append((kind, name, default))
        self.least = sum(not default for _, _, default in self.parameters)

    def takes(self, args: tuple[Any, ...], kw: dict[str, Any]) -> bool:
        given = self.bound(args, kw)
        return given is not None and all(
            _fits(given[name], kind, default) if name in given else bool(default)
            for kind, name, default in self.parameters
        )

    def bound(self, args: tuple[Any, ...], kw: dict[str, Any]) -> dict[str, Any] | None:
        """Arguments by name; None where there is no parameter for one."""
        if len(args) > self.positional:
            alone = self.positional == 1 and self.parameters[0][0] == "tuple of ints" and not self.parameters[0][2]
            whole = alone and _fits(args, "tuple of ints", "")  # numbers one by one
            if not whole:
                return None
            args = (args,)
        given = {name: v for (_, name, _), v in zip(self.parameters, args)}
        if any(k in given for k in kw) or not kw.keys() <= {name for _, name, _ in self.parameters}:
            return None
        return given | kw


def _fits(v: Any, kind: str, default: str) -> bool:
    if v is None:
        return default == "None"
    tensor = hasattr(v, "_tab_meta")
    if kind == "Tensor":
        return tensor
    if kind == "bool":
        return isinstance(v, bool)
    if kind == "torch.dtype":
        return isinstance(v, dtypes.dtype) or v in (float, int, bool, complex)
    whole = (tensor and not v._tab_meta.ndim and v._tab_meta.dtype.category < 2) or (
        not tensor and hasattr(v, "__index__")
    )
    if kind == "int":
        return bool(whole)
    if kind == "Number":
        return (tensor and not v._tab_meta.ndim) or (not tensor and hasattr(v, "__float__")) or isinstance(v, complex)
    if kind == "tuple of ints":
        return bool(whole) or (isinstance(v, (tuple, list)) and all(_fits(x, "int", "") for x in v))
    return isinstance(v, (tuple, list)) and all(hasattr(x, "_tab_meta") for x in v)


def complain(name: str, args: tuple[Any, ...], kw: dict[str, Any], method: bool) -> None:
    """TypeError as PyTorch's parser raises it, if the arguments (for a method those behind the tensor) fit no overload."""
    found = SIGNATURES.get(name)
    if found is None:
        return
    overloads = [Overload(text, method) for text in found]
    if any(o.takes(args, kw) for o in overloads):
        return
    number = len(args) + len(kw)
    plausible = [o for o in overloads if o.least <= number <= len(o.parameters)] if len(overloads) > 1 else overloads
    if len(plausible) == 1:
        _alone(name, plausible[0], args, kw)
        return
    lines = []
    for o in overloads:
        lines.append(f" * ({o.text})\n")
        if o.size != len(args) + len(kw):
            continue
        names = {n for _, n, _ in o.parameters}
        unknown = [k for k in kw if k not in names]
        if unknown:
            lines.append(f"      didn't match because some of the keywords were incorrect: {', '.join(unknown)}\n")
        else:
            lines.append(
                f"      didn't match because some of the arguments have invalid types: ({_judged(o, args, kw)})\n"
            )
    raise wrong_arguments(name, args, kw, "one of:\n" + "".join(lines)) from None


def _judged(o: Overload, args: tuple[Any, ...], kw: dict[str, Any]) -> str:
    """The types of the arguments, between exclamation marks where they are wrong."""
    kinds = {n: (k, d) for k, n, d in o.parameters}
    pairs = [
        ("", v, (o.parameters[j][0], o.parameters[j][2]) if j < len(o.parameters) else ("", ""))
        for j, v in enumerate(args)
    ]
    pairs += [(f"{k}=", v, kinds[k]) for k, v in kw.items()]
    return ", ".join(f"{n}{class_name(v)}" if _fits(v, *kind) else f"!{n}{class_name(v)}!" for n, v, kind in pairs)


def _alone(name: str, o: Overload, args: tuple[Any, ...], kw: dict[str, Any]) -> None:
    """The same where there is but one overload, or one alone takes so many arguments."""
    names = [n for _, n, _ in o.parameters]
    given = {**dict(zip(names, args)), **kw}
    lacking = [n for _, n, default in o.parameters if not default and n not in given]
    if lacking:
        raise missing(name, lacking) from None
    unknown = [k for k in kw if k not in names]
    if unknown:
        raise TypeError(f"{name}() got an unexpected keyword argument '{unknown[0]}'") from None
    if len(args) > o.positional:
        s = "" if o.positional == 1 else "s"
        raise TypeError(f"{name}() takes {o.positional} positional argument{s} but {len(args)} were given") from None
    for j, (kind, n, default) in enumerate(o.parameters):
        if n in given and not _fits(given[n], kind, default):
            if kind == "Tensor":
                raise must_be_tensor(name, n, j, given[n]) from None
            place = f" (position {j + 1})" if j < len(args) else ""
            raise TypeError(f"{name}(): argument '{n}'{place} must be {kind}, not {class_name(given[n])}") from None
