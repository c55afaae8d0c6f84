"""Every row of the elementwise table against PyTorch: values, edges, types, errors, first and second gradients, all forms."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from conformance import left_out
from tabtorch import ops
from tabtorch.bridge import get_bridge
from tabtorch.ops.machinery import registry

registry.load_all()

PUBLIC = [n for n in registry.ROWS if not n.startswith("_")]
#: functions that choose among rows
CHOOSERS = {"div": 2, "pow": 2, "clamp": 3, "nan_to_num": 1, "isclose": 2, "polygamma": 1}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "add": [{"alpha": 2.5}],
    "sub": [{"alpha": 2.5}],
    "rsub": [{"alpha": 2.5}],
    "addcmul": [{"value": 0.5}],
    "addcdiv": [{"value": 0.5}],
    "div": [{"rounding_mode": "floor"}, {"rounding_mode": "trunc"}],
    "round": [{"decimals": 2}, {"decimals": -1}],
    "gelu": [{"approximate": "tanh"}],
    "softplus": [{"beta": 2.0, "threshold": 1.0}],
    "elu": [{"alpha": 0.7}],
    "celu": [{"alpha": 0.7}],
    "leaky_relu": [{"negative_slope": 0.3}],
    "hardtanh": [{"min_val": -2.0, "max_val": 0.5}],
    "hardshrink": [{"lambd": 1.0}],
    "softshrink": [{"lambd": 1.0}],
    "logit": [{"eps": 0.2}],
    "nan_to_num": [{"nan": 2.0, "posinf": 3.0}],
    "polygamma": [{"n": 1}, {"n": 2}, {"n": 3}],
}
CASES = [
    pytest.param(name, options, id="-".join([name, *(f"{k}={v}" for k, v in options.items())]))
    for name in [*PUBLIC, *CHOOSERS]
    for options in ([] if name == "polygamma" else [{}]) + OPTIONS.get(name, [])
]
EDGES = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.5, 6.0, 3.0, -3.0, 100.0, -100.0, 1e-20, -1e-20,
    1e20, -1e20, 3e38,
]  # fmt: skip
INTEGER = ("gcd", "lcm")
TYPES = ("bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 complex64 float64 complex128").split()


def real(name: str) -> Any:
    """PyTorch's function of a row's name."""
    if name.startswith("special_"):
        return getattr(torch.special, name[8:])
    if name == "polygamma":
        return lambda x, n: torch.polygamma(n, x)
    return getattr(torch, name, None) or getattr(torch.nn.functional, name)


def ours(name: str) -> Any:
    if name == "polygamma":
        return lambda x, n: ops.polygamma(n, x)
    return registry.function(name)


def public(name: str) -> Any:
    """What users call: activations are in nn.functional, which checks their arguments."""
    return ours(name) if hasattr(torch, name) else getattr(tabtorch.nn.functional, name, None) or ours(name)


def operands_of(name: str) -> int:
    return CHOOSERS[name] if name in CHOOSERS else registry.ROWS[name].operands


def domain_of(name: str) -> tuple[float, float]:
    if name in CHOOSERS:
        return {"pow": (0.1, 4.0), "polygamma": (0.3, 6.0)}.get(name, (-3.0, 3.0))
    return registry.ROWS[name].domain


def is_integer(name: str) -> bool:
    return name.startswith("bitwise") or name in INTEGER


def samples(name: str, count: int = 24) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(map(ord, name)))
    lo, hi = domain_of(name)
    xs = [rng.uniform(lo, hi, count).astype(np.float32) for _ in range(operands_of(name))]
    if is_integer(name):
        xs = [np.rint(x * 7).astype(np.int64) for x in xs]
        if "shift" in name:
            xs[1] = np.abs(xs[1]) % 70 - 3
    return xs


def to_ours(t: torch.Tensor, device: str) -> Any:
    return tabtorch.tensor(t.tolist(), dtype=getattr(tabtorch, str(t.dtype)[6:]), device=device)


def to_real(t: Any) -> torch.Tensor:
    return torch.tensor(t.tolist(), dtype=getattr(torch, t.dtype.name)).reshape(tuple(t.shape))


def check(got: Any, want: torch.Tensor, exact: torch.Tensor | None = None, **tolerances: float) -> None:
    """As PyTorch's own tests compare; what is nearer to the result in double precision than PyTorch may differ from it."""
    g = to_real(got)
    assert g.dtype == want.dtype
    if exact is not None and g.is_floating_point():
        e = exact.to(g.dtype)
        right = torch.isclose(g, e, rtol=1.3e-6, atol=1e-5, equal_nan=True)
        want = torch.where(right, g, want)
    torch.testing.assert_close(g, want, equal_nan=True, **tolerances)  # type: ignore[arg-type]


