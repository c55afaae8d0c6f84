"""Rows and functions as text: both languages, all types; functions as precise as promised; the text short and computed once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from conformance.left_out import NO_EDGES
from kernels import build, run_all
from tabtorch.base import dtypes
from tabtorch.bridge import get_bridge
from tabtorch.engine import expr as ex
from tabtorch.engine import functions as fn
from tabtorch.engine import special_functions as sf
from tabtorch.engine.expr import Complex, Expr, bitcast, call, cast, const, define, variable, where
from tabtorch.engine.js import JavaScript
from tabtorch.engine.wgsl import Wgsl
from tabtorch.ops.machinery import registry
from tabtorch.ops.machinery.dispatch import _arranged
from tabtorch.ops.machinery.promotion import RULES

registry.load_all()

WEBGPU, CPU = 0, 1


def on_webgpu() -> None:
    if not get_bridge().info.get("webgpu"):
        pytest.skip("no WebGPU adapter")


# ---- every row, for every type


def types_of(row: registry.Row, d: Any) -> tuple[Any, Any] | None:
    """(computed, result) for operands of dtype d, or None where the row refuses it."""
    rule: Any = RULES[row.rule] if isinstance(row.rule, str) else row.rule
    try:
        if row.check is not None:
            row.check(d, [0.5] * row.operands)
        found: tuple[Any, Any] = rule(row, d)
        return found
    except (RuntimeError, TypeError):
        return None


def expression(row: registry.Row) -> Any:
    """The row's expression over tensors; options without a default are numbers."""
    return _arranged(row.expr, ("t",) * row.operands) if row.name != "threshold" else lambda x: row.expr(x, x, x)


NAMES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


@pytest.mark.parametrize("device", [WEBGPU, CPU], ids=["wgsl", "js"])
def test_every_row_renders(device: int) -> None:
    count, rendered = 0, set()
    for row in list(registry.ROWS.values()):
        for d in (dtypes.PUBLIC[n] for n in NAMES):
            if device == WEBGPU and d.name in ("float64", "complex128"):
                continue
            found = types_of(row, d)
            if found is None:
                continue
            computed, result = found
            if row.name.startswith("_") and computed.category < 2:
                continue  # gradients are of floats
            if row.name in ("_isclose", "_clamp_backward", "_extreme_backward") and d.is_complex:
                continue
            if row.name.startswith("_") and d.is_complex and row.name.endswith("_backward"):
                if row.name not in ("_tanh_backward", "_sigmoid_backward", "_silu_backward"):
                    continue
            build(device, row.name, expression(row), [d] * row.operands, result, computed.compute, 8)
            rendered.add(row.name)
            count += 1
    assert rendered == set(registry.ROWS) and count > 700


def test_every_row_compiles() -> None:
    """The WGSL of all rows for float32, int32, int64 and complex64, through the compiler that browsers use, in one batch."""
    on_webgpu()
    cases = []
    for row in list(registry.ROWS.values()):
        for name in ("float32", "int64", "int32", "complex64", "uint8"):
            d = dtypes.PUBLIC[name]
            found = types_of(row, d)
            if found is None or (row.name.startswith("_") and name != "float32"):
                continue
            data = [np.full(4, 2, dtype=np.dtype(name))] * row.operands
            cases.append((row.name, expression(row), data, found[1].name, found[0].compute))
    assert len(run_all(WEBGPU, cases)) == len(cases)


# ---- precision of the functions

rng = np.random.default_rng(0)


def line(a: float, b: float, n: int = 3000) -> np.ndarray:
    return np.concatenate([np.linspace(a, b, n), rng.uniform(a, b, n)])


def logs(a: float, b: float, n: int = 3000) -> np.ndarray:
    """From a to b, as many of every magnitude."""
    return np.exp(rng.uniform(np.log(a), np.log(b), n))


def both(*parts: np.ndarray) -> np.ndarray:
    v = np.concatenate(parts)
    return np.concatenate([v, -v])


EDGES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -0.5, 1e-30, -1e-30, 1e30, -1e30, 3e38, 1.2e-38, 1.0000001]
)

