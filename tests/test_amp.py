"""`torch.amp`: types under autocast are PyTorch's, on cpu beside PyTorch itself, on the GPU by PyTorch's own table.

What PyTorch does on CUDA it tells without a GPU: fake tensors go through the same dispatch.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.autocast_test_lists import AutocastCPUTestLists, AutocastTestLists
from torch.testing._internal.common_methods_invocations import op_db

import tabtorch as tt
from sidebyside import DEVICES, to_tab

F = "nn.functional."
#: (expression of `ns`, float32 or low inputs a (4, 4), b (4, 4), v (4,), image (1, 4, 6, 6), volume (1, 1, 4, 4, 4), w (4, 4, 3, 3))
CALLS = (
    """
a @ b;ns.mm(a, b);ns.matmul(a, v);ns.mv(a, v);a.matmul(b);ns.addmm(a, a, b);ns.bmm(a[None], b[None]);ns.einsum('ij,jk->ik', a, b)
ns.einsum('ij,ij->ij', a, b);ns.baddbmm(a[None], a[None], b[None]);ns.addmv(v, a, v);ns.addr(a, v, v);ns.dot(v, v);ns.inner(a, b)
ns.inner(v, v);ns.tensordot(a, b, 1);ns.tensordot(a, b, 2);ns.chain_matmul(a, b, a);ns.linalg.multi_dot([a, b, a]);ns.cov(a)
ns.nn.functional.linear(a, b);ns.nn.functional.linear(a, b, v);ns.nn.functional.conv2d(image, w);ns.conv2d(image, w)
ns.nn.functional.conv_transpose2d(image, w);ns.prelu(a, v);ns.nn.functional.scaled_dot_product_attention(a[None], b[None], a[None])
ns.exp(a);a.exp();ns.log(a.abs());ns.pow(a.abs(), 2);a**2;2.0**a;1.0 / a;ns.reciprocal(a);ns.rsqrt(a.abs());ns.tan(a);ns.sinh(a);ns.acos(a)
ns.erfinv(a);ns.expm1(a);ns.log1p(a.abs());ns.square(a);ns.sqrt(a.abs());ns.sin(a);ns.tanh(a);ns.sigmoid(a);a + b;a * 2;-a;a / 3;a > b
ns.softmax(a, 0);ns.nn.functional.softmax(a, -1);ns.log_softmax(a, 0);ns.cumsum(a, 0);ns.cumprod(a, 0);a.sum();a.sum(0);ns.prod(a)
a.sum(0, dtype=ns.float64 if cpu else ns.float32);a.mean();a.mean(0);a.var();a.max();a.norm();ns.norm(a, dim=0);ns.linalg.vector_norm(a)
ns.logsumexp(a, 0);ns.dist(a, b);ns.cdist(a, b);ns.nn.functional.softplus(a);ns.nn.functional.gelu(a);ns.nn.functional.silu(a)
ns.nn.functional.relu(a);ns.nn.functional.layer_norm(a, (4,));ns.nn.functional.layer_norm(a, (4,), v, v);ns.nn.functional.rms_norm(a, (4,))
ns.nn.functional.group_norm(image, 2);ns.nn.functional.batch_norm(image, None, None, training=True);ns.nn.functional.normalize(a)
ns.nn.functional.instance_norm(image);ns.nn.functional.cosine_similarity(a, b);ns.nn.functional.mse_loss(a, b)
ns.nn.functional.l1_loss(a, b);ns.nn.functional.smooth_l1_loss(a, b);ns.nn.functional.cross_entropy(a, labels)
ns.nn.functional.nll_loss(a, labels);ns.nn.functional.kl_div(a, b.abs());ns.nn.functional.binary_cross_entropy_with_logits(a, b)
ns.nn.functional.margin_ranking_loss(v, v, v);ns.nn.functional.triplet_margin_loss(a, b, a);ns.nn.functional.logsigmoid(a)
ns.nn.functional.avg_pool2d(image, 2);ns.nn.functional.max_pool2d(image, 2);ns.nn.functional.avg_pool3d(volume, 2)
ns.nn.functional.interpolate(image, scale_factor=2);ns.nn.functional.interpolate(image, scale_factor=0.5, mode='area')
ns.nn.functional.pad(image, (1, 1, 1, 1), 'reflect');ns.nn.functional.pad(image, (1, 1, 1, 1));ns.nn.functional.dropout(a, 0.5)
ns.atan2(a, wide);ns.addcmul(a, wide, a);ns.cat([a, wide]);ns.stack([a, wide]);a + wide;ns.cross(a[:, :3], wide[:, :3], dim=1)
ns.scatter_add(a, 0, index, a);ns.where(a > 0, a, b);ns.clamp(a, 0, 1);a.std();ns.trapezoid(a);a.exp_();ns.nn.functional.glu(a)
ns.nn.functional.embedding(labels, a);ns.nn.functional.one_hot(labels);ns.linalg.inv(wide);ns.topk(a, 2)[0];ns.sort(a)[0]
""".replace("\n", ";")
    .strip(";")
    .split(";")
)


def inputs(low: Any) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(0)

    def r(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=g) * 0.5 + 0.1

    made = {
        "a": r(4, 4),
        "b": r(4, 4),
        "v": r(4),
        "image": r(1, 4, 6, 6),
        "volume": r(1, 1, 4, 4, 4),
        "w": r(4, 4, 3, 3),
    }
    made = {k: t.to(low) for k, t in made.items()}
    made["wide"] = r(4, 4) + 2 * torch.eye(4)
    made["labels"] = torch.tensor([0, 1, 2, 3])
    made["index"] = torch.zeros(4, 4, dtype=torch.int64)
    return made


def outcome(call: Callable[[], Any]) -> str:
    try:
        return str(call().dtype)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as e:
        return type(e).__name__


@pytest.mark.parametrize("low_inputs", [False, True])
@pytest.mark.parametrize("name", DEVICES)
def test_types(name: str, low_inputs: bool) -> None:
    """Every call gives the type that it has in PyTorch under autocast, of float32 and of lower inputs."""
    cpu = name == "cpu"
    low = torch.bfloat16 if cpu else torch.float16
    values = inputs(low if low_inputs else torch.float32)
    ours = {k: to_tab(t, name) for k, t in values.items()}
    if cpu:
        theirs = values
    else:
        with FakeTensorMode():
            theirs = {
                k: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for k, t in values.items()
            }
    wrong = []
    for text in CALLS:
        code = compile(text, text, "eval")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if cpu:
                with torch.autocast("cpu"):
                    want = outcome(lambda code=code: eval(code, {"ns": torch, "cpu": True, **theirs}))  # type: ignore[misc]
            else:
                torch.set_autocast_enabled("cuda", True)
                try:
                    with FakeTensorMode(allow_non_fake_inputs=True):
                        want = outcome(lambda code=code: eval(code, {"ns": torch, "cpu": False, **theirs}))  # type: ignore[misc]
                finally:
                    torch.set_autocast_enabled("cuda", False)
            with tt.autocast(name):
                got = outcome(lambda code=code: eval(code, {"ns": tt, "cpu": cpu, **ours}))  # type: ignore[misc]
        if got != want and want.startswith("torch."):
            wrong.append(f"{text}: {got}, not {want}")
    assert not wrong, "\n".join(wrong)


def listed(cpu: bool) -> list[tuple[str, Any, tuple[Any, ...], dict[str, Any]]]:
    """(list, operation, arguments, keywords) of PyTorch's own tests of autocast, for the kind of device."""
    lists = (AutocastCPUTestLists if cpu else AutocastTestLists)("cpu")
    found = []
    for kind, entries in vars(lists).items():
        for name, *rest in entries:
            if name in ("einsum", "margin_ranking_loss"):  # with arguments of shapes that do not go together; in CALLS
                continue
            keywords = next((r for r in rest if isinstance(r, dict)), {})
            # the CPU's lists have the arguments once for each lower type
            found += [(kind, name, args, keywords) for args in rest if isinstance(args, tuple)]
    return found


