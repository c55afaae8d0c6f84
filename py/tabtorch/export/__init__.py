"""`torch.export`: programs as files, PyTorch's `.pt2` archives, both ways.

`load` reads what PyTorch's `torch.export.save` wrote; `ep.module()` is a module that runs, trains, and can be compiled. `save` with a
mapping of methods writes plans (`tabtorch.plan_files`), which need no Python. `export` makes a program of a module of ours, and `save`
of a program writes what PyTorch loads.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tabtorch.base.device import device as torch_device
from tabtorch.export import archive, exported_program
from tabtorch.export.exported_program import ExportedProgram
from tabtorch.export.fields import SerializeError
from tabtorch.export.signature import (
    ExportBackwardSignature,
    ExportGraphSignature,
    ModuleCallEntry,
    ModuleCallSignature,
)
from tabtorch.utils import _pytree
from tabtorch.utils.fetch import Work, drive, drive_async, open_reader, open_reader_async

if TYPE_CHECKING:
    from tabtorch.export.dims import Dim, UserError
    from tabtorch.export.exporting import export

__all__ = [
    "Dim",
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "ExportedProgram",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "SerializeError",
    "UserError",
    "export",
    "load",
    "load_async",
    "register_dataclass",
    "save",
]


def _existing(f: Any) -> Any:
    if isinstance(f, (str, os.PathLike)):
        return os.fspath(f)
    return f


def load(
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
    map_location: Any = None,
    progress: Any = None,
    cache: bool = True,
) -> Any:
    """The ExportedProgram of an archive that PyTorch's `torch.export.save` wrote. Of a file of plans, which `save` with a mapping writes,
    the `tabtorch.plan_files.PlanFile`.

    f: a path, a URL, bytes, a file object, or a file that was chosen in the page. extra_files: filled with the files of these names that
    were saved along. map_location: where its tensors go, as in `torch.load`; None is the default device. progress, cache: as in
    `tabtorch.utils.fetch.read_bytes`. SerializeError (a RuntimeError) for what is no such archive, NotImplementedError and TypeError for
    what of one is not read here.
    """
    with open_reader(_existing(f), cache=cache, random=True) as reader:
        reader.whole()
        if drive(_has_plans(reader.size or 0), reader):
            file = f if isinstance(f, (str, os.PathLike)) else drive(_all(reader.size or 0), reader, progress)
            return _plans(_existing(file), map_location)
        names = extra_files if extra_files is not None else {}
        contents = drive(archive.read(reader.size or 0, map_location, names.__contains__), reader, progress)
    return _program(contents, extra_files)


async def load_async(
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    map_location: Any = None,
    progress: Any = None,
    cache: bool = True,
) -> Any:
    """As `load`, without blocking: for hosts that have no JSPI."""
    with await open_reader_async(_existing(f), cache=cache, random=True) as reader:
        await reader.whole_async()
        if await drive_async(_has_plans(reader.size or 0), reader):
            return _plans(await drive_async(_all(reader.size or 0), reader, progress), map_location)
        names = extra_files if extra_files is not None else {}
        contents = await drive_async(archive.read(reader.size or 0, map_location, names.__contains__), reader, progress)
    return _program(contents, extra_files)


def _has_plans(size: int) -> Work:
    """Whether it is a safetensors file: the length of a header, and the header, which is JSON. An archive begins with "PK"."""
    start = bytes((yield 0, min(size, 9)))
    return start[8:] == b"{" and not start.startswith(b"PK")


def _all(size: int) -> Work:
    return bytes((yield 0, size))


def _plans(file: Any, map_location: Any) -> Any:
    device = None if map_location is None else torch_device(map_location).type
    return importlib.import_module("tabtorch.plan_files").load(file, device)


def _program(contents: archive.Contents, extra_files: dict[str, Any] | None) -> ExportedProgram:
    if extra_files is not None:
        extra_files.update(contents.extra)
    return exported_program.of_contents(contents)


def register_dataclass(cls: type[Any], *, serialized_type_name: str | None = None) -> None:
    """Makes a dataclass a container of inputs and results. serialized_type_name: what files call it."""
    _pytree.register_dataclass(cls, serialized_type_name=serialized_type_name)


def save(ep: Any, f: Any, **options: Any) -> Any:
    """`save(exported_program, f)` as in PyTorch; or `save(f, methods)`.

    With a mapping of methods, `{"predict": (function, (x,))}`: their plans as a file, see `tabtorch.plan_files.save` for the options
    (`model`, `optimizer`, `dynamic`). An ExportedProgram becomes the archive that PyTorch's `torch.export.load` reads; extra_files:
    texts or bytes by name, saved along. NotImplementedError for what of a program is not written."""
    if isinstance(f, Mapping):
        return importlib.import_module("tabtorch.plan_files").save(ep, f, **options)
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead."
        )
    given = {k: v for k, v in options.items() if v is not None}
    extra = given.pop("extra_files", None)
    given.pop("opset_version", None)
    given.pop("pickle_protocol", None)
    if given:
        raise TypeError(f"save() got unexpected keyword arguments {sorted(given)}")
    return importlib.import_module("tabtorch.export.writing").save(ep, f, extra)


_EXPORTING = {"Dim": "dims", "UserError": "dims", "export": "exporting"}


def __getattr__(name: str) -> Any:
    """What exports is loaded when it is asked for."""
    if name not in _EXPORTING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tabtorch.export.{_EXPORTING[name]}"), name)
