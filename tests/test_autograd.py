"""Autograd against real PyTorch: gradients, the tape, in-place writes and views, hooks, modes, Function, errors."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tabtorch
from sidebyside import DEVICES


def plain(x: Any) -> Any:
    """What a scenario reports, with tensors as nested lists rounded to what float32 is good for."""
    if isinstance(x, (torch.Tensor, tabtorch.Tensor)):
        return ("tensor", np.round(np.array(x.detach().tolist(), dtype=complex), 4).tolist(), bool(x.requires_grad))
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, float):
        return round(x, 4)
    return x


def result(scenario: Callable[[Any, str], Any], lib: Any, device: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "value", plain(scenario(lib, device))
        except Exception as e:
            return "error", type(e).__name__, str(e).replace("torch.webgpu.", "torch.").split("\n")[0]


SCENARIOS: list[Callable[[Any, str], Any]] = []


def scenario(f: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """`f(torch, device)` is run with both libraries; what it returns or raises has to be the same."""
    SCENARIOS.append(f)
    return f


def leaf(t: Any, device: str, *shape: int) -> Any:
    n = int(np.prod(shape))
    return (t.arange(n, device=device, dtype=t.float32).reshape(shape) * 0.5 + 0.25).requires_grad_()


@scenario
def chain(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 2, 3)
    y = ((x * x + 1).exp().log() - x / 2).sum()
    y.backward()
    return y, x.grad


@scenario
def broadcast(t: Any, dev: str) -> Any:
    x, b, s = leaf(t, dev, 2, 3), leaf(t, dev, 3), leaf(t, dev, 1, 1)
    ((x + b) * s - b).sum().backward()
    return x.grad, b.grad, s.grad


@scenario
def accumulates(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    (x * 2).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    return x.grad, first is x.grad, x.grad.requires_grad


@scenario
def shared_use(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    y = x * x
    z = y * y + y + x
    z.sum().backward()
    return x.grad


@scenario
def double_backward(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 4)
    (g,) = t.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = t.autograd.grad((g * g).sum(), x, create_graph=True)
    (k,) = t.autograd.grad(h.sum(), x)
    return g, h, k


@scenario
def create_graph_backward(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    (x.exp() * x).sum().backward(create_graph=True)
    g = x.grad
    x.grad = None
    g.sum().backward()
    return g, x.grad


@scenario
def grad_of_intermediate(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    y = x * 2
    z = (y * y).sum()
    return t.autograd.grad(z, [y, x]), x.grad


@scenario
def unused(t: Any, dev: str) -> Any:
    x, y = leaf(t, dev, 3), leaf(t, dev, 3)
    return t.autograd.grad((x * 2).sum(), [x, y])


@scenario
def unused_allowed(t: Any, dev: str) -> Any:
    x, y = leaf(t, dev, 3), leaf(t, dev, 3)
    a = t.autograd.grad((x * 2).sum(), [x, y], allow_unused=True)
    b = t.autograd.grad((x * 2).sum(), [x, y], materialize_grads=True)
    return a, b


@scenario
def backward_inputs(t: Any, dev: str) -> Any:
    x, y = leaf(t, dev, 3), leaf(t, dev, 3)
    m = x * 2
    (m * y).sum().backward(inputs=[x, m])
    return x.grad, y.grad, m.grad


@scenario
def backward_inputs_empty(t: Any, dev: str) -> Any:
    leaf(t, dev, 3).sum().backward(inputs=[])


@scenario
def given_gradient(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    (x * 2).backward(t.tensor([1.0, 10.0, 100.0], device=dev))
    return x.grad


@scenario
def several_roots(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    y = x * 2
    t.autograd.backward([y.sum(), (y * y).sum()], [None, t.tensor(3.0, device=dev)])
    return x.grad


@scenario
def not_scalar(t: Any, dev: str) -> Any:
    leaf(t, dev, 3).backward()


@scenario
def wrong_gradient_shape(t: Any, dev: str) -> Any:
    (leaf(t, dev, 3) * 2).backward(t.ones(2, device=dev))


@scenario
def no_grad_needed(t: Any, dev: str) -> Any:
    t.ones(3, device=dev).sum().backward()


@scenario
def twice(t: Any, dev: str) -> Any:
    z = leaf(t, dev, 3).exp().sum()
    z.backward()
    z.backward()


@scenario
def twice_retained(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    z = x.exp().sum()
    z.backward(retain_graph=True)
    z.backward()
    return x.grad


@scenario
def leaf_inplace(t: Any, dev: str) -> Any:
    leaf(t, dev, 3).add_(1)


@scenario
def view_of_leaf_inplace(t: Any, dev: str) -> Any:
    leaf(t, dev, 3)[0:2].mul_(2)


@scenario
def setitem_of_leaf(t: Any, dev: str) -> Any:
    leaf(t, dev, 3)[0] = 1.0


@scenario
def saved_was_modified(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3) * 1
    y = x.exp()
    y.add_(1)
    y.sum().backward()


@scenario
def saved_input_was_modified(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    a = x * 2
    b = a * a
    a.add_(1)
    b.sum().backward()


@scenario
def modified_but_not_needed(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    a = x * 2
    b = a + 1
    a.add_(1)
    (b + a).sum().backward()
    return x.grad, a._version


@scenario
def inplace_chain(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    y = x * 2
    y.add_(1).mul_(3).sub_(x)
    y.sum().backward()
    return y, x.grad, y.grad_fn.name()


@scenario
def write_to_view(t: Any, dev: str) -> Any:
    x, v = leaf(t, dev, 2, 3), leaf(t, dev, 3)
    y = x * 2
    y[0].mul_(v)
    y[:, 1] = 7.0
    (y * y).sum().backward()
    return y, x.grad, v.grad, y.grad_fn.name()


@scenario
def write_gives_base_a_gradient(t: Any, dev: str) -> Any:
    a = t.zeros(4, device=dev)
    first, other = a[0:2], a[1:3]
    w = leaf(t, dev, 2)
    first.add_(w)
    state = [a.requires_grad, first.requires_grad, other.requires_grad, other.is_leaf]
    names = [a.grad_fn.name(), first.grad_fn.name(), other.grad_fn.name()]
    (other * t.tensor([2.0, 3.0], device=dev)).sum().backward()
    return state, names, a, w.grad


@scenario
def write_to_base_seen_in_view(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 4)
    y = x * 1
    v = y.view(2, 2)
    y.mul_(3)
    name = v.grad_fn.name()
    (v * v).sum().backward()
    return name, v, x.grad


@scenario
def transposed_write(t: Any, dev: str) -> Any:
    x, w = leaf(t, dev, 2, 3), leaf(t, dev, 3, 2)
    y = x * 1
    y.t().copy_(w * 2)
    y.t()[1] += 1
    (y * x).sum().backward()
    return y, x.grad, w.grad


@scenario
def filled_part(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 2, 3)
    y = x * 2
    y[1].zero_()
    y[0, 1:].fill_(5)
    y.sum().backward()
    return y, x.grad


@scenario
def unbind_write(t: Any, dev: str) -> Any:
    a, b = (leaf(t, dev, 2, 3) * 2).unbind(0)
    a.add_(1)


@scenario
def no_grad_view_write(t: Any, dev: str) -> Any:
    y = leaf(t, dev, 3) * 2
    with t.no_grad():
        v = y[0:2]
    v.mul_(2)


@scenario
def data_writes_are_not_tracked(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    y = x * x
    x.data.add_(1)
    y.sum().backward()
    return x, x.grad, x._version


@scenario
def detach_shares(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    y = x * 2
    d = y.detach()
    d.mul_(10)
    return y, d.requires_grad, y._version, d.is_leaf


@scenario
def detach_inplace_on_view(t: Any, dev: str) -> Any:
    (leaf(t, dev, 3) * 2)[0:1].detach_()


@scenario
def hooks(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    seen: list[Any] = []
    y = x * 2
    y.register_hook(lambda g: seen.append(("y", g.tolist())))
    handle = y.register_hook(lambda g: g * 10)
    y.retain_grad()
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    (y * y).sum().backward(retain_graph=True)
    handle.remove()
    first = x.grad.clone()
    x.grad = None
    (y * y).sum().backward()
    return seen, first, x.grad, y.grad, y.retains_grad


@scenario
def hook_changes_size(t: Any, dev: str) -> Any:
    y = leaf(t, dev, 3) * 2

    def shrink(g: Any) -> Any:
        return g[:2]

    y.register_hook(shrink)
    y.sum().backward()


@scenario
def hook_without_grad(t: Any, dev: str) -> Any:
    t.ones(3, device=dev).register_hook(lambda g: g)


@scenario
def node_hooks(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    y = x * 2
    seen: list[Any] = []
    y.grad_fn.register_hook(lambda gi, go: seen.append(([g.tolist() for g in gi if g is not None], go[0].tolist())))
    y.grad_fn.register_prehook(lambda go: (go[0] * 2,))
    y.sum().backward()
    return seen, x.grad


@scenario
def post_accumulate_hook_that_returns_a_tensor(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    x.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))
    (x * x).sum().backward()


@scenario
def post_accumulate_hook_that_returns_its_tensor(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    x.register_post_accumulate_grad_hook(lambda p: p.add_(p.grad, alpha=-0.1))
    (x * x).sum().backward()
    return x.tolist()


@scenario
def post_accumulate_hook_that_returns_a_number(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    x.register_post_accumulate_grad_hook(lambda p: 5)
    (x * x).sum().backward()


def in_another_dtype(t: Any) -> Any:
    """A function whose gradient is float16 for a float32 input."""

    class Doubled(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.half() * 2

    return Doubled.apply


@scenario
def grad_dtype(t: Any, dev: str) -> Any:
    """Each gradient is brought to it, before hooks see it; later ones are added in it."""
    x = leaf(t, dev, 3)
    seen = [str(x.grad_dtype)]
    x.grad_dtype = t.float16
    x.register_hook(lambda g: seen.append(str(g.dtype)))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(str(p.grad.dtype)))
    y = x * x + x.exp()
    y.sum().backward()
    (x * 3).sum().backward()
    (g,) = t.autograd.grad((x * x).sum(), x, create_graph=True)
    other = leaf(t, dev, 3)
    other.grad_dtype = t.float16
    other.backward(t.ones(3, device=dev))
    return seen, x.grad, str(x.grad.dtype), g, str(g.dtype), str(other.grad.dtype), str(x.detach().grad_dtype)


@scenario
def grad_dtype_of_any_kind(t: Any, dev: str) -> Any:
    """None takes what a function gives; PyTorch's own give the dtype of their input."""
    f, x = in_another_dtype(t), leaf(t, dev, 3)
    seen: list[Any] = []
    for to in (t.float32, None, t.bfloat16, t.float16):
        x.grad = None
        x.grad_dtype = to
        f(x).sum().backward()
        seen += [x.grad, str(x.grad.dtype)]
        x.grad = None
        (x.bfloat16() * 2).sum().backward()
        seen += [x.grad, str(x.grad.dtype)]
    x.grad_dtype = x.grad = None
    (x * 2).sum().backward()
    f(x).sum().backward()
    return seen, x.grad, str(x.grad.dtype)