_all = np.concatenate
FUNCTIONS: dict[str, tuple[Any, Any, np.ndarray]] = {
    "exp": (ex.exp, torch.exp, both(line(0, 110))),
    "exp2": (ex.exp2, torch.exp2, both(line(0, 150))),
    "expm1": (fn.expm1, torch.expm1, both(line(0, 100), logs(1e-12, 1))),
    "log": (ex.log, torch.log, _all([logs(1e-37, 3e38), line(0.5, 2)])),
    "log2": (ex.log2, torch.log2, _all([logs(1e-37, 3e38), line(0.5, 2)])),
    "log10": (fn.log10, torch.log10, _all([logs(1e-37, 3e38), line(0.5, 2)])),
    "log1p": (fn.log1p, torch.log1p, _all([logs(1e-12, 3e38), line(-0.9999, 2)])),
    "sin": (ex.sin, torch.sin, both(line(0, 10), logs(1, 3e38))),
    "cos": (ex.cos, torch.cos, both(line(0, 10), logs(1, 3e38))),
    "tan": (ex.tan, torch.tan, both(line(0, 1.5), logs(1, 3e38))),
    "asin": (ex.asin, torch.asin, both(line(0, 1))),
    "acos": (ex.acos, torch.acos, both(line(0, 1))),
    "atan": (ex.atan, torch.atan, both(logs(1e-5, 1e10))),
    "sinh": (ex.sinh, torch.sinh, both(line(0, 92), logs(1e-8, 1))),
    "cosh": (ex.cosh, torch.cosh, both(line(0, 92))),
    "tanh": (ex.tanh, torch.tanh, both(line(0, 20), logs(1e-8, 1))),
    "asinh": (ex.asinh, torch.asinh, both(logs(1e-8, 1e38))),
    "acosh": (ex.acosh, torch.acosh, _all([logs(1, 1e38), 1 + logs(1e-6, 1)])),
    "atanh": (ex.atanh, torch.atanh, both(logs(1e-8, 1), line(0, 1))),
    "erf": (sf.erf, torch.erf, both(logs(1e-5, 10))),
    "erfc": (sf.erfc, torch.erfc, both(line(0, 9))),
    "erfcx": (sf.erfcx, torch.special.erfcx, _all([line(-9, 30), logs(1, 1e30)])),
    "erfinv": (sf.erfinv, torch.erfinv, both(line(0, 1), 1 - logs(1e-7, 1))),
    "ndtri": (sf.ndtri, torch.special.ndtri, _all([logs(1e-37, 1), line(0, 1)])),
    "log_ndtr": (sf.log_ndtr, torch.special.log_ndtr, line(-100, 5)),
    "lgamma": (sf.lgamma, torch.lgamma, _all([line(0, 20), logs(1e-30, 1e30), line(-20, 0)])),
    "digamma": (sf.digamma, torch.digamma, _all([line(0.01, 20), logs(1e-5, 1e30), line(-20, 0)])),
    "trigamma": (sf.trigamma, lambda x: torch.polygamma(1, x), _all([line(0.01, 20), logs(1e-5, 1e10), line(-9.5, 0)])),
    "i0": (sf.i0, torch.special.i0, both(line(0, 80))),
    "i0e": (sf.i0e, torch.special.i0e, both(logs(1e-3, 1e10))),
    "i1": (sf.i1, torch.special.i1, both(line(0, 80))),
    "i1e": (sf.i1e, torch.special.i1e, both(logs(1e-3, 1e10))),
}
#: relative error allowed where the result is not near a zero of the function, and absolute error allowed there
PRECISION = {"float32": (6e-7, 2e-6), "float64": (2e-9, 2e-9)}


