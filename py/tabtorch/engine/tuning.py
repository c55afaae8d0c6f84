"""Layouts of products that were measured, in the place of those that `tiles.py` computes: what `torch.cuda.tunable` turns on.

While it is on, `make_plan` asks `measured` for the layouts of a window's products. They are part of what a schedule is kept by, so a
schedule serves all sizes of which the table says the same, and no size becomes a guard. What the table lacks is noted, for
measuring.py. Off, nobody asks.

A product is named as PyTorch's TunableOp names a GEMM, in the manner of BLAS, whose matrices lie column by column: of `a @ b`, b comes
first. "GemmTunableOp_float_TN" and "tn_N_M_K_ld_LDB_LDA_N": T, of b, where it lies along k, and of a, where it does not.
What is no plain matrix, an image under a convolution, is named by its sizes and strides.
"""

from __future__ import annotations

import os
import re
import zlib
from typing import TYPE_CHECKING, NamedTuple

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.base.device import webgpu
from tabtorch.base.package_files import kernel
from tabtorch.version import TABTORCH, TORCH

from .. import bridge as _bridges
from . import graph, matvec, tiles, tuning_store, window
from .contractions import sizes
from .instructions import Inst, inst
from .kinds import Contract
from .memory import bridge, largest
from .tiles import Layout
from .view import Meta, collapse, contiguous_meta, meta

if TYPE_CHECKING:
    from .nodes import Node
    from .target import Target

#: as PyTorch writes them
_TYPES = {"float32": "float", "float16": "Half", "bfloat16": "BFloat16"}
#: bytes of memory, at most, that a product is measured in: operands, result and parts of it
_MOST_BYTES = 1 << 28


class Product(NamedTuple):
    """A contraction as the table knows it. inst: what is run to measure it."""

    op: str
    parameters: str
    inst: Inst

    @property
    def key(self) -> tuple[str, str]:
        return self.op, self.parameters


class Result(NamedTuple):
    """layout: None for the one that is computed. ms: what a run of it takes, 0 where that is not known."""

    layout: Layout | None
    ms: float


def name_of(layout: Layout | None) -> str:
    """E.g. "Tiles_64x128_SplitK_3": rows and columns of results that a workgroup makes, parts of k."""
    return "Default" if layout is None else f"Tiles_{8 * layout[1]}x{8 * layout[0]}_SplitK_{layout[2]}"


def layout_of(name: str) -> Layout | None:
    """The opposite of `name_of`. ValueError if it is no name of a layout."""
    if name == "Default":
        return None
    found = re.fullmatch(r"Tiles_(64|128)x(64|128)_SplitK_([1-9]\d?)", name)
    if found is None or int(found[3]) > 64:
        raise ValueError(f"{name!r} is no layout")
    return int(found[2]) // 8, int(found[1]) // 8, int(found[3])


# ---- settings. As in PyTorch, the environment is read once, and some of it comes before what is set


def _number(name: str, default: int) -> int:
    text = os.environ.get(name)
    return default if text is None else max(0, int(text))


class Settings:
    """What `torch.cuda.tunable` sets, with its defaults. Times in ms, `rotating` in bytes."""

    def __init__(self) -> None:
        env = os.environ.get
        self.on = False
        self.tuning = True
        self.record = False
        self.always_on = env("PYTORCH_TUNABLEOP_ENABLED") == "1"
        self.never_tuning = env("PYTORCH_TUNABLEOP_TUNING") == "0"
        self.always_record = env("PYTORCH_TUNABLEOP_RECORD_UNTUNED") == "1"
        self.duration = _number("PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS", 30)
        self.iterations = _number("PYTORCH_TUNABLEOP_MAX_TUNING_ITERATIONS", 100)
        self.rotating = _number("PYTORCH_TUNABLEOP_ROTATING_BUFFER_SIZE", 0) << 20
        self.tolerances: tuple[float, float] | None = None  # (atol, rtol)
        self.named = "PYTORCH_TUNABLEOP_FILENAME" in os.environ  # whether somebody wants that file
        self.filename = with_ordinal(env("PYTORCH_TUNABLEOP_FILENAME", "tunableop_results.csv"))
        self.untuned = with_ordinal(env("PYTORCH_TUNABLEOP_UNTUNED_FILENAME", "tunableop_untuned.csv"))


