"""Formats of packed weights: a row each, how many weights a block has, in how many bytes, and what weight `j` of a block is.

The formats are those of ggml (https://github.com/ggml-org/ggml, `ggml-quants.c`), under its names and with its numbers in
files. A value is an expression over the bytes of a block, so whoever reads a weight computes it: no kernel unpacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tabtorch.engine.expr import Expr, bitcast, cast, const, idiv, imod, where


def u(n: int) -> Expr:
    """A constant of the type of indices."""
    number: Expr = const(n, "u32")
    return number


class Block:
    """One block, as a value's expression sees it: numbers at a byte from where it begins."""

    def __init__(self, byte: Callable[[Expr], Expr], half: Callable[[Expr], Expr], begin: Any) -> None:
        self._byte = byte
        self._half = half
        self._begin = begin

    def u8(self, at: Any) -> Any:
        """The byte there, as u32."""
        return self._byte(self._begin + at)

    def i8(self, at: Any) -> Any:
        """The signed byte there, as f32."""
        return cast((cast(self.u8(at), "i32") ^ 128) - 128, "f32")

    def f16(self, at: int) -> Any:
        """The half-precision number there (at an even place), as f32."""
        return self._half(idiv(self._begin + at, u(2)))


class Format(NamedTuple):
    """A format of blocks. `number`: ggml's for the type of a tensor in a file."""

    name: str
    number: int
    weights: int
    nbytes: int
    value: Callable[[Block, Any], Any]


def _real(x: Any) -> Any:
    return cast(cast(x, "i32"), "f32")


def _nibble(b: Block, start: int, j: Any, n: int = 16) -> Any:
    """Of 2n weights of four bits in n bytes: the lower halves of the bytes come first, then the upper ones."""
    return (b.u8(imod(j, u(n)) + start) >> (idiv(imod(j, u(2 * n)), u(n)) * 4)) & 15


def _bit(b: Block, start: int, j: Any) -> Any:
    """Bit j of the bytes from `start` on."""
    return (b.u8(idiv(j, u(8)) + start) >> imod(j, u(8))) & 1


def _pair(b: Block, start: int, j: Any) -> Any:
    """Two bits of weight j of 256: of each 32 bytes the lowest bits are the first 32 weights."""
    return (b.u8(idiv(j, u(128)) * 32 + imod(j, u(32)) + start) >> (idiv(imod(j, u(128)), u(32)) * 2)) & 3


def _plane(b: Block, start: int, j: Any) -> Any:
    """One bit of weight j of 256: bit k of 32 bytes belongs to the weights from 32 k on."""
    return (b.u8(imod(j, u(32)) + start) >> idiv(j, u(32))) & 1


def lookup(table: Sequence[int], i: Any) -> Any:
    """The i-th of 16 signed bytes, as f32: they lie in four words."""
    words = [
        const(int.from_bytes(bytes(x & 255 for x in table[k : k + 4]), "little"), "u32")
        for k in range(0, len(table), 4)
    ]
    word = where(i < 8, where(i < 4, words[0], words[1]), where(i < 12, words[2], words[3]))
    byte = (word >> (imod(i, u(4)) * 8)) & 255
    return cast((cast(byte, "i32") ^ 128) - 128, "f32")


def _q4_0(b: Block, j: Any) -> Any:
    return b.f16(0) * (_real(_nibble(b, 2, j)) - 8.0)


def _q4_1(b: Block, j: Any) -> Any:
    return b.f16(0) * _real(_nibble(b, 4, j)) + b.f16(2)


def _q5_0(b: Block, j: Any) -> Any:
    return b.f16(0) * (_real(_nibble(b, 6, j) | (_bit(b, 2, j) << 4)) - 16.0)


def _q5_1(b: Block, j: Any) -> Any:
    return b.f16(0) * _real(_nibble(b, 8, j) | (_bit(b, 4, j) << 4)) + b.f16(2)


def _q8_0(b: Block, j: Any) -> Any:
    return b.i8(j + 2) * b.f16(0)


def _q2_k(b: Block, j: Any) -> Any:
    scale = b.u8(idiv(j, u(16)))
    return b.f16(80) * _real(scale & 15) * _real(_pair(b, 16, j)) - b.f16(82) * _real(scale >> 4)


