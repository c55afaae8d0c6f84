"""Device-side asserts: an index or a class out of range is an error even where only the device knows it.

PyTorch's CPU looks at every index before it is used; CUDA's kernels look as they run, and an assert that fails ends the
process's use of the GPU. Here `assert_range` does the least that is safe:

1. Values that the host knows (small data that came from it, or that was read) are looked at by Python, at once.
2. Where the bounds of the values can be proven (see integer_bounds.py) nothing is done.
3. What is left is looked at on the device: by one dispatch for all such indices of a window, which notes the first bad value
   in a log of 32 bytes, one for each device. When next anything is read from that device (`item`, `print`, `numpy`, a copy to
   another device, `synchronize`), the log comes along with the same wait, and PyTorch's exception is raised there, with
   the operation and the line of the script that made it. Until then a bad index has read or written some element of the same
   tensor, or none: never memory that is another's.

The error is raised once, and unlike CUDA the device stays usable; only what was computed from the bad index is not to be
trusted. A compiled function has its asserts in its plan, and is replayed only where the host's looks would be as good again.
"""

from __future__ import annotations

import linecache
import sys
from typing import Any, NamedTuple

from tabtorch import bridge as _bridges
from tabtorch.base import dtypes
from tabtorch.base.device import resolve
from tabtorch.base.thread_state import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph
from tabtorch.engine.expr import Expr, cast, isnan
from tabtorch.engine.graph import Custom, Inst, Node, emit, inst
from tabtorch.engine.lower import Kernel, index_of
from tabtorch.engine.view import Meta, contiguous_meta
from tabtorch.ops.machinery.integer_bounds import Proof, Range, facts, known

#: index tensors that one dispatch looks at: with the log, no more buffers than every device binds
TOGETHER = 6
#: the log: which assert failed (0: none); of integers the bad value and the largest that is allowed; where it stands
_WORDS = 4


class Complaint(NamedTuple):
    """What an assert says. `text` may name the value as {i}, how many there may be as {n}, and the place of it as {k}.

    below: what is said instead of negative values.
    """

    kind: type[Exception]
    text: str
    below: str = ""

    def of(self, i: Any, n: Any, k: int = 0) -> Exception:
        text = self.below if self.below and i < 0 else self.text
        return self.kind(text.format(i=i, n=n, k=k))


class _Site(NamedTuple):
    """An assert in a script. The sites of a process have numbers, from 1 on."""

    complaint: Complaint
    operation: str
    file: str
    line: int
    device: str


_sites: dict[_Site, int] = {}
#: how many errors were raised: what was asserted before one is not known to be good
_epoch = 0


# ---- on the device


def _lower(i: Inst, low: Any) -> None:
    metas = i.ins[1:]
    log = low.output

    def look(k: Kernel, j: int, t: Expr) -> None:
        m, kind = metas[j], i.scalars[4 * j]
        at = index_of(k, m, [(t, m.numel, ("flat", j))], (low.pos, 1 + j))
        v = k.let(cast(k.load(low.input(1 + j), at), kind), "v")
        least, most, exempt, site = (low.scalar(k, 4 * j + n) for n in range(4))
        outside = (v < least) | (v > most)
        bad = outside & (v != exempt) if kind == "i64" else outside | (isnan(v) & ~isnan(exempt))
        with k.when(bad):
            numbers = (v, most) if kind == "i64" else (site, site)
            _note(k, log, site, *numbers, cast(t, "i64"))

    def all_of_them(k: Kernel, t: Expr) -> None:
        for j, m in enumerate(metas):
            with k.when(t < k.dim(m.numel, ("length", j))):
                look(k, j, t)

    if not low.target.serial:
        low.launch("assert", max(m.numel for m in metas), all_of_them)
        return
    for j, m in enumerate(metas):  # the first that fails is the first in the script
        low.launch("assert", m.numel, lambda k, t, j=j: look(k, j, t))


def _note(k: Kernel, log: Any, *words: Expr) -> None:
    """Writes the words to the log, if nothing stands there yet."""
    k.write_once(log, list(words))


