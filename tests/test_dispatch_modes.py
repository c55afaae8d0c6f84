# ruff: noqa: E501
"""TorchDispatchMode and make_fx beside PyTorch's: the same operators for the same programs, or an error that says that not."""

from __future__ import annotations

import contextlib
import copy
import importlib
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.fx.experimental import proxy_tensor  # noqa: F401
from torch.utils import _python_dispatch  # noqa: F401

import fx_zoo
import tabtorch
import tabtorch.fx
from sidebyside import outcome, same
from tabtorch.interception.operator_modes import STACK
from tabtorch.interception.torch_function import STATE

LIBS = (torch, tabtorch)


@pytest.fixture(autouse=True)
def on_the_cpu() -> Any:
    with tabtorch.device("cpu"):
        yield
    assert not STACK.modes and not STATE.modes and not tabtorch.ops.aten.DISPATCH


def module(lib: Any, name: str) -> Any:
    return importlib.import_module(f"{lib.__name__}.{name}")


def logger(lib: Any) -> Any:
    """An op logger as libraries write them."""

    class Logger(module(lib, "utils._python_dispatch").TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.ops: list[str] = []
            self.funcs: list[Any] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.ops.append(str(func))
            self.funcs.append(func)
            return func(*args, **(kwargs or {}))

    return Logger()


def ramp(lib: Any, *shape: int) -> Any:
    return fx_zoo._ramp(lib, *shape)


#: programs of (library, its functional, a matrix)
PROGRAMS: dict[str, Any] = {
    "arithmetic": lambda t, F, x: (x + 1, 1 - x, 2 * x, x / 2, x**2, 2**x, -x, x * x, x // 2, x % 2, abs(x), x @ x.t()),
    "comparisons": lambda t, F, x: (x > 0, x == x, x != 1, x <= x, ~(x < 0), (x > 0) & (x < 1), t.isnan(x), t.logical_not(x > 0)),
    "in place": lambda t, F, x: x.clone().add_(1).mul_(2).relu_().sub_(x).div_(2).clamp_(0, 3).zero_().fill_(2.0),
    "operators in place": lambda t, F, x: _in_place(x.clone()),
    "functions": lambda t, F, x: (x.exp(), x.abs().sqrt(), t.sin(x), t.tanh(x), t.sigmoid(x), x.rsqrt(), x.erf(), x.clamp(0, 1), x.clamp(min=0)),
    "reductions": lambda t, F, x: (x.sum(), x.mean(-1), x.sum(dim=1, keepdim=True), x.max(dim=1), x.amax(1), x.argmax(-1), x.prod(), x.any()),
    "spread": lambda t, F, x: (x.var(), x.std(), x.var(dim=1), x.std(1, unbiased=False), x.norm(), x.norm(dim=1)),
    "views": lambda t, F, x: (x.view(-1), x.t(), x.T, x.transpose(0, 1), x.unsqueeze(0), x.squeeze(), x.expand(3, 2, 4), x.permute(1, 0), x.mT),
    "shapes": lambda t, F, x: (x.reshape(4, 2), x.t().reshape(-1), x.flatten(), x.contiguous(), x.t().contiguous(), x.view_as(x), x.unflatten(1, (2, 2))),
    "indices": lambda t, F, x: (x[0], x[:, 1:], x[:, None], x[..., -1], x[::2], x[0, 1], x[t.arange(2)]),
    "joining": lambda t, F, x: (t.cat([x, x]), t.stack([x, x]), x.chunk(2, 1), x.split(2, 1), x.unbind(0), t.hstack([x, x]), x.repeat(2, 1)),
    "making": lambda t, F, x: (t.zeros(2), t.ones(2, 2), t.full((2,), 3.0), t.arange(3), t.zeros_like(x), t.ones_like(x), x.new_zeros(2), t.eye(2)),
    "types": lambda t, F, x: (x.to(t.float64), x.float(), x.long(), x.type_as(x), x.bool(), x.to("cpu"), x.detach(), x.clone()),
    "choosing": lambda t, F, x: (t.where(x > 0, x, t.zeros_like(x)), x.masked_fill(x > 0, 0.0), x.topk(2), x.sort(), x.gather(1, t.zeros(2, 1).long()), x.tril(), x.cumsum(0)),
    "products": lambda t, F, x: (t.mm(x, x.t()), x @ x[0], t.addmm(t.ones(2), x, x.t()), t.matmul(x.expand(3, 2, 4), x.t()), t.bmm(x[None], x.t()[None]), t.dot(x[0], x[0])),
    "batches": lambda t, F, x: x.expand(3, 2, 4) @ x.t().expand(3, 4, 2),
    "linear": lambda t, F, x: (F.linear(x, x), F.linear(x, x, t.ones(2)), F.linear(x.expand(3, 2, 4).contiguous(), x, t.ones(2)), F.linear(x.expand(3, 2, 4), x)),
    "activations": lambda t, F, x: (F.relu(x), F.gelu(x), F.silu(x), F.leaky_relu(x), F.elu(x), F.softplus(x), F.hardswish(x), F.relu6(x), F.selu(x), F.mish(x), F.hardtanh(x), F.glu(x)),
    "softmax": lambda t, F, x: (x.softmax(-1), F.log_softmax(x, -1), F.softmax(x, dim=1)),
    "dropout": lambda t, F, x: (F.dropout(x, 0.3, True).shape, F.dropout(x, 0.5, False)),
    "norms": lambda t, F, x: (F.layer_norm(x, (4,)), F.batch_norm(x, t.zeros(4), t.ones(4)), F.group_norm(x, 2)),
    "losses": lambda t, F, x: (F.cross_entropy(x, t.arange(2)), F.mse_loss(x, x), F.nll_loss(x, t.arange(2)), F.l1_loss(x, x), F.smooth_l1_loss(x, x), F.binary_cross_entropy_with_logits(x, x)),
    "lookups": lambda t, F, x: (F.embedding(t.arange(2), x), F.one_hot(t.arange(2), 3)),
    "images": lambda t, F, x: _images(t, F, x.view(1, 2, 2, 2)),
    "attention": lambda t, F, x: F.scaled_dot_product_attention(x.view(1, 2, 2, 2), x.view(1, 2, 2, 2), x.view(1, 2, 2, 2)),
    "writing": lambda t, F, x: _writes(x.clone()),
    "out": lambda t, F, x: (t.add(x, x, out=t.empty(2, 4)), t.relu(x), t.mul(x, 2, out=t.empty(2, 4))),
    "values": lambda t, F, x: (x.sum().item(), float(x[0, 0]), bool(x[0, 0] > 0), int(x[1, 1])),
    "tensor": lambda t, F, x: x + t.tensor([1.0, 2.0, 3.0, 4.0]),
}  # fmt: skip


def _program(lib: Any, name: str) -> Any:
    return lambda x: PROGRAMS[name](lib, lib.nn.functional, x)


def _in_place(y: Any) -> Any:
    y += 1
    y -= 2
    y *= 3
    y /= 4
    return y


def _images(t: Any, F: Any, y: Any) -> Any:
    w = t.ones(3, 2, 1, 1)
    return (
        F.conv2d(y, w), F.conv2d(y, w, t.ones(3), padding=1), F.conv_transpose2d(y, w.transpose(0, 1)), F.max_pool2d(y, 2), F.avg_pool2d(y, 2),
        F.adaptive_avg_pool2d(y, 1), F.adaptive_avg_pool2d(y, 2), F.pad(y, (1, 1)), F.max_pool2d(y, 1, stride=1),
    )  # fmt: skip


def _writes(y: Any) -> Any:
    y[0] = 1.0
    y[:, 1] = y[:, 0]
    return y


@pytest.mark.parametrize("name", PROGRAMS)
def test_modes_see_pytorchs_operators(name: str) -> None:
    seen, results = [], []
    for lib in LIBS:
        x = ramp(lib, 2, 4)
        with logger(lib) as log:
            results.append(PROGRAMS[name](lib, lib.nn.functional, x))
        seen.append(log.ops)
    drop = ("aten.lift_fresh", "aten.detach") if name == "tensor" else ()
    want, got = [[op for op in ops if not op.startswith(drop)] if drop else ops for ops in seen]
    assert got == want
    if name != "dropout":
        leaves = [
            [y for y in lib.utils._pytree.tree_leaves(r) if hasattr(y, "shape")]
            for r, lib in zip(results, LIBS, strict=True)
        ]
        same(*leaves, exact=False, strides=False)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("values", "out", "dropout", "lookups")])
