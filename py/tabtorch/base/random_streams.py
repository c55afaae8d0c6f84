"""PyTorch's CPU random numbers: which host kernel makes a draw, with which numbers, and the generator's state.

The arithmetic is in `engine/kernels/mt19937.js` and `mt19937_draws.js`; this module knows nothing of the engine. A
function such as `normal(dtype, n, mean, std)` checks its arguments as PyTorch does, raises PyTorch's errors, and
answers with a `Draw`: the kernel, its scalars and the size of its output. A draw of no elements (`n == 0`) draws
nothing and is not to be run.

A generator is a buffer of `STATE_BYTES` bytes on the cpu device (its layout is at the head of `mt19937.js`),
made by running `seed(value)` or by uploading `state_from_torch(...)`. It is binding 0 of every kernel; inputs follow;
the output is last, contiguous and in the order of the draws, which is that of `fill_order` when a tensor is not.
"""

from __future__ import annotations

import os
import warnings
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from tabtorch.base.package_files import kernel

STATE_WORDS = 634
STATE_BYTES = 4 * STATE_WORDS
TORCH_STATE_BYTES = 5056
DEFAULT_SEED = 67280421310721  # of a Generator that was not seeded

_LEFT, _NEXT, _SEED, _NORMAL, _NORMAL_VALID, _FLOAT, _FLOAT_VALID = 624, 625, 626, 628, 630, 631, 632


class Scalar(NamedTuple):
    """A number a kernel takes: "u32" in one parameter word, "f64" and "i64" in two, 8-aligned, from `word` on."""

    name: str
    type: str
    word: int


class HostKernel(NamedTuple):
    """A kernel of the cpu device: the JavaScript body, its bindings (type, access) in order, and its scalars."""

    name: str
    source: str
    bindings: tuple[tuple[str, str], ...]
    scalars: tuple[Scalar, ...]
    doc: str

    @property
    def words(self) -> int:
        """How many parameter words the kernel reads."""
        return max((s.word + (1 if s.type == "u32" else 2) for s in self.scalars), default=0)


class Draw(NamedTuple):
    """One run: `scalars` are the values of `kernel.scalars`; the output is `elements` of `dtype`."""

    kernel: HostKernel
    scalars: tuple[int | float, ...]
    dtype: str
    elements: int

    def with_sizes(self, number: Callable[[Any], Any]) -> Draw:
        """The same with other numbers in the place of sizes that are not known (engine/symbols.py)."""
        return self._replace(scalars=tuple(map(number, self.scalars)), elements=number(self.elements))

    @property
    def nbytes(self) -> int:
        return self.elements * _DTYPES[self.dtype].size


class _Type(NamedTuple):
    store: str  # binding type; an int64 is two i32 words, since BigInts are slow
    size: int
    scalar_type: str  # PyTorch's name in "not implemented for"
    c_name: str  # and in "out of bounds for"
    digits: int = 0  # of the mantissa, for floating types
    low: float | int = 0
    high: float | int = 0


_F32_MAX = 2.0**127 * (2 - 2.0**-23)
_BF16_MAX = 2.0**127 * (2 - 2.0**-7)
_F64_MAX = 1.7976931348623157e308
_DTYPES = {
    "float32": _Type("f32", 4, "Float", "float", 24, -_F32_MAX, _F32_MAX),
    "float64": _Type("f64", 8, "Double", "double", 53, -_F64_MAX, _F64_MAX),
    "float16": _Type("u16", 2, "Half", "c10::Half", 11, -65504.0, 65504.0),
    "bfloat16": _Type("u16", 2, "BFloat16", "c10::BFloat16", 8, -_BF16_MAX, _BF16_MAX),
    "int64": _Type("i32", 8, "Long", "long int", 0, -(2**63), 2**63 - 1),
    "int32": _Type("i32", 4, "Int", "int", 0, -(2**31), 2**31 - 1),
    "int16": _Type("i16", 2, "Short", "short int", 0, -(2**15), 2**15 - 1),
    "int8": _Type("i8", 1, "Char", "signed char", 0, -128, 127),
    "uint8": _Type("u8", 1, "Byte", "unsigned char", 0, 0, 255),
    "bool": _Type("u8", 1, "Bool", "bool", 0, 0, 1),
    "complex64": _Type("f32", 8, "ComplexFloat", "c10::complex<float>"),
    "complex128": _Type("f64", 16, "ComplexDouble", "c10::complex<double>"),
}
_FLOATING = ("float32", "float64", "float16", "bfloat16")
_REAL = tuple(name for name in _DTYPES if not name.startswith("complex"))