def arguments(name: str, xs: list[torch.Tensor], device: str) -> tuple[list[Any], list[Any]]:
    """The same arguments for PyTorch and for us; `threshold` wants numbers after the first."""
    if name == "threshold":
        return [xs[0], 0.25, 7.0], [to_ours(xs[0], device), 0.25, 7.0]
    return list(xs), [to_ours(x, device) for x in xs]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_values(name: str, options: dict[str, Any], device: str) -> None:
    xs = [torch.from_numpy(x) for x in samples(name)]
    theirs, mine = arguments(name, xs, device)
    if is_integer(name) or name == "isclose":
        exact = None
    else:
        exact = real(name)(*[x.double() if isinstance(x, torch.Tensor) else x for x in theirs], **options)
    check(ours(name)(*mine, **options), real(name)(*theirs, **options), exact)


@pytest.mark.parametrize(
    ("name", "options"), [c for c in CASES if operands_of(str(c.values[0])) < 3 and not is_integer(str(c.values[0]))]
)
def test_edges(name: str, options: dict[str, Any], device: str) -> None:
    """Zeros, infinities, NaN, tiny and huge numbers, in all pairs."""
    pairs = list(itertools.product(EDGES, repeat=operands_of(name)))
    pairs = [p for p in pairs if not any(e.covers(name, options, device, p) for e in left_out.EDGES)]
    xs = [torch.tensor(x, dtype=torch.float32) for x in zip(*pairs, strict=True)]
    theirs, mine = arguments(name, xs, device)
    want = real(name)(*theirs, **options)
    exact = real(name)(*[x.double() if isinstance(x, torch.Tensor) else x for x in theirs], **options)
    got = ours(name)(*mine, **options)
    check(got, want, exact, **left_out.edge_tolerance(name, device))
    if want.is_floating_point() and name not in left_out.UNSIGNED_ZERO:
        g = to_real(got)
        zeros = (want == 0) & (g == 0)
        assert (torch.signbit(g) == torch.signbit(want))[zeros].all(), "sign of zero"


@pytest.mark.parametrize(("name", "options"), [c for c in CASES if not c.values[1]])
def test_types(name: str, options: dict[str, Any], device: str) -> None:
    """Each type gives PyTorch's type and values, or its exception and message."""
    for type_name in TYPES:
        if device == "webgpu" and type_name in ("float64", "complex128"):
            continue
        base: list[list[Any]] = [[1, 2, 0, 3, 5], [2, 1, 3, 1, 2], [1, 1, 1, 2, 2]][: operands_of(name)]
        d = getattr(torch, type_name)
        if d.is_complex:
            base = [[complex(0.6 * x - 0.7, 0.3 * x - 0.5) for x in b] for b in base]
        elif d.is_floating_point:
            base = [[0.6 * x - 0.9 for x in b] for b in base]
        theirs, mine = arguments(name, [torch.tensor(b, dtype=d) for b in base], device)
        want, error = None, None
        try:
            want = real(name)(*theirs)
        except (RuntimeError, TypeError) as e:
            error = e
        if error is None:
            check(public(name)(*mine), want)
            continue
        with pytest.raises(type(error)) as caught:
            public(name)(*mine)
        assert str(caught.value) == str(error), type_name


def differentiable(name: str) -> bool:
    if name in CHOOSERS:
        return name != "isclose"
    return any(g is not None and not hasattr(g, "refuses") for g in registry.ROWS[name].grads or ())


