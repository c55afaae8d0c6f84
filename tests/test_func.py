"""torch.func: gradients, Jacobians and calls of modules as functions, beside real PyTorch's; and PyTorch's own tutorials."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import DEVICES, outcome, to_tab
from tabtorch.bridge import get_bridge

V = torch.randn(3, generator=torch.Generator().manual_seed(0))
M = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
N = torch.randn(4, 4, generator=torch.Generator().manual_seed(2))


def near(want: Any, got: Any, tol: float = 2e-4) -> None:
    if isinstance(want, torch.Tensor):
        assert tuple(want.shape) == tuple(got.shape)
        assert want.requires_grad == got.requires_grad
        torch.testing.assert_close(torch.tensor(got.tolist()), want.detach(), rtol=tol, atol=tol, check_dtype=False)
    elif isinstance(want, dict):
        assert list(want) == list(got)
        near(list(want.values()), list(got.values()), tol)
    elif isinstance(want, (list, tuple)):
        for a, b in zip(want, got, strict=True):
            near(a, b, tol)
    else:
        assert want == got


def product(t: Any) -> Callable[..., Any]:
    return lambda x: (x @ x.t()).sin()


def no_grad_inside(t: Any) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        with t.no_grad():
            c = x**2
        return (x * x - c).sum()

    return f


def no_grad_outside(t: Any) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        x = x.clone().requires_grad_()
        with t.no_grad():
            return t.func.grad(lambda x: (x**3).sum())(x)

    return f


def from_outside(t: Any) -> Callable[..., Any]:
    """A leaf that the function captures gets its gradient through the transform."""

    def f(x: Any) -> Any:
        w = t.ones(3, requires_grad=True)
        r = t.func.grad(lambda x: (x**2 * w).sum())(x)
        r.sum().backward()
        (v,) = t.autograd.grad(t.vmap(lambda x: (x * w).sin().sum())(x[:, None]).sum(), w)
        return r, w.grad, v

    return f


def to_outside(t: Any) -> Callable[..., Any]:
    """Every transform's result goes on the tape of an argument that is on one."""

    def f(x: Any) -> Any:
        x = x.clone().requires_grad_()
        f = t.func
        results = [
            f.grad(lambda x: (x**3).sum())(x),
            t.vmap(lambda x: x**2)(x),
            f.jacrev(lambda x: x**3)(x),
            f.jacfwd(lambda x: x**3)(x),
            f.hessian(lambda x: (x**3).sum())(x),
            *f.jvp(lambda x: x**2, (x,), (x,)),
        ]
        return [(r, t.autograd.grad(r.sum(), x, retain_graph=True)) for r in results]

    return f


def in_place(t: Any) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        y = x * 1
        y.mul_(2)
        y[0] = x[1] * x[2]
        return y.prod()

    return f


IMAGES = torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(6))
LAYERS = {
    "conv": torch.randn(3, 2, 2, 2, generator=torch.Generator().manual_seed(3)),
    "weight": torch.randn(4, 3, generator=torch.Generator().manual_seed(4)),
    "bias": torch.randn(4, generator=torch.Generator().manual_seed(5)),
}


def layers(t: Any, w: Any, x: Any) -> Any:
    """Weights that all examples share: each one's gradient is a sum over the batch."""
    x = t.nn.functional.conv2d(x[None], w["conv"]).tanh().flatten(2).transpose(1, 2)
    return t.nn.functional.linear(x, w["weight"], w["bias"]).sin().sum()


