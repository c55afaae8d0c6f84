"""What packages of scientific computing ask of PyTorch: overrides, and names and arguments found with them; beside PyTorch."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch as tt
from sidebyside import same

LIBRARIES = (torch, tt)


@pytest.fixture(autouse=True)
def on_cpu() -> Any:
    with tt.device("cpu"):
        yield
    overriding = sys.modules.get("tabtorch.interception.torch_function")
    if overriding is not None:  # the classes of a test are gone: other tests find functions as they are without any
        type(overriding.STATE).classes = False  # of all threads
        overriding.switch()


def both(f: Any) -> tuple[Any, Any]:
    return f(torch), f(tt)


# ---- __torch_function__


def scalar_tensor(ns: Any) -> Any:
    """The class of the page "Extending torch"."""
    handled: dict[Any, Any] = {}

    class ScalarTensor:
        def __init__(self, n: int, value: float) -> None:
            self.n, self.value = n, value

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func not in handled or not all(issubclass(t, (ns.Tensor, ScalarTensor)) for t in types):
                return NotImplemented
            return handled[func](*args, **(kwargs or {}))

    handled[ns.mean] = lambda input: input.value / input.n
    handled[ns.add] = lambda a, b: ("add", type(a).__name__, type(b).__name__)
    handled[ns.Tensor.add] = lambda a, b: ("method", type(a).__name__, type(b).__name__)
    handled[ns.cat] = lambda tensors, dim=0: ("cat", len(tensors), dim)
    handled[ns.linalg.inv] = lambda A: "inverse"
    handled[ns.Tensor.matmul] = lambda a, b: "product"
    handled[ns.nn.functional.relu] = lambda input, inplace=False: "relu"
    return ScalarTensor


CALLS = (
    "ns.mean(s)",
    "ns.add(s, s)",
    "ns.add(t, s)",
    "ns.add(t, other=s)",
    "t.add(s)",
    "t + s",
    "ns.cat([t, s], dim=1)",
    "ns.linalg.inv(s)",
    "t @ s",
    "t.matmul(s)",
    "ns.nn.functional.relu(s)",
    "ns.exp(s)",
    "ns.stack([s])",
    "t - s",
    "t.sub(s)",
    "ns.overrides.is_tensor_like(s), ns.overrides.has_torch_function((t, s)), ns.overrides.has_torch_function((t,))",
)


def test_a_class_that_is_no_tensor() -> None:
    for call in CALLS:
        results = []
        for ns in LIBRARIES:
            s, t = scalar_tensor(ns)(5, 2.0), ns.ones(2, 2)
            try:
                results.append(eval(call, {"ns": ns, "s": s, "t": t}))
            except TypeError as e:
                results.append(str(e))
        assert results[0] == results[1], call


class Tells:
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func.__name__, len(args), sorted(kwargs or {})


@pytest.mark.parametrize(
    ("call", "want"),
    [
        ("ns.mean(s, dim=1)", ("mean", 1, ["dim"])),
        ("ns.mul(t, s)", ("mul", 2, [])),
        ("ns.exp(s)", ("exp", 1, [])),
        ("t @ s", ("matmul", 2, [])),
        ("ns.linalg.solve(s, t)", ("linalg_solve", 2, [])),
        ("t.matmul(s)", ("matmul", 2, [])),
    ],
)
def test_the_first_call_that_meets_one(call: str, want: Any) -> None:
    t = tt.ones(2, 2)
    functions = (tt.Tensor.sum, tt.add, tt.Tensor.add, tt.cat, tt.nn.functional.linear)
    before = [f.__code__ for f in functions]
    tt.cat([t, t]), t.sum(), tt.add(t, t)
    with pytest.raises(TypeError):
        tt.add(t, object())
    assert [f.__code__ for f in functions] == before  # who overrides nothing pays nothing
    assert eval(call, {"ns": tt, "s": Tells(), "t": t}) == want
    assert not any(f.__code__ is c for f, c in zip(functions, before, strict=True))


def test_nothing_is_loaded_before_it_is_needed() -> None:
    code = "import sys, tabtorch as t; t.nn.Linear(2, 2)(t.ones(1, 2)).sum().backward()"
    code += "; print('tabtorch.interception.torch_function' in sys.modules)"
    r = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "TABTORCH_DEVICE": "cpu"}
    )
    assert r.stdout.strip() == "False", r.stderr


def test_subclasses_are_kept() -> None:
    def run(ns: Any) -> Any:
        class Sub(ns.Tensor):  # type: ignore[misc]
            pass

        class Other(ns.Tensor):  # type: ignore[misc]
            pass

        class SubSub(Sub):
            pass

        x, y, z = Sub([1.0, 2.0]), SubSub([3.0, 4.0]), ns.tensor([5.0, 6.0])
        w = Sub([1.0, 2.0]).requires_grad_()
        (w * w * z).sum().backward()
        results = [
            x + 1, 1 - x, x + z, z + x, x + y, x.sum(), x[0], x.split(1)[1], x.max(0)[0], ns.stack([z, x]), x.exp_(), x.view(2, 1).T,
            ns.nn.functional.relu(x), x.clone(), w.grad, ns.nn.Parameter(x) + x, ns.nn.Parameter(z) * 2, x.view(2, 1), x.data,
        ]  # fmt: skip
        try:
            x + Other([1.0, 2.0])
            failed = ""
        except TypeError as e:
            failed = str(e)
        return [(type(r).__name__, r.tolist()) for r in results], x.max(0)[0].item(), failed

    want, got = both(run)
    for (a, x), (b, y) in zip(want[0], got[0], strict=True):
        assert a == b
        np.testing.assert_allclose(y, x, rtol=1e-6)
    assert want[1:] == got[1:]


def test_a_subclass_that_looks_on() -> None:
    def run(ns: Any) -> Any:
        seen: list[Any] = []

        class Logging(ns.Tensor):  # type: ignore[misc]
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append((func.__name__, len(args), sorted(kwargs or {})))
                return super().__torch_function__(func, types, args, kwargs or {})

        x = Logging([[1.0, 2.0]])
        y = (2 * x + 1).sum(dim=1) ** 2
        y.shape, y.requires_grad, len(y), float(y), x.t() @ x, -x, abs(x), x == x, x.size(0), x.add(x, alpha=2)
        x[0, 0] = 3.0
        ns.cat([x, x], dim=0), ns.nn.functional.softmax(x, dim=-1), x.to(ns.float64)
        return seen

    want, got = both(run)
    names = [(n, k) for n, k, _ in want]
    assert names == [(n, k) for n, k, _ in got]


def test_operands_of_einsum_are_arguments() -> None:
    def run(ns: Any) -> Any:
        seen: list[Any] = []

        class Logging(ns.Tensor):  # type: ignore[misc]
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append((func.__name__, [isinstance(a, cls) for a in args]))
                return super().__torch_function__(func, types, args, kwargs or {})

        x = Logging([[1.0, 2.0], [3.0, 4.0]])
        sums = [ns.einsum("ij,jk", *operands).tolist() for operands in ([x, x], [[x, x]], [(x, x)])]
        return [s for s in seen if s[0] == "einsum"], sums

    want, got = both(run)
    assert want == got


def test_modes() -> None:
    def run(ns: Any) -> Any:
        seen: list[Any] = []

        class Log(ns.overrides.TorchFunctionMode):  # type: ignore[misc]
            def __init__(self, name: str) -> None:
                super().__init__()
                self.name = name

            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append((self.name, ns.overrides.resolve_name(func)))
                return func(*args, **(kwargs or {}))

        x = ns.ones(2, 3)
        before = ns.Tensor.sum.__code__ if ns is tt else None
        with Log("outer"):
            y = ns.zeros(3) + x
            with Log("inner"):
                y = y * 2 - ns.eye(2, 3)
                y.shape
                y.sum(0)
            y[0]
            3 / y, y @ y.T, ns.special.expit(y), ns.fft.fft(y), ns.nn.functional.gelu(y)
        y.sum()
        assert before is None or ns.Tensor.sum.__code__ is before or tt._overriding.STATE.classes
        return seen

    want, got = both(run)
    assert want == got


def test_redispatch_and_off() -> None:
    def run(ns: Any) -> Any:
        seen: list[Any] = []
        o = ns.overrides

        def scaled_mul(a: Any, b: Any) -> Any:
            if o.has_torch_function((a, b)):
                return o.handle_torch_function(scaled_mul, (a, b), a, b)
            return a * b + 1

        class Logging(ns.Tensor):  # type: ignore[misc]
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
                seen.append(func.__name__)
                return o.redispatch_function(func, types, args, kwargs)

        r = scaled_mul(Logging(ns.tensor([3.0])), Logging(ns.tensor([4.0])))
        seen.append((type(r).__name__, float(r)))

        class Nobody:
            @classmethod
            def __torch_function__(cls, *args: Any) -> Any:
                return NotImplemented

        try:
            scaled_mul(Nobody(), 1)
        except TypeError as e:
            seen.append(str(e).replace(__name__, ""))
        seen.append(o.is_tensor_method_or_property(ns.Tensor.add))
        seen.append(o.is_tensor_method_or_property(ns.add))
        seen.append(ns.add in o.get_overridable_functions()[ns])
        seen.append((ns.zeros in o.get_ignored_functions(), ns.add in o.get_ignored_functions()))
        return seen

    want, got = both(run)
    assert [str(w).replace("torch.", "") for w in want] == [str(g).replace("torch.", "") for g in got]


def test_functions_and_methods_are_two() -> None:
    for name in ("add", "exp", "sum", "clamp", "matmul", "cat"):
        f = getattr(tt, name)
        assert f is getattr(tt, name)
        assert f.__name__ == name
        assert name == "cat" or f is not getattr(tt.Tensor, name)


# ---- names and arguments


def test_python_types_as_dtypes() -> None:
    x = np.ones((2, 3), dtype=np.float32)
    for call in (
        "ns.ones_like(x, dtype=bool)", "ns.zeros_like(x, dtype=int)", "ns.full_like(x, 1, dtype=float)", "ns.eye(2, dtype=bool)",
        "ns.arange(3, dtype=float)", "ns.linspace(0, 1, 3, dtype=float)", "x.sum(dtype=float)", "ns.sum(x, 0, dtype=int)",
        "x.mean(dtype=float)", "x.cumsum(0, dtype=float)", "(x < 0).type(ns.Tensor)", "x.split(split_size=1)", "x.split([1, 1], dim=0)",
        "ns.cat([x, x], axis=1)", "ns.stack([x, x], axis=1)", "ns.unique(ns.empty(0), return_counts=True)",
        "ns.unique(ns.empty(0), return_inverse=True)", "ns.addr(ns.eye(2), x[:, 0], x[:, 0], alpha=ns.tensor(2.0))",
        "ns.finfo(float).eps", "ns.iinfo(int).max",
    ):  # fmt: skip
        want, got = (eval(call, {"ns": ns, "x": ns.tensor(x)}) for ns in LIBRARIES)
        same(want, got, where=call)


def test_numpy_without_grad_mode() -> None:
    for ns in LIBRARIES:
        x = ns.ones(2, requires_grad=True)
        with ns.no_grad():
            assert x.numpy().tolist() == [1.0, 1.0]
        with pytest.raises(RuntimeError, match="requires grad"):
            x.numpy()


@pytest.mark.parametrize(
    ("dimension", "kw"), [(5, {}), (64, {}), (3, {"scramble": True, "seed": 5}), (70, {"scramble": True, "seed": 1})]
)
def test_sobol(dimension: int, kw: dict[str, Any]) -> None:
    def run(ns: Any) -> Any:
        e = (ns.quasirandom if ns is tt else torch.quasirandom).SobolEngine(dimension, **kw)
        first = e.draw(5)
        e.fast_forward(3)
        return [first, e.draw(2, dtype=ns.float64), e.reset().draw_base2(2), e.sobolstate, e.draw(1), repr(e)]

    if dimension > 64:
        pytest.importorskip("scipy")
    want, got = both(run)
    same(want, got)


def test_namespaces_are_whole() -> None:
    assert {k for k, v in vars(torch.distributions).items() if isinstance(v, type)} <= set(vars(tt.distributions))
    optimizers = {k for k, v in torch.optim.__dict__.items() if isinstance(v, type)}
    assert optimizers <= set(tt.optim.__dict__)


def test_line_search_and_basis() -> None:
    def run(ns: Any) -> Any:
        import importlib

        name = "torch" if ns is torch else "tabtorch"
        search = importlib.import_module(name + ".optim.lbfgs")._strong_wolfe
        basis = importlib.import_module(name + ".autograd.functional")._construct_standard_basis_for

        def f(x: Any, t: Any, d: Any) -> Any:
            at = x + t * d
            return float(((at - 1) ** 4).sum()), 4 * (at - 1) ** 3

        x = ns.tensor([3.0, -1.0])
        value, g = f(x, 0.0, x)
        found = search(f, x, 0.3, -g, value, g, -g.dot(g))
        parts = basis((ns.ones(2), ns.ones(3)), (2, 3))
        return [
            pytest.approx(found[0]),
            pytest.approx(found[1].tolist(), rel=1e-4),
            pytest.approx(found[2]),
            found[3],
        ], [p.tolist() for p in parts]

    want, got = both(run)
    assert want[1] == got[1]
    assert want[0][3] == got[0][3]
    for a, b in zip(want[0][:3], got[0][:3], strict=True):
        assert a.expected == pytest.approx(b.expected, rel=1e-4)


def test_the_overrides_for_testing_have_parameters() -> None:
    """Those of PyTorch, for what has a row: libraries look at them to write a class of their own."""
    theirs, ours = torch.overrides.get_testing_overrides(), tt.overrides.get_testing_overrides()
    for name in "add mul sub sin exp pow atan2 maximum eq sigmoid abs lgamma fmod".split():
        for a, b in ((torch, tt), (torch.Tensor, tt.Tensor)):
            want, got = theirs[getattr(a, name)], ours[getattr(b, name)]
            assert str(inspect.signature(got)) == str(inspect.signature(want)), (name, a)
            assert got(1, 2) == want(1, 2) == -1