@pytest.mark.parametrize(("name", "options"), [c for c in CASES if differentiable(str(c.values[0]))])
def test_gradients(name: str, options: dict[str, Any], device: str) -> None:
    """First gradients of all operands, and second ones (of the operands and of the incoming gradient)."""
    xs = [torch.from_numpy(x) for x in samples(name)]
    theirs, mine = arguments(name, xs, device)
    grads: tuple[Any, ...] = (True,) * 3 if name in CHOOSERS else registry.ROWS[name].grads or ()
    chosen = [
        k for k, x in enumerate(theirs) if isinstance(x, torch.Tensor) and grads[k] and not hasattr(grads[k], "refuses")
    ]
    for k in chosen:
        theirs[k].requires_grad_()
        mine[k].requires_grad_()
    rng = np.random.default_rng(5)
    v, u = (torch.from_numpy(rng.uniform(0.5, 1.5, 24).astype(np.float32)) for _ in range(2))
    want, want2 = _gradients(torch, real(name), theirs, chosen, v, u, options)
    doubles = [
        x.detach().double().requires_grad_(k in chosen) if isinstance(x, torch.Tensor) else x
        for k, x in enumerate(theirs)
    ]
    exact, exact2 = _gradients(torch, real(name), doubles, chosen, v.double(), u.double(), options)
    got, got2 = _gradients(tabtorch, ours(name), mine, chosen, to_ours(v, device), to_ours(u, device), options)
    for g, w, e in zip(got, want, exact, strict=True):
        check(g.detach(), w.detach(), e.detach())
    if not want2:  # the first are zeros, or, for hardsigmoid, PyTorch has no second ones
        return
    zeros = torch.zeros(24)
    for g, w, e in zip(got2, want2, exact2, strict=True):
        if g is not None or w is not None:
            a, b, c = zeros if g is None else to_real(g), zeros if w is None else w, zeros if e is None else e.float()
            b = torch.where(torch.isclose(a, c, rtol=2e-5, atol=2e-5, equal_nan=True), a, b)
            torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5, equal_nan=True)


def _gradients(
    lib: Any, f: Any, xs: list[Any], chosen: list[int], v: Any, u: Any, options: dict[str, Any]
) -> tuple[Any, list[Any]]:
    """First gradients of the chosen operands for v; then those of the operands and of v, for u times the first."""
    v.requires_grad_()
    leaves = [xs[k] for k in chosen]
    first = lib.autograd.grad(f(*xs, **options), leaves, v, create_graph=True)
    again = [g for g in first if g.requires_grad]
    if not again:
        return first, []
    try:
        return first, list(lib.autograd.grad(again, [*leaves, v], [u] * len(again), allow_unused=True))
    except RuntimeError as e:
        if "is not implemented" not in str(e):
            raise
        return first, []


@pytest.mark.parametrize("name", [n for n in PUBLIC if registry.ROWS[n].inplace])
def test_in_place(name: str, device: str) -> None:
    xs = [torch.from_numpy(x) for x in samples(name)]
    theirs, mine = arguments(name, xs, device)
    want = real(name)(*theirs)
    if want.dtype != xs[0].dtype:  # PyTorch writes a bool result to a float tensor
        want = want.to(xs[0].dtype)
    f = registry.function(name + "_")
    assert f is not None
    assert f(*mine) is mine[0]
    check(mine[0], want)
    base = to_ours(torch.stack([xs[0], xs[0]]), device)  # and into a part of a storage
    f(base[1], *mine[1:])
    check(base, torch.stack([xs[0], want]))


@pytest.mark.parametrize("name", [n for n in PUBLIC if registry.ROWS[n].out and n not in ("polygamma",)])
def test_out(name: str, device: str) -> None:
    xs = [torch.from_numpy(x) for x in samples(name)]
    theirs, mine = arguments(name, xs, device)
    want = real(name)(*theirs)
    out = tabtorch.empty(0, dtype=getattr(tabtorch, str(want.dtype)[6:]), device=device)
    assert ours(name)(*mine, out=out) is out
    check(out, want)


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "true_divide", "pow", "remainder", "floor_divide", "eq", "lt", "xlogy"]
)
@pytest.mark.parametrize("type_name", ["float32", "int64", "int32", "uint8", "bool", "float16"])
def test_numbers(name: str, type_name: str, device: str) -> None:
    """Python numbers as the second operand: the type follows PyTorch's promotion, and no kernel is made for a value."""
    x = torch.tensor([1, 2, 5, 7]).to(getattr(torch, type_name))
    mine = to_ours(x, device)
    for number in (3, 2.5, True):
        if name == "pow" and type_name == "bool" and number is True:
            continue
        try:
            want = real(name)(x, number)
        except RuntimeError as e:
            with pytest.raises(type(e)) as caught:
                ours(name)(mine, number)
            assert str(caught.value) == str(e)
            continue
        check(ours(name)(mine, number), want)