def with_ordinal(filename: str) -> str:
    """The name with the device's number, 0, in the place of %d, or before the ending."""
    if "%d" in filename:
        return filename.replace("%d", "0")
    head, dot, ending = filename.rpartition(".")
    return f"{head}0.{ending}" if dot else f"{filename}0"


settings = Settings()


def enabled() -> bool:
    return settings.on or settings.always_on


def tunes() -> bool:
    return settings.tuning and not settings.never_tuning


def records() -> bool:
    return settings.record or settings.always_record


def switch() -> None:
    """Does what the settings say from now on: windows are planned anew."""
    if noted and not (enabled() and tunes()):
        _lazy.measuring.stop()
    wanted = measured if enabled() else None
    if window.measured is not wanted:
        window.measured = wanted
        renew()


def renew() -> None:
    """Has plans made with the layouts that are known now."""
    window.layouts_version += 1
    graph.forget_plans()


# ---- products


def product(t: Target, n: Node) -> Product | None:
    """The product that node `n` is, if tiles do it and its layout can be chosen."""
    i = n.inst
    if (
        not i.op.rereads
        or not t.barriers
        or t.matrices
        or any(s.buf is None and s.inst.op.blocks is not None for s in n.srcs)
    ):
        return None
    if i not in _products:
        if len(_products) > 4096:
            _products.clear()
        _products[i] = _product(t, i)
    return _products[i]


_products: dict[Inst, Product | None] = {}
_bridges.on_close(_products.clear)


def _product(t: Target, i: Inst) -> Product | None:
    a, b = i.ins
    kind = _TYPES.get(a.dtype.name)
    if kind is None or b.dtype is not a.dtype or i.compute != "f32" or not (tiles.does(t, "f32", *sizes(i))):
        return None
    if matvec.serves(t, i) or a.mark or b.mark or min((*a.strides, *b.strides)) < 0:
        return None
    fold, (batch, m, n) = tiles.folded(t, i)
    k = sizes(i)[3]
    shown = [_dims(i, which, fold) for which in (0, 1)]
    of_a, of_b = (_matrix(x) for x in shown)
    ins = tuple([meta(x.shape, x.strides, 0, x.dtype, x.device) for x in i.ins])
    run = inst(i.op, ins, contiguous_meta(i.out.shape, i.out.dtype, i.out.device), static=i.static, compute="f32")
    if of_a is None or of_b is None:
        a_text, b_text = ("/".join("+".join(f"{n}x{s}" for n, s in found) for found in x) for x in shown)
        return Product(f"ContractionTunableOp_{kind}", f"{n}_{m}_{k}_B_{batch}_b_{b_text}_a_{a_text}", run)
    along = ("N" if of_b[0] else "T") + ("T" if of_a[0] else "N")
    of_batch = f"_B_{batch}" if batch > 1 else ""
    parameters = f"{along.lower()}_{n}_{m}_{k}{of_batch}_ld_{of_b[1]}_{of_a[1]}_{n}"
    return Product(f"Gemm{'StridedBatched' if batch > 1 else ''}TunableOp_{kind}_{along}", parameters, run)


#: (size, stride) of dimensions
Dims = list[tuple[int, int]]


def _dims(i: Inst, which: int, fold: int | None) -> tuple[Dims, Dims, Dims]:
    """Those of an operand's batch, of its rows, or columns, and of k; neighbours that one stride walks are one."""
    nb, nm, nn, _ = i.static
    m = i.ins[which]
    start, end = (nb, nb + nm) if which == 0 else (nb + nm, nb + nm + nn)

    def dims(*spans: tuple[int, int]) -> Dims:
        shape = sum((m.shape[a:b] for a, b in spans), ())
        strides = sum((m.strides[a:b] for a, b in spans), ())
        return list(zip(*collapse(shape, strides)))

    of_batch = dims((0, nb)) if fold is None else []
    own = dims((0, nb), (start, end)) if fold == which else dims((start, end))
    return of_batch, own, dims((nb + nm + nn, m.ndim))


def _matrix(dims: tuple[Dims, Dims, Dims]) -> tuple[bool, int] | None:
    """(whether rows, or columns, lie next to each other rather than k; the other stride). None for what is no plain matrix."""
    of_batch, own, along = dims
    if len(of_batch) <= 1 and len(own) == len(along) == 1:
        (rows, stride), (k, step) = own[0], along[0]
        if step == 1 and stride >= k:
            return False, stride
        if stride == 1 and step >= rows:
            return True, step
    return None


