"""One file, loaded by both libraries: what each says, and whether they agree."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.torch
import torch

import tabtorch

from .seeds import SAFE


class Verdict(NamedTuple):
    """`value`: a text of what was loaded; or `error`: the exception's class and message."""

    value: str | None
    error: str | None
    message: str = ""

    def __str__(self) -> str:
        return f"loads {self.value[:200]}" if self.value is not None else f"{self.error}: {self.message[:300]}"


#: what is raised for a file that is refused; anything else is a finding
REFUSALS = (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, TypeError, tabtorch.safetensors.SafetensorError)

#: Files that PyTorch reads and this package does not, by their kind and what it says, each with the reason why not.
REFUSED = {
    r"CRC-32 check failed": "its bytes are not those that were written, which PyTorch does not look at",
    r"it has two records|lies over another one": "nobody can say which of them is meant",
    r"says that it is a folder": "PyTorch gives numbers that were never set",
    r"is not supported by tabtorch": "a type that is not here",
    r"which tabtorch does not (have|read)": "a sparse, quantized or nested tensor, or numbers of a big-endian machine",
    r"are not read by tabtorch": "a format from before PyTorch 0.4",
    r"TorchScript archive": "TorchScript is not run here",
    r"one buffer|needs \d+ bytes": "more than a buffer of the device holds",
    r"(unrecognized function|but got) <class 'tabtorch.*(Tensor|Storage)'>": "numbers that were never set",
    r"cannot be unpacked": "PyTorch goes on with what it has when unpacking fails",
    r"^old: .*are out of bounds for storage": "PyTorch lets an old file's storage grow, by numbers that were never set",
    r"not in the file's list|^old: unexpected EOF: storages of": "PyTorch leaves their numbers as memory happens to be",
    r"duplicate key": "nobody can say which of them is meant",
    r"the arguments of .* are no tuple": "no pickler writes that, and what else can be gone through is not asked",
    r"it would set the attribute": "a tensor is made of that here",
    r"over a storage of \S+ cannot be made": "numbers of one type that are looked at as another",
    r"or strides .* may not be negative": "a view of nothing, backwards",
    r"tuples are nested too deeply": "Python may end where it takes the hash of such a tuple",
}


def _bits(t: Any) -> bytes:
    if not t.numel():
        return b""
    if isinstance(t, torch.Tensor):
        dense = torch.empty(t.numel(), dtype=t.dtype).copy_(t.detach().reshape(-1))
        return _truths(dense.view(torch.uint8).numpy(), t.dtype is torch.bool)
    data = np.frombuffer(t.untyped_storage()._bytes(), np.uint8)
    size = t.element_size()
    strides = (*(s * size if n > 1 else 0 for n, s in zip(t.shape, t.stride())), 1)
    found = np.lib.stride_tricks.as_strided(data[t.storage_offset() * size :], (*t.shape, size), strides)
    return _truths(found, t.dtype is tabtorch.bool)


#: Files that this package reads and PyTorch does not, by what PyTorch says.
ACCEPTED = {r"Cannot access accelerator device when none is available": "a number means the GPU, which is here"}


def _truths(raw: Any, boolean: bool) -> bytes:
    """The bytes; of a truth value, whether it is 0: C++ does not say what another byte than 1 is."""
    return ((raw != 0) if boolean else raw).tobytes()