# ---- the kernels


class _Row(NamedTuple):
    """How one kernel is called. `{T}` is the dtype of the output, `{P}` that of the input, `{d}`, `{p}`: is it float64."""

    call: str
    scalars: str  # names and types, in order
    doc: str
    dtypes: tuple[str, ...] = _FLOATING
    has_input: int = False  # or how many, of one dtype


_ROWS = {
    "seed": _Row("seed(P, b0)", "seed:i64", "Seeds the state; no output.", ("",)),
    "uniform": _Row(
        "uniform(P, D, b0, b1, DTYPE.{T}, {d})", "n:u32 low:f64 high:f64", "Uniform in [low, high): rand, uniform_."
    ),
    "normal_serial": _Row(
        "normalSerial(P, D, b0, b1, DTYPE.{T})",
        "n:u32 mean:f64 std:f64",
        "Normals one by one: fewer than 16, or a tensor that is not contiguous.",
    ),
    "normal_fill": _Row(
        "normalFill(P, D, b0, b1, DTYPE.{T}, {d}, {direct})",
        "n:u32 mean:f64 std:f64",
        "Normals in groups of 16: 16 or more into a contiguous tensor.",
    ),
    "random_range": _Row(
        "randomRange(P, Q, b0, b1, DTYPE.{T})", "n:u32 range:i64 base:i64", "Integers base + [0, range).", _REAL
    ),
    "random_64": _Row(
        "random64(P, b0, b1, DTYPE.{T})",
        "n:u32",
        "All 64 bits, signed.",
        ("int64", "float64", "float32", "bfloat16"),
    ),
    "random_full": _Row(
        "randomFull(P, D, b0, b1, DTYPE.{T}, {wide})", "n:u32 limit:f64", "random_() with no bounds.", _REAL
    ),
    "bernoulli": _Row("bernoulli(P, D, b0, b1, DTYPE.{T})", "n:u32 p:f64", "1 with probability p.", _REAL),
    "bernoulli_tensor": _Row(
        "bernoulliTensor(P, b0, b1, b2, DTYPE.{P}, DTYPE.{T}, {p})",
        "n:u32",
        "1 with probability input[i]; the input has n elements in the order of the draws.",
        _REAL,
        True,
    ),
    "randperm": _Row(
        "randperm(P, b0, b1, DTYPE.{T})", "n:u32", "A permutation of 0 .. n-1.", tuple(x for x in _REAL if x != "bool")
    ),
    "exponential": _Row("exponential(P, D, b0, b1, DTYPE.{T})", "n:u32 rate:f64", "Exponential."),
    "geometric": _Row(
        "geometric(P, D, b0, b1, DTYPE.{T})",
        "n:u32 p:f64",
        "Trials to the first success.",
        tuple(x for x in _REAL if x != "bool"),
    ),
    "cauchy": _Row("cauchy(P, D, b0, b1, DTYPE.{T})", "n:u32 median:f64 sigma:f64", "Cauchy."),
    "log_normal": _Row("logNormal(P, D, b0, b1, DTYPE.{T})", "n:u32 mean:f64 std:f64", "exp of a normal."),
    "poisson": _Row(
        "poisson(P, b0, b1, b2, DTYPE.{P}, DTYPE.{T})",
        "n:u32",
        "Poisson counts; the input holds n rates, of the same dtype.",
        has_input=True,
    ),
    "multinomial_replace": _Row(
        "multinomialReplace(P, b0, b1, b2, DTYPE.{P}, {p})",
        "rows:u32 columns:u32 samples:u32",
        "Column numbers by the weights of each row of the input, with replacement.",
        ("int64",),
        True,
    ),
    "multinomial_race": _Row(
        "multinomialRace(P, b0, b1, b2, DTYPE.{P})",
        "rows:u32 columns:u32 samples:u32",
        "The same without replacement, and for one sample.",
        ("int64",),
        True,
    ),
    "standard_gamma": _Row(
        "standardGamma(P, b0, b1, b2, DTYPE.{T}, {tiny})", "n:u32", "Of concentrations.", _FLOATING[:2], True
    ),
    "dirichlet": _Row(
        "dirichlet(P, b0, b1, b2, DTYPE.{T}, {tiny}, {below})", "n:u32 columns:u32", "Rows.", _FLOATING[:2], True
    ),
    "binomial": _Row(
        "binomial(P, b0, b1, b2, b3, DTYPE.{T})", "n:u32", "Of counts and probabilities.", _FLOATING[:2], 2
    ),
}
#: the kernels of mt19937_rejection.js
_BY_REJECTION = ("standard_gamma", "dirichlet", "binomial")