_CONTRACT = Contract("matmul")


def parsed(op: str, parameters: str) -> Product:
    """The product of a line of a file, this one's or PyTorch's. ValueError where it is none of plain matrices."""
    kind = re.fullmatch(r"Gemm(StridedBatched)?TunableOp_(\w+)_([NT])([NT])", op)
    found = re.fullmatch(r"[nt]{2}_(\d+)_(\d+)_(\d+)(?:_B_(\d+))?_ld_(\d+)_(\d+)_(\d+)", parameters)
    names = {shown: name for name, shown in _TYPES.items()} | {"tf32": "float32"}
    if kind is None or found is None or kind[2] not in names:
        raise ValueError(f"{op},{parameters} is no product that can be measured here")
    n, m, k, batch, ldb, lda, _ = (int(x or 1) for x in found.groups())
    dtype = getattr(dtypes, names[kind[2]])

    def operand(lies_along_k: bool, own: int, ld: int) -> tuple[int, int, int]:
        """Strides of batch, rows and k."""
        if ld < (k if lies_along_k else own):
            raise ValueError(f"{op},{parameters}: a leading dimension is too small")
        return (own * ld, ld, 1) if lies_along_k else (k * ld, 1, ld)

    of_a, of_b = operand(kind[4] == "N", m, lda), operand(kind[3] == "T", n, ldb)
    nb = int(batch > 1)
    shape = (batch, m, n, k)[1 - nb :]
    a = meta(shape, (of_a[0], of_a[1], 0, of_a[2])[1 - nb :], 0, dtype, webgpu)
    b = meta(shape, (of_b[0], 0, of_b[1], of_b[2])[1 - nb :], 0, dtype, webgpu)
    run = inst(_CONTRACT, (a, b), contiguous_meta(shape[:-1], dtype, webgpu), static=(nb, 1, 1, 1), compute="f32")
    return Product(op, parameters, run)


