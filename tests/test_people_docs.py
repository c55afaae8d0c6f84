"""What PyTorch's own documentation and tutorials show, beside real PyTorch in the same process."""

from __future__ import annotations

import importlib
import io
import pickle
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import outcome, to_tab

F = torch.nn.functional


def both(call: Any, *inputs: torch.Tensor, device: str) -> tuple[Any, Any]:
    """`call(library, *inputs)` of both: (kind, value or error) each, tensors as nested lists."""
    mine = [to_tab(x, device) for x in inputs]
    return _plain(outcome(lambda: call(torch, *inputs))), _plain(outcome(lambda: call(tabtorch, *mine)))


def _plain(x: Any) -> Any:
    if isinstance(x, (torch.Tensor, tabtorch.Tensor)):
        return (
            pytest.approx(x.detach().flatten().tolist(), rel=1e-5, abs=1e-6)
            if isinstance(x, torch.Tensor)
            else x.detach().flatten().tolist()
        )
    if isinstance(x, (list, tuple)):
        return type(x)(_plain(v) for v in x)
    return x


# ---- second derivatives that are zero

FLAT = {
    "relu": lambda t, x: t.relu(x),
    "leaky_relu": lambda t, x: t.nn.functional.leaky_relu(x),
    "relu6": lambda t, x: t.nn.functional.relu6(x),
    "threshold": lambda t, x: t.nn.functional.threshold(x, 0.1, 0.0),
    "softshrink": lambda t, x: t.nn.functional.softshrink(x),
    "max_pool1d": lambda t, x: t.nn.functional.max_pool1d(x, 2),
    "max_pool2d": lambda t, x: t.nn.functional.max_pool2d(x[None], 2),
    "adaptive_avg_pool2d": lambda t, x: t.nn.functional.adaptive_avg_pool2d(x[None], 2),
    "reflect": lambda t, x: t.nn.functional.pad(x, (1, 1), mode="reflect"),
}


@pytest.mark.parametrize("name", FLAT)
def test_the_gradient_of_a_piecewise_linear_function_has_a_gradient_of_zeros(name: str, device: str) -> None:
    def second(t: Any, x: Any) -> Any:
        x = x.requires_grad_()
        (g,) = t.autograd.grad(FLAT[name](t, x).sum(), x, create_graph=True)
        return g.requires_grad, t.autograd.grad(g.sum(), x)

    want, got = both(second, torch.randn(4, 4, generator=torch.Generator().manual_seed(0)), device=device)
    assert got == want
    assert want[1][0] is True


def test_zeros_come_where_nothing_else_does(device: str) -> None:
    def penalty(t: Any, x: Any, w: Any) -> Any:
        x, w = x.requires_grad_(), w.requires_grad_()
        (g,) = t.autograd.grad((t.relu(x @ w) * 2).sum(), x, create_graph=True)
        g.pow(2).sum().backward()
        unused = t.ones(2, device=x.device, requires_grad=True)
        again = t.autograd.grad(t.relu(x[:2]).sum(), x, create_graph=True)[0].sum()
        return w.grad, x.grad, t.autograd.grad(again, [x, unused], allow_unused=True)

    want, got = both(penalty, torch.randn(3, 2), torch.randn(2, 4), device=device)
    assert got == want
    assert want[1][1] is not None


def test_the_hessian_of_a_relu_net(device: str) -> None:
    def hessian(t: Any, x: Any, w: Any) -> Any:
        return t.autograd.functional.hessian(lambda v: t.relu(w @ v).sum(), x)

    want, got = both(hessian, torch.randn(3), torch.randn(4, 3), device=device)
    assert got == want
    assert want[0] == "value"


# ---- what is saved


def test_saved_values_have_names(device: str) -> None:
    def names(t: Any, x: Any, m: Any) -> Any:
        x = x.requires_grad_()
        y, e, s = x * x[[1, 0, 2]], x.exp(), t.softmax(x, 0)
        p = t.nn.functional.linear(m, m[:2].clone().requires_grad_(), x[:2])
        same = (x**2).grad_fn._saved_self is x, y.grad_fn._saved_self is x, e.grad_fn._saved_result is e
        shown = [n for n in dir(e.grad_fn) if n.startswith("_saved")]
        return (
            same,
            shown,
            y.grad_fn._saved_other,
            e.grad_fn._saved_result,
            s.grad_fn._saved_result,
            p.grad_fn._saved_mat1,
        )

    want, got = both(names, torch.randn(3), torch.randn(3, 3), device=device)
    assert got == want
    assert want[0] == "value"


def test_freed_and_unknown_saved_values(device: str) -> None:
    for attribute in ("_saved_result", "_saved_nothing", "_raw_saved_nothing"):

        def read(t: Any, x: Any, attribute: str = attribute) -> Any:
            y = x.requires_grad_().exp()
            y.sum().backward()
            return getattr(y.grad_fn, attribute)

        want, got = both(read, torch.ones(2), device=device)
        assert want[0] == "error"
        assert got == want