@cache
def host_kernel(op: str, dtype: str, input_dtype: str = "") -> HostKernel:
    """The kernel of one row of the table for an output dtype, and an input dtype where it takes an input."""
    row = _ROWS[op]
    flag = {False: "false", True: "true"}
    call = row.call.format(
        T=dtype,
        P=input_dtype,
        d=flag[dtype == "float64"],
        p=flag[input_dtype == "float64"],
        direct=flag[dtype in ("float32", "float64")],
        wide={"int64": 63, "float64": 53}.get(dtype, 0),
        tiny="2.2250738585072014e-308" if dtype == "float64" else "2 ** -126",
        below="1 - 2 ** -53" if dtype == "float64" else "1 - 2 ** -24",
    )
    bindings = [("u32", "rw")]
    for _ in range(row.has_input):
        bindings.append((_DTYPES[input_dtype].store, "r"))
    if dtype:
        bindings.append((_DTYPES[dtype].store, "rw"))
    scalars = []
    word = 0
    for item in row.scalars.split():
        name, _, kind = item.partition(":")
        if kind != "u32":
            word += word % 2
        scalars.append(Scalar(name, kind, word))
        word += 1 if kind == "u32" else 2
    name = "_".join(part for part in ("mt19937", op, input_dtype, dtype) if part)
    files = ["mt19937.js", "mt19937_draws.js"] + ["mt19937_rejection.js"] * (op in _BY_REJECTION)
    text = "\n".join([*(kernel(file) for file in files), f"{call};\n"])
    return HostKernel(name, text, tuple(bindings), tuple(scalars), row.doc)


def all_kernels() -> list[HostKernel]:
    """Every kernel of the table, for tests."""
    return [
        host_kernel(op, dtype, source)
        for op, row in _ROWS.items()
        for dtype in row.dtypes
        for source in (_FLOATING if row.has_input else ("",))
    ]


# ---- draws


def dtype_name(dtype: Any) -> str:
    """ "float32" of a dtype object, or of its name with or without `torch.`."""
    return str(dtype).removeprefix("torch.")


def _need(op: str, dtype: str, what: str) -> None:
    if dtype not in _ROWS[op].dtypes:
        name = _DTYPES[dtype].scalar_type if dtype in _DTYPES else dtype.capitalize()
        raise NotImplementedError(f"\"{what}\" not implemented for '{name}'")


def _draw(op: str, dtype: str, n: int, *scalars: float) -> Draw:
    return Draw(host_kernel(op, dtype), (n, *scalars), dtype, n)


def uniform(dtype: Any, n: int, low: float = 0.0, high: float = 1.0) -> Draw:
    """`rand`, `uniform_`. A complex tensor of k elements takes 2 k of its real type."""
    dtype = dtype_name(dtype)
    _need("uniform", dtype, "check_uniform_bounds")
    row = _DTYPES[dtype]
    for name, value in (("from", low), ("to", high)):
        if not row.low <= value <= row.high:
            raise RuntimeError(f"{name} is out of bounds for {row.c_name}")
    if not low <= high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    if not high - low <= row.high:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{row.scalar_type}>::max(), but found to={high:g} "
            f"and from={low:g} which result in to-from to exceed the limit"
        )
    return _draw("uniform", dtype, n, float(low), float(high))


