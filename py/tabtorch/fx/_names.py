"""What graphs call our functions: the names that PyTorch's have, wherever ours are written.

`torch.relu` is `torch.relu`; a function of `torch.nn.functional` is one of that, unless PyTorch's is compiled, whose place is
another (`torch._C._nn.linear`); and functions of PyTorch in Python get all their arguments, in the way they hand them over.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from typing import Any

import tabtorch
from tabtorch import _C
from tabtorch.base.dtypes import dtype
from tabtorch.core.tensor import Tensor
from tabtorch.interception.code_swapping import _records
from tabtorch.ops.machinery import registry

#: functions of torch.nn.functional that PyTorch has in torch
_IN_TORCH = set(
    "adaptive_avg_pool1d avg_pool1d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d "
    "conv_transpose2d conv_transpose3d cosine_similarity hardshrink native_channel_shuffle pairwise_distance pdist pixel_shuffle "
    "pixel_unshuffle prelu relu_ rrelu_ selu_ threshold_".split()
)
#: and those that it has in torch._C._nn
_IN_C = set(
    "avg_pool2d avg_pool3d elu_ gelu hardtanh_ leaky_relu_ linear log_sigmoid logsigmoid one_hot scaled_dot_product_attention "
    "softplus softshrink".split()
)
#: functions of torch.functional that hand on what they were given
_AS_GIVEN = "atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod chain_matmul einsum".split()

_found: dict[int, tuple[Any, str]] = {}


def _search(f: Any) -> str:
    for name in dict.fromkeys((f.__name__, f.__name__.lstrip("_"))):
        if vars(tabtorch).get(name) is f or registry.FUNCTIONS.get(name) is f or registry.SHOWN.get(name) is f:
            return _of_torch(name)
        functional = importlib.import_module("tabtorch.nn.functional")
        if getattr(functional, name, None) is f:
            return _of_functional(name)
        for space in ("fft", "linalg", "special"):
            module = sys.modules.get("tabtorch." + space)
            short = name.removeprefix(space + "_")
            if module is not None and getattr(module, short, None) is f:
                return f"torch._C._{space}.{space}_{short}"
        if getattr(Tensor, name, None) is f:
            return "torch.Tensor." + name
    writing = f"{f.__name__}_"
    if registry.METHODS.get(writing) is f:
        return "torch.Tensor." + writing
    for table in (registry.SHOWN, registry.FUNCTIONS):
        for name, g in table.items():
            if g is f:
                return _of_torch(name)
    module_name = "torch" + (f.__module__ or "").removeprefix("tabtorch").removeprefix("torch")
    return f"{module_name}.{f.__name__}"


def _of_torch(name: str) -> str:
    space, _, rest = name.partition("_")
    if rest and space in ("fft", "linalg", "special"):
        return f"torch._C._{space}.{name}"
    return ("torch.functional." if name in _functional_names() else "torch.") + name


def _functional_names() -> set[str]:
    return set(importlib.import_module("tabtorch.functional").__all__) - {"istft"}


def _of_functional(name: str) -> str:
    if name in _IN_C:
        return "torch._C._nn." + ("log_sigmoid" if name == "logsigmoid" else name)
    if name == "threshold":  # which is another name of this one
        name = "_threshold"
    return ("torch." if name in _IN_TORCH else "torch.nn.functional.") + name


def is_ours(obj: Any) -> bool:
    """Whether it is of this package, as far as its `__module__` says."""
    module = getattr(obj, "__module__", None)
    if not isinstance(module, str):
        return False
    top, _, rest = module.partition(".")
    return top in ("torch", "tabtorch") and not rest.startswith(("_dynamo.", "_inductor."))


def public(f: Any) -> str | None:
    """The full name of a function or class of ours, as "torch.relu"; None for any other."""
    if not is_ours(f):
        return None
    if isinstance(f, type):
        return _class(f)
    kept = _found.get(id(f))
    if kept is None or kept[0] is not f:
        if inspect.isfunction(f):
            name = _search(f)
        else:
            name = f"{f.__module__.replace('tabtorch', 'torch', 1)}.{f.__name__}"
        kept = _found[id(f)] = f, name
    return kept[1]


class _Compiled:
    """`torch._C._nn` and its like: where the code of graphs finds functions that PyTorch has compiled."""

    def __init__(self, space: str, prefix: str, more: Any) -> None:
        self._space = space
        self._prefix = prefix
        self._more = more

    def __getattr__(self, name: str) -> Any:
        if hasattr(self._more, name):
            return getattr(self._more, name)
        short = {"log_sigmoid": "logsigmoid"}.get(name, name.removeprefix(self._prefix))
        return getattr(importlib.import_module(self._space), short)


for _space in ("nn", "fft", "linalg", "special"):
    _prefix = "" if _space == "nn" else _space + "_"
    _module = "tabtorch." + (_space if _prefix else "nn.functional")
    setattr(_C, "_" + _space, _Compiled(_module, _prefix, getattr(_C, "_" + _space, None)))


def _class(c: type) -> str:
    if vars(tabtorch).get(c.__name__) is c:
        return "torch." + c.__qualname__
    return f"{module_of(c)}.{c.__qualname__}"


def module_of(obj: Any) -> str:
    """`obj.__module__`, where ours is called torch."""
    module: str = obj.__module__
    return "torch" + module[8:] if module == "tabtorch" or module.startswith("tabtorch.") else module


def abbreviation(t: dtype) -> str:
    """A type of elements as graphs write it: "f32"."""
    name = str(t).partition(".")[2]
    short = {"bool": "b8", "bfloat16": "bf16", "complex32": "c32", "complex64": "c64", "complex128": "c128"}.get(name)
    return short or re.sub(r"^(float|uint|int)", lambda m: m[1][0], name)


def signature(f: Any) -> inspect.Signature:
    """That of a function, whose code is another while calls are met."""
    f = inspect.unwrap(f)
    return inspect.signature(_records[id(f)].plain if id(f) in _records else f)


def handed(f: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call of ours as PyTorch's function hands them over. name: what `public` gives.

    Functions that it has compiled hand on what they were given; those in Python what has a default by name, all of it.
    """
    space, _, short = name.rpartition(".")
    if space not in ("torch.nn.functional", "torch.functional", "torch.nn.init") or short in _AS_GIVEN:
        return args, kwargs
    sig = signature(f)
    try:
        bound = sig.bind(*args, **kwargs)
    except TypeError:
        return args, kwargs
    bound.apply_defaults()
    given: list[Any] = []
    named: dict[str, Any] = {}
    for p in sig.parameters.values():
        value = bound.arguments[p.name]  # those of `**kwargs` are a dict
        if p.kind is p.VAR_POSITIONAL:
            given += value
        elif p.kind is p.VAR_KEYWORD:
            named.update(value)
        elif p.default is p.empty and p.kind is not p.KEYWORD_ONLY and (short, p.name) != ("unravel_index", "shape"):
            given.append(value)
        elif (short, p.name) != ("l1_loss", "weight"):
            named[p.name] = value
    if short == "multi_head_attention_forward":  # one of them PyTorch hands over out of order
        order = list(named)
        order.insert(order.index("attn_mask") + 1, order.pop())
        named = {k: named[k] for k in order}
    return tuple(given), named
