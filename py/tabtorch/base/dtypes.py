"""Data types: the objects, their categories, promotion, `finfo` and `iinfo`.

Rules and tables are PyTorch's (https://docs.pytorch.org/docs/stable/tensor_attributes.html).
"""

from __future__ import annotations

import struct
from functools import reduce
from typing import Any

_ALL: dict[str, dtype] = {}


class dtype:
    """A data type. `compute` is the type kernels calculate in, `store` the typed array it is kept in on the cpu device."""

    __slots__ = (
        "category",
        "compute",
        "format",
        "is_complex",
        "is_floating_point",
        "is_signed",
        "itemsize",
        "name",
        "rank",
        "store",
    )

    def __init__(self, name: str, itemsize: int, category: int, rank: int, compute: str, store: str, fmt: str) -> None:
        self.name = name
        self.itemsize = itemsize
        self.category = category  # 0 bool, 1 integral, 2 floating, 3 complex
        self.rank = rank  # order inside the category, for promotion
        self.compute = compute
        self.store = store
        self.format = fmt  # struct/array code of one element on the host
        self.is_floating_point = category == 2
        self.is_complex = category == 3
        self.is_signed = name not in ("bool", "uint8")
        _ALL[name] = self

    def __repr__(self) -> str:
        return "torch." + self.name

    def __reduce__(self) -> str:
        return "bool_" if self.name == "bool" else self.name  # what it is called below

    def __deepcopy__(self, memo: Any) -> dtype:
        return self

    def to_real(self) -> dtype:
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    def to_complex(self) -> dtype:
        if self.is_complex:
            return self
        if self is float64:
            return complex128
        if self.is_floating_point:
            return complex64
        raise RuntimeError(f"Cannot convert {self!r} to a complex dtype")


bool_ = dtype("bool", 1, 0, 0, "bool", "u8", "?")
uint8 = dtype("uint8", 1, 1, 0, "i32", "u8", "B")
int8 = dtype("int8", 1, 1, 0, "i32", "i8", "b")
int16 = dtype("int16", 2, 1, 1, "i32", "i16", "h")
int32 = dtype("int32", 4, 1, 2, "i32", "i32", "i")
int64 = dtype("int64", 8, 1, 3, "i64", "i64", "q")
float16 = dtype("float16", 2, 2, 0, "f32", "u16", "e")
bfloat16 = dtype("bfloat16", 2, 2, 0, "f32", "u16", "")
float32 = dtype("float32", 4, 2, 1, "f32", "f32", "f")
float64 = dtype("float64", 8, 2, 2, "f64", "f64", "d")
complex64 = dtype("complex64", 8, 3, 1, "c64", "f32", "f")
complex128 = dtype("complex128", 16, 3, 2, "c128", "f64", "d")
half, float_, double = float16, float32, float64
short, int_, long = int16, int32, int64
cfloat, cdouble = complex64, complex128

#: public attribute of the torch namespace -> dtype
PUBLIC: dict[str, dtype] = dict(_ALL) | {
    "half": half,
    "float": float_,
    "double": double,
    "short": short,
    "int": int_,
    "long": long,
    "cfloat": cfloat,
    "cdouble": cdouble,
}


class _NamedOnly(dtype):
    """A type that programs name and ask about (tables of types, `finfo`), and of which there are no tensors here."""

    __slots__ = ()

    def __init__(self, name: str, itemsize: int, category: int, signed: bool) -> None:
        self.name = name
        self.itemsize = itemsize
        self.category = category
        self.is_floating_point = category == 2
        self.is_complex = category == 3
        self.is_signed = signed

    def _no_tensors(self) -> Any:
        raise TypeError(f"tabtorch has no tensors of {self!r}")

    # what every operation looks at before there is a tensor
    rank = compute = store = format = property(_no_tensors)

    def __hash__(self) -> int:
        return hash(self.name)


_NamedOnly.__name__ = _NamedOnly.__qualname__ = "dtype"

#: PyTorch's types without arithmetic: attribute of the torch namespace -> dtype
NAMED_ONLY: dict[str, dtype] = {
    name: _NamedOnly(name, itemsize, category, signed)
    for names, itemsize, category, signed in (
        ("float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz", 1, 2, True),
        ("float8_e8m0fnu float4_e2m1fn_x2", 1, 2, False),
        ("uint16", 2, 1, False),
        ("uint32", 4, 1, False),
        ("uint64", 8, 1, False),
        ("complex32", 4, 3, True),
        ("qint8", 1, 1, True),
        ("quint8 quint4x2 quint2x4", 1, 1, False),
        ("qint32", 4, 1, True),
    )
    for name in names.split()
}
NAMED_ONLY["chalf"] = NAMED_ONLY["complex32"]

_OF_PYTHON = {bool: bool_, int: int64, float: float64, complex: complex128}


def as_dtype(x: Any) -> dtype | None:
    """What is meant by a `dtype` argument: itself, or the type of a Python type (float: float64). None for anything else."""
    return x if isinstance(x, dtype) else _OF_PYTHON.get(x) if isinstance(x, type) else None


def given_dtype(name: str, x: Any) -> dtype | None:
    """The type that the `dtype` argument of a function says, if one was given. TypeError for what is no type."""
    d = as_dtype(x)
    if d is None and x is not None:
        raise TypeError(f"{name}(): argument 'dtype' must be torch.dtype, not {type(x).__name__}")
    return d


#: what PyTorch's messages call the types
TYPE_NAMES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}

#: what C++ calls them, as some messages do
CXX_NAMES = {
    "bool": "bool",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short int",
    "int32": "int",
    "int64": "long int",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
}


def cxx_name(d: dtype) -> str:
    """See `CXX_NAMES`."""
    return CXX_NAMES[d.name]


_default: dtype = float32