def normal(dtype: Any, n: int, mean: float = 0.0, std: float = 1.0, contiguous: bool = True) -> Draw:
    """`randn`, `normal_`. A complex tensor of k elements takes 2 k of its real type, with std / sqrt(2)."""
    dtype = dtype_name(dtype)
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    _need("normal_fill", dtype, "normal_kernel_cpu")
    return _draw("normal_fill" if n >= 16 and contiguous else "normal_serial", dtype, n, float(mean), float(std))


def _round_to(value: int, digits: int) -> int:
    """An integer rounded to a mantissa of `digits` bits, half to even."""
    drop = abs(value).bit_length() - digits
    if drop <= 0:
        return value
    whole, rest = divmod(abs(value), 1 << drop)
    half = 1 << (drop - 1)
    if rest > half or (rest == half and whole & 1):
        whole += 1
    return (whole << drop) * (1 if value > 0 else -1)


def _check_integer_bounds(low: int, last: int, dtype: str) -> None:
    row = _DTYPES[dtype]
    for name, value in (("from", low), ("to - 1", last)):
        if not row.low <= value <= row.high:
            raise RuntimeError(f"{name} is out of bounds for {row.c_name}")
        if row.digits and abs(value) > 1 << row.digits:
            warnings.warn(
                f"{name} is out of bounds [-(2^{row.digits}), 2^{row.digits}]. Due to precision limitations {row.c_name} "
                "can support discrete uniform distribution only within this range. This warning will become an error "
                "in version 1.7 release, please fix the code in advance",
                stacklevel=4,
            )


def random_range(dtype: Any, n: int, low: int, high: int | None) -> Draw:
    """`randint`, `random_(from, to)`; with `high` None, up to the largest number of the dtype."""
    dtype = dtype_name(dtype)
    _need("random_range", dtype, "random_from_to_kernel_cpu")
    row = _DTYPES[dtype]
    if high is None and low == -(2**63):
        if dtype in ("uint8", "int8", "int16", "int32"):
            raise RuntimeError("random_full_64_bits_range_kernel_cpu handles only int64, double, float and bfloat16")
        _need("random_64", dtype, "random_full_64_bits_range_kernel_cpu")
        return _draw("random_64", dtype, n)
    if high is not None and not low < high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if row.digits:
        # a bound that the dtype cannot hold moves inwards to one that it can
        after = _round_to(low + 1, row.digits)
        if after < low:
            low = after + (1 << max(0, abs(low + 1).bit_length() - row.digits))
        if high is not None:
            before = _round_to(high - 1, row.digits)
            if (
                high <= before <= row.high and before < 2**63
            ):  # past that, PyTorch's conversion overflows and moves nothing
                high = before - (1 << max(0, abs(high - 1).bit_length() - row.digits))
            if not low < high:
                raise RuntimeError(
                    "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, "
                    f"but got from={low} >= to={high}"
                )
    if high is None:
        last = 1 << row.digits if row.digits else int(row.high)
        if row.digits and not low < last:
            raise RuntimeError(
                "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, "
                f"but got from={low} > to_inc={last}"
            )
    else:
        last = high - 1
    _check_integer_bounds(low, last, dtype)
    return _draw("random_range", dtype, n, _signed64(last - low + 1), low)


def random_full(dtype: Any, n: int) -> Draw:
    """`random_()`: 0 .. the largest number of an integer dtype, 0 .. 2**digits of a floating one."""
    dtype = dtype_name(dtype)
    _need("random_full", dtype, "random_kernel_cpu")
    row = _DTYPES[dtype]
    limit = (1 << row.digits) + 1 if row.digits else int(row.high) + 1
    return _draw("random_full", dtype, n, float(limit))


def bernoulli(dtype: Any, n: int, p: float) -> Draw:
    """`bernoulli_(p)` with a number. What `torch.bernoulli(t)` does is `bernoulli_tensor`."""
    dtype = dtype_name(dtype)
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    _need("bernoulli", dtype, "bernoulli_scalar_cpu_")
    return _draw("bernoulli", dtype, n, float(p))