def test_hooks_on_one_saved_tensor(device: str) -> None:
    def hooked(t: Any, x: Any, w: Any) -> Any:
        x, w = x.requires_grad_(), w.requires_grad_()
        y, z = x.exp(), x @ w
        y.grad_fn._raw_saved_result.register_hooks(lambda v: v * 3, lambda v: v + 1)
        z.grad_fn._raw_saved_mat2.register_hooks(lambda v: v * 3, lambda v: v)
        twice = outcome(lambda: y.grad_fn._raw_saved_result.register_hooks(lambda v: v, lambda v: v))
        grads = t.autograd.grad(y.sum() + z.sum(), [x, w])
        late = outcome(lambda: y.grad_fn._raw_saved_result.register_hooks(lambda v: v, lambda v: v))
        return twice, grads, late

    want, got = both(hooked, torch.randn(2, 2), torch.randn(2, 2), device=device)
    assert got == want
    assert want[1][0][0] == "error"


def test_hooks_see_a_product_as_pytorch_saves_it(device: str) -> None:
    def order(t: Any, a: Any, b: Any) -> Any:
        a, b = a.requires_grad_(), b.requires_grad_()
        seen: list[Any] = []

        def pack(x: Any) -> Any:
            seen.append(("pack", x.tolist()))
            return x

        def unpack(x: Any) -> Any:
            seen.append(("unpack", x.tolist()))
            return x

        with t.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = a * b
        y.sum().backward()
        return seen

    want, got = both(order, torch.ones(1), torch.zeros(1), device=device)
    assert got == want


def test_saved_tensors_may_be_written_to(device: str) -> None:
    x, w = torch.randn(3), torch.randn(2, 3, requires_grad=True)
    want = torch.autograd.grad(4 * (w @ x).exp().sum(), w)[0]  # PyTorch's own context takes ten seconds to import
    mine, v = to_tab(x, device), to_tab(w, device)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y = (v @ mine).exp()
        y.mul_(3)
        y.sum().backward()
    with tabtorch.autograd.graph.allow_mutation_on_saved_tensors():
        y = (v @ mine).exp()
        kept = y * 1
        mine.zero_()
        y.mul_(3)
        got = tabtorch.autograd.grad(y.sum() + kept.sum(), v)[0]
        late = v.exp().sum()
        with pytest.raises(RuntimeError, match="cannot be nested"):
            with tabtorch.autograd.graph.allow_mutation_on_saved_tensors():
                pass
    assert got.flatten().tolist() == pytest.approx(want.flatten().tolist(), rel=1e-5)
    with pytest.raises(AssertionError, match="outside of the 'allow_mutation_on_saved_tensors' context"):
        late.backward()


# ---- inference tensors

INFERENCE = (
    "w * i",
    "w @ i",
    "i / w",
    "nn.functional.linear(i, w)",
    "w + i",
    "w * i.clone()",
    "i.data.is_inference()",
    "i.data.add_(1)",
    "(i.data.is_inference(), i.data.detach().is_inference(), i.data.add_(1)._version)",
    "i.data.view(4).add_(1)",
    "(i * 2).is_inference()",
    "v.mul_(w)",
)


@pytest.mark.parametrize("expression", INFERENCE)
def test_inference_tensors_and_autograd(expression: str, device: str) -> None:
    def call(t: Any, w: Any, n: Any) -> Any:
        w = w.requires_grad_()
        with t.inference_mode():
            i, v = n + 0, n.view(2, 2)
        return eval(expression, {"w": w, "i": i, "v": v, "nn": t.nn})

    want, got = both(call, torch.ones(2, 2), torch.full((2, 2), 3.0), device=device)
    assert got == want


# ---- files


def test_a_checkpoint_on_meta() -> None:
    state = torch.nn.Linear(3, 2).state_dict()
    file = io.BytesIO()
    torch.save(state, file)
    for options in ({"map_location": "meta"}, {"map_location": tabtorch.device("meta"), "weights_only": False}):
        file.seek(0)
        loaded = tabtorch.load(file, **options)
        assert [(k, v.device.type, tuple(v.shape)) for k, v in loaded.items()] == [
            ("weight", "meta", (2, 3)),
            ("bias", "meta", (2,)),
        ]
    made = io.BytesIO()
    tabtorch.save(loaded, made)
    made.seek(0)
    assert {k: v.device.type for k, v in torch.load(made).items()} == {"weight": "meta", "bias": "meta"}