def test_make_fx_writes_pytorchs_graphs(name: str) -> None:
    codes, results = [], []
    for lib in LIBS:
        x = ramp(lib, 2, 4)
        gm = module(lib, "fx.experimental.proxy_tensor").make_fx(_program(lib, name))(x)
        codes.append(gm.code)
        results.append(gm(ramp(lib, 2, 4)))
        gm.graph.lint()
    assert codes[0] == codes[1]
    leaves = [
        [y for y in lib.utils._pytree.tree_leaves(r) if hasattr(y, "shape")]
        for r, lib in zip(results, LIBS, strict=True)
    ]
    same(*leaves, exact=False, strides=False)


@pytest.mark.parametrize("name", ["ResNet", "Transformer", "MLP"])
def test_models_are_pytorchs_operators(name: str) -> None:
    said = []
    for lib in LIBS:
        model = fx_zoo.build(lib, fx_zoo.make(lib), name)
        x = fx_zoo.INPUTS[name](lib)[0]
        with lib.no_grad(), logger(lib) as log:
            model(x)
        with lib.no_grad():  # else PyTorch's autograd detaches what it saves
            code = module(lib, "fx.experimental.proxy_tensor").make_fx(model)(x).code
        said.append((log.ops, code))
    assert said[0] == said[1]