def candidates(t: Target, i: Inst) -> list[Layout]:
    """The layouts to be compared, the one that is computed first."""
    batch, m, n = tiles.folded(t, i)[1]
    k = sizes(i)[3]
    first = tiles._laid_out(batch, m, n, k)
    seen = {tiles.parts(t, batch, m, n, k, first)}
    found = [first]
    for x in (16, 8) if n > 64 else (8,):
        for y in (16, 8) if m > 64 else (8,):
            groups = -(-m // (8 * y)) * -(-n // (8 * x)) * batch
            for cut in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
                layout = (x, y, cut)
                few = groups * cut <= 8 * tiles._PROCESSORS  # more workgroups than these need no cutting
                if cut > 1 and not (few and cut * (64 if k >= 512 else 128) <= k and fits(i, layout)):
                    continue
                laid = tiles.parts(t, batch, m, n, k, layout)
                if laid not in seen:
                    seen.add(laid)
                    found.append(layout)
    return found


def fits(i: Inst, layout: Layout) -> bool:
    """Whether a grid has room for it, and a buffer for the parts of the results."""
    return sizes(i)[0] * layout[2] <= 65535 and (layout[2] < 2 or i.out.numel * layout[2] * 4 <= largest(0))


def extent(m: Meta) -> int:
    """Elements of memory from the first that a view reads to the last."""
    return 1 + sum((n - 1) * s for n, s in zip(m.shape, m.strides))


def timed(t: Target) -> bool:
    """Whether the device tells how long dispatches take."""
    return "timestamp-query" in t.features


def too_large(p: Product) -> bool:
    """Whether measuring it would take too much memory."""
    nbytes = [*(extent(m) * m.dtype.itemsize for m in p.inst.ins), p.inst.out.numel * 4]
    return max(nbytes) > largest(0) or sum(nbytes) > _MOST_BYTES


# ---- the table

#: what is known, of the device that there is
table: dict[tuple[str, str], Result] = {}
#: what was met, and is to be measured
noted: dict[tuple[str, str], Product] = {}
#: what is not measured again, because it failed
refused: set[tuple[str, str]] = set()
_recorded: set[tuple[str, str]] = set()
#: whether the table has what was kept of it
_loaded = [False]


def measured(t: Target, nodes: list[Node]) -> dict[int, Layout]:
    """Of the products among the nodes of a window, by position, the layouts that the table has. Notes what it lacks."""
    load()
    t.baselines = False  # what is timed is what runs in the end
    found = {}
    for n in nodes:
        p = product(t, n)
        if p is None:
            continue
        result = table.get(p.key)
        if result is None:
            note(t, p)
        elif result.layout is not None and fits(p.inst, result.layout):
            found[n.pos] = result.layout
    return found


def note(t: Target, p: Product) -> None:
    """A product that the table lacks: to be measured, or written to a file."""
    if records() and p.key not in _recorded:
        _recorded.add(p.key)
        with open(settings.untuned, "a", encoding="utf-8") as file:
            file.write(f"{p.op},{p.parameters}\n")
    if not tunes() or records() or not timed(t) or p.key in refused or too_large(p):
        return
    if p.key not in noted:
        noted[p.key] = p
        _lazy.measuring.begin()


def forget() -> None:
    """The runtime has ended: the next one may have another device."""
    table.clear()
    noted.clear()
    refused.clear()
    _loaded[0] = False


_bridges.on_close(forget)
# what is planned for another runtime has its computed layouts
_bridges.keeps(vars(window), "measured", lambda: None)


# ---- files


def validators() -> tuple[tuple[str, str], ...]:
    """(name, value) of what results hang on: those of another device or version are refused."""
    known = bridge().info.get("webgpu") or {}
    adapter = known.get("adapter", {})
    words = [str(adapter[x]) for x in ("vendor", "architecture", "device", "description") if adapter.get(x)]
    return (
        ("PT_VERSION", TORCH),
        ("TABTORCH_VERSION", TABTORCH),
        ("WEBGPU_ADAPTER", " ".join(words).replace(",", ";")),
        ("KERNEL", f"{zlib.crc32(kernel('matmul.wgsl').encode()):08x}"),
    )


def written() -> str:
    """The table as the text of a file."""
    lines = [f"Validator,{name},{value}" for name, value in validators()]
    lines += [f"{op},{parameters},{name_of(r.layout)},{r.ms:.6g}" for (op, parameters), r in table.items()]
    return "\n".join([*lines, ""])


def read(text: str) -> bool:
    """Takes what a file has, and the table has not, into that. False, and nothing, if its validators are not those of this device and
    version."""
    lines = [line.split(",") for line in text.splitlines()]
    said = {line[1]: line[2] for line in lines if line[0] == "Validator" and len(line) == 3}
    if said != dict(validators()):
        return False
    found = {}
    for line in lines:
        if line[0] == "Validator" or len(line) not in (3, 4):
            continue
        try:
            found[line[0], line[1]] = Result(layout_of(line[2]), float(line[3]) if len(line) == 4 else 0.0)
        except ValueError:  # of no layout that there is
            continue
    for key, result in found.items():
        table.setdefault(key, result)
    gone = [noted.pop(key) for key in found if key in noted]
    if gone and not noted:
        _lazy.measuring.stop()
    return True


def read_file(filename: str) -> bool:
    try:
        with open(filename, encoding="utf-8") as file:
            return read(file.read())
    except (OSError, UnicodeDecodeError):
        return False


def load() -> None:
    """Takes in what was kept, once: the file, and in a tab what its IndexedDB has as soon as that comes."""
    if _loaded[0]:
        return
    _loaded[0] = True
    if settings.named or not _bridges.IN_TAB:
        read_file(settings.filename)
    if _bridges.IN_TAB:
        tuning_store.load(dict(validators())["WEBGPU_ADAPTER"], _from_store)


def _from_store(text: str) -> None:
    if read(text) and enabled():
        renew()


def keep() -> None:
    """Writes the table to the file, and in a tab to its IndexedDB. A file that cannot be written is left."""
    if settings.named or not _bridges.IN_TAB:
        try:
            with open(settings.filename, "w", encoding="utf-8") as file:
                file.write(written())
        except OSError:
            pass
    if _bridges.IN_TAB:
        tuning_store.save(dict(validators())["WEBGPU_ADAPTER"], written())


__all__ = ["Product", "Result", "candidates", "enabled", "measured", "settings", "switch"]