def test_a_lazy_module_goes_through_a_file() -> None:
    model = tabtorch.nn.Sequential(tabtorch.nn.LazyLinear(4), tabtorch.nn.ReLU())
    file = io.BytesIO()
    tabtorch.save(model, file)
    file.seek(0)
    loaded = tabtorch.load(file, weights_only=False)
    assert tabtorch.nn.parameter.is_lazy(loaded[0].weight)
    assert loaded(tabtorch.ones(1, 3)).shape == (1, 4)
    assert type(loaded[0]) is tabtorch.nn.Linear


# ---- names


def test_streams_and_events(device: str) -> None:
    first, last = tabtorch.Event(device, enable_timing=True), tabtorch.Event(device, enable_timing=True)
    stream = tabtorch.Stream(device)
    stream.record_event(first)
    tabtorch.ones(8).sum().item()
    last.record(stream)
    assert first.elapsed_time(last) > 0
    assert stream == tabtorch.Stream(device)
    assert stream.device.type == device
    assert repr(first).startswith(f"torch.Event device_type={device}")
    with pytest.raises(RuntimeError, match="enable_timing"):
        tabtorch.Event().elapsed_time(last)


def test_every_name_that_dir_tells_is_there() -> None:
    missing = [name for name in dir(tabtorch) if not hasattr(tabtorch, name)]
    assert not missing


def test_torch_functional_is_a_module() -> None:
    module = importlib.import_module("tabtorch.functional")
    assert module.einsum is tabtorch.einsum
    assert module.F is tabtorch.nn.functional
    assert set(torch.functional.__all__) - set(module.__all__) <= {"align_tensors"}
    with pytest.raises(AttributeError):
        _ = module.nothing


def test_causal_masks_that_are_not_written_out(device: str) -> None:
    def attend(t: Any, q: Any, k: Any) -> Any:
        bias = importlib.import_module(t.__name__ + ".nn.attention.bias")
        attention = t.nn.functional.scaled_dot_product_attention
        lower, upper = bias.causal_lower_right(3, 5), bias.causal_upper_left(3, 5)
        wrong = outcome(lambda: attention(q, k, k, upper, is_causal=True))
        return attention(q, k, k, lower), attention(q, k, k, attn_mask=upper), repr(lower), wrong

    want, got = both(attend, torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4), device=device)
    assert got == want
    assert want[0] == "value"


def test_tensors_are_swapped(device: str) -> None:
    def swap(t: Any, a: Any, b: Any) -> Any:
        p = t.nn.Parameter(a)
        t.utils.swap_tensors(p, b)
        return type(p) is t.Tensor, type(b) is t.nn.Parameter, p, b, b.requires_grad

    want, got = both(swap, torch.ones(2), torch.zeros(3), device=device)
    assert got == want


def test_dist_is_one_function(device: str) -> None:
    def name(t: Any, a: Any) -> Any:
        d = t.dist(a.requires_grad_(), a.detach() * 2)
        return type(d.grad_fn).__name__, t.autograd.grad(d, a)

    want, got = both(name, torch.ones(3), device=device)
    assert got == want


def test_a_table_of_measurements() -> None:
    benchmarks = [importlib.import_module(f"{t.__name__}.utils.benchmark") for t in (torch, tabtorch)]

    def table(b: Any) -> Any:
        found = []
        for threads in (1, 4):
            for i, row in enumerate(("[1, 1]", "[64, 64]", "[128, 8]")):
                for j, column in enumerate(("mul/sum", "bmm")):
                    task = b.TaskSpec("x", "pass", label="dot", sub_label=row, description=column, num_threads=threads)
                    times = [1e-4 * (1 + j) * (1 + i) * (1 + (0.4 if i == 1 else 0.02) * k) for k in range(6)]
                    found.append(b.Measurement(10, times, task))
        found.append(b.Measurement(1, [3e-3], b.TaskSpec("y", "pass", label="other", description="A", env="here")))
        del found[3]
        compare = b.Compare(found + found[:1])
        texts = [str(compare)]
        compare.trim_significant_figures()
        compare.highlight_warnings()
        for rowwise in (False, True):
            compare.colorize(rowwise)
            texts.append(str(compare))
        return texts, [m.significant_figures for m in found], outcome(lambda: b.Compare([1]))[0]

    want, got = map(table, benchmarks)
    assert got == want
    assert "bmm" in want[0][0]


# ---- what is no tensor

WRONG = (
    "sum([1.0])",
    "mean(None)",
    "mm(None, x)",
    "mm(x, 2.0)",
    "matmul([1.0], x)",
    "argmax(x.tolist())",
    "sort('a')",
    "flatten([1.0])",
    "tril(3)",
    "median([1.0])",
    "linalg.det([1.0])",
    "equal([1.0], x)",
    "equal(x, x.numpy())",
    "cat([x, x.numpy()])",
    "nn.functional.linear(None, x)",
    "nn.functional.linear(x, 'a')",
    "nn.functional.pad(x.numpy(), (1, 1))",
    "nn.functional.layer_norm([1.0], (1,))",
    "nn.functional.max_pool2d([1.0], 2)",
    "nn.Linear(2, 2)(x.numpy())",
)