def test_make_fx_takes_decompositions_and_trees() -> None:
    def values(lib: Any) -> str:
        make_fx = module(lib, "fx.experimental.proxy_tensor").make_fx
        aten = lib.ops.aten
        x = ramp(lib, 2, 4)
        rules = {
            aten.relu.default: lambda x: x.clamp(min=0),
            aten.add.Tensor: lambda a, b, alpha=1: aten.sub.Tensor(a, -1 * b),
        }
        said = [make_fx(lambda x: lib.relu(x) + x, decomposition_table=rules)(x).code]
        said.append(make_fx(lambda d, y: {"r": d["a"] + y, "s": [d["b"][0]]})({"a": x, "b": [x * 2]}, x + 1).code)
        lin = lib.nn.Linear(4, 3)
        said += [
            make_fx(lin)(x).code,
            make_fx(lambda x: lin(x))(x).code,
            make_fx(lambda *a: a[0] + a[1])(x, x + 1).code,
        ]
        said.append(str(make_fx(lambda x: aten.linear.default(aten.mul.Tensor(x, 2), x))(x).graph))
        said.append(
            str(
                [
                    n.meta["tensor_meta"].shape
                    for n in make_fx(lambda x: x.sum(0))(x).graph.nodes
                    if "tensor_meta" in n.meta
                ]
            )
        )
        said.append(str(module(lib, "fx.experimental.proxy_tensor").get_proxy_mode()))
        return "\n".join(said)

    want, got = [values(lib) for lib in LIBS]
    assert want == got


def test_make_fx_refuses_what_pytorch_does() -> None:
    for f in (lambda x: x + 1 if x.sum() > 0 else x, lambda x: x + x.sum().item()):
        want, got = [
            outcome(lambda lib=lib, f=f: module(lib, "fx.experimental.proxy_tensor").make_fx(f)(lib.ones(2)))
            for lib in LIBS
        ]
        assert want == got
    make_fx = module(tabtorch, "fx.experimental.proxy_tensor").make_fx
    with pytest.raises(NotImplementedError, match="does not see backward"):
        make_fx(lambda x: tabtorch.func.grad(lambda y: (y * y).sum())(x))(tabtorch.ones(2))
    with pytest.raises(NotImplementedError, match="sizes"):
        make_fx(lambda x: x, tracing_mode="symbolic")


def test_what_operators_say_of_themselves() -> None:
    def values(lib: Any) -> str:
        with logger(lib) as log:
            lib.relu(lib.ones(2)) + 1
        f = log.funcs[-1]
        aten = lib.ops.aten
        said = [
            str(f),
            repr(f),
            f.name(),
            f.__name__,
            f.namespace,
            str(f.overloadpacket),
            repr(f.overloadpacket),
            f._overloadname,
        ]
        said += [
            str(f is aten.add.Tensor),
            str(f.overloadpacket is aten.add),
            str(f._overloadpacket is aten.add),
            str({f: 1}[aten.add.Tensor]),
            str(isinstance(f, lib._ops.OpOverload)),
        ]
        return "\n".join(said + [f.__module__.replace("torch._ops.aten", "torch._ops"), log.funcs[0].name()])

    want, got = [values(lib) for lib in LIBS]
    assert want == got