def test_numbers_make_no_kernels(device: str) -> None:
    x = tabtorch.tensor([1.0, 2.0, 3.0], device=device)
    f = [
        lambda a: tabtorch.add(x, x, alpha=a),
        lambda a: x * a + a,
        lambda a: tabtorch.clamp(x, -a, a),
        lambda a: ops.leaky_relu(x, a),
        lambda a: x**a,
        lambda a: a / x,
    ]
    for g in f:
        g(1.5).tolist()
        before = get_bridge().stats()["kernels"]
        g(2.75).tolist()
        assert get_bridge().stats()["kernels"] == before


def test_integer_powers(device: str) -> None:
    base = torch.tensor([0, 1, -1, 2, -3, 7, 10, 3037000499, -9223372036854775808])
    for exponent in (0, 1, 2, 3, 5, 17, 62, 63, 64):
        assert (to_ours(base, device) ** exponent).tolist() == (base**exponent).tolist()
    small = torch.tensor([0, 1, -1, 2, -3, 7, 10], dtype=torch.int32)
    n = torch.tensor([3, -2, -3, 31, 19, -1, 9], dtype=torch.int32)
    assert (to_ours(small, device) ** to_ours(n, device)).tolist() == (small**n).tolist()
    assert tabtorch.pow(2, to_ours(torch.arange(6), device)).tolist() == [1, 2, 4, 8, 16, 32]
    x = torch.arange(-40.0, 41.0)  # integral powers of whole numbers are exact
    for exponent in (2, 3, 4, 5):
        assert (to_ours(x, device) ** exponent).tolist() == (x**exponent).tolist()


def test_long_integers(device: str) -> None:
    """int64 is exact over 64 bits."""
    rng = np.random.default_rng(2)
    x = torch.from_numpy(rng.integers(-(2**63), 2**63 - 1, 200, dtype=np.int64))
    y = torch.from_numpy(rng.integers(-(2**63), 2**63 - 1, 200, dtype=np.int64) >> rng.integers(0, 62, 200))
    y[y == 0] = 3
    a, b = to_ours(x, device), to_ours(y, device)
    for name in ("add", "sub", "mul", "floor_divide", "remainder", "fmod", "maximum", "lt", "bitwise_xor", "gcd"):
        assert ours(name)(a, b).tolist() == real(name)(x, y).tolist(), name
    check(tabtorch.div(a, b, rounding_mode="trunc"), torch.div(x, y, rounding_mode="trunc"))
    check(a.to(tabtorch.float32), x.to(torch.float32))


def test_rounded_division(device: str) -> None:
    """Quotients that are whole numbers stay so, whatever the device's division gives in its last place."""
    n, d = torch.meshgrid(torch.arange(-60.0, 61.0), torch.arange(1.0, 50.0), indexing="ij")
    a, b = to_ours(n, device), to_ours(d, device)
    tenths, tenths_ours = d * 0.1, to_ours(d * 0.1, device)
    for f in (lambda t, x, y: t.div(x, y, rounding_mode="floor"), lambda t, x, y: t.div(x, y, rounding_mode="trunc"),
              lambda t, x, y: t.remainder(x, y), lambda t, x, y: t.fmod(x, y)):  # fmt: skip
        assert f(tabtorch, a, b).tolist() == f(torch, n, d).tolist()
        check(f(tabtorch, a, tenths_ours), f(torch, n, tenths))