def bernoulli_tensor(dtype: Any, n: int, p_dtype: Any) -> Draw:
    """`bernoulli_(p)` with a tensor, expanded to n elements. The kernel refuses a p outside [0, 1]."""
    dtype, p_dtype = dtype_name(dtype), dtype_name(p_dtype)
    _need("bernoulli_tensor", dtype, "bernoulli_tensor_cpu_self_")
    _need("uniform", p_dtype, "bernoulli_tensor_cpu_p_")
    return Draw(host_kernel("bernoulli_tensor", dtype, p_dtype), (n,), dtype, n)


def randperm(dtype: Any, n: int) -> Draw:
    """`torch.randperm(n)`."""
    dtype = dtype_name(dtype)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    row = _DTYPES[dtype]
    if dtype in ("float16", "float32", "float64") and n > (1 << row.digits) + 1:
        limit = "2049" if dtype == "float16" else f"2^{row.digits}+1"
        raise RuntimeError(f"n cannot be greater than {limit} for {row.scalar_type} type.")
    if dtype in _C_INTS and n > row.high + (dtype == "uint8"):
        raise RuntimeError(f"value cannot be converted to type {_C_INTS[dtype]} without overflow")
    _need("randperm", dtype, "randperm")
    return _draw("randperm", dtype, n)


_C_INTS = {"int32": "int", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t"}


def exponential(dtype: Any, n: int, rate: float = 1.0) -> Draw:
    """`exponential_(lambd)`."""
    dtype = dtype_name(dtype)
    if not rate > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate:g}")
    if dtype not in _FLOATING:
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a floating point "
            f"but you specified {_DTYPES[dtype].scalar_type}"
        )
    return _draw("exponential", dtype, n, float(rate))


def geometric(dtype: Any, n: int, p: float) -> Draw:
    """`geometric_(p)`."""
    dtype = dtype_name(dtype)
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    _need("geometric", dtype, "geometric_cpu")
    return _draw("geometric", dtype, n, float(p))


def cauchy(dtype: Any, n: int, median: float = 0.0, sigma: float = 1.0) -> Draw:
    """`cauchy_(median, sigma)`."""
    dtype = dtype_name(dtype)
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    if dtype not in _FLOATING:
        raise RuntimeError(
            "Cauchy distribution is a continuous probability distribution. dtype must be a floating point "
            f"but you specified {_DTYPES[dtype].c_name}"
        )
    return _draw("cauchy", dtype, n, float(median), float(sigma))


def log_normal(dtype: Any, n: int, mean: float = 1.0, std: float = 2.0) -> Draw:
    """`log_normal_(mean, std)`."""
    dtype = dtype_name(dtype)
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    _need("log_normal", dtype, "log_normal_cpu")
    return _draw("log_normal", dtype, n, float(mean), float(std))


def poisson(dtype: Any, n: int) -> Draw:
    """`torch.poisson` of a contiguous tensor of n rates. The kernel refuses a rate below 0."""
    dtype = dtype_name(dtype)
    _need("poisson", dtype, "poisson_cpu")
    return Draw(host_kernel("poisson", dtype, dtype), (n,), dtype, n)


def multinomial(dtype: Any, shape: Sequence[int], samples: int, replacement: bool = False) -> Draw:
    """`torch.multinomial` of contiguous weights, shape (columns,) or (rows, columns) -> int64 (rows, samples).

    The kernel with replacement refuses weights that are negative, not finite or all zero. The other one does not look
    (PyTorch looks with tensor operations): check `0 <= min`, `max < inf` and the sums before it is run.
    """
    dtype = dtype_name(dtype)
    if len(shape) not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if dtype not in _FLOATING:
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {_DTYPES[dtype].scalar_type}"
        )
    if samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    columns = shape[-1]
    rows = shape[0] if len(shape) == 2 else 1
    if not replacement and samples > columns:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if columns > 1 << 24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    op = "multinomial_replace" if replacement and samples > 1 else "multinomial_race"
    return Draw(host_kernel(op, "int64", dtype), (rows, columns, samples), "int64", rows * samples)


