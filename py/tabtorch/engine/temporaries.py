"""Where the temporaries of a plan lie: by offset in a few pieces of memory, for the sizes at hand.

Two lie at the same place if their lives do not overlap. What one dispatch reads and writes lies in different pieces, because
WebGPU looks at whole buffers there: one is either read or written by a dispatch, and copied to another, never to itself.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappop, heappush

#: bytes; where a binding may begin on every device
ALIGNMENT = 256
#: bytes of all temporaries, below which it does not pay to look for the best place
LITTLE = 4 << 20

#: of each temporary: its piece, and at which byte it begins there
Places = list[tuple[int, int]]


def lay_out(
    lives: Sequence[tuple[int, int]], sizes: Sequence[int], apart: Sequence[Sequence[int]], limit: int
) -> tuple[list[int], Places]:
    """Bytes of each piece, and the place of each temporary.

    lives: the first and the last step that names it, in the order of the first ones. sizes: bytes. apart: those of which a
    dispatch or a copy reads one and writes the other, by number. limit: bytes of the largest piece (a larger temporary has a
    piece of its own).
    """
    if sum(sizes) <= LITTLE:
        return _whole_pieces(lives, sizes)
    # the largest first: what is small finds a place between
    pieces: list[int] = []
    lying: list[list[tuple[int, int, int, int]]] = []  # of each piece: (first step, last step, begin, end)
    places: Places = [(-1, 0)] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        first, last = lives[i]
        size = -(-sizes[i] // ALIGNMENT) * ALIGNMENT
        taken = {places[j][0] for j in apart[i]}
        best: tuple[int, int, int] | None = None  # (bytes that the piece grows by, begin, piece)
        for j, others in enumerate(lying):
            if j in taken:
                continue
            begin = 0
            for at, end in sorted([(a, e) for f, l, a, e in others if f <= last and first <= l]):
                if at - begin >= size:
                    break
                begin = max(begin, end)
            grows = max(0, begin + size - pieces[j])
            if pieces[j] + grows <= limit and (best is None or (grows, begin, j) < best):
                best = grows, begin, j
        if best is None:
            best = size, 0, len(pieces)
            pieces.append(0)
            lying.append([])
        grows, begin, j = best
        pieces[j] += grows
        lying[j].append((first, last, begin, begin + size))
        places[i] = j, begin
    return pieces, places


def _whole_pieces(lives: Sequence[tuple[int, int]], sizes: Sequence[int]) -> tuple[list[int], Places]:
    """The same in a hurry: a piece serves one temporary at a time, and the next if that is about as large."""
    pieces: list[int] = []
    places: Places = []
    unused: list[tuple[int, int]] = []  # (bytes, piece)
    ending: list[tuple[int, int]] = []  # (last step, piece)
    for (first, last), size in zip(lives, sizes, strict=True):
        while ending and ending[0][0] < first:
            j = heappop(ending)[1]
            insort(unused, (pieces[j], j))
        at = bisect_left(unused, (size, 0))
        if at < len(unused) and unused[at][0] <= 2 * size + 64:
            j = unused.pop(at)[1]
        else:
            j = len(pieces)
            pieces.append(size)
        heappush(ending, (last, j))
        places.append((j, 0))
    return pieces, places