ASSERT = Custom("assert", _lower, in_place=True, sliding=True)


# ---- the logs

logs: dict[int, Tensor] = {}


def log_of(device: Any) -> Tensor:
    """The log of a device: int64, (4,)."""
    t = logs.get(device.number)
    if t is None:
        t = logs[device.number] = Tensor._wrap(_empty(device), contiguous_meta((_WORDS,), dtypes.int64, device))
    b = t._tab_storage.node.buf
    if b is not None and not b.id:  # it went with a window that failed
        t._tab_storage.node = _empty(device)
    return t


def every_log() -> list[Tensor]:
    """The logs of all devices that there are: state that a compiled function may change."""
    names = ["cpu", "webgpu"] if graph.bridge().info.get("webgpu") else ["cpu"]
    return [log_of(resolve(name)) for name in names]


def _empty(device: Any) -> Node:
    return graph.from_host(bytes(8 * _WORDS), contiguous_meta((_WORDS,), dtypes.int64, device))


def _forget() -> None:
    global _epoch
    logs.clear()
    _armed.clear()
    carried.clear()
    graph.read_checked = None
    _epoch += 1


def _lost() -> None:
    """The GPU's log went with the device. Compiled functions know the tensor, which goes on with other memory."""
    _armed.discard(_bridges.WEBGPU)
    log = logs.get(_bridges.WEBGPU)
    if log is not None:
        with graph.LOCK:
            log._tab_storage.node = _empty(log._tab_meta.device)


_bridges.on_close(_forget)
_bridges.keeps(globals(), "logs")
_bridges.on_loss(_lost)


# ---- asserting


def assert_range(t: Tensor, wanted: Range, complaint: Complaint, operation: str) -> None:
    """Raises `complaint` for an element of `t` that `wanted` does not take: at once where the host can tell, else when next
    something is read from the device."""
    node, m = t._tab_storage.node, t._tab_meta
    if not m.numel or m.device.type == "meta":
        return
    held = STATE.held
    values = known(node, m)
    if values is not None:
        bad = wanted.first_bad(values)
        if bad is not None:
            raise complaint.of(bad, wanted.high + 1, list(values).index(bad))
        if held is not None:
            held.looks.append((id(node), m, wanted))
        return
    found = facts(node) if held is None else None  # a compiled function may get another tensor next time
    place = _elements(m)
    if found is not None and found.seen is not None:
        epoch, before = found.seen.get(place, (-1, wanted))
        if epoch == _epoch and wanted.takes_all_of(before):
            return
    if node.inst.out.dtype is m.dtype and not m.mark:
        proof = Proof()
        low, high = proof.interval(node) if m.dtype.category < 2 else proof.of_reals(node)
        if wanted.low <= low and high <= wanted.high:
            if held is not None:
                held.looks += [(id(n), n.inst.out, Range(*b)) for n, b in proof.leaves]
            return
    if found is not None:
        if found.seen is None or len(found.seen) > 64:
            found.seen = {}
        found.seen[place] = (_epoch, wanted)
    _emit(node, m, wanted, complaint, operation)


def _elements(m: Meta) -> Any:
    """Which elements of a value a view shows, whatever its shape is."""
    return (m.offset, m.numel) if m.contiguous and not m.mark else m


def _emit(node: Node, m: Meta, wanted: Range, complaint: Complaint, operation: str) -> None:
    file, line = _line()
    site = _Site(complaint, operation, file, line, str(m.device))
    with graph.LOCK:  # an assert of another thread that came between would be lost
        _append(node, m, wanted, site)