@scenario
def grad_dtype_of_a_parameter_whose_data_changes(t: Any, dev: str) -> Any:
    p, q = (t.nn.Parameter(t.ones(2, device=dev)) for _ in range(2))
    p.grad_dtype = t.float32
    p.data, q.data = p.data.half(), q.data.half()
    (p * 2 + q).sum().backward()
    return str(p.grad_dtype), str(q.grad_dtype), str(p.grad.dtype), str(q.grad.dtype)


def _grad_dtype_error(name: str, do: Callable[[Any, Any], Any]) -> None:
    def run(t: Any, dev: str) -> Any:
        x = leaf(t, dev, 3)
        (x * x).sum().backward()
        return do(t, x)

    run.__name__ = f"grad_dtype_{name}"
    scenario(run)


_grad_dtype_error("with_a_gradient", lambda t, x: setattr(x, "grad_dtype", t.float16))
_grad_dtype_error("of_no_dtype", lambda t, x: setattr(x, "grad_dtype", 5))
_grad_dtype_error("of_a_result", lambda t, x: (x * 2).grad_dtype)
_grad_dtype_error("set_of_a_result", lambda t, x: setattr(x * 2, "grad_dtype", t.float16))
_grad_dtype_error("and_another_gradient", lambda t, x: setattr(x, "grad", x.detach().half()))
_grad_dtype_error("any", lambda t, x: [setattr(x, "grad_dtype", None), setattr(x, "grad", x.detach().half()), x.grad])