def describe(x: Any, seen: dict[int, int] | None = None, depth: int = 0) -> str:
    """A text that is the same for the same value in both libraries."""
    seen = {} if seen is None else seen
    if depth > 50:
        return "..."
    if isinstance(x, (torch.Tensor, tabtorch.Tensor)):
        where = "meta" if x.device.type == "meta" else ""
        mark = "conj " * x.is_conj() + "neg " * x.is_neg()
        if isinstance(x, torch.Tensor):  # as it is stored
            x = x.conj() if x.is_conj() else x
            x = x._neg_view() if x.is_neg() else x
        place = f"{mark}{tuple(x.stride())}+{x.storage_offset()}"
        if where or x.numel() > 1 << 24:
            content = "many"
        else:
            content = hashlib.sha1(_bits(x)).hexdigest()[:12]
        extra = describe(dict(x.__dict__), seen, depth + 1) if x.__dict__ else ""
        kind = type(x).__name__
        return f"{kind}{where}({str(x.dtype)[-9:]},{tuple(x.shape)},{place},{x.requires_grad},{content}{extra})"
    if isinstance(x, (torch.storage.UntypedStorage, tabtorch.UntypedStorage)):
        return f"storage({hashlib.sha1(bytes(list(x))).hexdigest()[:12]})"
    if isinstance(x, (torch.storage.TypedStorage, tabtorch.TypedStorage)):
        return f"typed({x.dtype},{describe(x._untyped_storage, seen, depth)})"
    if isinstance(x, (dict, list, tuple, set)):
        if id(x) in seen:
            return f"#{seen[id(x)]}"
        seen[id(x)] = len(seen)
        if isinstance(x, dict):
            body = ",".join(f"{describe(k, seen, depth + 1)}:{describe(v, seen, depth + 1)}" for k, v in x.items())
            more = dict(getattr(x, "__dict__", {}))
            body += describe(more, seen, depth + 1) if more else ""
        elif isinstance(x, set):
            body = ",".join(sorted(describe(v, {}, depth + 1) for v in x))
        else:
            body = ",".join(describe(v, seen, depth + 1) for v in x)
        return f"{type(x).__name__}[{body}]"
    if isinstance(x, type):
        return f"class {x.__name__.lstrip('_')}"
    text = re.sub(r"<(?:built-in )?function _?(\w+).*>", r"class \1", re.sub(r"\btabtorch\b", "torch", repr(x)))
    return re.sub(r"<[\w.]*\.(\w+) object.*>", r"\1", text)


def attempt(load: Callable[[], Any]) -> Verdict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = load()
        except Exception as error:
            return Verdict(None, type(error).__name__, str(error))
        return Verdict(describe(found), None)


def theirs(kind: str, data: bytes) -> Verdict:
    if kind == SAFE:  # its order is that of a hash table
        return attempt(lambda: dict(sorted(safetensors.torch.load(data).items())))
    return attempt(lambda: torch.load(io.BytesIO(data), weights_only=True))


#: what nothing that is loaded may do: each is an audit event of the interpreter
_FORBIDDEN = re.compile(
    r"^(os\.|subprocess\.|socket\.|shutil\.|exec$|compile$|import$|open$|ctypes\.|pty\.|urllib\.|tempfile\.|marshal\.load|"
    r"code\.__new__|function\.__new__|builtins\.(input|breakpoint)|pickle\.find_class|cpython\.run)"
)
_seen: list[str] | None = None


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _seen is not None and _FORBIDDEN.match(event):
        _seen.append(f"{event} {str(args)[:100]}")


_auditing = False


def watch() -> None:
    """From now on `ours` knows what a file has done. It cannot be taken back (see `sys.addaudithook`)."""
    global _auditing
    if not _auditing:
        sys.addaudithook(_audit)
        _auditing = True


def ours(kind: str, data: bytes) -> tuple[Verdict, list[str]]:
    """What tabtorch says, and what the file did that it may not."""
    global _seen
    _seen = []
    try:
        if kind == SAFE:
            verdict = attempt(lambda: dict(sorted(tabtorch.safetensors.load(data).items())))
        else:
            verdict = attempt(lambda: tabtorch.load(io.BytesIO(data)))
    finally:
        did, _seen = _seen, None
    return verdict, did


def finding(kind: str, want: Verdict, got: Verdict, did: list[str]) -> str | None:
    """In a few words, what is wrong; None if the two agree."""
    if did:
        return f"the file did something: {did[:3]}"
    if got.error is not None and got.error not in {c.__name__ for c in REFUSALS} | _subclasses():
        return f"an exception that is no refusal: {got.error}"
    if want.error is not None and got.error is None:
        known = any(re.search(pattern, want.message) for pattern in ACCEPTED)
        return None if known else "loads here, and PyTorch refuses it"
    if want.error is None and got.error is not None:
        reason = next((r for pattern, r in REFUSED.items() if re.search(pattern, f"{kind}: {got.message}", re.S)), None)
        return None if reason else "refused here, and PyTorch loads it"
    if want.value != got.value:
        return "loads as another value"
    return None


def _subclasses() -> set[str]:
    return {"NotImplementedError", "UnsupportedDtype", "OutOfMemoryError", "UnicodeDecodeError", "RecursionError"}