def measure(got: np.ndarray, want: np.ndarray, dtype: str, name: str) -> None:
    """Errors against double precision; infinities and NaN in the same places."""
    rtol, atol = PRECISION[dtype]
    with np.errstate(all="ignore"):
        w = want.astype(dtype).astype(np.float64)
    g = got.astype(np.float64)
    assert (np.isnan(w) == np.isnan(g)).all(), name
    whole = np.isinf(w) | np.isinf(g)
    assert (w[whole] == g[whole]).all(), name
    known = ~(np.isnan(w) | whole)
    g, want = np.where(known, g, 0.0), np.where(known, want, 0.0)
    error = np.abs(g - want)[known] - rtol * np.abs(want[known])
    assert error.max(initial=0) <= atol, f"{name}: {error.max()}"
    small = np.abs(want[known]) > 1e-30  # and no relative error worth the name where it is not a difference
    if name not in ("lgamma", "digamma", "tan", "log_ndtr", "log", "log2", "log10", "acosh", "sin", "cos"):
        relative = (np.abs(g - want)[known] / np.maximum(np.abs(want[known]), 1e-300))[small]
        assert relative.max(initial=0) < (1e-6 if dtype == "float32" else 1e-9), name


@pytest.mark.parametrize(("device", "dtype"), [(WEBGPU, "float32"), (CPU, "float32"), (CPU, "float64")])
def test_precision(device: int, dtype: str) -> None:
    if device == WEBGPU:
        on_webgpu()
    cases, inputs = [], []
    for name, (f, _, x) in FUNCTIONS.items():
        data = (x if name in NO_EDGES else _all([x, EDGES])).astype(np.float32).astype(dtype)
        inputs.append(data)
        cases.append((name, f, [data], dtype, "f32" if dtype == "float32" else "f64"))
    for (name, (_, theirs, _)), x, got in zip(FUNCTIONS.items(), inputs, run_all(device, cases), strict=True):
        measure(got, theirs(torch.from_numpy(x).double()).numpy(), dtype, name)


PAIRS: dict[str, tuple[Any, Any, np.ndarray, np.ndarray]] = {
    "pow": (fn.power, torch.pow, logs(1e-5, 1e5, 6000), rng.uniform(-8, 8, 6000)),
    "pow of negative numbers": (fn.power, torch.pow, rng.uniform(-5, 5, 6000), rng.integers(-6, 7, 6000).astype(float)),
    "pow near 1": (fn.power, torch.pow, 1 + both(logs(1e-7, 0.2)), both(logs(1, 400))),
    "atan2": (fn.atan2, torch.atan2, both(logs(1e-5, 1e5)), rng.permutation(both(logs(1e-5, 1e5)))),
    "hypot": (fn.hypot, torch.hypot, both(logs(1e-18, 1e18)), both(logs(1e-5, 1e5))),
    "fmod": (fn.fmod, torch.fmod, both(logs(1e-10, 1e10)), rng.permutation(both(logs(1e-5, 1e5)))),
    "zeta": (sf.zeta, torch.special.zeta, line(1.01, 30), np.abs(rng.permutation(line(0.05, 20)))),
}


@pytest.mark.parametrize(("device", "dtype"), [(WEBGPU, "float32"), (CPU, "float32"), (CPU, "float64")])
def test_precision_of_two(device: int, dtype: str) -> None:
    if device == WEBGPU:
        on_webgpu()
    a, b = (m.ravel() for m in np.meshgrid(EDGES, EDGES))
    cases, inputs = [], []
    for name, (f, _, x, y) in PAIRS.items():
        if name != "zeta":
            x, y = _all([x, a]), _all([y, b])
        data = [v.astype(np.float32).astype(dtype) for v in (x, y)]
        inputs.append(data)
        cases.append((name, f, data, dtype, "f32" if dtype == "float32" else "f64"))
    for (name, (_, theirs, _, _)), xs, got in zip(PAIRS.items(), inputs, run_all(device, cases), strict=True):
        want = theirs(*[torch.from_numpy(x).double() for x in xs]).numpy()
        measure(got, want, dtype, name)
        if name == "fmod":
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(got, want.astype(dtype))


@pytest.mark.parametrize("device", [WEBGPU, CPU])
def test_a_product_and_a_difference_are_rounded_once(device: int) -> None:
    if device == WEBGPU:
        on_webgpu()
    x, y, z = rng.uniform(-4, 4, (3, 20000)).astype(np.float32)
    z[:10000] = (x * y)[:10000] * (
        1 + rng.integers(-3, 4, 10000) * np.float32(2.0**-23)
    )  # what is left is the rounding
    (got,) = run_all(device, [("fused", fn.fused, [x, y, z], "float32", "f32")])
    np.testing.assert_array_equal(got, (x.astype(np.longdouble) * y - z).astype(np.float32))


