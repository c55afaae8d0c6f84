"""Values and callables of PyTorch as those of tabtorch."""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np
import torch

import tabtorch

#: where PyTorch's public functions live; the first that holds an object names it
_HOMES = (
    "",
    "nn.functional",
    "linalg",
    "fft",
    "special",
    "masked",
    "signal.windows",
    "sparse",
    "Tensor",
    "_C._nn",
    "_C._linalg",
    "_C._fft",
    "_C._special",
)


class Unsupported(Exception):
    """A value that tabtorch has no place for: a nested tensor, a dtype it does not have."""


def _follow(root: Any, path: str) -> Any:
    for part in path.split("."):
        if part:
            root = getattr(root, part)
    return root


@functools.cache
def _names() -> dict[int, str]:
    """The public path of every public callable of PyTorch, by its identity."""
    found: dict[int, str] = {}
    for home in _HOMES:
        place = _follow(torch, home)
        for name in dir(place):
            value = getattr(place, name, None)
            if callable(value):
                path = name if home in ("_C._nn",) else f"{home.removeprefix('_C._')}.{name}".lstrip(".")
                found.setdefault(id(value), f"nn.functional.{name}" if home == "_C._nn" else path)
    return found


def function(f: Any, name: str = "") -> Any:
    """tabtorch's counterpart of a function of PyTorch, or of one that PyTorch's tests wrote around some.

    name: what it is called, for functions that no public module of PyTorch holds. Raises AttributeError where there is none.
    """
    if isinstance(f, functools.partial):
        return functools.partial(function(f.func, name), *f.args, **f.keywords)
    if getattr(f, "__module__", "") == "_operator":
        return f
    path = _names().get(id(f))
    if path is None and type(f).__name__ in ("OpOverload", "OpOverloadPacket"):
        path = "ops." + str(f)
    if path is None and isinstance(f, types.FunctionType) and f.__module__.startswith("torch.testing"):
        return _rebind(f)
    if path is None and isinstance(f, types.FunctionType) and f.__module__ == "torch._tensor":
        path = "Tensor." + f.__name__
    if path is None and type(f).__name__ in ("method_descriptor", "wrapper_descriptor", "getset_descriptor"):
        path = "Tensor." + f.__name__
    return _follow(tabtorch, path or name)


def _seeded(f: Any, *args: Any, **kwargs: Any) -> Any:
    tabtorch.manual_seed(42)
    return f(*args, **kwargs)


def _global(value: Any) -> Any:
    if value is torch:
        return tabtorch
    if isinstance(value, types.FunctionType) and value.__module__.startswith("torch."):
        return _seeded if value.__name__ == "wrapper_set_seed" else function(value, value.__name__)
    return _names_to(value)


def _names_to(value: Any) -> Any:
    path = _names().get(id(value)) if callable(value) else None
    return value if path is None else _follow(tabtorch, path)