def weights_of_all(t: Any) -> Callable[..., Any]:
    return lambda w, x: (t.vmap(lambda x: ((w * 2) @ x).sin().sum())(x) ** 2).sum()


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "grad": (lambda t: t.func.grad(lambda x: x.sin().sum()), (V,)),
    "grad of grad": (lambda t: t.func.grad(lambda x: t.func.grad(lambda x: (x**4).sum())(x).sum()), (V,)),
    "perturbations": (lambda t: t.func.grad(lambda x: x * t.func.grad(lambda y: x + y)(t.ones(()))), (V[0],)),
    "more perturbations": (lambda t: t.func.grad(lambda x: (x * t.func.jvp(lambda y: x * y, (x,), (x**0,))[1]).sum()), (V,)),
    "value": (lambda t: t.func.grad_and_value(lambda x: (x.sin().sum(), {"aux": x * 2}), has_aux=True), (V,)),
    "argnums": (lambda t: t.func.grad(lambda x, y: (x * y).sum(), argnums=(1, 0)), (V, V * 2)),
    "last argument": (lambda t: t.func.grad(lambda x, y: (x * y).sum(), argnums=-1), (V, V * 2)),
    "trees": (lambda t: t.func.grad(lambda d, k: (d["a"] * d["b"][0]).sum() * k), ({"a": V, "b": [V * 2]}, 3)),
    "unused": (lambda t: t.func.grad(lambda x, y: y.sum(), argnums=(0, 1)), (V, V)),
    "in place": (lambda t: t.func.grad(in_place(t)), (V,)),
    "no_grad inside": (lambda t: t.func.grad(no_grad_inside(t)), (V,)),
    "no_grad outside": (no_grad_outside, (V,)),
    "from outside": (from_outside, (V,)),
    "to outside": (to_outside, (V,)),
    "vjp": (lambda t: lambda x: (t.func.vjp(product(t), x)[0], t.func.vjp(product(t), x)[1](t.ones(3, 3))), (M,)),
    "vjp of many": (lambda t: lambda x, y: t.func.vjp(lambda x, y: {"a": x * y, "b": x.sum()}, x, y)[1]({"a": x, "b": y[0]}), (V, V)),
    "jvp": (lambda t: lambda x: t.func.jvp(product(t), (x,), (x + 1,)), (M,)),
    "jvp of many": (lambda t: lambda x: t.func.jvp(lambda x, d: (x * d["k"], d["k"].sum()), (x, {"k": x}), (x, {"k": x * 2})), (V,)),
    "jvp of grad": (lambda t: lambda x: t.func.jvp(t.func.grad(lambda x: (x**3).sin().sum()), (x,), (x,)), (V,)),
    "grad of jvp": (lambda t: t.func.grad(lambda y: t.func.jvp(lambda x: (x * y).sin(), (y + 1,), (y * 3,))[1].sum()), (V,)),
    "linearize": (lambda t: lambda x: (lambda out, f: (out, f(x), f(x * 2)))(*t.func.linearize(lambda x: (x**3).sin(), x)), (V,)),
    "jacrev": (lambda t: t.func.jacrev(product(t)), (M,)),
    "jacfwd": (lambda t: t.func.jacfwd(product(t)), (M,)),
    "jacrev of many": (lambda t: t.func.jacrev(lambda x, y: {"a": x * y, "b": y.sum()}, argnums=(0, 1)), (V, V)),
    "jacfwd of many": (lambda t: t.func.jacfwd(lambda x, y: {"a": x * y, "b": y.sum()}, argnums=(0, 1)), (V, V)),
    "jacrev in chunks": (lambda t: t.func.jacrev(product(t), chunk_size=2), (M,)),
    "jacrev one by one": (lambda t: t.func.jacrev(product(t), chunk_size=1), (M,)),
    "jacrev aux": (lambda t: t.func.jacrev(lambda x: (x**2, x * 3), has_aux=True), (V,)),
    "jacfwd aux": (lambda t: t.func.jacfwd(lambda x: (x**2, x * 3), has_aux=True), (V,)),
    "jacrev of jacrev": (lambda t: t.func.jacrev(t.func.jacrev(lambda x: product(t)(x).sum(1))), (M,)),
    "jacfwd of jacfwd": (lambda t: t.func.jacfwd(t.func.jacfwd(lambda x: product(t)(x).sum())), (M,)),
    "jacrev of jacfwd": (lambda t: t.func.jacrev(t.func.jacfwd(lambda x: product(t)(x).sum())), (M,)),
    "hessian": (lambda t: t.func.hessian(lambda x: product(t)(x).sum()), (M,)),
    "hessians": (lambda t: t.vmap(t.func.hessian(lambda x: x.sin().prod())), (M,)),
    "gradients of examples": (lambda t: t.vmap(t.func.grad(lambda w, x: (w @ x).sin().sum()), (None, 0)), (M, N)),
    "gradient of a batch": (lambda t: t.func.grad(weights_of_all(t), argnums=(0, 1)), (M, N)),
    "gradient of weights": (lambda t: t.func.grad(lambda w, x: t.vmap(lambda x: (w @ x).sin().sum())(x).sum()), (M, N)),
    "gradient of layers": (lambda t: t.func.grad(lambda w, x: t.vmap(lambda x: layers(t, w, x))(x).sum()), (LAYERS, IMAGES)),
    "second gradient of a batch": (lambda t: t.func.jacrev(t.func.grad(weights_of_all(t))), (M, N)),
    "jvp of a batch": (lambda t: lambda w, x: t.func.jvp(weights_of_all(t), (w, x), (w + 1, x * 2)), (M, N)),
    "hessian of a batch": (lambda t: t.func.hessian(weights_of_all(t)), (M, N)),
    "jacrev of the batch inside": (lambda t: t.vmap(t.func.jacrev(lambda x: t.vmap(lambda y: (x * y).sum())(x[:, None] * x))), (M,)),
    "functionalize": (lambda t: t.vmap(t.func.functionalize(lambda x: x.clone().view(2, 2).add_(1))), (M,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_transforms(name: str, device: str) -> None:
    f, args = CASES[name]
    mine = to_tab(args, device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        near(f(torch)(*args), f(tabtorch)(*mine))


ERRORS: dict[str, Any] = {
    "no scalar": lambda t: t.func.grad(lambda x: x),
    "no tensor": lambda t: t.func.grad(lambda x: 3),
    "no aux": lambda t: t.func.grad(lambda x: x.sum(), has_aux=True),
    "integers": lambda t: lambda x: t.func.grad(lambda x: x.sum())(x.long()),
    "a number": lambda t: lambda x: t.func.grad(lambda x: x)(3.0),
    "argnums": lambda t: t.func.grad(lambda x: x.sum(), argnums=3),
    "argnums twice": lambda t: t.func.grad(lambda x: x.sum(), argnums=(0, 0)),
    "no argnums": lambda t: t.func.grad(lambda x: x.sum(), argnums=()),
    "argnums of a str": lambda t: t.func.grad(lambda x: x.sum(), argnums="a"),
    "backward": lambda t: t.func.grad(lambda x: x.sum().backward()),
    "requires_grad_": lambda t: t.func.grad(lambda x: x.detach().requires_grad_().sum()),
    "cotangents": lambda t: lambda x: t.func.vjp(lambda x: (x, x), x)[1](x),
    "cotangents' shape": lambda t: lambda x: t.func.vjp(lambda x: x, x)[1](x[:2]),
    "vjp of bools": lambda t: lambda x: t.func.vjp(lambda x: x > 0, x),
    "vjp of nothing": lambda t: lambda x: t.func.vjp(lambda x: (), x),
    "vjp without aux": lambda t: lambda x: t.func.vjp(lambda x: x, x, has_aux=True),
    "jvp of no tuple": lambda t: lambda x: t.func.jvp(t.sin, x, x),
    "jvp of two": lambda t: lambda x: t.func.jvp(t.sin, (x,), (x, x)),
    "jvp of numbers": lambda t: lambda x: t.func.jvp(t.sin, (1.0,), (1.0,)),
    "jvp of nothing": lambda t: lambda x: t.func.jvp(t.sin, (), ()),
    "jvp strict": lambda t: lambda x: t.func.jvp(lambda x: t.ones(3), (x,), (x,), strict=True),
    "jvp to a number": lambda t: lambda x: t.func.jvp(lambda x: 3, (x,), (x,)),
    "jacrev complex": lambda t: lambda x: t.func.jacrev(lambda x: x)(x + 0j),
    "jacrev to complex": lambda t: t.func.jacrev(lambda x: x + 0j),
    "jacfwd complex": lambda t: lambda x: t.func.jacfwd(lambda x: x)(x + 0j),
    "jacrev chunk_size": lambda t: lambda x: t.func.jacrev(lambda x: x, chunk_size=0),
    "functionalize": lambda t: lambda x: t.func.functionalize(lambda x: x, remove="all"),
    "linearize shape": lambda t: lambda x: t.func.linearize(t.sin, x)[1](x[:2]),
    "linearize structure": lambda t: lambda x: t.func.linearize(t.sin, x)[1](x, x),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str, device: str) -> None:
    """PyTorch's exception and message."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = outcome(lambda: ERRORS[name](torch)(V))
    got = outcome(lambda: ERRORS[name](tabtorch)(to_tab(V, device)))
    assert want[0] == "error"
    assert want == got


# ---- modules


def same_start(t: Any, make: Any, device: str) -> Any:
    t.manual_seed(0)
    return make(t)


def mlp(t: Any) -> Any:
    return t.nn.Sequential(
        t.nn.Linear(4, 5), t.nn.BatchNorm1d(5, track_running_stats=False), t.nn.ReLU(), t.nn.Linear(5, 2)
    )


def test_functional_call(device: str) -> None:
    results = []
    for t in (torch, tabtorch):
        net = same_start(t, mlp, device)
        x = N if t is torch else to_tab(N, device)
        given = {k: p.detach() * 2 for k, p in net.named_parameters()}
        before = net[0].weight
        r = t.func.functional_call(net, given, x), t.func.functional_call(net, ({"0.bias": given["0.bias"]}, {}), (x,))
        assert net[0].weight is before
        bn = t.nn.BatchNorm1d(4)
        state = {k: b.clone() for k, b in bn.named_buffers()}
        t.func.functional_call(bn, state, x)
        results.append((r, state["running_mean"], bn.running_mean))
    near(*results)


TIED_ERRORS: dict[str, Any] = {
    "twice": lambda t, net, x: t.func.functional_call(net, ({"0.bias": x[0]}, {"0.bias": x[0]}), x),
    "no dicts": lambda t, net, x: t.func.functional_call(net, [3], x),
    "no dict": lambda t, net, x: t.func.functional_call(net, 3, x),
    "unexpected": lambda t, net, x: t.func.functional_call(net, {"a": x}, x, strict=True),
    "missing": lambda t, net, x: t.func.functional_call(net, {"0.bias": x[0]}, x, strict=True),
    "no models": lambda t, net, x: t.func.stack_module_state([]),
    "modes": lambda t, net, x: t.func.stack_module_state([mlp(t), mlp(t).eval()]),
    "classes": lambda t, net, x: t.func.stack_module_state([mlp(t), t.nn.ReLU()]),
    "flags": lambda t, net, x: t.func.stack_module_state([mlp(t), mlp(t).requires_grad_(False)]),
}


@pytest.mark.parametrize("name", TIED_ERRORS)
def test_errors_of_calls(name: str, device: str) -> None:
    want = outcome(lambda: TIED_ERRORS[name](torch, mlp(torch), N))
    got = outcome(lambda: TIED_ERRORS[name](tabtorch, mlp(tabtorch), to_tab(N, device)))
    assert want[0] == "error"
    assert want == got


def test_tied_weights(device: str) -> None:
    results = []
    for t in (torch, tabtorch):
        net = same_start(t, lambda t: t.nn.Sequential(t.nn.Linear(4, 4), t.nn.Linear(4, 4)), device)
        net[1].weight = net[0].weight
        x = N if t is torch else to_tab(N, device)
        r = [t.func.functional_call(net, {"0.weight": x}, x, tie_weights=tie) for tie in (True, False)]
        with pytest.raises(ValueError, match=r"multiple values for keys \['0.weight', '1.weight'\]"):
            t.func.functional_call(net, {"0.weight": x, "1.weight": x * 2}, x)
        results.append(r)
    near(*results)


# ---- custom functions


def custom(t: Any, with_vmap: bool) -> Any:
    class Cube(t.autograd.Function):
        generate_vmap_rule = not with_vmap

        @staticmethod
        def forward(x: Any, k: Any) -> Any:
            return x**3 * k

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0])
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x**2 * ctx.k, None

    if with_vmap:

        def vmap(info: Any, in_dims: Any, x: Any, k: Any) -> Any:
            assert info.batch_size == 3 and in_dims == (0, None)
            return Cube.apply(x, k), 0

        Cube.vmap = staticmethod(vmap)
    return Cube


@pytest.mark.parametrize("with_vmap", [False, True])
def test_custom_functions(with_vmap: bool, device: str) -> None:
    results = []
    for t in (torch, tabtorch):
        x = M if t is torch else to_tab(M, device)
        f = custom(t, with_vmap)
        own = (
            t.vmap(lambda x: f.apply(x, 2))(x),  # noqa: B023
            t.func.grad(lambda x: f.apply(x, 2).sum())(x),  # noqa: B023
            t.vmap(t.func.grad(lambda x: f.apply(x, 2).sum()))(x),  # noqa: B023
            t.func.grad(lambda x: t.vmap(lambda x: f.apply(x, 2).sum())(x).sum())(x),  # noqa: B023
        )
        results.append(own)
    near(*results)


def test_custom_functions_that_say_too_little(device: str) -> None:
    errors = []
    for t in (torch, tabtorch):

        class Old(t.autograd.Function):  # type: ignore[name-defined, misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

        class Plain(t.autograd.Function):  # type: ignore[name-defined, misc]
            @staticmethod
            def forward(x: Any) -> Any:
                return x * 2

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

        x = M if t is torch else to_tab(M, device)
        errors.append([outcome(lambda f=f, x=x, t=t: t.vmap(f.apply)(x)) for f in (Old, Plain)])
    assert errors[0] == errors[1]


# ---- PyTorch's tutorials: gradients of examples, Jacobians, ensembles, neural tangent kernels


def cnn(t: Any) -> Any:
    nn = t.nn
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 10), nn.LogSoftmax(1)
    )


def attention(t: Any) -> Any:
    nn = t.nn

    class Net(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.e = nn.Embedding(20, 8)
            self.a = nn.MultiheadAttention(8, 2, batch_first=True)
            self.n = nn.LayerNorm(8)
            self.l = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 20))

        def forward(self, i: Any) -> Any:
            x = self.e(i)
            return self.l(self.n(x + self.a(x, x, x, need_weights=False)[0])).log_softmax(-1).transpose(1, 2)

    return Net()


def per_sample(t: Any, make: Any, x: Any, y: Any, device: str) -> Any:
    net = same_start(t, make, device)
    params = {k: v.detach() for k, v in net.named_parameters()}
    buffers = {k: v.detach() for k, v in net.named_buffers()}

    def loss(params: Any, buffers: Any, x: Any, y: Any) -> Any:
        out = t.func.functional_call(net, (params, buffers), (x.unsqueeze(0),))
        return t.nn.functional.nll_loss(out, y.unsqueeze(0))

    return t.vmap(t.func.grad(loss), in_dims=(None, None, 0, 0))(params, buffers, x, y)


@pytest.mark.parametrize("make", [cnn, attention])
def test_gradients_of_examples(make: Any, device: str) -> None:
    """As many dispatches for a larger batch."""
    if make is cnn:
        x, y = torch.randn(4, 1, 8, 8), torch.randint(10, (4,))
    else:
        x, y = torch.randint(20, (4, 6)), torch.randint(20, (4, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that PyTorch's attention has no rule
        want = per_sample(torch, make, x, y, device)
    near(want, per_sample(tabtorch, make, *to_tab((x, y), device), device))
    if make is attention:  # many kernels, which take their time to be compiled
        return
    counts = []
    for copies in (1, 3):
        mine = [tabtorch.cat([a] * copies) for a in to_tab((x, y), device)]
        tabtorch.accelerator.synchronize()
        before = get_bridge().stats()["dispatches"]
        for g in per_sample(tabtorch, make, *mine, device).values():
            g.sum().item()
        counts.append(get_bridge().stats()["dispatches"] - before)
    assert counts[0] == counts[1]


def test_jacobians(device: str) -> None:
    def run(t: Any, w: Any, b: Any, x: Any, batch: Any) -> Any:
        f = t.func

        def predict(w: Any, b: Any, x: Any) -> Any:
            return t.nn.functional.linear(x, w, b).tanh()

        _, vjp_fn = f.vjp(partial(predict, w, b), x)
        (jac,) = t.vmap(vjp_fn)(t.eye(4))
        hvp = f.jvp(f.grad(lambda x: predict(w, b, x).sin().sum()), (x,), (b,))[1]
        vhp = f.vjp(f.grad(lambda x: predict(w, b, x).sin().sum()), x)[1](b)[0]
        return (
            jac, f.jacrev(predict, argnums=2)(w, b, x), f.jacfwd(predict, argnums=2)(w, b, x),
            f.jacrev(predict, argnums=(0, 1))(w, b, x), f.hessian(predict, argnums=2)(w, b, x),
            t.vmap(f.jacrev(predict, argnums=2), in_dims=(None, None, 0))(w, b, batch),
            t.vmap(f.hessian(predict, argnums=2), in_dims=(None, None, 0))(w, b, batch), hvp, vhp,
        )  # fmt: skip

    args = (N, N[0], N[1], N + 1)
    near(run(torch, *args), run(tabtorch, *to_tab(args, device)))


def test_ensembles(device: str) -> None:
    results = []
    for t in (torch, tabtorch):
        t.manual_seed(0)
        models = [mlp(t) for _ in range(3)]
        params, buffers = t.func.stack_module_state(models)
        x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(5))
        x = x if t is torch else to_tab(x, device)

        def model(params: Any, buffers: Any, x: Any) -> Any:
            return t.func.functional_call(models[0], (params, buffers), (x,))  # noqa: B023

        own, shared = t.vmap(model)(params, buffers, x), t.vmap(model, in_dims=(0, 0, None))(params, buffers, x[0])
        (own.pow(2).mean() + shared.sum()).backward()
        results.append((own, shared, {k: p.grad for k, p in params.items()}))
    near(*results)


def test_neural_tangent_kernels(device: str) -> None:
    def run(t: Any, x1: Any, x2: Any) -> Any:
        net = same_start(t, cnn, device)
        params = {k: v.detach() for k, v in net.named_parameters()}

        def f(params: Any, x: Any) -> Any:
            return t.func.functional_call(net, params, (x.unsqueeze(0),)).squeeze(0)

        jac = t.vmap(t.func.jacrev(f), (None, 0))
        j1, j2 = ([j.flatten(2) for j in jac(params, x).values()] for x in (x1, x2))
        kernel = t.stack([t.einsum("Naf,Mbf->NMab", a, b) for a, b in zip(j1, j2, strict=True)]).sum(0)

        def of_two(x1: Any, x2: Any) -> Any:
            _, vjp_fn = t.func.vjp(lambda p: f(p, x1), params)

            def row(v: Any) -> Any:
                return t.func.jvp(lambda p: f(p, x2), (params,), vjp_fn(v))[1]

            return t.vmap(row)(t.eye(10))

        return kernel, t.vmap(t.vmap(of_two, (None, 0)), (0, None))(x1, x2)

    args = (torch.randn(3, 1, 8, 8), torch.randn(2, 1, 8, 8))
    want, got = run(torch, *args), run(tabtorch, *to_tab(args, device))
    near(want, got, 1e-3)


def test_what_is_given_back_is_what_was_given() -> None:
    """An argument among the results is that very tensor."""

    def check(lib: Any, device: str) -> list[Any]:
        y, z = lib.ones(3, device=device, requires_grad=True), lib.ones(3, device=device)
        both = lib.func.grad(lambda y, z: (y.sum() * z.sum(), (y, z, y.view(3, 1))), argnums=(0, 1), has_aux=True)(y, z)
        same, _ = lib.func.vjp(lambda y: y, y)
        part, pull = lib.func.vjp(lambda y: (y, y * 2), y)
        deep = lib.func.grad(lambda y: lib.func.grad(lambda x: ((x * x).sum(), x), has_aux=True)(y)[1].sum() * y.sum())(
            z
        )
        again = pull((z, z))[0]
        return [
            *[x is given for x, given in zip(both[1], (y, z, y), strict=True)],
            both[1][0].requires_grad,
            both[1][2].grad_fn.name(),
            same is y,
            part[0] is y,
            deep.tolist(),
            again.tolist(),
            again.requires_grad,
        ]

    for device in DEVICES:
        assert check(torch, "cpu") == check(tabtorch, device)
