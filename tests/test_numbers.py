"""Numbers as PyTorch's: accuracy of the functions over wide ranges, their corners, integers, conversions, long sums."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from tabtorch.engine import graph, schedules
from tabtorch.engine.target import target

RNG = np.random.default_rng(7)
#: no subnormal numbers: GPUs may take them for 0
EDGES = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2, -2, 1.2e-38, -1.2e-38, 3.4028235e38, -3.4028235e38, 1e-20, 0.99999994,
    -0.99999994, 1.0000001, 88.72283, -87.33, 127.99, 128, -125.9, np.pi, np.pi / 2, -np.pi / 2, 16777216.0, 1e10, -1e10,
]  # fmt: skip
WIDE = np.concatenate(
    [
        EDGES,
        np.exp(RNG.uniform(-85, 88, 1500)) * RNG.choice([-1, 1], 1500),
        RNG.uniform(-10, 10, 1500),
        RNG.uniform(-1, 1, 1500),
        RNG.uniform(-100, 100, 700),
        np.exp(RNG.uniform(2, 16, 700)) * RNG.choice([-1, 1], 700),
    ]
).astype(np.float32)

UNARY = (
    "exp exp2 expm1 log log2 log10 log1p tanh sinh cosh asinh acosh atanh sin cos tan asin acos atan erf erfc erfinv lgamma "
    "digamma sqrt rsqrt sigmoid logit reciprocal i0 special.i0e special.i1 special.i1e special.ndtr special.ndtri "
    "special.log_ndtr special.erfcx special.entr nn.functional.softplus nn.functional.gelu nn.functional.silu "
    "nn.functional.mish nn.functional.logsigmoid nn.functional.elu"
).split()
BINARY = "pow atan2 hypot logaddexp logaddexp2 xlogy special.xlog1py fmod remainder floor_divide true_divide copysign".split()


def _find(m: Any, name: str) -> Callable[..., Any]:
    for part in name.split("."):
        m = getattr(m, part)
    return m


def _close(name: str, device: str, *args: np.ndarray) -> None:
    """As near to float64's result as PyTorch's tolerance, or as PyTorch is; the same infinities and NaNs."""
    f, g = _find(torch, name), _find(tabtorch, name)
    want = f(*map(torch.tensor, args)).double().numpy()
    true = f(*(torch.tensor(a.astype(np.float64)) for a in args)).numpy()
    got = g(*(tabtorch.tensor(a, device=device) for a in args)).cpu().numpy().astype(np.float64)
    with np.errstate(all="ignore"):
        true = true.astype(np.float32).astype(np.float64)  # overflows where float32 does
        allowed = np.maximum(1.3e-6 * np.abs(true) + 1e-5, np.abs(want - true) * 1.01)
        good = (np.abs(got - true) <= allowed) | (got == true) | (got == want) | (np.isnan(got) & np.isnan(want))
    at = np.flatnonzero(~good)[:5]
    assert not len(at), [(*(float(a[k]) for a in args), "PyTorch", want[k], "here", got[k]) for k in at]


@pytest.mark.parametrize("name", UNARY)
def test_functions(name: str, device: str) -> None:
    _close(name, device, WIDE)


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name: str, device: str) -> None:
    corners = [0.0, -0.0, 1, -1, 2, 0.5, -2, 3, -3, np.inf, -np.inf, np.nan, 1e38, -2.5]
    x, y = map(np.array, zip(*itertools.product(corners, corners), strict=True))
    bases = np.exp(RNG.uniform(-60, 60, 1000)) * RNG.choice([-1, 1], 1000)
    x = np.concatenate([x, RNG.uniform(-10, 10, 2000), bases]).astype(np.float32)
    y = np.concatenate([y, RNG.uniform(-10, 10, 1000), RNG.integers(-20, 20, 1000), RNG.uniform(-90, 90, 1000)]).astype(
        np.float32
    )
    _close(name, device, x, y)


@pytest.fixture(params=["as it is", "in integers", "by fma"])
def way(request: pytest.FixtureRequest, device: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """How quotients and roots are made: by a processor's instructions on a software adapter, by the ways of GPUs else."""
    if request.param != "as it is":
        t = None if device == "cpu" else target(0)
        if t is None or (not t.fused if request.param == "by fma" else not (t.exact or t.fused)):
            pytest.skip("the device has no such way")
        monkeypatch.setattr(t, "exact", False)
        monkeypatch.setattr(t, "fused", request.param == "by fma")
        monkeypatch.setattr(graph, "_plans", {})
        monkeypatch.setattr(schedules, "_families", {})
    return str(request.param)