def _used(code: types.CodeType) -> set[str]:
    return set(code.co_names).union(*(_used(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def _rebind(f: types.FunctionType) -> types.FunctionType:
    """The same code over tabtorch: what it names `torch` is tabtorch, and so on through the functions it calls."""
    names = {k: _global(v) for k, v in f.__globals__.items() if k in _used(f.__code__)}
    cells = tuple(types.CellType(_cell(c.cell_contents)) for c in f.__closure__ or ())
    g = types.FunctionType(f.__code__, {"__builtins__": __builtins__, **names}, f.__name__, f.__defaults__, cells)
    g.__kwdefaults__ = f.__kwdefaults__
    return g


def _cell(value: Any) -> Any:
    if isinstance(value, types.FunctionType) and value.__module__.startswith("torch.testing"):
        return _rebind(value)
    return _global(value)


def dtype(d: torch.dtype) -> Any:
    """tabtorch's dtype of the same name."""
    try:
        return getattr(tabtorch, str(d).removeprefix("torch."))
    except AttributeError:
        raise Unsupported(str(d)) from None


def _numpy(t: torch.Tensor) -> np.ndarray[Any, Any]:
    """The elements of a dense tensor, bfloat16 as float32."""
    # a copy: PyTorch resizes no storage that NumPy has seen
    t = t.detach().clone()
    t = t.float() if t.dtype is torch.bfloat16 else t
    return (t.reshape(-1) if t.dim() > 64 else t).numpy()


#: layouts of sparse tensors
SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def parts(t: Any) -> tuple[Any, ...]:
    """The tensors that a sparse one consists of, of either library."""
    kind = str(t.layout).rpartition("_")[2]
    t = t.detach()
    if kind == "coo":
        return t._indices(), t._values()
    if kind in ("csr", "bsr"):
        return t.crow_indices(), t.col_indices(), t.values()
    return t.ccol_indices(), t.row_indices(), t.values()


def _of_parts(m: Any, like: Any, made: Any) -> Any:
    """A sparse tensor of library `m`, of a sparse one's layout and size, of these parts."""
    kind = str(like.layout).rpartition("_")[2]
    t = getattr(m, f"sparse_{kind}_tensor")(*made, tuple(like.shape))
    return t._coalesced_(like.is_coalesced()) if kind == "coo" else t


def filled(t: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A tensor with the indices of another."""
    return _of_parts(torch, t, (*parts(t)[:-1], values))


def _sparse(t: torch.Tensor, device: str) -> Any:
    new = _of_parts(tabtorch, t, [tensor(p.contiguous(), device) for p in parts(t)])
    return new.requires_grad_() if t.requires_grad else new


def tensor(t: torch.Tensor, device: str, wholes: dict[Any, Any] | None = None) -> Any:
    """The same tensor in tabtorch: values, shape, strides, offset, requires_grad; leaf as it is.

    wholes: a tensor for each storage that has been met; what shares one in PyTorch shares one here.
    """
    wholes = {} if wholes is None else wholes
    if t.is_conj() or t.is_neg():
        name = "conj" if t.is_conj() else "_neg_view"
        stored = tensor(getattr(t.detach(), name)(), device, wholes)
        return getattr(stored, name)().detach().requires_grad_(t.requires_grad)
    if t.layout in SPARSE:
        return _sparse(t, device)
    if t.layout is not torch.strided or t.is_quantized or t.device.type != "cpu":
        raise Unsupported(f"{t.layout} on {t.device}")
    kind = dtype(t.dtype)
    if device == "webgpu" and t.dtype in (torch.float64, torch.complex128):
        raise Unsupported(f"{t.dtype}: cpu only")
    held = t.untyped_storage().nbytes() // t.element_size()
    key = (t.untyped_storage().data_ptr(), t.dtype)
    if held and key in wholes:
        new = tabtorch.as_strided(wholes[key].detach(), tuple(t.shape), t.stride(), t.storage_offset())
    elif t.stride() == torch.empty(t.shape).stride() and held == t.numel():
        new = tabtorch.tensor(_numpy(t), dtype=kind, device=device)
        if t.dim() > 64:  # more than NumPy has
            new = new.view(t.shape)
        wholes[key] = new
    else:  # the whole storage, so that what a view of a view can see is there too
        whole = wholes[key] = tabtorch.tensor(
            _numpy(t.detach().as_strided((held,), (1,), 0)), dtype=kind, device=device
        )
        new = tabtorch.as_strided(whole, tuple(t.shape), t.stride(), t.storage_offset())
    if t.requires_grad:
        new.requires_grad_()
    return new


class Translator:
    """Values for one device; a tensor met twice is the same tensor twice."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.tensors: dict[int, tuple[torch.Tensor, Any]] = {}
        self.wholes: dict[Any, Any] = {}

    def __call__(self, x: Any) -> Any:
        """Any value of a sample."""
        if isinstance(x, torch.Tensor):
            if id(x) not in self.tensors:
                self.tensors[id(x)] = (x, tensor(x, self.device, self.wholes))
            return self.tensors[id(x)][1]
        if isinstance(x, torch.dtype):
            return dtype(x)
        if isinstance(x, torch.device):
            return tabtorch.device(self.device if x.type == "cpu" else str(x))
        if isinstance(x, torch.Size):
            return tabtorch.Size(x)
        if isinstance(x, torch.Generator):
            return tabtorch.Generator().manual_seed(x.initial_seed())
        if isinstance(x, (torch.layout, torch.memory_format)):
            return getattr(tabtorch, str(x).removeprefix("torch."))
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*(self(v) for v in x))
        if type(x) in (list, tuple):
            return type(x)(self(v) for v in x)
        if isinstance(x, dict):
            return {k: self.device if k == "device" and v == "cpu" else self(v) for k, v in x.items()}
        if isinstance(x, torch.nn.Module):
            module = getattr(tabtorch.nn, type(x).__name__)()
            for k in x.__constants__:
                setattr(module, k, getattr(x, k))
            return module
        if callable(x) and not isinstance(x, type):
            return _cell(x)
        return x


def back(t: Any) -> torch.Tensor:
    """A tensor of tabtorch as one of PyTorch, with its values read."""
    kind = getattr(torch, str(t.dtype).removeprefix("torch."))
    if str(t.layout) != "torch.strided":  # t may be one of PyTorch, of a program that was exported
        return _of_parts(torch, t, [back(p) for p in parts(t)])
    t = t.detach().resolve_conj().resolve_neg()
    return torch.from_numpy(np.array((t.float() if kind is torch.bfloat16 else t).numpy())).to(kind)


def tensors(x: Any) -> list[Any]:
    """All tensors in a result or an argument list, in order."""
    if isinstance(x, (torch.Tensor, tabtorch.Tensor)):
        return [x]
    if isinstance(x, (list, tuple)):
        return [t for v in x for t in tensors(v)]
    if isinstance(x, dict):
        return [t for v in x.values() for t in tensors(v)]
    return []