@pytest.mark.parametrize("expression", WRONG)
def test_an_argument_that_is_no_tensor(expression: str, device: str) -> None:
    want, got = both(lambda t, x: eval(f"t.{expression}", {"t": t, "x": x.to("cpu")}), torch.ones(2, 2), device=device)
    assert want[0] == "error"
    assert got == want


def test_other_failures_are_left_as_they_are() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        tabtorch.nn.functional.linear(tabtorch.ones(2))
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'nothing'"):
        _ = tabtorch.ones(2).nothing
    with pytest.raises(TypeError, match="must be Tensor, not list"):  # PyTorch says the same in more words
        tabtorch.nn.functional.cross_entropy(tabtorch.ones(2, 3), [0, 1])


def test_functions_of_layers_let_their_arguments_override_them() -> None:
    def call(t: Any) -> Any:
        class Named:
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return func is t.nn.functional.linear, len(args)

        return t.nn.functional.linear(Named(), t.ones(1, 1))

    assert call(tabtorch) == call(torch) == (True, 2)
    assert pickle.loads(pickle.dumps(tabtorch.nn.functional.linear)) is tabtorch.nn.functional.linear


# ---- tutorials


@pytest.mark.parametrize("size", [7, 28])
def test_a_spatial_transformer_starts_at_the_identity(size: int) -> None:
    def moved(t: Any, theta: Any, x: Any) -> Any:
        theta = theta.requires_grad_()
        grid = t.nn.functional.affine_grid(theta, x.shape, align_corners=False)
        y = t.nn.functional.grid_sample(x, grid, align_corners=False)
        return [*t.autograd.grad((y * y).sum(), theta), grid]  # where the points fall, the gradient jumps

    x = torch.rand(2, 1, size, size, generator=torch.Generator().manual_seed(0))
    theta = torch.tensor([[[1.0, 0, 0], [0, 1, 0]]]).expand(2, 2, 3).clone()
    want, got = both(moved, theta, x, device="cpu")
    assert want[0] == got[0] == "value"
    assert got[1][0] == pytest.approx(want[1][0].expected, rel=1e-3, abs=1e-3)
    assert got[1][1] == want[1][1].expected  # bit by bit


@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_of_convolutions_written_out(n: int, device: str) -> None:
    def gradients(t: Any, x: Any, w: Any, g: Any) -> Any:
        w = w.requires_grad_()
        grad = t.nn.grad
        assert t.nn.functional.grad is grad
        of_input = getattr(grad, f"conv{n}d_input")(x.shape, w, g, 2, 1, 1, 2)
        with t.no_grad():
            of_weight = getattr(grad, f"conv{n}d_weight")(x, w.shape, g, stride=2, padding=1, groups=2)
        return of_input, of_weight, of_weight.requires_grad, *t.autograd.grad(of_input.pow(2).sum(), w)

    shapes = (2, 4, *[4] * n), (4, 2, *[3] * n), (2, 4, *[2] * n)
    x, w, g = (torch.randint(-2, 3, shape).float() for shape in shapes)  # no sum is rounded
    want, got = both(gradients, x, w, g, device=device)
    assert want[0] == "value"
    assert got == want


def test_a_custom_operator_says_how_it_is_mapped(device: str) -> None:
    """Its kernel reads values, which `vmap` cannot map."""

    def mapped(t: Any, x: Any, y: Any) -> Any:
        @t.library.custom_op(
            f"people::scaled_{device}", mutates_args=(), schema="(Tensor x, Tensor y, float factor=1.0) -> Tensor"
        )
        def scaled(x: Any, y: Any, factor: float = 1.0) -> Any:
            return t.tensor(x.cpu().numpy() * y.cpu().numpy() * factor, device=x.device)

        @scaled.register_vmap
        def _(info: Any, in_dims: Any, x: Any, y: Any, factor: float = 1.0) -> Any:
            x, y = (v.unsqueeze(0) if d is None else v.movedim(d, 0) for v, d in zip((x, y), in_dims, strict=False))
            return scaled(x, y, factor), 0

        call = t.func.vmap(lambda a, b: scaled(a, b, 2.0) + 1, in_dims=(1, None))
        return scaled(x, y), call(x, y[:, 0]), t.func.vmap(t.func.vmap(scaled))(x, y)

    x, y = torch.arange(6.0).view(2, 3), torch.ones(2, 3) * 2
    got = mapped(tabtorch, to_tab(x, device), to_tab(y, device))
    assert [g.tolist() for g in got] == [(x * y).tolist(), (x * 4 + 1).T.tolist(), (x * y).tolist()]