# ---- the text itself


def test_shared_parts_are_computed_once() -> None:
    """A chain that uses each value twice: as long as it is, not exponential."""
    for r in (Wgsl(), JavaScript()):
        x: Any = variable("x", "f32")
        for _ in range(200):
            x = x * x + x
        r.text(x)
        assert len("\n".join(r.lines)) < 40_000


def test_equal_parts_are_one() -> None:
    r = Wgsl()
    x = variable("x", "f32")
    a = r.text(r.let(ex.exp(x) + 1.0))
    assert r.text(r.let(ex.exp(variable("x", "f32")) + 1.0)) == a
    assert "\n".join(r.lines).count("tt_exp_f32(") == 1


def test_zeros_of_both_signs_stay_apart() -> None:
    x = np.array([1.0, -1.0], np.float32)
    for device in (CPU, WEBGPU):
        if device == WEBGPU:
            on_webgpu()
        (got,) = run_all(
            device, [("z", lambda v: where(v < 0.0, const(-0.0, "f32"), const(0.0, "f32")), [x], "float32", "f32")]
        )
        assert np.signbit(got).tolist() == [False, True]


def test_functions_are_defined_once_a_kernel() -> None:
    r = Wgsl()
    x = variable("x", "f32")
    r.text(ex.tanh(x) * ex.sinh(x) + fn.expm1(x * 2.0))
    names = [name for name, _ in r.functions.values()]
    assert len(names) == len(set(names)) and "tt_expm1_f32" in names
    text = "\n".join(t for _, t in r.functions.values())
    assert text.index("fn tt_expm1_f32") < text.index("fn tt_sinh_f32"), "a function stands before its users"


def test_unknown_function() -> None:
    with pytest.raises(KeyError, match="no function nonsense"):
        Wgsl().text(call("nonsense", "f32", variable("x", "f32")))


def test_define() -> None:
    @define("test_twice")
    def twice(x: Any) -> Any:
        return x + x

    x = np.array([1.0, 2.5], np.float32)
    (got,) = run_all(CPU, [("twice", twice, [x], "float32", "f32")])
    assert got.tolist() == [2.0, 5.0]


def test_types_are_checked() -> None:
    x, n = variable("x", "f32"), variable("n", "i32")
    for bad in (lambda: x + n, lambda: x < n, lambda: where(x < 0.0, x, n)):
        with pytest.raises(TypeError):
            bad()
    with pytest.raises(TypeError, match="no truth value"):
        bool(x < 1.0)


def test_casts() -> None:
    """As PyTorch's `to`, on both devices, for what is in range."""
    x = np.array([0.0, 1.9, -1.9, 255.0, 1e6, -3.5], np.float32)
    for device in (CPU, WEBGPU):
        if device == WEBGPU:
            on_webgpu()
        for name in ("int32", "int64", "bool", "int16"):
            (got,) = run_all(device, [("c", lambda v: v, [x], name, "f32")])
            want = torch.from_numpy(x).to(getattr(torch, name)).numpy()
            assert got.astype(bool).tolist() == want.tolist() if name == "bool" else got.tolist() == want.tolist()


def test_bits() -> None:
    x = np.array([1.0, -2.0, np.inf, 1e-40], np.float32)
    for device in (CPU, WEBGPU):
        if device == WEBGPU:
            on_webgpu()
        (got,) = run_all(device, [("b", lambda v: bitcast(v, "i32"), [x], "int32", "f32")])
        assert got[:3].tolist() == x.view(np.int32)[:3].tolist()


def test_complex_lifts_numbers() -> None:
    z = Complex(variable("a", "f32"), variable("b", "f32"))
    w = 1.0 - z * 2.0
    assert isinstance(w, Complex) and w.type == "c64"
    assert isinstance(cast(z, "f32"), Expr)
    text = JavaScript().text(w.im)
    assert "b" in text