def test_complex_functions(device: str) -> None:
    """All quadrants, inside and outside the unit circle."""
    grid = [complex(a, b) for a in (-7.0, -1.3, -0.4, 0.3, 0.9, 6.0) for b in (-5.0, -1.1, -0.2, 0.15, 1.0, 8.0)]
    z = torch.tensor(grid)
    mine = to_ours(z, device)
    for name in (
        "abs angle sgn exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square sin cos tan asin acos atan sinh cosh "
        "tanh asinh acosh atanh sigmoid sinc neg conj_physical"
    ).split():
        got, want = to_real(ours(name)(mine)), real(name)(z)
        torch.testing.assert_close(got, want, rtol=4e-6, atol=2e-5, msg=lambda m, name=name: f"{name}: {m}")
    for name in ("add", "sub", "mul", "true_divide", "pow"):
        torch.testing.assert_close(
            to_real(ours(name)(mine, mine.flip(0))), real(name)(z, z.flip(0)), rtol=2e-4, atol=2e-5
        )


def test_complex_gradients(device: str) -> None:
    z = torch.tensor([0.3 + 0.4j, -0.7 + 0.2j, 0.5 - 0.6j, -0.2 - 0.9j])
    v = torch.tensor([1 + 2j, -1 + 0.5j, 0.3 - 1j, 2 + 0j])
    for name in (
        "abs angle sgn exp expm1 log log1p sqrt rsqrt reciprocal square sin cos tan asin acos atan sinh cosh tanh asinh atanh "
        "sigmoid conj_physical"
    ).split():
        x = z.clone().requires_grad_()
        y = to_ours(z, device).requires_grad_()
        w = real(name)(x)
        g = v.real.clone() if not w.is_complex() else v
        (want,) = torch.autograd.grad(w, x, g)
        (got,) = tabtorch.autograd.grad(ours(name)(y), y, to_ours(g, device))
        torch.testing.assert_close(to_real(got), want, rtol=2e-5, atol=2e-5, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize(
    "call",
    [
        lambda t, x: t.clamp(x),
        lambda t, x: t.div(x, x, rounding_mode="up"),
        lambda t, x: t.tensor([1, 2]) ** -1,
        lambda t, x: t.where(x, x, x),
        lambda t, x: t.isclose(x, x, rtol=-1.0),
        lambda t, x: t.isclose(x, x > 0),
        lambda t, x: t.polygamma(-1, x),
        lambda t, x: (x > 0) - (x > 0),
        lambda t, x: -(x > 0),
        lambda t, x: +(x > 0),
        lambda t, x: t.add(x.long(), x.long(), alpha=0.5),
        lambda t, x: x.long().sqrt_(),
        lambda t, x: x + t.ones(3),
    ],
)
def test_errors(call: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((RuntimeError, TypeError)) as theirs:
            call(torch, torch.tensor([0.5, -0.5]))
    with pytest.raises(type(theirs.value)) as mine:
        call(tabtorch, tabtorch.tensor([0.5, -0.5]))
    assert str(mine.value).splitlines()[0] == str(theirs.value).splitlines()[0]


def test_no_gradient() -> None:
    x, y = tabtorch.tensor([1.5, 2.0], requires_grad=True), tabtorch.tensor([1.5, 2.0])
    refusing = [(tabtorch.floor_divide, RuntimeError), (tabtorch.heaviside, RuntimeError)]
    for f, error in [*refusing, (tabtorch.special.zeta, NotImplementedError)]:
        with pytest.raises(error, match="erivative for .* is not implemented"):
            f(x, y).sum().backward()


def test_special_namespace() -> None:
    x = tabtorch.tensor([0.25, 0.5])
    for name in (
        "digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammaln i0 i0e i1 i1e log1p log_ndtr logit ndtr ndtri psi sinc"
    ).split():
        check(getattr(tabtorch.special, name)(x), getattr(torch.special, name)(torch.tensor([0.25, 0.5])))


def test_aliases() -> None:
    """Every alias is PyTorch's name too."""
    for row in (registry.ROWS[n] for n in PUBLIC):
        for alias in row.aliases:
            where: Any = torch.special if alias.startswith("special_") else torch
            assert hasattr(where, alias.removeprefix("special_")), alias
        assert row.doc, row.name
