"""`torch.export`: programs as files, PyTorch's `.pt2` archives, both ways.

`load` reads what PyTorch's `torch.export.save` wrote, and hands files of plans on; `ep.module()` is a module that runs, trains, and can be
compiled. `save` with a mapping of methods writes plans (`tabtorch.plan_files`), which need no Python; exporting programs here is not
there yet.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any, NoReturn

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

__all__ = [
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "ExportedProgram",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "SerializeError",
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


def save(f: Any, ep: Any, **options: Any) -> Any:
    """With a mapping of methods, `{"predict": (function, (x,))}`: their plans as a file, see `tabtorch.plan_files.save` for the options
    (`model`, `optimizer`, `dynamic`). NotImplementedError for an ExportedProgram: PyTorch writes those."""
    if isinstance(ep, Mapping):
        return importlib.import_module("tabtorch.plan_files").save(f, ep, **options)
    raise NotImplementedError(
        "torch.export.save of an ExportedProgram: tabtorch reads such archives, and does not write them; save(path, {name: (function, "
        "args)}) writes plans"
    )


def export(*args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError: programs are exported in PyTorch."""
    raise NotImplementedError(
        "torch.export.export: tabtorch loads programs that PyTorch exported, and does not export them"
    )
