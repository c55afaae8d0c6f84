"""TorchScript's functions of numbers, texts and lists: every one that PyTorch has, called with a grid of values on both sides."""

from __future__ import annotations

import copy
import itertools
import math
import random
from typing import Any

import pytest
import torch

from tabtorch.jit import operators

VALUES: dict[str, list[Any]] = {
    "int": [0, 1, -1, 2, 3, -7, 5, 2**31 - 1, -(2**63), 2**63 - 1, 63],
    "float": [0.0, -0.0, 1.0, -1.5, 0.5, 2.5, -2.5, 3.0, 1e20, math.inf, -math.inf, math.nan, 1e-8],
    "bool": [True, False],
    "str": ["", "a", "abc", "A b", "12", " x\ty ", "aXbXc", "Hello world", "a\nb\r\nc", "3.5"],
    "List[int]": [[], [3], [3, 1, 2], [1, 1, -5]],
    "List[float]": [[], [0.5], [2.5, -1.0, 2.5]],
    "List[bool]": [[], [True], [True, False]],
    "List[str]": [[], ["b", "a"], ["x"]],
    "Optional[int]": [None, 1, -2],
    "Dict[str, int]": [{}, {"a": 1, "b": 2}],
}
#: not of values alone, or not here; and those that end PyTorch's process: given a text of no characters they never end, whole numbers
#: divided by nought, or the least by -1, are a signal
LEFT = set(
    "save from_file manual_seed warn format wait promote_types can_cast result_type get_device broadcast_shapes hash".split()
)
LEFT |= {"cudnn_is_acceptable", "get_autocast_dtype", "percentFormat", "set_grad_enabled"}
DIVIDE = set("remainder floordiv divmod gcd mathremainder fmod __round_to_zero_floordiv".split())
SMALL = set("factorial __lshift__ __rshift__ lcm slice center ljust rjust zfill expandtabs ldexp".split())


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, float):
        return (
            (a != a and b != b)
            or (a == b and math.copysign(1, a) == math.copysign(1, b))
            or math.isclose(a, b, rel_tol=1e-12)
        )
    return bool(a == b)


def left(schema: Any, kinds: list[str]) -> bool:
    name = schema.name[6:]
    if not schema.name.startswith("aten::") or name in LEFT or name.startswith("_") or "(a!)" in str(schema):
        return True
    # an overload of any number runs in float32 when Python calls it
    return not kinds or any(k not in VALUES for k in kinds) or any("Tensor" in str(r.type) for r in schema.returns)


def deadly(name: str, kinds: list[str], args: tuple[Any, ...]) -> bool:
    whole = [a for a in args if type(a) is int]
    if name in DIVIDE and len(whole) == 2 and (args[1] == 0 or -(2**63) in args):
        return True
    if name == "divmod" and -(2**63) in args:  # is taken for nought
        return True
    if name in SMALL and any(not 0 <= n < 20 for n in whole):
        return True
    if name == "Complex" or (name == "divmod" and len(whole) == 1):  # are cut to 32 bits
        return any(abs(n) >= 2**31 for n in whole)
    return (
        (kinds[0] == "str" and "" in args[1:])
        or (name == "angle" and args[0] != args[0])
        or (name == "sum" and args == ([],))
    )


def called(f: Any, args: Any) -> tuple[str, Any]:
    try:
        return "gives", f(*copy.deepcopy(args))
    except NotImplementedError as error:
        return "is not here", error
    except Exception as error:
        return "raises", error


def cases() -> list[Any]:
    found = []
    for schema in torch._C._jit_get_all_schemas():
        kinds = [str(a.type) for a in schema.arguments]
        if not left(schema, kinds):
            found.append(pytest.param(schema, kinds, id=f"{schema.name[6:]}.{schema.overload_name}"))
    return found


@pytest.mark.parametrize(("schema", "kinds"), cases())
def test_function(schema: Any, kinds: list[str]) -> None:
    name = schema.name[6:]
    theirs = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default")
    ours = operators.find(name, 10)
    grid = list(itertools.product(*[VALUES[k] for k in kinds]))
    random.Random(0).shuffle(grid)
    for args in grid[:300]:
        if deadly(name, kinds, args):
            continue
        want, got = called(theirs, args), called(ours, args)
        assert want[0] == got[0], f"{name}{args}: {want} there, {got} here"
        assert want[0] == "raises" or same(want[1], got[1]), f"{name}{args}: {want} there, {got} here"
