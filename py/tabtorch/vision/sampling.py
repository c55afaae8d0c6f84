"""What operators on images share: the four neighbours of a place between pixels, in a kernel."""

from __future__ import annotations

from typing import Any

from tabtorch.engine.expr import Expr, cast, const, floor, maximum, minimum, where
from tabtorch.engine.kernel import Kernel
from tabtorch.engine.lower import coordinates


def coords(k: Kernel, shape: tuple[int, ...], t: Expr, size: int) -> list[Expr]:
    """The coordinates of element `t` of a dense array of that shape."""
    return [k.let(c, "c") for c in coordinates(k, shape, [(t, size, "d")], "c")]


def flat(k: Kernel, at: list[Expr], shape: tuple[int, ...], role: str) -> Expr:
    """The place of these coordinates in a dense array."""
    place = at[0]
    for d, c in enumerate(at[1:], 1):
        place = place * k.dim(shape[d], (role, d)) + c
    return k.let(place, "at")


def whole(k: Kernel, x: Expr, least: Expr, most: Expr) -> Expr:
    """A real number that is an integer as u32, between two of them; those are of x's type. NaN is one of the two."""
    return k.let(cast(minimum(maximum(x, least), most), "u32"), "n")


class Bilinear:
    """The neighbours of (y, x) in an image of height h and width w: places in a plane, and weights.

    From one pixel outside of the image on there is nothing (`inside` is false). Up to there it is the pixel at the edge
    (`clamped`, as in torchvision's roi_align), or a mean with zeros (as in deform_conv2d).
    """

    def __init__(self, k: Kernel, y: Expr, x: Expr, h: Expr, w: Expr, clamped: bool) -> None:
        self.k = k
        self.w = w
        self.clamped = clamped
        type = y.type
        fh, fw = cast(h, type), cast(w, type)
        if clamped:
            self.inside = k.let((y >= -1) & (y <= fh) & (x >= -1) & (x <= fw), "inside")
        else:
            self.inside = k.let((y > -1) & (y < fh) & (x > -1) & (x < fw), "inside")
        self.rows, self.columns = self._axis(y, h), self._axis(x, w)

    def _axis(self, y: Expr, h: Expr) -> list[tuple[Expr, Expr, Expr]]:
        """(pixel, weight, whether it is one) of both neighbours along one axis."""
        k, type = self.k, y.type
        zero, one = const(0, type), const(1, type)
        last = k.let(cast(h - 1, type), "last")
        true = const(True, "bool")
        if self.clamped:
            y = k.let(maximum(y, zero), "y")
            low = k.let(minimum(floor(y), last), "low")
            high = k.let(minimum(low + one, last), "high")
            part = k.let(where(low >= last, zero, y - low), "part")
            return [(whole(k, low, zero, last), k.let(one - part), true), (whole(k, high, zero, last), part, true)]
        low = k.let(floor(y), "low")
        high = k.let(low + one, "high")
        part = k.let(y - low, "part")
        return [
            (whole(k, low, zero, last), k.let(one - part), k.let((low >= zero) & (low <= last))),
            (whole(k, high, zero, last), part, k.let((high >= zero) & (high <= last))),
        ]

    def neighbours(self) -> list[tuple[Expr, Expr, Expr]]:
        """(place, weight, whether there is such a pixel) of each of the four, rows first."""
        found = []
        for y, wy, ys in self.rows:
            for x, wx, xs in self.columns:
                there = ys if self.clamped else ys & xs
                found.append((self.k.let(y * self.w + x, "at"), self.k.let(wy * wx, "weight"), there))
        return found

    def read(self, load: Any) -> Expr:
        """The value there. `load(place)`: that of a pixel."""
        k = self.k
        total = None
        for at, weight, there in self.neighbours():
            v = k.let(load(at), "v")
            part = weight * (v if self.clamped else where(there, v, const(0, v.type)))
            total = part if total is None else total + part
        return k.let(total, "value")

    def slopes(self, load: Any) -> tuple[Expr, Expr]:
        """The derivatives of that value by y and by x (where it is not clamped)."""
        k = self.k
        (y0, wy0, _), (y1, wy1, _) = self.rows
        (x0, wx0, _), (x1, wx1, _) = self.columns
        v = []
        for at, _, there in self.neighbours():
            x = k.let(load(at), "v")
            v.append(k.let(where(there, x, const(0, x.type)), "v"))
        return k.let(wx0 * (v[2] - v[0]) + wx1 * (v[3] - v[1]), "dy"), k.let(
            wy0 * (v[1] - v[0]) + wy1 * (v[3] - v[2]), "dx"
        )