def _q3_k(b: Block, j: Any) -> Any:
    s = idiv(j, u(16))
    low = b.u8(imod(s, u(8)) + 96) >> (idiv(s, u(8)) * 4)
    high = b.u8(imod(s, u(4)) + 104) >> (idiv(s, u(4)) * 2)
    scale = _real((low & 15) | ((high & 3) << 4)) - 32.0
    value = _real(_pair(b, 32, j) | (_plane(b, 0, j) << 2)) - 4.0  # the third bit says that nothing is taken away
    return b.f16(108) * scale * value


def _scales(b: Block, j: Any) -> tuple[Any, Any]:
    """The scale and the minimum of the 32 weights around j, six bits each; eight of both lie in twelve bytes."""
    s = idiv(j, u(32))
    t = imod(s, u(4))
    scale, least, rest = b.u8(t + 4), b.u8(t + 8), b.u8(t + 12)
    first = s < 4
    d = where(first, scale & 63, (rest & 15) | ((scale >> 2) & 48))
    m = where(first, least & 63, (rest >> 4) | ((least >> 2) & 48))
    return b.f16(0) * _real(d), b.f16(2) * _real(m)


def _q4_k(b: Block, j: Any) -> Any:
    d, m = _scales(b, j)
    byte = b.u8(idiv(j, u(64)) * 32 + imod(j, u(32)) + 16)
    return d * _real((byte >> (imod(idiv(j, u(32)), u(2)) * 4)) & 15) - m


def _q5_k(b: Block, j: Any) -> Any:
    d, m = _scales(b, j)
    byte = b.u8(idiv(j, u(64)) * 32 + imod(j, u(32)) + 48)
    low = (byte >> (imod(idiv(j, u(32)), u(2)) * 4)) & 15
    return d * _real(low | (_plane(b, 16, j) << 4)) - m


def _q6_k(b: Block, j: Any) -> Any:
    byte = b.u8(idiv(j, u(128)) * 64 + imod(j, u(64)))
    low = (byte >> (idiv(imod(j, u(128)), u(64)) * 4)) & 15
    return b.f16(208) * b.i8(idiv(j, u(16)) + 192) * (_real(low | (_pair(b, 128, j) << 4)) - 32.0)


#: of the formats that are not linear (`kvalues_iq4nl` and `kvalues_mxfp4` of ggml)
_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_FP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _iq4_nl(b: Block, j: Any) -> Any:
    return b.f16(0) * lookup(_IQ4, _nibble(b, 2, j))


def _iq4_xs(b: Block, j: Any) -> Any:
    s = idiv(j, u(32))
    low = b.u8(idiv(s, u(2)) + 4) >> (imod(s, u(2)) * 4)
    high = b.u8(idiv(s, u(4)) + 2) >> (imod(s, u(4)) * 2)
    scale = _real((low & 15) | ((high & 3) << 4)) - 32.0
    byte = b.u8(s * 16 + imod(j, u(16)) + 8) >> (idiv(imod(j, u(32)), u(16)) * 4)
    return b.f16(0) * scale * lookup(_IQ4, byte & 15)


def _mxfp4(b: Block, j: Any) -> Any:
    e = b.u8(0)  # an exponent; half of that power of two, for the table has everything twice
    half = bitcast(where(e < 2, const(0x00200000, "u32") << e, (e - 1) << 23), "f32")
    return half * lookup(_FP4, _nibble(b, 1, j))


FORMATS = {
    f.name: f
    for f in (
        Format("Q4_0", 2, 32, 18, _q4_0),
        Format("Q4_1", 3, 32, 20, _q4_1),
        Format("Q5_0", 6, 32, 22, _q5_0),
        Format("Q5_1", 7, 32, 24, _q5_1),
        Format("Q8_0", 8, 32, 34, _q8_0),
        Format("Q2_K", 10, 256, 84, _q2_k),
        Format("Q3_K", 11, 256, 110, _q3_k),
        Format("Q4_K", 12, 256, 144, _q4_k),
        Format("Q5_K", 13, 256, 176, _q5_k),
        Format("Q6_K", 14, 256, 210, _q6_k),
        Format("IQ4_NL", 20, 32, 18, _iq4_nl),
        Format("IQ4_XS", 23, 256, 136, _iq4_xs),
        Format("MXFP4", 39, 32, 17, _mxfp4),
    )
}