def near_the_middle(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Quotients that lie as near to the middle of two floats as quotients can, by the largest significands and by others."""
    found = []
    for y in [*range(2**24 - 401, 2**24, 2), *(int(v) | 1 for v in rng.integers(2**23, 2**24, 4000))]:
        for s in (24, 25):  # x * 2^s = middle * y + d
            by = pow(1 << s, -1, y)
            found += [(x + more, y) for d in (-2, -1, 1, 2) for x in [by * (d % y) % y] for more in (0, y)]
    x, y = np.float32([(x, y) for x, y in found if 2**23 <= x < 2**24]).T
    return x, y


def test_division_is_correctly_rounded(device: str, way: str) -> None:
    """Everywhere: significands in all relations, divisors above 2^126, zeros, infinities, subnormal operands and results."""
    edges = np.float32(
        [0, -0.0, 1, 3, -7, 1e-45, -1e-40, 1.17549435e-38, 2.0**126, -1e38, 3.4028235e38, np.inf, np.nan]
    )
    bits = RNG.integers(0, 2**32, (2, 50000), dtype=np.uint32).view(np.float32)
    near = RNG.uniform(1, 2, (2, 50000)).astype(np.float32)
    pairs = np.float32(list(itertools.product(edges, edges))).T
    hard = np.array(near_the_middle(RNG))
    scaled = hard * np.exp2(RNG.integers(-80, 80, hard.shape)).astype(np.float32)
    x, y = np.concatenate([pairs, bits, near, near * np.float32(2.0**126), hard, scaled], axis=1)
    with np.errstate(all="ignore"):
        wants = {"true_divide": x / y, "sqrt": np.sqrt(x), "rsqrt": 1 / np.sqrt(x), "reciprocal": 1 / x}
    for name, want in wants.items():
        args = [tabtorch.tensor(v, device=device) for v in (x, y)[: 2 if name == "true_divide" else 1]]
        got = getattr(tabtorch, name)(*args).cpu().numpy()
        if name == "rsqrt" and device == "cpu":  # where a formula is rounded once, where it ends
            continue
        np.testing.assert_array_equal(got, want, err_msg=name)
        assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all(), name


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x * y + z, rounded once: a sum in double whose last place says whether something is missing (Boldo & Melquiond, 2008)."""
    product, z = np.multiply(x, y, dtype=np.float64), np.float64(z)
    total = product + z
    part = total - product
    rest = (product - (total - part)) + (z - part)
    even = total.view(np.int64) & 1 == 0
    return np.where((rest != 0) & even, np.nextafter(total, np.copysign(np.inf, rest)), total).astype(np.float32)


def by_its_text(name: str, off: int, *args: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What one of the functions in FUSED makes where an inverse is so many units off; and of which it says that they are usual."""
    import re

    from tabtorch.engine.wgsl_math import FUSED

    def beside(x: np.ndarray) -> np.ndarray:
        return (x.astype(np.float32).view(np.int32) + np.int32(off)).view(np.float32)

    known: dict[str, Any] = {
        "fma": lambda *a: fma(*np.broadcast_arrays(*(np.asarray(x, np.float32) for x in a))),
        "tt_kept": lambda x: x,
        "inverse_of": lambda y: beside(1.0 / np.float64(y)),
        "inverseSqrt": lambda x: beside(1.0 / np.sqrt(np.float64(x))),
        "bits": lambda x: x.view(np.uint32),
        "select": lambda no, yes, which: np.where(which, yes, no),
        "u32": np.uint32,
        "f32": np.float32,
    }
    known |= dict(zip("xy", args, strict=False))
    text = FUSED[name].replace("1.0f / y", "inverse_of(y)").replace("bitcast<u32>", "bits")
    text = text.replace("||", "|").replace("&&", "&")
    for what, value in re.findall(r"(?:let|var) (\w+) = (.+?);", text):
        value = re.sub(r"\b(0x[0-9a-f]+|\d+)u\b", r"u32(\1)", re.sub(r"\b(\d+\.\d+)f\b", r"f32(\1)", value))
        known[what] = eval(value, {}, known)
    return known["found"], known["usual"]


@pytest.mark.parametrize("off", range(-4, 5))
def test_quotients_and_roots_by_fma(off: int) -> None:
    """Of a device whose inverses are that many units off, where WGSL allows 2.5: the text itself, read as Python."""
    hard = np.array(near_the_middle(RNG))
    x, y = np.concatenate(
        [hard, RNG.uniform(1, 2, (2, 200000)).astype(np.float32), [[0, -0.0], [3, 5]]], axis=1
    ).astype(np.float32)
    found, usual = by_its_text("tt_quotient", off, x, y)
    assert usual.mean() > 0.95
    np.testing.assert_array_equal(found[usual].view(np.uint32), (x / y)[usual].view(np.uint32))
    every = np.arange(0x3F800000 + (off + 4) * 7, 0x40800000, 61, np.uint32).view(np.float32)
    roots, usual = by_its_text("tt_root", off, every)
    assert usual.all()
    np.testing.assert_array_equal(roots, np.sqrt(every))


def test_division_by_a_constant_is_correctly_rounded() -> None:
    """SPIR-V's optimizer makes products of such, and 0 of what is divided of 0."""
    from kernels import run_all
    from tabtorch.engine.expr import const

    x = np.concatenate([RNG.uniform(-9, 9, 5000), np.float32([0, -0.0, np.inf, np.nan, 1e-38])]).astype(np.float32)
    cases: Any = [(f"by {c}", lambda v, c=c: v / const(c, "f32"), [x], "float32", "f32") for c in (3.0, 7.0, 1e-3)]
    cases += [(f"of {c}", lambda v, c=c: const(c, "f32") / v, [x], "float32", "f32") for c in (0.0, 1.0)]
    with np.errstate(all="ignore"):
        wants = [x / np.float32(c) for c in (3.0, 7.0, 1e-3)] + [np.float32(c) / x for c in (0.0, 1.0)]
    for got, want in zip(run_all(0, cases), wants, strict=True):
        np.testing.assert_array_equal(got, want)


def test_order_is_kept() -> None:
    """Compilers of GPUs reorder a * b * a and fold (a + b) - a, unless what they get is out of their sight."""
    from tabtorch.engine.expr import const, variable, where
    from tabtorch.engine.wgsl import Wgsl

    a, b = (variable(n, "f32") for n in "ab")
    assert Wgsl().text(a * b * a) == "(tt_kept((a * b)) * a)"
    assert Wgsl().text((a + b) - a) == "(tt_kept((a + b)) - a)"
    assert "tt_kept" not in Wgsl().text(a * b + a)
    r = Wgsl()
    assert "tt_kept" in r.text(r.let(a + b) - a), "also where it has a name"
    r = Wgsl()
    r.text(where(a < 0.0, const(-0.0, "f32"), const(0.0, "f32")))
    assert "select(0x00000000u, 0x80000000u, " in r.lines[0]


LIMITS = {"uint8": (0, 255)} | {f"int{b}": (-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (8, 16, 32, 64)}


def _same(f: Callable[[Any, Callable[[Any], Any]], Any], device: str, what: str) -> None:
    """Equal to the last bit."""
    want = f(torch, lambda t: t)
    got = f(tabtorch, lambda t: t.to(device))
    assert str(want.dtype) == str(got.dtype), what
    w, g = (t.float() if t.dtype in (torch.bfloat16, tabtorch.bfloat16) else t for t in (want, got))
    np.testing.assert_array_equal(g.cpu().numpy(), w.numpy(), err_msg=what)


@pytest.mark.parametrize("dtype", LIMITS)
def test_integers(dtype: str, device: str) -> None:
    """Wrapping, signs of quotients and remainders, shifts by too much, powers, at the ends of the range."""
    lo, hi = LIMITS[dtype]
    ends = (lo, lo + 1, lo // 3, hi // 2, hi - 1, hi)
    some = (*ends, -100, -7, -3, -2, -1, 0, 1, 2, 3, 7, 63, 100, 2**32 + 5, -(2**31) - 1)
    values = sorted({v for v in some if lo <= v <= hi})
    pairs = list(itertools.product(values, values))
    # the processor has no quotient of the least number and -1; PyTorch dies of it
    divisible = [(a, b) for a, b in pairs if b and not (a == lo and b == -1)]

    def both(name: str, some: list[tuple[int, int]], **options: Any) -> None:
        def f(m: Any, to: Any) -> Any:
            a, b = (to(m.tensor(list(v), dtype=getattr(m, dtype))) for v in zip(*some, strict=True))
            return getattr(m, name)(a, b, **options)

        _same(f, device, f"{name} {dtype}")

    for name in "add sub mul bitwise_and bitwise_xor maximum lt eq".split():
        both(name, pairs)
    for name in "floor_divide remainder fmod true_divide".split():
        both(name, divisible)
    both("div", divisible, rounding_mode="trunc")
    counts = [c for c in (-100, -33, -1, 0, 1, 7, 8, 15, 16, 31, 32, 33, 63, 64, 100) if lo <= c <= hi]
    for name in "bitwise_left_shift bitwise_right_shift".split():
        both(name, list(itertools.product(values, counts)))
    both("pow", list(itertools.product(values, [0, 1, 2, 3, 7, 31, 33, 62, 63, 64, 100])))
    for name in "neg abs square sum prod".split():
        _same(
            lambda m, to, n=name: getattr(m, n)(to(m.tensor(values, dtype=getattr(m, dtype)))),
            device,
            f"{name} {dtype}",
        )
    for other in (*LIMITS, "float32", "float16", "bfloat16", "bool"):
        _same(
            lambda m, to, o=other: to(m.tensor(values, dtype=getattr(m, dtype))).to(getattr(m, o)),
            device,
            f"{dtype} to {other}",
        )
    _same(lambda m, to: to(m.full((300,), hi, dtype=getattr(m, dtype))).cumsum(0), device, f"cumsum {dtype}")


def test_out_of_range(device: str) -> None:
    """Numbers that an integer type cannot hold become what x86 makes of them."""
    powers = [s * 2.0**e for e in (31, 32, 62, 63) for s in (1, -1)]
    v = [0.99, -1.5, 127.9, 128, -129, 255, 256, -1, 300.7, 32768, -32769, 65536, 70000, 2.0**31 - 128, *powers]
    v += [3e9, -3e9, 1e10, 1e19, 1e38, -1e38, np.inf, -np.inf, np.nan]
    for source in ("float32", "float16", "bfloat16") + (("float64",) if device == "cpu" else ()):
        for dtype in (*LIMITS, "bool"):
            _same(
                lambda m, to, s=source, d=dtype: to(m.tensor(v, dtype=getattr(m, s))).to(getattr(m, d)),
                device,
                f"{source} to {dtype}",
            )


def test_half_rounding(device: str) -> None:
    """To nearest even, with subnormal float16 and overflow."""
    ties = [
        *(1 + np.arange(40) * 2.0**-11),
        *(np.arange(40) * 2.0**-25),
        *(1 + np.arange(40) * 2.0**-8),
        65504,
        65519,
        65520,
        1e5,
        3.39e38,
        -3.4e38,
    ]
    x = np.concatenate([ties, np.exp(RNG.uniform(-18, 12, 4000)) * RNG.choice([-1, 1], 4000), EDGES]).astype(np.float32)
    for dtype in ("float16", "bfloat16"):
        _same(lambda m, to, d=dtype: to(m.tensor(x)).to(getattr(m, d)), device, dtype)


def test_sums_of_bools(device: str) -> None:
    for name in ("sum", "prod", "cumsum", "cumprod"):
        dim = (0,) if name.startswith("cum") else ()
        _same(lambda m, to, n=name, d=dim: getattr(m, n)(to(m.arange(300) % 7 != 9), *d), device, name)


@pytest.mark.parametrize("kind", ["constant", "uniform", "normal", "far from 0"])
def test_long_rows(kind: str, device: str) -> None:
    """A million terms: the error of sums does not grow with their number."""
    n = 10**6
    x = {
        "constant": lambda: np.full(n, 0.1),
        "uniform": lambda: RNG.random(n),
        "normal": lambda: RNG.standard_normal(n),
        "far from 0": lambda: RNG.random(n) * 1e4 + 1e6,
    }[kind]().astype(np.float32)
    t, exact = tabtorch.tensor(x, device=device), x.astype(np.float64)
    size = np.abs(exact).sum()
    assert abs(t.sum().item() - exact.sum()) <= 3e-7 * size
    assert abs(t.mean().item() * n - exact.sum()) <= 3e-7 * size
    assert abs(t.norm().item() - np.linalg.norm(exact)) <= 3e-7 * np.linalg.norm(exact)
    assert abs(t.var().item() - exact.var(ddof=1)) <= 1e-6 * exact.var() + 1e-12
    running = np.cumsum(exact)
    np.testing.assert_allclose(t.cumsum(0).cpu().numpy(), running, rtol=1.3e-6, atol=1e-5)
    factors = 1 + (x[:100000] - x[:100000].mean()) * np.float32(1e-3 / x.std() if x.std() > 1e-3 else 0)
    product = tabtorch.tensor(factors, device=device).cumprod(0).cpu().numpy()
    np.testing.assert_allclose(product, np.cumprod(factors.astype(np.float64)), rtol=1.3e-6)
