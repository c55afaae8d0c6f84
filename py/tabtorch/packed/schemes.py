"""Schemes whose scales are tensors of their own: GPTQ, AWQ, compressed-tensors, bitsandbytes, torchao's and onnxruntime's. A row
each.

`w` is the weight, of (rows, columns); `value` is the weight at a row and a column as an expression over the parts, which are
tensors as checkpoints have them. `check` raises ValueError where the parts' types and sizes contradict the weight's.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from tabtorch.base import dtypes
from tabtorch.engine.expr import bitcast, cast, const, fit, idiv, imod, minimum, where
from tabtorch.packed.formats import u

#: the types that scales may have
FLOATS = (dtypes.float32, dtypes.float16, dtypes.bfloat16)


class Parts:
    """The parts of a weight, as the expression of its value sees them: `p` is the point of an indexed map."""

    def __init__(self, p: Any) -> None:
        self.p = p

    def size(self, part: int, dim: int) -> Any:
        """The size of a part along a dimension."""
        return self.p.dim(self.p.inst.ins[part].shape[dim], ("part", part, dim))

    def real(self, part: int, *at: Any) -> Any:
        """An element as f32."""
        return cast(self.p.at(part, list(at)), "f32")

    def byte(self, part: int, *at: Any) -> Any:
        """An element of a part of bytes, as u32."""
        return cast(self.p.at(part, list(at)), "u32")

    def word(self, part: int, *at: Any) -> Any:
        """An element of a part of int32, as the u32 of the same bits."""
        return bitcast(self.p.at(part, list(at)), "u32")

    def group(self, part: int, dim: int, column: Any) -> Any:
        """The group of a column, where a part has one element for each of them along `dim`."""
        each = self.p.inst.out.shape[-1] // self.p.inst.ins[part].shape[dim]
        return idiv(column, self.p.dim(each, ("columns of a group", part)))

    def option(self, i: int) -> Any:
        """A number of the weight that is a size."""
        return self.p.dim(self.p.static[i], ("option", i))


class Separate(NamedTuple):
    """A scheme of several parts. `options`: how many sizes it has besides."""

    name: str
    value: Callable[[Parts, Any, Any], Any]
    check: Callable[[list[Any], int, int, tuple[int, ...]], None]
    options: int = 0


def _real(x: Any) -> Any:
    return cast(cast(x, "i32"), "f32")


def require(holds: bool, what: str) -> None:
    """ValueError unless it holds."""
    if not holds:
        raise ValueError(what)


def _part(m: Any, dtype: Any, shape: tuple[int, ...], what: str) -> None:
    """ValueError unless the view of a part is of one of those types and of that shape."""
    kinds = dtype if isinstance(dtype, tuple) else (dtype,)
    names = " or ".join(str(d) for d in kinds)
    have = f"{m.dtype} of {list(m.shape)}"
    require(m.dtype in kinds and tuple(m.shape) == shape, f"{what} must be {names} of {list(shape)}, but is {have}")


def _number_of_parts(ins: list[Any], names: str) -> None:
    require(len(ins) == len(names.split()), f"the parts must be {names}, but there are {len(ins)} tensors")


def _groups(m: Any, dim: int, columns: int) -> int:
    """How many groups a part of scales has, where the columns are cut into equal ones."""
    groups: int = m.shape[dim] if m.ndim == 2 else 0
    require(groups > 0 and columns % groups == 0, f"scales of {list(m.shape)} do not divide {columns} columns")
    return groups


# ---- GPTQ


def _gptq(bits: int, more: int) -> Separate:
    """Codes of so many bits, column after column, in words of 32: (columns * bits / 32, rows); zeros along rows, one for each group.

    more: what zeros are stored without: 1 in the first version of the format. `g_idx` is the group of each column.
    """
    most = (1 << bits) - 1

    def code(word: Callable[[Any], Any], at: Any, words: Any) -> Any:
        if 32 % bits == 0:
            return (word(idiv(at, u(32 // bits))) >> (imod(at, u(32 // bits)) * bits)) & most
        bit = at * bits  # a code may lie in two words
        first, shift = idiv(bit, u(32)), imod(bit, u(32))
        low = word(first) >> shift
        high = (word(minimum(first + 1, words - 1)) << 1) << (u(31) - shift)
        return (low | high) & most

    def value(w: Parts, row: Any, column: Any) -> Any:
        last = w.size(2, 0) - 1
        group = minimum(w.word(3, column), last)  # a g_idx that is none takes the last group
        q = code(lambda at: w.word(0, at, row), column, w.size(0, 0))
        zero = code(lambda at: w.word(1, group, at), row, w.size(1, 1))
        zero = (zero + more) & most if more else zero
        return (_real(q) - _real(zero)) * w.real(2, group, row)

    def check(ins: list[Any], rows: int, columns: int, options: tuple[int, ...]) -> None:
        _number_of_parts(ins, "qweight qzeros scales g_idx")
        require(columns * bits % 32 == 0, f"{columns} codes of {bits} bits do not fill words of 32")
        require(rows * bits % 32 == 0, f"{rows} zeros of {bits} bits do not fill words of 32")
        groups = ins[2].shape[0] if ins[2].ndim == 2 else 0
        require(0 < groups <= columns, f"scales of {list(ins[2].shape)} are not those of groups of {columns} columns")
        _part(ins[0], dtypes.int32, (columns * bits // 32, rows), "qweight")
        _part(ins[1], dtypes.int32, (groups, rows * bits // 32), "qzeros")
        _part(ins[2], FLOATS, (groups, rows), "scales")
        _part(ins[3], dtypes.int32, (columns,), "g_idx")

    return Separate(f"GPTQ{bits}" + ("" if more else "_V2"), value, check)


# ---- AWQ


def _awq_value(w: Parts, row: Any, column: Any) -> Any:
    """Eight rows share a word, in the order 0 2 4 6 1 3 5 7: of AWQ's layout for products of matrices (`gemm`)."""
    at = imod(row, u(8))
    shift = ((at >> 1) | ((at & 1) << 2)) * 4
    group = w.group(2, 0, column)
    q = (w.word(0, column, idiv(row, u(8))) >> shift) & 15
    zero = (w.word(1, group, idiv(row, u(8))) >> shift) & 15
    return (_real(q) - _real(zero)) * w.real(2, group, row)


