"""Which function is which operator: its parameters are ONNX's inputs, its keywords ONNX's attributes.

`@operator("Softmax", since=13)` before `def softmax(x: Tensor, *, axis: int = -1)`. What an input is given as follows from its
annotation: `Tensor` (the default), or a host's value (`Ints`, `Int`, `Floats`, `Float`, `Bool`, `Text`), or `Any`: as it comes,
a tensor, a `Known`, a list or None. Of several versions the latest counts that is not later than the model's opset.
Three keywords are no attributes: `outputs` is how many outputs the node has, `run` what the model runs on, `opset` the version.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from tabtorch.core import tensor
from tabtorch.onnx.values import Known, to_known

# what an input is given as: names for annotations, which `described` reads as text
Tensor = Any
Ints = list[int]
Floats = list[float]
Int = int
Float = float
Bool = bool
Number = float
Host = Known

#: what the host is to know of an input, by annotation
_HOST: dict[str, Callable[[Known], Any]] = {
    "Ints": lambda k: [int(v) for v in k.values],
    "Floats": lambda k: [float(v) for v in k.values],
    "Int": lambda k: int(_one(k)),
    "Float": lambda k: float(_one(k)),
    "Bool": lambda k: bool(_one(k)),
    "Number": lambda k: _one(k),
    "Host": lambda k: k,
}
#: keywords that are no attributes
_GIVEN = ("outputs", "run", "opset")


def _one(k: Known) -> Any:
    if len(k.values) != 1:
        raise ValueError(f"one number is wanted, but there are {len(k.values)}")
    return k.values[0]


class Operator(NamedTuple):
    """One version of an operator."""

    function: Callable[..., Any]
    since: int
    #: of each input: what it is given as, and whether it may be missing
    inputs: tuple[tuple[str, bool], ...]
    #: what any further inputs are given as
    rest: str | None
    #: attribute -> whether it must be there
    attributes: dict[str, bool]
    given: frozenset[str]
    open: bool

    def on_host(self, i: int) -> bool:
        """Whether input `i` is wanted by the host."""
        return (self.inputs[i][0] if i < len(self.inputs) else self.rest) in _HOST


#: (domain, name) -> versions, the earliest first
OPERATORS: dict[tuple[str, str], list[Operator]] = {}


def operator(*names: str, since: int = 1, domain: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function these operators."""

    def keep(f: Callable[..., Any]) -> Callable[..., Any]:
        made = described(f, since)
        for name in names:
            versions = OPERATORS.setdefault((domain, name), [])
            versions.append(made)
            versions.sort(key=lambda o: o.since)
        return f

    return keep


def described(f: Callable[..., Any], since: int = 1) -> Operator:
    """The Operator of a function."""
    inputs, rest, attributes, given, free = [], None, {}, set(), False
    for p in inspect.signature(f).parameters.values():
        kind = p.annotation if isinstance(p.annotation, str) else "Tensor"
        optional = kind.endswith(" | None") or p.default is not p.empty
        kind = kind.removesuffix(" | None")
        if p.kind is p.VAR_POSITIONAL:
            rest = kind
        elif p.kind is p.VAR_KEYWORD:
            free = True
        elif p.kind is p.KEYWORD_ONLY:
            if p.name in _GIVEN:
                given.add(p.name)
            else:
                attributes[p.name] = p.default is p.empty
        else:
            inputs.append((kind, optional))
    return Operator(f, since, tuple(inputs), rest, attributes, frozenset(given), free)


def find(domain: str, name: str, opset: int) -> Operator | None:
    """The version of an operator that an opset has."""
    found = None
    for o in OPERATORS.get((domain, name), ()):
        if o.since <= opset:
            found = o
    return found


def converted(kind: str, value: Any, device: Any) -> Any:
    """An input as an operator wants it."""
    if value is None:
        return None
    host = _HOST.get(kind)
    if host is not None:
        return host(to_known(value))
    if kind != "Any" and isinstance(value, Known):
        return value.tensor(device)
    if kind == "Tensor" and not isinstance(value, tensor.Tensor):
        raise TypeError(f"a tensor is wanted, not a {type(value).__name__}")
    return value
