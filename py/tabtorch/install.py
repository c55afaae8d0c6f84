"""`tabtorch.install()`: `import torch` means tabtorch from then on, submodules included."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

#: names of torch modules that live elsewhere here
_RENAMED = {
    "torch.utils.data._utils.collate": "tabtorch.utils.data._collate",
    "torch.utils.data._utils.pin_memory": "tabtorch.utils.data._pin_memory",
    "torch.utils.data._utils.worker": "tabtorch.utils.data._worker",
    "torch._tensor_str": "tabtorch.core.printing",
    "torch._tensor": "tabtorch.core.tensor",
    "torch._dynamo.eval_frame": "tabtorch.compiler",
    "torch.distributed._composable": "tabtorch.distributed.fsdp",
    "torch.distributed._composable.fsdp": "tabtorch.distributed.fsdp",
    "torch.distributed._tensor": "tabtorch.distributed.tensor",
    "torch.distributed._tensor.experimental": "tabtorch.distributed.absent",
    "torch.distributed.algorithms": "tabtorch.distributed.absent",
    "torch.distributed.algorithms._checkpoint": "tabtorch.distributed.absent",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper": "tabtorch.distributed.checkpoint_wrapper",
    "torch.distributed.autograd": "tabtorch.distributed.absent",
    "torch.distributed.checkpoint": "tabtorch.distributed.absent",
    "torch.distributed.checkpoint.state_dict": "tabtorch.distributed.state_dict",
    "torch.distributed.distributed_c10d": "tabtorch.distributed.absent",
    "torch.distributed.elastic": "tabtorch.distributed.absent",
    "torch.distributed.elastic.multiprocessing": "tabtorch.distributed.absent",
    "torch.distributed.elastic.multiprocessing.errors": "tabtorch.distributed.absent",
    "torch.nn.quantized": "tabtorch.ao.nn.quantized",
    "torch.ao.quantization.fake_quantize": "tabtorch.ao.quantization",
    "torch.ao.quantization.observer": "tabtorch.ao.quantization",
    "torch.ao.quantization.qconfig": "tabtorch.ao.quantization",
    "torch.quantization": "tabtorch.ao.quantization",
    "torch.quantization.fake_quantize": "tabtorch.ao.quantization",
    "torch.quantization.observer": "tabtorch.ao.quantization",
    "torch.quantization.qconfig": "tabtorch.ao.quantization",
    "functorch": "tabtorch._functorch.deprecated",  # PyTorch's wheel has it too
    "torch.nn.parallel.data_parallel": "tabtorch.nn.parallel",
    "torch.nn.parallel.distributed": "tabtorch.nn.parallel",
    "torch.nn.parallel.scatter_gather": "tabtorch.nn.parallel",
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
        if fullname not in ("torch", "functorch") and not fullname.startswith("torch."):
            return None
        name = _RENAMED.get(fullname, "tab" + fullname)
        if fullname.startswith("torch.onnx.symbolic_opset"):
            name = "tabtorch.onnx.symbolic_helper"
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ModuleNotFoundError(
                f"No module named '{fullname}' (if PyTorch has it: tabtorch does not have it yet)", name=fullname
            )
        return importlib.machinery.ModuleSpec(fullname, _Alias(name), is_package=True)

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """What `importlib.metadata` asks for "torch": its version is that of `torch.__version__`."""
        name = getattr(context, "name", None)
        return iter(() if name is not None and name.lower() != "torch" else (_distribution(),))


@functools.cache
def _distribution() -> Any:
    from importlib import metadata  # the asker has it: it is slow to load, and not loaded for `install`
    from pathlib import Path

    package: Any = sys.modules["tabtorch"]

    class TorchDistribution(metadata.Distribution):
        def read_text(self, filename: str) -> str | None:
            return {
                "METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {package.__version__}\n",
                "top_level.txt": "torch\n",
            }.get(filename)

        def locate_file(self, path: Any) -> Any:
            return Path(package.__path__[0]).parent / path

    return TorchDistribution()


class _Safetensors(importlib.abc.MetaPathFinder):
    """`safetensors.torch` is tabtorch's always: the one that may be installed reads the memory that PyTorch's tensors point to.

    `safetensors` is tabtorch's where none is installed, else that one, with `safe_open` of tensors by tabtorch.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in ("safetensors", "safetensors.torch"):
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path) if fullname == "safetensors" else None
        if found is None or found.loader is None:
            return importlib.machinery.ModuleSpec(fullname, _Alias("tabtorch.safetensors"), is_package=True)
        found.loader = _Adapting(found.loader)
        return found


class _Torchao(importlib.abc.MetaPathFinder):
    """`torchao.quantization` is tabtorch's names for packed weights, where no torchao is installed.

    Who only asks whether there is a torchao (`importlib.util.find_spec`, as transformers and peft do) is told that there is none:
    such a one would go on to ask for its version, and for the rest of it.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in ("torchao", "torchao.quantization", "torchao.quantization.quant_api"):
            return None
        if sys._getframe(2).f_globals.get("__name__") == "importlib.util":
            return None
        return importlib.machinery.ModuleSpec(fullname, _Alias("tabtorch.packed.torchao"), is_package=True)


class _Adapting(importlib.abc.Loader):
    """The loader of the installed `safetensors`."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self.loader.exec_module(module)
        _adapt(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def _adapt(module: Any) -> None:
    """Lets the installed `safetensors` open files for tabtorch; there is one class of errors."""
    ours: Any = importlib.import_module("tabtorch.safetensors")
    if module is ours or getattr(module.safe_open, "of_tabtorch", False):
        return
    ours.SafetensorError = module.SafetensorError
    theirs = module.safe_open

    class safe_open:
        """A file of weights, opened; tensors are tabtorch's where the framework is "pt"."""

        of_tabtorch = True

        def __new__(cls, filename: Any, framework: str, device: Any = None, **options: Any) -> Any:
            if framework in ("pt", "torch", "pytorch"):
                return ours.safe_open(filename, framework, device, **options)
            return theirs(filename, framework, *(() if device is None else (device,)), **options)

    module.safe_open = safe_open


_finder = _Finder()
_safetensors = _Safetensors()
_torchao = _Torchao()


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
    package.__name__ = "torch"  # what libraries check that patch it by name; relative imports go by `__package__`
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
        sys.meta_path.insert(0, _safetensors)
        sys.meta_path.append(_torchao)  # after those that find what is installed
        loaded = sys.modules.get("safetensors")
        if loaded is not None:
            _adapt(loaded)
    for name, module in list(sys.modules.items()):
        if name.startswith("tabtorch.") and isinstance(module, types.ModuleType):
            sys.modules.setdefault(name[3:], module)
    devices: Any = sys.modules["tabtorch.base.device"]
    devices._cuda_alias = bool(cuda)
