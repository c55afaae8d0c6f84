"""`tabtorch.install()`: `import torch` means tabtorch from then on, submodules included."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any

#: names of torch modules that live elsewhere here
_RENAMED = {
    "torch.autograd.grad_mode": "tabtorch.autograd.mode",
    "torch.utils.data.dataloader": "tabtorch.utils.data",
    "torch.utils.data.dataset": "tabtorch.utils.data",
    "torch._tensor_str": "tabtorch.printing",
    "torch._tensor": "tabtorch.tensor",
}


class _Alias(importlib.abc.Loader):
    """Loads `torch.x` by importing `tabtorch.x`: they are one module object."""

    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(self.target)
        self.spec = module.__spec__
        self.loader = getattr(module, "__loader__", None)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        # the import machinery has just written the alias's spec and loader over the module's own
        module.__spec__ = self.spec
        module.__loader__ = self.loader


class _Finder(importlib.abc.MetaPathFinder):
    """Resolves every `torch.…` that has a counterpart here."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch" and not fullname.startswith("torch."):
            return None
        name = _RENAMED.get(fullname, "tab" + fullname)
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ModuleNotFoundError(
                f"No module named '{fullname}' (if PyTorch has it: tabtorch does not have it yet)", name=fullname
            )
        return importlib.machinery.ModuleSpec(fullname, _Alias(name), is_package=True)


_finder = _Finder()


def install(cuda: bool = True) -> None:
    """Makes `import torch` mean tabtorch. Calling it again only sets `cuda`.

    cuda: `torch.cuda` is available and "cuda" means webgpu, where there is a GPU; with False it says that there is none.
    ImportError if real PyTorch was imported before.
    """
    package = sys.modules[__package__ or "tabtorch"]
    present: Any = sys.modules.get("torch")
    if present is not None and present is not package:
        raise ImportError("tabtorch.install() has to come before `import torch`: PyTorch itself is loaded already")
    sys.modules["torch"] = package
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    for name, module in list(sys.modules.items()):
        if name.startswith("tabtorch.") and isinstance(module, types.ModuleType):
            sys.modules.setdefault(name[3:], module)
    devices: Any = sys.modules["tabtorch.device"]
    devices._cuda_alias = bool(cuda)
