"""`torch.nn.utils._named_member_accessor`: tensors of modules by their dotted names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.nn.modules.module import Module

__all__ = ["NamedMemberAccessor", "set_tensor", "swap_tensor"]

_MISSING: Any = object()


def set_tensor(module: Module, name: str, tensor: Tensor) -> None:
    """Puts a tensor where `module` has a parameter, a buffer or an attribute of that name. KeyError for a dotted or empty name."""
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_tensor(module: Any, name: str, tensor: Any, allow_missing: bool = False) -> Tensor:
    """The same, and returns what was there. AttributeError where nothing was, unless `allow_missing`."""
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not _MISSING and not isinstance(tensor, Tensor) and tensor is not None:
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if name == "":
        raise KeyError('tensor name can\'t be empty string ""')
    space: Any = next((s for s in (module._parameters, module._buffers) if name in s), None)
    if space is not None:
        before = space[name]
        if tensor is _MISSING:
            del space[name]
        else:
            space[name] = tensor
        return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if before is not _MISSING and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif before is not _MISSING:
        delattr(module, name)
    return before


class NamedMemberAccessor:
    """The submodules and tensors of `module` by their dotted names."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def get_submodule(self, name: str) -> Module:
        """AttributeError where there is none."""
        return self.module.get_submodule(name)

    def _place(self, name: str) -> tuple[Module, str]:
        prefix, _, last = name.rpartition(".")
        return self.module.get_submodule(prefix), last

    def swap_submodule(self, path: str, value: Module) -> Module:
        """Puts a submodule there, and returns what was there."""
        module, name = self._place(path)
        before = module.get_submodule(name)
        module._modules[name] = value
        return before

    def get_tensor(self, name: str) -> Tensor:
        """AttributeError where there is none."""
        module, last = self._place(name)
        found: Tensor = getattr(module, last)
        return found

    def set_tensor(self, name: str, value: Tensor) -> None:
        """See `set_tensor`."""
        module, last = self._place(name)
        set_tensor(module, last, value)

    def del_tensor(self, name: str) -> None:
        """Takes it away."""
        self.swap_tensor(name, _MISSING)

    def swap_tensor(self, name: str, value: Tensor, allow_missing: bool = False) -> Tensor:
        """See `swap_tensor`."""
        module, last = self._place(name)
        return swap_tensor(module, last, value, allow_missing)

    def get_tensors(self, names: Iterable[str]) -> list[Tensor]:
        """Several."""
        return [self.get_tensor(n) for n in names]

    def set_tensors(self, names: Iterable[str], values: Iterable[Tensor]) -> None:
        """Several."""
        for n, v in zip(names, values, strict=True):
            self.set_tensor(n, v)

    def set_tensors_dict(self, named_tensors: dict[str, Tensor]) -> None:
        """Several, by name."""
        for n, v in named_tensors.items():
            self.set_tensor(n, v)

    def swap_tensors(self, names: Iterable[str], values: Iterable[Tensor], allow_missing: bool = False) -> list[Tensor]:
        """Several; returns what was there."""
        return [self.swap_tensor(n, v, allow_missing) for n, v in zip(names, values, strict=True)]

    def swap_tensors_dict(
        self, named_tensors: dict[str, Tensor], allow_missing: bool = False
    ) -> tuple[dict[str, Tensor], list[str]]:
        """Several, by name; returns what was there, and the names for which nothing was."""
        before = {n: self.swap_tensor(n, v, allow_missing) for n, v in named_tensors.items()}
        return before, [n for n, v in before.items() if v is _MISSING]

    def named_parameters(self, remove_duplicate: bool = True) -> Any:
        """Those of the module."""
        return self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Any:
        """Those of the module."""
        return self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Any:
        """Both."""
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)