@pytest.mark.filterwarnings("ignore")  # names that PyTorch deprecates, arguments of old
@pytest.mark.parametrize("name", DEVICES)
def test_types_of_the_lists(name: str) -> None:
    """Every operation of PyTorch's lists, as function and as method: the type that it has in PyTorch under autocast."""
    cpu = name == "cpu"
    spaces = ("", "nn.functional", "linalg", "Tensor")

    def find(ns: Any, space: str, operation: str) -> Any:
        for part in filter(None, space.split(".")):
            ns = getattr(ns, part)
        return getattr(ns, operation, None)

    def theirs(x: Any) -> Any:
        if isinstance(x, torch.Tensor) and not cpu:
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")
        return type(x)(map(theirs, x)) if isinstance(x, (tuple, list)) else x

    def translated(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            value = torch.full(x.shape, 0.5).to(x.dtype)
            return to_tab(value, name)
        return type(x)(map(translated, x)) if isinstance(x, (tuple, list)) else x

    wrong, seen = [], set()
    for kind, operation, args, keywords in listed(cpu):
        for space in spaces:
            f, g = find(torch, space, operation), find(tt, space, operation)
            if f is None or g is None:
                continue
            torch.set_autocast_enabled("cpu" if cpu else "cuda", True)
            try:
                with nullcontext() if cpu else FakeTensorMode(allow_non_fake_inputs=True):
                    r = f(*map(theirs, args), **keywords)
                want = [
                    str(t.dtype) for t in (r if isinstance(r, (tuple, list)) else [r]) if isinstance(t, torch.Tensor)
                ]
            except (RuntimeError, AssertionError, TypeError, ValueError) as e:
                if kind != "banned":
                    continue  # a fake tensor has no value, and a method other arguments
                want = [type(e).__name__]
            finally:
                torch.set_autocast_enabled("cpu" if cpu else "cuda", False)
            with tt.autocast(name):
                try:
                    r = g(*map(translated, args), **keywords)
                    got = [
                        str(t.dtype) for t in (r if isinstance(r, (tuple, list)) else [r]) if isinstance(t, tt.Tensor)
                    ]
                except Exception as e:
                    got = [type(e).__name__]
            seen.add(operation)
            if got != want:
                wrong.append(f"{kind}: {space}.{operation}: {got}, not {want}")
    assert not wrong, "\n".join(wrong)
    assert len(seen) >= (49 if cpu else 99)


#: operators whose samples are not translated here, or draw, or look at a Tensor of torch
_LEFT_OUT = "_refs ops. sparse jiterator _segment empty bernoulli multinomial _batch_norm_with as_strided to byte char normal".split()
#: PyTorch's is made of products, which are in the lower type; tabtorch's is one operation, whose result is float32
_ONE_HERE = ("linalg.pinv",)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_types_of_operators() -> None:
    """Every operator of PyTorch's table, with two samples of each type: under autocast on cpu, the types of PyTorch's results."""

    def find(ns: Any, path: str) -> Any:
        for part in path.split("."):
            ns = getattr(ns, part, None)
        return ns

    def types(r: Any) -> list[str]:
        return [str(r.dtype)] if hasattr(r, "dtype") else sum(map(types, r), []) if isinstance(r, (list, tuple)) else []

    wrong, seen = [], 0
    for op in op_db:
        f, g = ((find(ns, op.name) or find(ns.Tensor, op.name)) for ns in (torch, tt))
        if op.name.startswith(tuple(_LEFT_OUT)) or f is None or g is None or op.variant_test_name.startswith("chunked"):
            continue
        for dtype in {torch.float32, torch.bfloat16} & op.dtypes:
            for sample in itertools.islice(op.sample_inputs_func(op, "cpu", dtype, requires_grad=False), 2):
                if any(callable(v) for v in sample.kwargs.values()):  # it takes tensors of torch
                    continue
                try:
                    with torch.autocast("cpu"):
                        want = types(f(sample.input, *sample.args, **sample.kwargs))
                except (RuntimeError, TypeError, ValueError):
                    continue
                args, keywords = to_tab([sample.input, *sample.args], "cpu"), to_tab(sample.kwargs, "cpu")
                with tt.autocast("cpu"):
                    got = types(g(*args, **keywords))
                seen += 1
                if got != want and op.name not in _ONE_HERE:
                    wrong.append(f"{op.name} of {dtype}: {got}, not {want}")
    assert not wrong, "\n".join(wrong)
    assert seen > 1500


def test_names_of_one_function_have_one_policy() -> None:
    """A function is met under one of its names: the others must mean the same."""
    from tabtorch.amp._policies import NAMES, POLICIES
    from tabtorch.ops.machinery import registry

    registry.load_all()
    found: dict[int, dict[str, Any]] = {}
    for table in (registry.FUNCTIONS, registry.METHODS):
        for name, f in table.items():
            policy = (*(p.get(name) for p in POLICIES), name in NAMES)
            found.setdefault(id(f), {})[name] = policy
    assert not [names for names in found.values() if len({*names.values()}) > 1]


def test_autocast_goes_by_operations_not_by_callers(device: str) -> None:
    """What calls an operation does not matter, be it said to be of this package; what an operation is made of stays as it is."""
    space = {"torch": tt, "__name__": "tabtorch.ops.reductions.made_up"}
    exec("def product(x): return torch.mm(x, x)", space)
    x = tt.ones(3, 3, requires_grad=True)
    with tt.autocast(device):
        low = tt.get_autocast_dtype(device)
        assert space["product"](x).dtype is low  # type: ignore[operator]
        y = tt.linalg.matrix_exp(x)  # made of products
        assert y.dtype is tt.float32
        assert tt.linalg.matrix_power(x, 3).dtype is low and tt.linalg.matrix_power(x, 1).dtype is tt.float32
        (g,) = tt.autograd.grad(tt.linalg.solve(x + tt.eye(3), x).sum(), x)  # its gradient is made of products
    (want,) = tt.autograd.grad(tt.linalg.solve(x + tt.eye(3), x).sum(), x)
    assert tt.equal(g, want)


def test_a_users_gradient_goes_by_the_lists(device: str) -> None:
    seen: list[Any] = []

    class Twice(tt.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append((g @ g).dtype)
            return g * 2

    x = tt.ones(3, 3, requires_grad=True)
    with tt.autocast(device):
        low = tt.get_autocast_dtype(device)
        y = Twice.apply(x)
        y.register_hook(lambda g: seen.append((g @ g).dtype))
        y.sum().backward()
        assert seen == [low, low]
        tt.utils.checkpoint.checkpoint(
            lambda v: seen.append((v @ v).dtype) or v @ v, x, use_reentrant=False
        ).sum().backward()
    assert seen == [low] * 4 and (x @ x).dtype is tt.float32


def test_off_it_leaves_no_trace(device: str) -> None:
    x = tt.rand(3, 3)
    before = {f: f.__code__ for f in (tt.mm, tt.exp, tt.Tensor.matmul, tt.nn.functional.linear)}
    with tt.autocast(device):
        assert all(f.__code__ is not code for f, code in before.items())
    assert all(f.__code__ is code for f, code in before.items())
    assert (x @ x).dtype is tt.float32


def test_nesting_and_decorator(device: str) -> None:
    def run(ns: Any, where: str) -> list[str]:
        x = ns.ones(3, 3, device=where)
        seen = []

        def see() -> None:
            seen.append(str((x @ x).dtype) + str(ns.is_autocast_enabled(where)))

        kind = "cpu"
        with ns.autocast(where, dtype=ns.bfloat16):
            see()
            with ns.autocast(where, enabled=False):
                see()
                with ns.autocast(where, dtype=ns.float16):
                    see()
            see()
        see()
        ns.autocast(where, dtype=ns.bfloat16)(see)()
        see()
        ns.set_autocast_enabled(where, True)
        ns.set_autocast_dtype(where, ns.float16)
        see()
        ns.set_autocast_enabled(where, False)
        ns.set_autocast_dtype(where, ns.bfloat16)
        try:
            with ns.autocast(where, dtype=ns.bfloat16):
                raise KeyError(kind)
        except KeyError:
            see()
        return seen

    default = tt.get_autocast_dtype(device)
    try:
        assert run(tt, device) == run(torch, "cpu")
    finally:
        tt.set_autocast_dtype(device, default)


def test_the_other_device_is_left_alone() -> None:
    x = tt.ones(3, 3, device="cpu")
    with tt.autocast("webgpu"):
        assert (x @ x).dtype is tt.float32


def test_errors() -> None:
    for device_type, kind, those in ((0, ValueError, (torch, tt)), ("tpu", RuntimeError, (tt,))):
        for ns in those:
            with pytest.raises(kind, match="device_type"):
                ns.autocast(device_type)
    for ns in (torch, tt):
        with (
            pytest.warns(UserWarning, match="In CPU autocast, but the target dtype is not supported"),
            ns.autocast("cpu", dtype=ns.int32),
        ):
            assert not ns.is_autocast_enabled("cpu")
        with pytest.raises(TypeError, match="requires a callable"):
            ns.autocast("cpu")(3)
    assert tt.get_autocast_dtype("cpu") is tt.bfloat16 and tt.get_autocast_dtype("cuda") is tt.float16
    with pytest.warns(UserWarning, match="CUDA is not available"):
        tt.autocast("cuda")


def test_banned() -> None:
    if "webgpu" in DEVICES:
        x = tt.rand(3, device="webgpu")
        with tt.autocast("webgpu"), pytest.raises(RuntimeError, match="unsafe to autocast"):
            tt.nn.functional.binary_cross_entropy(x, x)


def network(ns: Any) -> Any:
    return ns.nn.Sequential(ns.nn.Linear(8, 16), ns.nn.LayerNorm(16), ns.nn.GELU(), ns.nn.Linear(16, 4))


def test_training_under_autocast(device: str) -> None:
    """Losses beside PyTorch's in bfloat16; parameters and their gradients stay float32, a weight is converted once."""

    def run(ns: Any, where: str) -> tuple[list[float], Any]:
        ns.manual_seed(0)
        model = network(ns).to(where)
        optimizer = ns.optim.SGD(model.parameters(), 0.1)
        x, y = ns.randn(32, 8).to(where), ns.randint(0, 4, (32,)).to(where)
        losses = []
        for _ in range(5):
            with ns.autocast(where, dtype=ns.bfloat16):
                out = model(x)
                assert out.dtype is ns.bfloat16
                loss = ns.nn.functional.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            assert all(p.grad.dtype is ns.float32 for p in model.parameters())
            optimizer.step()
            losses.append(loss.item())
        return losses, model

    ours, model = run(tt, device)
    theirs, _ = run(torch, "cpu")
    np.testing.assert_allclose(ours, theirs, rtol=0.02)
    weight = model[0].weight
    from tabtorch.amp import _switch

    for cache in (True, False):
        with tt.autocast(device, cache_enabled=cache):
            tt.nn.functional.linear(tt.ones(1, 8), weight)
            kept = _switch.NOW.copies.get(id(weight))
            assert (kept is not None) == cache
        assert not _switch.NOW.copies


def test_recurrent_layers(device: str) -> None:
    x = tt.rand(3, 2, 4)
    with tt.autocast(device):
        low = tt.get_autocast_dtype(device)
        for given in (x, x.to(low)):
            out, (h, c) = tt.nn.LSTM(4, 5)(given)
            assert out.dtype is h.dtype is c.dtype is low
        assert tt.nn.GRU(4, 5)(x)[0].dtype is (tt.float32 if device == "cpu" else low)
        assert tt.nn.RNN(4, 5)(x)[0].dtype is low


def test_custom_function(device: str) -> None:
    def run(ns: Any, where: str, cast: Any) -> list[str]:
        seen = []

        class Product(ns.autograd.Function):
            @staticmethod
            @ns.amp.custom_fwd(device_type=where, cast_inputs=cast)
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                ctx.save_for_backward(a, b)
                seen.extend([str(a.dtype), str(a.mm(b).dtype), str(ns.is_autocast_enabled(where))])
                return a.mm(b)

            @staticmethod
            @ns.amp.custom_bwd(device_type=where)
            def backward(ctx: Any, g: Any) -> Any:
                a, b = ctx.saved_tensors
                seen.extend([str(g.dtype), str(ns.is_autocast_enabled(where))])
                return g.mm(b.t()).to(a.dtype), a.t().mm(g).to(b.dtype)

        a = ns.ones(3, 3, device=where, requires_grad=True)
        with ns.autocast(where, dtype=ns.bfloat16):
            out = Product.apply(a, a.detach().clone().requires_grad_())
        out.float().sum().backward()
        return seen

    for cast in (None, "float32"):
        assert run(tt, device, cast and tt.float32) == run(torch, "cpu", cast and torch.float32)


# ---- GradScaler


def scaled_run(ns: Any, where: str, steps: int = 9, **settings: Any) -> list[Any]:
    ns.manual_seed(1)
    model = network(ns).to(where)
    optimizer = ns.optim.AdamW(model.parameters(), 0.01)
    x, y = ns.randn(16, 8).to(where), ns.randint(0, 4, (16,)).to(where)
    scaler = ns.amp.GradScaler(where, **settings)
    out: list[Any] = []
    for k in range(steps):
        loss = ns.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss * (float("inf") if k in (3, 4) else 1.0)).backward()
        if k % 2:
            scaler.unscale_(optimizer)
            ns.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        out += [loss.item(), scaler.get_scale(), scaler._get_growth_tracker()]
    out += [scaler.state_dict()]
    return out


@pytest.mark.parametrize(
    "settings", [{}, {"init_scale": 8.0, "growth_interval": 2, "growth_factor": 4.0, "backoff_factor": 0.25}]
)
def test_scaler(device: str, settings: dict[str, Any]) -> None:
    ours, theirs = scaled_run(tt, device, **settings), scaled_run(torch, "cpu", **settings)
    assert ours[-1] == theirs[-1]
    np.testing.assert_allclose(ours[:-1], theirs[:-1], rtol=1e-4)


def test_scaler_reads_once(device: str) -> None:
    """A step reads one number, whatever the number of parameters, and unscaling takes few dispatches."""
    from tabtorch.bridge import get_bridge

    model = tt.nn.Sequential(*[tt.nn.Linear(4, 4) for _ in range(40)])
    optimizer = tt.optim.SGD(model.parameters(), 0.0)
    scaler = tt.amp.GradScaler(device)
    for _ in range(2):
        scaler.scale(model(tt.ones(1, 4)).sum()).backward()
        tt.accelerator.synchronize()
        get_bridge().reset_stats()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        stats = get_bridge().stats()
        assert stats["reads"] + stats["cpuDispatches"] * 0 <= 1
        assert stats["dispatches"] < 40


def test_scaler_states_are_exchanged(device: str) -> None:
    for a, b, wa, wb in ((tt, torch, device, "cpu"), (torch, tt, "cpu", device)):
        first = a.amp.GradScaler(wa, init_scale=32.0, growth_interval=7)
        first.scale(a.ones(1, device=wa))
        second = b.amp.GradScaler(wb)
        second.scale(b.ones(1, device=wb))
        second.load_state_dict(first.state_dict())
        assert second.state_dict() == first.state_dict()
        assert second.scale(b.ones(2, device=wb)).tolist() == [32.0, 32.0]
    assert copy.deepcopy(first).get_scale() == 32.0


def test_scaler_disabled_and_nested(device: str) -> None:
    off = tt.amp.GradScaler(device, enabled=False)
    x = tt.ones(2)
    assert off.scale(x) is x and off.get_scale() == 1.0 and off.state_dict() == {} and not off.is_enabled()
    off.update()
    on = tt.amp.GradScaler(device, init_scale=4.0)
    a, (b,) = on.scale([x, (x,)])
    assert a.tolist() == b.tolist() == [4.0, 4.0]


def test_scaler_errors(device: str) -> None:
    def run(ns: Any, where: str) -> list[str]:
        p = ns.ones(2, device=where, requires_grad=True)
        optimizer = ns.optim.SGD([p], 0.1)
        scaler = ns.amp.GradScaler(where)
        seen = []

        def attempt(f: Callable[[], Any]) -> None:
            try:
                f()
                seen.append("fine")
            except Exception as e:
                seen.append(f"{type(e).__name__}: {e}")

        attempt(lambda: ns.amp.GradScaler(where, growth_factor=1.0))
        attempt(lambda: ns.amp.GradScaler(where, backoff_factor=1.0))
        attempt(scaler.update)
        attempt(lambda: scaler.step(optimizer))
        attempt(lambda: scaler.scale(3))
        scaler.scale(p.sum()).backward()
        attempt(lambda: scaler.step(optimizer, closure=lambda: 1))
        attempt(scaler.update)
        scaler.unscale_(optimizer)
        attempt(lambda: scaler.unscale_(optimizer))
        scaler.step(optimizer)
        attempt(lambda: scaler.step(optimizer))
        attempt(lambda: scaler.unscale_(optimizer))
        attempt(lambda: scaler.update(3.0))
        attempt(lambda: scaler.load_state_dict({}))
        q = ns.ones(2, device=where, dtype=ns.float16, requires_grad=True)
        q.grad = ns.ones(2, device=where, dtype=ns.float16)
        attempt(lambda: scaler.unscale_(ns.optim.SGD([q], 0.1)))
        p.grad = None
        attempt(lambda: scaler.step(ns.optim.SGD([p], 0.1)))
        return seen

    assert run(tt, device) == run(torch, "cpu")