@scenario
def gradients_that_are_not_laid_out(t: Any, dev: str) -> Any:
    """The first gradient is taken as it comes, unless somebody else has it; later ones are added to it."""
    given = t.ones(4, 2, 3, device=dev)
    seen: list[Any] = []
    for on in (True, False):
        for f in (
            lambda p: (p * 2).sum().backward(),
            lambda p: p.exp().sum().backward(),
            lambda p: p.contiguous().exp().sum().backward(),
            lambda p: p.backward(given),
            lambda p: p.clone().backward(given),
            lambda p: (p * 2).backward(given),
            lambda p: (p * p * p).sum().backward(create_graph=True),
        ):
            p = t.ones(2, 3, 4, device=dev).permute(2, 0, 1).requires_grad_()
            with t.autograd.enforce_grad_layout_policy(on):
                f(p)
            seen += [p.grad.stride(), p.grad]
            p.grad.mul_(3)
            seen.append(given.sum())

    def strides() -> Any:
        x = t.ones(2, 3, device=dev).t().requires_grad_()
        x.contiguous().exp().sum().backward()
        return x.grad.stride()

    return seen, strides()


@scenario
def gradients_that_are_not_laid_out_in_a_function(t: Any, dev: str) -> Any:
    def strides() -> Any:
        x = t.ones(2, 3, device=dev).t().requires_grad_()
        x.contiguous().exp().sum().backward()
        return x.grad.stride()

    return strides(), t.autograd.enforce_grad_layout_policy(False)(strides)(), strides()