def set_default_dtype(d: dtype) -> None:
    """Sets the floating type new tensors get. Raises TypeError for a type that is not floating."""
    global _default
    if not isinstance(d, dtype):
        raise TypeError("invalid dtype object: only floating-point types are supported as the default type")
    if not d.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    if isinstance(d, _NamedOnly):
        d._no_tensors()
    _default = d


def get_default_dtype() -> dtype:
    return _default


def _promote(a: dtype, b: dtype) -> dtype:
    if a is b:
        return a
    if a.category != b.category:
        hi, lo = (a, b) if a.category > b.category else (b, a)
        if hi.category == 3 and lo is float64:
            return complex128
        return hi
    if a.category == 1 and a.itemsize == b.itemsize:  # uint8 with int8
        return int16
    if a.category == 2 and a.rank == b.rank:  # float16 with bfloat16
        return float32
    return a if a.rank > b.rank else b


_PROMOTED = {(a, b): _promote(a, b) for a in _ALL.values() for b in _ALL.values()}
#: uint8 and any wider signed type is the wider one; ranks already say so


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest type both convert to, e.g. (uint8, int8) -> int16."""
    try:
        return _PROMOTED[type1, type2]
    except KeyError:
        for t in (type1, type2):
            if isinstance(t, _NamedOnly):
                t._no_tensors()
        at, bad = (1, type1) if not isinstance(type1, dtype) else (2, type2)
        raise TypeError(
            f"promote_types(): argument 'type{at}' (position {at}) must be torch.dtype, not {type(bad).__name__}"
        ) from None


def scalar_dtype(kind: type) -> dtype:
    """The type a Python scalar brings to promotion: bool, int64, the default float, or its complex."""
    if kind is bool:
        return bool_
    if kind is int:
        return int64
    if kind is float:
        return _default
    if kind is complex:
        return _default.to_complex() if _default is not float16 else complex64
    raise TypeError(f"unsupported scalar type {kind.__name__}")


def combine(higher: dtype | None, lower: dtype | None) -> dtype | None:
    """Tensors with dimensions, 0-dimensional ones, Python numbers: a lower level counts only if its category is higher."""
    if higher is None or lower is None:
        return higher or lower
    if lower.category <= higher.category:
        return higher
    return higher.to_complex() if lower.is_complex and higher.is_floating_point else lower


def result_of(dims: list[dtype], zero_dims: list[dtype], scalars: list[type]) -> dtype:
    """PyTorch's promotion of tensors with dimensions, 0-dimensional ones and Python numbers."""
    best: dtype | None = None
    for level in (dims, zero_dims, [scalar_dtype(k) for k in scalars]):
        best = combine(best, reduce(promote_types, level) if level else None)
    assert best is not None
    return best


class finfo:
    """Limits of a floating type, as `torch.finfo`."""

    _LIMITS = {
        "float16": (16, 2.0**-10, 65504.0, 2.0**-14, 1e-3),
        "bfloat16": (16, 2.0**-7, 3.3895313892515355e38, 1.1754943508222875e-38, 1e-2),
        "float32": (32, 2.0**-23, 3.4028234663852886e38, 1.1754943508222875e-38, 1e-6),
        "float64": (64, 2.0**-52, 1.7976931348623157e308, 2.2250738585072014e-308, 1e-15),
        "float8_e4m3fn": (8, 2.0**-3, 448.0, 2.0**-6, 1.0),
        "float8_e4m3fnuz": (8, 2.0**-3, 240.0, 2.0**-7, 1.0),
        "float8_e5m2": (8, 2.0**-2, 57344.0, 2.0**-14, 1.0),
        "float8_e5m2fnuz": (8, 2.0**-3, 57344.0, 2.0**-15, 1.0),
        "float8_e8m0fnu": (8, 1.0, 2.0**127, 2.0**-127, 1.0),
    }

    def __init__(self, type: dtype | None = None) -> None:
        d = as_dtype(type or _default)
        d = None if d is None else d.to_real()
        if d is None or d.name not in self._LIMITS:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type}'")
        self.dtype = d.name
        self.bits, self.eps, self.max, self.tiny, self.resolution = self._LIMITS[d.name]
        self.min = self.tiny if d.name == "float8_e8m0fnu" else -self.max  # which has powers of two only
        self.smallest_normal = self.tiny

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.tiny:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:
    """Limits of an integer type, as `torch.iinfo`."""

    def __init__(self, type: dtype) -> None:
        d = as_dtype(type)
        if d is None or d.category != 1:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        self.dtype = d.name
        self.bits = d.itemsize * 8
        self.max = (1 << (self.bits - d.is_signed)) - 1
        self.min = -self.max - 1 if d.is_signed else 0

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


def round_bfloat16(values: Any) -> bytes:
    """float32 numbers -> bfloat16 bytes, nearest even."""
    out = bytearray()
    for v in values:
        bits = struct.unpack("<I", struct.pack("<f", v))[0]
        if v != v:
            out += b"\xc0\x7f"
        else:
            out += ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to_bytes(2, "little")
    return bytes(out)


def rounded(v: float, d: dtype) -> float:
    """A number as one of `d`, float16 or bfloat16."""
    if d is float16:
        try:
            return float(struct.unpack("<e", struct.pack("<e", v))[0])
        except OverflowError:
            return float("inf") if v > 0 else float("-inf")
    if v != v or abs(v) > 3.4e38:
        return float(v)
    return float(struct.unpack("<f", b"\0\0" + round_bfloat16([v]))[0])


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether PyTorch's casting rules allow a result of `from_` to be written to `to`."""
    if from_.is_complex and not to.is_complex:
        return False
    if from_.is_floating_point and to.category < 2:
        return False
    return not (from_.category == 1 and to.category == 0)