def seed(value: int) -> Draw:
    """Seeds a state. `value` as `manual_seed` takes it, see `normalize_seed`."""
    return Draw(host_kernel("seed", ""), (_signed64(normalize_seed(value)),), "uint8", 0)


# ---- the order of a draw


def fill_order(shape: Sequence[int], *strides: Sequence[int]) -> tuple[int, ...] | None:
    """The order of dimensions, slowest first, in which PyTorch draws into a tensor; None if it is the natural one.

    PyTorch walks a tensor in the order of its memory, so a transposed tensor takes its values transposed: draw
    contiguously in the shape permuted so, then permute back. `strides`: of the output, then of the inputs.
    """
    order = list(range(len(shape)))[::-1]  # fastest first, sorted as TensorIterator sorts

    def comparison(a: int, b: int) -> int:
        for stride in strides:
            if stride[a] == 0 or stride[b] == 0:
                continue
            if stride[a] != stride[b]:
                return -1 if stride[a] < stride[b] else 1
            if shape[a] > shape[b]:
                return 1
        return 0

    for i in range(1, len(order)):
        at = i
        for other in range(i - 1, -1, -1):
            which = comparison(order[other], order[at])
            if which > 0:
                order[other], order[at] = order[at], order[other]
                at = other
            elif which < 0:
                break
    result = tuple(reversed(order))
    moved = [d for d in result if shape[d] != 1]
    return None if moved == sorted(moved) else result


# ---- seeds and states


def _signed64(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >> 63 else value


def normalize_seed(value: int) -> int:
    """A seed as `manual_seed` takes it -> 0 .. 2**64 - 1; negative ones are taken modulo 2**64.

    Raises ValueError outside of -2**63 .. 2**64 - 1.
    """
    if not -(2**63) <= value < 2**64:
        raise ValueError("Overflow when unpacking long long")
    return value & (2**64 - 1)


def nondeterministic_seed() -> int:
    """What `torch.seed()` seeds with: 53 bits from the system."""
    return int.from_bytes(os.urandom(8), "little") >> 11


def _words(data: bytes) -> array[int]:
    words = array("I")
    words.frombytes(data)
    return words


def state_seed(state: bytes) -> int:
    """`initial_seed()` of a state (`STATE_BYTES` bytes)."""
    words = _words(state[4 * _SEED : 4 * _SEED + 8])
    return words[0] | words[1] << 32


def state_to_torch(state: bytes) -> bytes:
    """A state as read from its buffer -> the 5,056 bytes of `torch.get_rng_state()`."""
    own = _words(state)
    out = array("I", bytes(TORCH_STATE_BYTES))
    out[0:2] = own[_SEED : _SEED + 2]
    out[2] = own[_LEFT]
    out[3] = 1  # seeded
    out[4] = own[_NEXT]
    out[6:1254:2] = own[:624]  # one 64-bit word each
    if own[_NORMAL_VALID]:
        out[1256:1258] = own[_NORMAL : _NORMAL + 2]
        out[1260] = 1
    if own[_FLOAT_VALID]:
        out[1262] = own[_FLOAT]
        out[1263] = 1
    return out.tobytes()


def state_from_torch(data: bytes) -> bytes:
    """The bytes of `torch.get_rng_state()` -> a state to upload. RuntimeError if they are none."""
    if len(data) != TORCH_STATE_BYTES:
        raise RuntimeError(
            f"Expected a CPUGeneratorImplState of size {TORCH_STATE_BYTES} "
            f"but found the input RNG state size to be {len(data)}"
        )
    words = _words(bytes(data))
    left, seeded, following = words[2], words[3], words[4]
    if not seeded or not 0 < left <= 624 or following > 624:
        raise RuntimeError("Invalid mt19937 state")
    own = array("I", bytes(STATE_BYTES))
    own[:624] = words[6:1254:2]
    own[_LEFT] = left
    own[_NEXT] = following
    own[_SEED : _SEED + 2] = words[0:2]
    if words[1260]:
        own[_NORMAL : _NORMAL + 2] = words[1256:1258]
        own[_NORMAL_VALID] = 1
    if words[1263] & 0xFF:
        own[_FLOAT] = words[1262]
        own[_FLOAT_VALID] = 1
    return own.tobytes()