@scenario
def post_accumulate(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    seen: list[Any] = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    return seen


@scenario
def names(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    y = x * 2
    (nxt, nr), other = y.grad_fn.next_functions
    return y.grad_fn.name(), nxt.name(), nr, other, nxt.variable is x, x.grad_fn, y.is_leaf, x.is_leaf, y.output_nr


@scenario
def names_of_second_gradients(t: Any, dev: str) -> Any:
    """A sum's gradient is put back in shape as PyTorch does it, which shows in what is recorded of it."""
    x = leaf(t, dev, 3, 4)
    seen: list[Any] = []
    for f in (
        lambda x: x.exp().sum(),
        lambda x: x.exp().sum(1),
        lambda x: x.exp().sum(-2),
        lambda x: x.exp().sum(1, keepdim=True),
        lambda x: x.exp().sum((0, 1)),
        lambda x: x.exp().sum((1, 0)),
    ):
        y = f(x)
        w = t.ones(y.shape, device=dev, requires_grad=True)
        (g,) = t.autograd.grad(y, x, w, create_graph=True)
        (h,) = t.autograd.grad(g.sum(), w, create_graph=True)
        for fn in (g.grad_fn, h.grad_fn):
            while fn is not None:
                seen.append(fn.name().rpartition("::")[2])
                fn = fn.next_functions[0][0] if fn.next_functions else None
        seen += [g, h, t.autograd.grad(h.sum(), x)]
    return seen


@scenario
def modes(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)

    @t.no_grad()
    def f() -> Any:
        return x * 2

    @t.no_grad
    def g() -> Any:
        return x * 2

    @t.no_grad()
    def gen() -> Any:
        while True:
            got = yield t.is_grad_enabled()
            assert got == 1

    it = gen()
    state = [next(it), t.is_grad_enabled(), it.send(1), t.is_grad_enabled()]
    with t.no_grad():
        inside = x * 2
        with t.enable_grad():
            again = x * 2
    with t.set_grad_enabled(False):
        third = x * 2
    return f(), g(), state, inside, again, third, t.is_grad_enabled()


@scenario
def inference(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    with t.inference_mode():
        y = x * 2
        y.add_(1)
        state = [y.is_inference(), y.requires_grad, t.is_inference_mode_enabled()]
    return state, y, y + 1


@scenario
def inference_saved(t: Any, dev: str) -> Any:
    with t.inference_mode():
        y = t.ones(3, device=dev)
    y.add_(1)


@scenario
def requires_grad_errors(t: Any, dev: str) -> Any:
    t.ones(3, dtype=t.int64, device=dev).requires_grad_()


@scenario
def requires_grad_of_computed(t: Any, dev: str) -> Any:
    (leaf(t, dev, 3) * 2).requires_grad_(False)


@scenario
def grad_of_wrong_size(t: Any, dev: str) -> Any:
    leaf(t, dev, 3).grad = t.ones(2, device=dev)


@scenario
def function(t: Any, dev: str) -> Any:
    class Cube(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, k: float) -> Any:
            ctx.save_for_backward(x)
            ctx.k = k
            return x**3 * k

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            assert ctx.needs_input_grad == (True, False)
            return 3 * x * x * ctx.k * g, None

    x = leaf(t, dev, 3)
    y = Cube.apply(x, 2.0)
    (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = t.autograd.grad(g.sum(), x)
    return y, g, h, y.grad_fn.name()


@scenario
def function_two_outputs(t: Any, dev: str) -> Any:
    class Two(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y, n = x * 2, x > 1
            ctx.mark_non_differentiable(n)
            return y, x + 1, n

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, c: Any) -> Any:
            return a * 2 + b

    x = leaf(t, dev, 3)
    y, z, n = Two.apply(x)
    y.sum().backward()
    return n.requires_grad, z.requires_grad, y.output_nr, z.output_nr, x.grad


@scenario
def function_outputs_that_are_no_tensors(t: Any, dev: str) -> Any:
    class Mixed(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, None, 3, "a", x + 1

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            seen.extend(grads)
            return grads[0] * 2 + grads[4]

    seen: list[Any] = []
    x = leaf(t, dev, 3)
    out = Mixed.apply(x)
    out[0].sum().backward()
    return out[1:4], seen, x.grad


@scenario
def function_setup_context(t: Any, dev: str) -> Any:
    class Mul(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(a: Any, b: Any) -> Any:
            return a * b

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            return g * b, g * a

    a, b = leaf(t, dev, 3), leaf(t, dev, 3)
    Mul.apply(a, b).sum().backward()
    return a.grad, b.grad


@scenario
def function_dirty(t: Any, dev: str) -> Any:
    class Double(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = leaf(t, dev, 3)
    y = x * 1
    z = Double.apply(y)
    z.sum().backward()
    return z is y, y, x.grad


@scenario
def function_wrong_count(t: Any, dev: str) -> Any:
    class Bad(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    Bad.apply(leaf(t, dev, 3), leaf(t, dev, 3)).sum().backward()


@scenario
def function_once(t: Any, dev: str) -> Any:
    class Once(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @t.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = leaf(t, dev, 3)
    (g,) = t.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    g.sum().backward()


@scenario
def function_is_not_made(t: Any, dev: str) -> Any:
    class F(t.autograd.Function):  # type: ignore[misc,name-defined]
        pass

    F.apply(leaf(t, dev, 3))


@scenario
def cast_gradient(t: Any, dev: str) -> Any:
    x = leaf(t, dev, 3)
    y = x.half() * 2
    y.float().sum().backward()
    return x.grad, str(x.grad.dtype), y.grad_fn.next_functions[0][0].name()


@scenario
def numpy_of_tracked(t: Any, dev: str) -> Any:
    leaf(t, dev, 3).numpy()


@scenario
def deepcopy_of_computed(t: Any, dev: str) -> Any:
    import copy

    a = copy.deepcopy(leaf(t, dev, 3))
    copy.deepcopy(a * 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("f", SCENARIOS, ids=lambda f: f.__name__)
def test_scenario(f: Callable[[Any, str], Any], device: str) -> None:
    assert result(f, tabtorch, device) == result(f, torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_compiled_notices_a_grad_dtype(device: str) -> None:
    w, x = leaf(tabtorch, device, 3), tabtorch.ones(3, device=device)

    @tabtorch.compile
    def step() -> None:
        (w * x).sum().backward()

    for to in (tabtorch.float32, tabtorch.float16, None, tabtorch.bfloat16):
        w.grad = None
        w.grad_dtype = to
        for k in range(1, 5):
            step()
            assert w.grad.dtype is (to or tabtorch.float32)
            assert w.grad.tolist() == [k] * 3


def test_deep_graph_needs_no_recursion() -> None:
    x = tabtorch.ones(2, device="cpu", requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y + 0
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0]
    del y  # nor does letting it go


def test_saved_tensors_go_as_backward_goes() -> None:
    x = tabtorch.ones(4, device="cpu", requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        a = x.exp()
        node = weakref.ref(a._tab_storage)
        b = (a * a).sum()
        fn = b.grad_fn
        del a
        assert node() is not None
        b.backward()
        assert fn is not None
        assert node() is None, "the value is still held although the graph was used"
    finally:
        gc.enable()


def test_graph_dies_without_the_collector() -> None:
    x = tabtorch.ones(4, device="cpu", requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        y = x.exp() * 2
        ref = weakref.ref(y.grad_fn)
        del y
        assert ref() is None
    finally:
        gc.enable()


def test_parameters_and_subclasses() -> None:
    class MyTensor(tabtorch.Tensor):
        pass

    t = tabtorch.ones(3, device="cpu").as_subclass(MyTensor)
    assert type(t) is MyTensor
    p = tabtorch.Tensor._make_subclass(MyTensor, tabtorch.ones(3, device="cpu"), True)
    (p * 2).sum().backward()
    assert p.is_leaf and p.grad is not None and p.grad.tolist() == [2.0, 2.0, 2.0]