def _awq_check(ins: list[Any], rows: int, columns: int, options: tuple[int, ...]) -> None:
    _number_of_parts(ins, "qweight qzeros scales")
    require(rows % 8 == 0, f"{rows} rows are not of words of 8")
    groups = _groups(ins[2], 0, columns)
    _part(ins[0], dtypes.int32, (columns, rows // 8), "qweight")
    _part(ins[1], dtypes.int32, (groups, rows // 8), "qzeros")
    _part(ins[2], FLOATS, (groups, rows), "scales")


# ---- compressed-tensors


def _compressed(bits: int, zeros: bool) -> Separate:
    """Codes along columns in words of 32 bits, (rows, columns * bits / 32), shown without a sign; zeros packed along rows."""
    per, most = 32 // bits, (1 << bits) - 1

    def value(w: Parts, row: Any, column: Any) -> Any:
        group = w.group(1, 1, column)
        q = (w.word(0, row, idiv(column, u(per))) >> (imod(column, u(per)) * bits)) & most
        zero: Any = const(float(1 << (bits - 1)), "f32")
        if zeros:
            zero = _real((w.word(2, idiv(row, u(per)), group) >> (imod(row, u(per)) * bits)) & most)
        return (_real(q) - zero) * w.real(1, row, group)

    def check(ins: list[Any], rows: int, columns: int, options: tuple[int, ...]) -> None:
        _number_of_parts(ins, "weight_packed weight_scale" + " weight_zero_point" * zeros)
        groups = _groups(ins[1], 1, columns)
        _part(ins[0], dtypes.int32, (rows, -(-columns // per)), "weight_packed")
        _part(ins[1], FLOATS, (rows, groups), "weight_scale")
        if zeros:
            _part(ins[2], dtypes.int32, (-(-rows // per), groups), "weight_zero_point")

    return Separate(f"CT{bits}" + "_ZEROS" * zeros, value, check)


# ---- onnxruntime's MatMulNBits


def _nbits(bits: int, zeros: bool) -> Separate:
    """Codes along columns in bytes, (rows, columns * bits / 8), the lowest bits first; and so the zeros of a row's groups."""
    per, most = 8 // bits, (1 << bits) - 1

    def code(w: Parts, part: int, row: Any, at: Any) -> Any:
        return (w.byte(part, row, idiv(at, u(per))) >> (imod(at, u(per)) * bits)) & most

    def value(w: Parts, row: Any, column: Any) -> Any:
        group = w.group(1, 1, column)
        zero: Any = _real(code(w, 2, row, group)) if zeros else const(float(1 << (bits - 1)), "f32")
        return (_real(code(w, 0, row, column)) - zero) * w.real(1, row, group)

    def check(ins: list[Any], rows: int, columns: int, options: tuple[int, ...]) -> None:
        _number_of_parts(ins, "codes scales" + " zeros" * zeros)
        groups = _groups(ins[1], 1, columns)
        _part(ins[0], dtypes.uint8, (rows, -(-columns // per)), "the codes")
        _part(ins[1], FLOATS, (rows, groups), "the scales")
        if zeros:
            _part(ins[2], dtypes.uint8, (rows, -(-groups // per)), "the zeros")

    return Separate(f"NBITS{bits}" + "_ZEROS" * zeros, value, check)


# ---- torchao


def _int8_value(w: Parts, row: Any, column: Any) -> Any:
    return w.real(0, row, column) * w.real(1, row, w.group(1, 1, column))


def _int8_check(ins: list[Any], rows: int, columns: int, options: tuple[int, ...]) -> None:
    _number_of_parts(ins, "codes scales")
    _part(ins[0], dtypes.int8, (rows, columns), "the codes")
    _part(ins[1], FLOATS, (rows, _groups(ins[1], 1, columns)), "the scales")


def _int4_value(w: Parts, row: Any, column: Any) -> Any:
    """The middle of a group's codes, 8, stands for its `zero`, which is a weight: as in torchao's tinygemm."""
    group = w.group(1, 1, column)
    q = (w.byte(0, row, idiv(column, u(2))) >> (imod(column, u(2)) * 4)) & 15
    product = fit((_real(q) - 8.0) * w.real(1, row, group), "float32")
    return product + w.real(2, row, group)


def _int4_check(ins: list[Any], rows: int, columns: int, options: tuple[int, ...]) -> None:
    _number_of_parts(ins, "codes scales zeros")
    require(columns % 2 == 0, f"{columns} codes of 4 bits do not fill bytes")
    groups = _groups(ins[1], 1, columns)
    _part(ins[0], dtypes.uint8, (rows, columns // 2), "the codes")
    _part(ins[1], FLOATS, (rows, groups), "the scales")
    _part(ins[2], ins[1].dtype, (rows, groups), "the zeros")


# ---- bitsandbytes


def _bnb_code(w: Parts, row: Any, column: Any) -> tuple[Any, Any]:
    """The number of a weight among all, and its four bits: of a byte the upper ones come first."""
    at = w.p.index
    shift = where(imod(at, u(2)) == 0, u(4), u(0))
    return at, (w.byte(0, idiv(at, u(2))) >> shift) & 15


def _bnb4_value(w: Parts, row: Any, column: Any) -> Any:
    at, q = _bnb_code(w, row, column)
    return w.real(1, q) * w.real(1, idiv(at, w.option(0)) + 16)


def _bnb4_nested_value(w: Parts, row: Any, column: Any) -> Any:
    at, q = _bnb_code(w, row, column)
    block = idiv(at, w.option(0))
    scale = fit(w.real(2, w.byte(1, block) + 16) * w.real(2, idiv(block, w.option(1)) + 273), "float32")
    return w.real(2, q) * fit(scale + w.real(2, u(272)), "float32")


def _bnb4_check(ins: list[Any], rows: int, columns: int, options: tuple[int, ...]) -> None:
    nested = len(options) == 2
    _number_of_parts(ins, "codes absmax tables" if nested else "codes tables")
    n = rows * columns
    for size in options:
        require(type(size) is int and size > 0, f"a block has a number of weights, and not {size!r}")
    _part(ins[0], dtypes.uint8, (-(-n // 2),), "the codes")
    blocks = -(-n // options[0])
    if nested:
        _part(ins[1], dtypes.uint8, (blocks,), "absmax")
        _part(ins[2], dtypes.float32, (273 + -(-blocks // options[1]),), "the tables")
    else:
        _part(ins[1], dtypes.float32, (16 + blocks,), "the tables")


SEPARATE = {
    s.name: s
    for s in (
        *(_gptq(bits, more) for bits in (2, 3, 4, 8) for more in (1, 0)),
        Separate("AWQ4", _awq_value, _awq_check),
        *(_compressed(bits, zeros) for bits in (4, 8) for zeros in (False, True)),
        *(_nbits(bits, zeros) for bits in (2, 4, 8) for zeros in (False, True)),
        Separate("INT8", _int8_value, _int8_check),
        Separate("INT4", _int4_value, _int4_check),
        #: 16 values of the codes and the largest of each block, in one table; options: weights of a block
        Separate("BNB4", _bnb4_value, _bnb4_check, 1),
        #: 16 values of the codes, 256 of those of absmax, the offset, and the largest of each block of absmax
        Separate("BNB4_NESTED", _bnb4_nested_value, _bnb4_check, 2),
    )
}


def unpacking(s: Separate) -> Callable[[Any], Any]:
    """The expression of the weight at a point."""

    def expr(p: Any) -> Any:
        at = p.k.let(p.index, "e")
        columns = p.dim(p.inst.out.shape[-1], "columns")
        return s.value(Parts(p), p.k.let(idiv(at, columns), "row"), p.k.let(imod(at, columns), "column"))

    return expr


def checking(s: Separate) -> Callable[..., None]:
    """The check of the parts of a weight (`weight.Scheme`)."""

    def check(parts: Any, shape: tuple[int, ...], options: tuple[Any, ...]) -> None:
        require(len(options) == s.options, f"{s.name} has {s.options} options, and not {len(options)}")
        require(len(shape) == 2 and prod(shape) > 0, f"a weight of {s.name} is a matrix, and not {list(shape)}")
        ins = [p._tab_meta for p in parts]
        require(all(m.device is ins[0].device for m in ins), "the parts must be on one device")
        s.check(ins, shape[0], shape[1], options)

    return check