def _append(node: Node, m: Meta, wanted: Range, site: _Site) -> None:
    """Makes an assert the last of those on its device."""
    number = _sites.setdefault(site, len(_sites) + 1)
    real = m.dtype.category > 1
    kind = ("f64" if m.dtype.name == "float64" else "f32") if real else "i64"
    exempt = wanted.low if wanted.exempt is None else wanted.exempt
    numbers = (wanted.low, wanted.high, exempt, number)
    log = log_of(m.device)._tab_storage
    last = log.node
    nodes: tuple[Node, ...] = (last, node)
    metas: tuple[Meta, ...] = (last.inst.out, m)
    types: tuple[str, ...] = (kind, kind, kind, "i64")
    if last.buf is None and last.inst.op is ASSERT and last.srcs:  # it waits: one dispatch looks for both
        for j, (n, v) in enumerate(zip(last.srcs[1:], last.inst.ins[1:])):
            if (
                n is node
                and _elements(v) == _elements(m)
                and wanted.takes_all_of(Range(*last.scalars[4 * j : 4 * j + 3]))
            ):
                return
        if len(last.srcs) <= TOGETHER and last.inst.queue.nodes:
            nodes, metas = (*last.srcs, node), (*last.inst.ins, m)
            types, numbers = (*last.inst.scalars, *types), (*last.scalars, *numbers)
    i = inst(ASSERT, metas, last.inst.out, types)
    log.node = emit(i, nodes, numbers)
    arm(m.device.number)


def _line() -> tuple[str, int]:
    """File and line of the script that runs now."""
    f: Any = sys._getframe(2)
    while f is not None:
        if str(f.f_globals.get("__name__")).partition(".")[0] not in ("tabtorch", "torch"):
            return f.f_code.co_filename, f.f_lineno
        f = f.f_back
    return "?", 0


# ---- hearing of it


#: numbers of the devices whose log may say something
_armed: set[int] = set()
#: of those whose values may be on their way to the cpu
carried: set[int] = set()


def arm(device: int) -> None:
    """From now on a read from that device looks at its log."""
    _armed.add(device)
    graph.read_checked = read_watched


def _due(wanted: list[tuple[Node, int, int]]) -> list[int]:
    """The devices whose logs are to be read along. The GPU may have the cpu's values, and the cpu the GPU's."""
    here = {n.inst.out.device.number for n, _, nbytes in wanted if nbytes}
    return [d for d in _armed if d in logs and (d in here or 0 in here or d in carried)]


def _places(due: list[int]) -> list[tuple[Node, int, int]]:
    return [(log_of(logs[d]._tab_meta.device)._tab_storage.node, 0, 8 * _WORDS) for d in due]


def read_watched(wanted: list[tuple[Node, int, int]]) -> list[Any]:
    """`graph.read_many`, with one wait for the logs too; raises what the asserts found."""
    due = _due(wanted)
    found = graph.read_now(wanted + _places(due))
    _hear(due, found[len(wanted) :])
    return found[: len(wanted)]


def raise_found() -> None:
    """Raises what the asserts found, on any device. Waits for those that have something to say."""
    due = [d for d in _armed if d in logs]
    if due:
        _hear(due, graph.read_now(_places(due)))


async def raise_found_async() -> None:
    """The same, without blocking."""
    for device in [d for d in _armed if d in logs]:
        b = graph.buffer_of(log_of(logs[device]._tab_meta.device)._tab_storage.node)
        _hear([device], [await graph.bridge().read_async(b.id, device, 0, 8 * _WORDS)])


def _hear(due: list[int], heard: list[Any]) -> None:
    global _epoch
    _armed.difference_update(due)
    carried.difference_update(due)
    if not _armed:
        graph.read_checked = None
    failed = None
    for d, words in zip(due, heard, strict=True):
        number, *numbers = memoryview(words).cast("q").tolist()
        if number:
            _epoch += 1
            with graph.LOCK:
                logs[d]._tab_storage.node = _empty(logs[d]._tab_meta.device)
            failed = failed or (number, *numbers)
    if failed is not None:
        raise _error(*failed)


def _error(number: int, value: int, most: int, place: int) -> Exception:
    site = next(s for s, n in _sites.items() if n == number)
    e = site.complaint.of(value, most + 1, place)
    text = linecache.getline(site.file, site.line).strip()
    e.args = (
        f"{e.args[0]}\nThe device ({site.device}) found this when it ran {site.operation}, which was called at "
        f"{site.file}:{site.line}" + (f" (`{text}`)" if text else "") + ".",
    )
    return e
