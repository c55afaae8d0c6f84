"""torch.autograd.forward_ad beside PyTorch's: tangents of operations, and how duals behave."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad

import tabtorch
import tabtorch.autograd.forward_ad as ours
from conformance import compare, translate
from conformance.checks import _samples, _seed, operators
from sidebyside import DEVICES, same

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch scripts its formulas on first use

#: of each kind of operation some: what is linear, what saves its result, what is made of others, what has a gradient of
#: its own in closed form, several results, complex numbers inside, reductions, scans, matrices, windows, indices
OPERATORS = """
add mul div pow exp sigmoid tanh clamp where lerp atan2 logit erf sinc xlogy sum mean prod std var norm amax logsumexp
cumsum cumprod logcumsumexp cummax sort topk gather index_add index_put scatter_reduce.sum masked_fill take_along_dim
matmul bmm addmm baddbmm einsum outer kron linalg.inv linalg.solve linalg.svdvals linalg.qr linalg.cholesky
cat stack permute roll repeat unfold as_strided copysign fmod hypot fft.fft fft.irfft addcdiv
nn.functional.relu nn.functional.gelu nn.functional.softplus nn.functional.conv2d nn.functional.conv_transpose1d
nn.functional.max_pool2d nn.functional.avg_pool2d nn.functional.adaptive_avg_pool2d nn.functional.layer_norm
nn.functional.batch_norm nn.functional.group_norm nn.functional.cross_entropy nn.functional.binary_cross_entropy
nn.functional.mse_loss nn.functional.embedding nn.functional.linear nn.functional.interpolate.bilinear
nn.functional.pixel_shuffle nn.functional.pad.reflect softmax log_softmax nn.functional.glu nn.functional.cosine_similarity
""".split()


def replaced(x: Any, f: Any) -> Any:
    if isinstance(x, (torch.Tensor, tabtorch.Tensor)):
        return f(x) if x.requires_grad else x
    if type(x) in (list, tuple):
        return type(x)(replaced(v, f) for v in x)
    return {k: replaced(v, f) for k, v in x.items()} if isinstance(x, dict) else x


def tangents(module: Any, wrap: Any, f: Any, args: Any, process: Any, vectors: list[Any]) -> list[Any]:
    _seed()
    left = iter(vectors)
    with module.dual_level():
        a = replaced(args, lambda t: module.make_dual(t.detach(), next(left)))
        out = process(wrap(f, a[0], *a[1], **a[2]))
        return [module.unpack_dual(t).tangent for t in translate.tensors(out)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OPERATORS)
def test_tangents_of_operations(name: str, device: str) -> None:
    op = operators().get(name) or next(o for n, o in operators().items() if n.startswith(name + "."))
    f = translate.function(op.op, op.name)
    asked = 0
    for s in _samples(op, "float32", grad=True, limit=2 if device == "cpu" else 1):
        args = (s.input, tuple(s.args), s.kwargs)
        found: list[Any] = []
        replaced(args, lambda t: found.append(t))  # noqa: B023
        make = torch.Generator().manual_seed(1)
        vectors = [torch.randn(tuple(t.shape), generator=make) for t in found]
        process = s.output_process_fn_grad
        with warnings.catch_warnings(), tabtorch.device(device):
            warnings.simplefilter("ignore")
            theirs = functools.partial(tangents, torch.autograd.forward_ad, op.gradcheck_wrapper, op.op)
            want = theirs(args, process, vectors)
            mine = translate.Translator(device)(args)
            given = [translate.tensor(v, device) for v in vectors]
            got = tangents(ours, translate.function(op.gradcheck_wrapper), f, mine, translate.function(process), given)

            def truth() -> Any:
                return theirs(compare.double(args), process, [v.double() for v in vectors])  # noqa: B023

            for w, g in zip(want, got, strict=True):
                assert g is not None or w is None or not w.any()  # no tangent is one of zeros
                asked += g is not None
            pick = [i for i, (w, g) in enumerate(zip(want, got, strict=True)) if w is not None and g is not None]
            compare.same(
                [want[i] for i in pick],
                [got[i] for i in pick],
                functools.partial(compare.tolerance, op),
                lambda: [t for t in truth() if t is not None],
                where="gradient",
            )
    assert asked


# ---- how duals behave: each is run with either library, what it returns must be the same


def x_and_t(t: Any) -> tuple[Any, Any]:
    return t.tensor([0.5, -1.0, 2.0]), t.tensor([1.0, 10.0, 100.0])


def plain(t: Any, fw: Any) -> Any:
    x, v = x_and_t(t)
    with fw.dual_level():
        d = fw.make_dual(x, v)
        y = (d * d).exp()
        p = fw.unpack_dual(y)
        none = fw.unpack_dual(x), fw.unpack_dual(d.detach()), fw.unpack_dual(d > 0)
        told = (
            d.requires_grad,
            y.requires_grad,
            y.is_leaf,
            y.grad_fn,
            p.primal.requires_grad,
            d.data_ptr() == x.data_ptr(),
        )
        return [p, told, [n.tangent for n in none], repr(d), str(y > 0), fw.unpack_dual(d).tangent is v]


def in_place(t: Any, fw: Any) -> Any:
    x, v = x_and_t(t)
    with fw.dual_level():
        d = fw.make_dual(x, v)
        y = d * 2
        y[0] = 5.0
        y[1:].mul_(d[1:])
        z = t.zeros(2, 3)
        z[1] = y
        z.t()[0].add_(1)
        q = t.zeros(3)
        q.copy_(d)
        return [fw.unpack_dual(a) for a in (y, z, q)], z.requires_grad


def modes(t: Any, fw: Any) -> Any:
    x, v = x_and_t(t)
    w = t.ones(3, requires_grad=True)
    found = []
    with t.no_grad(), fw.dual_level():
        d = fw.make_dual(x, v)
        y = d * d * w
        found.append((fw.unpack_dual(y), y.requires_grad, t.is_grad_enabled()))
        with t.enable_grad():
            y = d * d * w
            found.append((y.requires_grad, t.is_grad_enabled()))
    found.append((t.is_grad_enabled(), (x * 2).requires_grad, (w * 2).requires_grad))
    with fw.dual_level():
        d = fw.make_dual(x, v)
        with t.no_grad():
            y = d * w
            w.add_(1)
            found.append((fw.unpack_dual(y), y.requires_grad, w.is_leaf, w.requires_grad))
        with t.inference_mode():
            found.append(fw.unpack_dual(d * 2).tangent)
        z = (y * 3 + w).sum()
        z.backward()
        found.append((w.grad, y.requires_grad))
    found.append((y.requires_grad, y.grad_fn, repr(y), fw.unpack_dual(d)))
    return found


def reverse_over_forward(t: Any, fw: Any) -> Any:
    x, v = x_and_t(t)
    x.requires_grad_()
    v.requires_grad_()
    with fw.dual_level():
        d = fw.make_dual(x, v)
        p, q = fw.unpack_dual((d**3).sum())
        told = d.requires_grad, d.is_leaf, d._is_view(), q.requires_grad
        return [t.autograd.grad(p, x, retain_graph=True), t.autograd.grad(q, (x, v)), told]


def forward_over_reverse(t: Any, fw: Any) -> Any:
    x, v = x_and_t(t)
    x.requires_grad_()
    with fw.dual_level():
        d = fw.make_dual(x, v)
        (g,) = t.autograd.grad((d**3).sum(), d)
        return [fw.unpack_dual(g).tangent, g.requires_grad]


def function(t: Any, setup: bool, missing: bool = False) -> Any:
    class Product(t.autograd.Function):
        @staticmethod
        def forward(*a: Any) -> Any:
            x, y, k = a if setup else a[1:]
            if not setup:
                a[0].save_for_forward(x, y)
            return x * y * k, x > y

        @staticmethod
        def backward(ctx: Any, *g: Any) -> Any:
            return g[0] * 5, g[0] * 7, None

    if setup:
        Product.setup_context = staticmethod(lambda ctx, inputs, output: ctx.save_for_forward(*inputs[:2]))
    if not missing:

        def jvp(ctx: Any, a: Any, b: Any, k: Any) -> Any:
            x, y = ctx.saved_tensors
            assert k is None
            return 2 * (a * y + b * x), None

        Product.jvp = staticmethod(jvp)
    return Product


def functions(t: Any, fw: Any, setup: bool = False) -> Any:
    x, v = x_and_t(t)
    with fw.dual_level():
        d = fw.make_dual(x, v)
        w = t.ones(3, requires_grad=True)
        y, _ = function(t, setup).apply(d * 2, w, 2.0)
        p = fw.unpack_dual(y.sin())
        return [p, t.autograd.grad(p.tangent.sum(), w, retain_graph=True), t.autograd.grad(y.sum(), w)]


BEHAVIOUR = {
    "plain": plain,
    "in place": in_place,
    "modes": modes,
    "reverse over forward": reverse_over_forward,
    "forward over reverse": forward_over_reverse,
    "Function": functions,
    "Function with setup_context": functools.partial(functions, setup=True),
}


def compared(want: Any, got: Any) -> None:
    if isinstance(want, torch.Tensor):
        same(want.detach(), got.detach(), exact=False, strides=False)
        assert want.requires_grad == got.requires_grad
    elif isinstance(want, (list, tuple)):
        assert len(want) == len(got)
        for w, g in zip(want, got, strict=True):
            compared(w, g)
    else:
        assert want == got


@pytest.mark.parametrize("name", BEHAVIOUR)
def test_behaviour(name: str, device: str) -> None:
    want = BEHAVIOUR[name](torch, torch.autograd.forward_ad)
    compared(want, BEHAVIOUR[name](tabtorch, ours))


@pytest.mark.parametrize(
    "call",
    [
        lambda t, fw, d: fw.make_dual(t.ones(3).int(), t.ones(3)),
        lambda t, fw, d: fw.make_dual(t.ones(3), t.ones(3).int()),
        lambda t, fw, d: fw.make_dual(t.ones(3), t.ones(2)),
        lambda t, fw, d: fw.make_dual(d, t.ones(3)),
        lambda t, fw, d: fw.make_dual(t.ones(3), d),
        lambda t, fw, d: fw.make_dual(t.ones(3), t.ones(3), level=2),
        lambda t, fw, d: fw.enter_dual_level(),
        lambda t, fw, d: fw.exit_dual_level(level=3),
        lambda t, fw, d: d.sum().backward(),
        lambda t, fw, d: t.autograd.grad(d.sum(), d),
        lambda t, fw, d: function(t, False, missing=True).apply(d, d, 1.0),
        lambda t, fw, d: fw.unpack_dual(3),
    ],
)
def test_errors(call: Any) -> None:
    said = []
    for t, fw in ((torch, torch.autograd.forward_ad), (tabtorch, ours)):
        with fw.dual_level():
            d = fw.make_dual(t.ones(3), t.ones(3))
            with pytest.raises((RuntimeError, ValueError, TypeError)) as e:
                call(t, fw, d)
            said.append((e.type, str(e.value)))
        with pytest.raises(RuntimeError) as e:
            fw.make_dual(t.ones(3), t.ones(3))
        said[-1] += (str(e.value),)
    assert said[0] == said[1]


def test_functional_form_nests(device: str) -> None:
    def f(x: Any) -> Any:
        return [(x**3).sum() * x, x * 0 + 1, x.detach()]

    x, v = x_and_t(torch)

    def second(x: Any) -> Any:
        return torch.func.jvp(lambda y: f(y)[0], (x,), (v,))[1]

    want = torch.func.jvp(second, (x,), (v,))
    a, b = x_and_t(tabtorch)
    got = ours.jvp(lambda x: ours.jvp(f, [x], [b])[1][:1], [a], [b])
    compared(want, [g[0] for g in got])
    outs, push = ours.linearize(f, [a])
    assert push([b])[2] is None and not outs[0].requires_grad
    compared(torch.func.jvp(lambda y: f(y)[0], (x,), (v,))[1], push([b])[0])
    assert not tabtorch.autograd.grad_mode.STATE.duals


def test_views_require_grad_with_their_base_after_a_level() -> None:
    """From the first level on the tape is asked what requires grad: a view that borrows it from its base has no history."""
    for t in (torch, tabtorch):
        with t.autograd.forward_ad.dual_level():
            pass
        x = t.zeros(3)
        v = x[1:]
        x.requires_grad_()
        assert v.requires_grad and (v * 2).requires_grad and (v * 2).grad_fn.name() == "MulBackward0"


def test_a_view_after_a_level(device: str) -> None:
    """It requires grad for the user though what it is a view of was detached; levels of before change nothing of that."""
    said = []
    for lib in (torch, tabtorch):
        with lib.autograd.forward_ad.dual_level():
            pass
        x = lib.ones(1, 4, requires_grad=True) * 1
        v = x[()]
        x.detach_()
        x[:0] = 1
        said.append((x.requires_grad, v.requires_grad, v.grad_fn.name()))
    assert said[0] == said[1]
