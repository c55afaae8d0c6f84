"""Row kernels: reductions and contractions with the maps before, between and after them, in one pass or a few over each row.

A group of `fuse.py` comes in, launches of the plan go out. Rows that are long and few are cut into chunks (`row_chunks.py`), on GPUs
those whose elements lie apart in tiles (`row_tiles.py`); rows of moderate length are held in registers on GPUs
(`row_registers.py`), short ones of windows by a thread each (`row_windows.py`); for others the kernel goes over the row again for
each pass (`row_kernel.py`). Contractions that a tuned kernel serves go to `tiles.py` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .row_chunks import ChunkKernel, emit_chunks
from .row_kernel import RowKernel, launch, neighbours
from .row_registers import RegisterKernel, form
from .row_tiles import TileKernel, serves
from .row_windows import WindowKernel
from .row_windows import serves as windows

if TYPE_CHECKING:
    from .fuse import Group
    from .plan import Builder


def emit(b: Builder, g: Group) -> None:
    """Writes the launches of a `row` or `contract` group."""
    near = neighbours(b, g)
    split = b.target.split(g.O, g.K, near)
    if split is not None:
        tiles = b.target.barriers and not near and serves(b, g)
        emit_chunks(b, g, *split, TileKernel if tiles else ChunkKernel)
        return
    registers = form(b, g)
    if windows(b, g):
        launch(b, g, WindowKernel)
    elif registers is not None:
        launch(b, g, RegisterKernel, *registers)
    else:
        launch(b, g, RowKernel)
