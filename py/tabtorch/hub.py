"""`torch.hub`: weights from a URL. In a tab they stream to the device, and what was fetched is kept for the next time."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from typing import Any
from urllib.parse import urlparse

from tabtorch import _lazy
from tabtorch.utils.fetch import IN_TAB, PIECE, Reader, open_reader, open_reader_async, reporter

__all__ = [
    "clear_cache",
    "download_url_to_file",
    "get_dir",
    "load_state_dict_from_url",
    "load_state_dict_from_url_async",
    "set_dir",
]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_dir: str | None = None


def _get_torch_home() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder for downloaded files: what `set_dir` was given, else `$TORCH_HOME/hub`, else `~/.cache/torch/hub`."""
    return os.path.join(_get_torch_home(), "hub") if _dir is None else _dir


def set_dir(d: str | os.PathLike[str]) -> None:
    """Sets the folder for downloaded files."""
    global _dir
    _dir = os.path.expanduser(d)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Writes what a URL gives to a file. RuntimeError where its SHA-256 does not begin with `hash_prefix`.

    The file appears when it is complete. A connection that breaks off goes on where it was, if the server can do that.
    """
    dst = os.path.expanduser(dst)
    part = f"{dst}.{os.getpid()}.partial"
    try:
        with open_reader(url, cache=False) as reader, open(part, "wb") as file:
            _check(reader, hash_prefix, progress, file.write)
        os.replace(part, dst)
    finally:
        if os.path.exists(part):
            os.remove(part)


def _check(reader: Reader, prefix: str | None, progress: Any = None, write: Any = None) -> None:
    """Reads everything, to `write` if that is given, and compares the sum."""
    report = reporter(progress, reader.name)
    digest = hashlib.sha256()
    at = 0
    while len(data := reader.read(at, PIECE)):
        at += len(data)
        if write is not None:
            write(data)
        if prefix:
            digest.update(data)
        report(at, reader.size)
    _compare(digest.hexdigest(), prefix)


def _compare(found: str, prefix: str | None) -> None:
    if prefix and found[: len(prefix)] != prefix:
        raise RuntimeError(f'invalid hash value (expected "{prefix}", got "{found}")')


def _prefix(name: str, check_hash: bool) -> str | None:
    found = HASH_REGEX.search(name) if check_hash else None
    return found[1] if found else None


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: Any = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """What `torch.load`, or for `.safetensors` `load_file`, makes of a URL.

    The file is kept in `model_dir` (default: `get_dir()/checkpoints`) and not fetched again. In a tab, where no `model_dir`
    is given, it goes from the network to the device in pieces, and is kept in the origin's own file system. progress: a line
    on standard error, or a function `(bytes so far, bytes of the whole or None)`. check_hash: the name of the file has the
    beginning of its SHA-256, as `name-0123abcd.pth`. weights_only: unlike PyTorch's default, the file can run nothing.
    RuntimeError or OSError where it cannot be had.
    """
    name = file_name or os.path.basename(urlparse(url).path)
    prefix = _prefix(name, check_hash)
    if IN_TAB and model_dir is None:
        return _stream(url, name, prefix, map_location, progress, weights_only)
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stdout.write(f'Downloading: "{url}" to {path}\n')
        download_url_to_file(url, path, prefix, progress)
    return _lazy.serialization.load(path, map_location=map_location, weights_only=weights_only)


def _is_safetensors(name: str) -> bool:
    return name.endswith((".safetensors", ".index.json"))


def _stream(url: str, name: str, prefix: str | None, map_location: Any, progress: Any, weights_only: bool) -> Any:
    if _is_safetensors(name) and prefix is None:
        return _lazy.safetensors.load_file(url, device=map_location, progress=progress)
    with open_reader(url, random=True) as reader:
        reader.whole()
        if prefix is not None:
            _check(reader, prefix)
        if _is_safetensors(name):
            return _lazy.safetensors.load_file(reader, device=map_location, progress=progress)
        only, unpickler = _lazy.serialization._options(map_location, None, weights_only, {})
        return _lazy.serialization.load_from(reader, map_location, only, unpickler, progress=progress)


async def load_state_dict_from_url_async(
    url: str, map_location: Any = None, progress: Any = True, check_hash: bool = False, file_name: str | None = None
) -> Any:
    """As `load_state_dict_from_url` in a tab, without blocking: for hosts that have no JSPI. Weights only."""
    name = file_name or os.path.basename(urlparse(url).path)
    prefix = _prefix(name, check_hash)
    if _is_safetensors(name) and prefix is None:
        return await _lazy.safetensors.load_file_async(url, device=map_location, progress=progress)
    with await open_reader_async(url, random=True) as reader:
        await reader.whole_async()
        if prefix is not None:
            digest, at = hashlib.sha256(), 0
            while len(data := await reader.read_async(at, PIECE)):
                digest.update(data)
                at += len(data)
            _compare(digest.hexdigest(), prefix)
        if _is_safetensors(name):
            return await _lazy.safetensors.load_file_async(reader, device=map_location, progress=progress)
        return await _lazy.serialization.load_from_async(reader, map_location, progress)


async def clear_cache(url: str | None = None) -> None:
    """In a tab: forgets what was fetched from `url`, or everything. `await` it."""
    if IN_TAB:
        from pyodide.code import run_js

        _lazy.pyodide.load_runtime()
        await run_js("(url) => tabtorchRuntime.forget(url ?? undefined)")(url)


class _Progress:
    """What other packages get for `tqdm` where that is not installed: how much is done, on standard error.

    total: of the same unit as what `update` is given; without it that is taken for bytes.
    """

    def __init__(self, total: float | None = None, disable: bool = False, *args: Any, **kwargs: Any) -> None:
        self.total, self.disable, self.n = total, disable, 0.0

    def update(self, n: float = 1) -> None:
        if self.disable:
            return
        self.n += n
        sys.stderr.write(f"\r{100 * self.n / self.total:.1f}%" if self.total else f"\r{self.n:.1f} bytes")
        sys.stderr.flush()

    def set_description(self, *args: Any, **kwargs: Any) -> None:
        """Is not shown."""

    def write(self, s: str) -> None:
        sys.stderr.write(f"{s}\n")

    def close(self) -> None:
        self.disable = True

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *args: object) -> None:
        if not self.disable:
            sys.stderr.write("\n")


def __getattr__(name: str) -> Any:
    if name == "tqdm":  # other packages take it from here, installed or not
        try:
            return importlib.import_module("tqdm").tqdm
        except ImportError:
            return _Progress
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