def test_tables_of_operators_can_be_copied() -> None:
    for lib in LIBS:
        table = {lib.ops.aten.add: 1, lib.ops.aten.add.Tensor: 2}
        assert list(copy.deepcopy(table)) == list(table)
    assert [pickle.loads(pickle.dumps(op)) is op for op in table] == [True, True]


def test_modes_nest_and_change_results() -> None:
    def values(lib: Any) -> str:
        d = module(lib, "utils._python_dispatch")
        said: list[str] = []

        class Outer(d.TorchDispatchMode):  # type: ignore[name-defined, misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                said.append(f"outer {func}")
                return func(*args, **(kwargs or {}))

        class Inner(d.TorchDispatchMode):  # type: ignore[name-defined, misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                said.append(f"inner {func}")
                if func is lib.ops.aten.relu.default:
                    return lib.neg(args[0]) * 2
                return func(*args, **(kwargs or {}))

        class Functions(lib.overrides.TorchFunctionMode):  # type: ignore[name-defined, misc]
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                said.append(f"function {func.__name__}")
                return func(*args, **(kwargs or {}))

        x = ramp(lib, 2, 2)
        with Outer() as outer, Inner():
            y = lib.relu(x)
            said.append(str([type(m).__name__ for m in d._get_current_dispatch_mode_stack()]))
            with d._disable_current_modes():
                lib.relu(x)
            with contextlib.suppress(ValueError):
                with d._pop_mode_temporarily():
                    lib.exp(x)
                    raise ValueError
            with outer:
                lib.neg(x)
        with Functions(), Outer():
            lib.abs(x)
        with Outer(), Functions():
            lib.abs(x)
        said.append(str(y))
        said.append(str([d._get_current_dispatch_mode(), d.is_traceable_wrapper_subclass(x)]))
        return "\n".join(said)

    want, got = [values(lib) for lib in LIBS]
    assert want == got


def test_functions_are_themselves_again() -> None:
    """In a process of its own: a class that overrides, of some other test, keeps them exchanged."""
    code = (
        "import tabtorch\nfrom tabtorch.utils._python_dispatch import TorchDispatchMode\nbefore = tabtorch.relu.__code__\n"
        "class Mode(TorchDispatchMode): pass\nwith Mode(): assert tabtorch.relu.__code__ is not before\n"
        "assert tabtorch.relu.__code__ is before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_subclass_of_tensor_comes_first() -> None:
    class Sub(tabtorch.Tensor):
        pass

    x = tabtorch.ones(2).as_subclass(Sub)
    with logger(tabtorch) as log:
        y = tabtorch.relu(x) + 1
    assert type(y) is Sub and log.ops == ["aten.relu.default", "aten.add.Tensor"]


def test_what_cannot_be_said_is_an_error() -> None:
    x = tabtorch.ones(2, 2, requires_grad=True)
    with logger(tabtorch), pytest.raises(NotImplementedError, match="'einsum'"):
        tabtorch.einsum("ij,jk->ik", x, x)
    with logger(tabtorch), pytest.raises(NotImplementedError, match="does not see backward"):
        x.sum().backward()
    y = (x * 2).sum()
    with logger(tabtorch), pytest.raises(NotImplementedError, match="does not see backward"):
        tabtorch.autograd.grad(y, x)
    assert tabtorch.autograd.grad(y, x)[0].tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_gradients_go_through_what_a_mode_saw() -> None:
    lin = tabtorch.nn.Linear(3, 2)
    x = ramp(tabtorch, 4, 3)
    want = tabtorch.autograd.grad(lin(x).relu().sum(), list(lin.parameters()))
    with logger(tabtorch):
        y = lin(x).relu().sum()
    for a, b in zip(want, tabtorch.autograd.grad(y, list(lin.parameters())), strict=True):
        assert tabtorch.allclose(a, b)


def test_aliasing_is_corrected() -> None:
    d = module(tabtorch, "utils._python_dispatch")
    x = tabtorch.ones(2)
    assert d.return_and_correct_aliasing(tabtorch.ops.aten.add_.Tensor, (x, 1), {}, tabtorch.zeros(2)) is x
    y = tabtorch.zeros(2)
    assert d.return_and_correct_aliasing(tabtorch.ops.aten.add.Tensor, (x, 1), {}, y) is y
