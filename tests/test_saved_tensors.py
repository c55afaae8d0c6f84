"""torch.autograd.graph beside PyTorch's: hooks on saved tensors, edges, hooks on several gradients, nodes."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import same
from tabtorch.base import thread_state


def of(t: Any) -> Any:
    return importlib.import_module(t.__name__ + ".autograd.graph")


def leaf(t: Any) -> Any:
    return t.tensor([0.5, 2.0], requires_grad=True)


def hooks(t: Any, log: list[Any]) -> Any:
    def pack(x: Any) -> Any:
        log.append(("pack", tuple(x.shape), x.requires_grad, x.is_leaf, t.is_grad_enabled()))
        return x * 1

    def unpack(x: Any) -> Any:
        log.append("unpack")
        return x

    return of(t).saved_tensors_hooks(pack, unpack)


def rows(t: Any) -> Any:
    x, log = leaf(t), []
    with hooks(t, log):
        y = (x * x).exp()
        z = (x + 1).relu().sigmoid() * 2
        w = x - 3
    y.sum().backward()
    (z.sum() + w.sum()).backward()
    return x.grad, log


def others(t: Any) -> Any:
    """Operations that are no rows: matrices, scans, custom Functions, in-place."""

    class Product(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            r = x * y
            ctx.save_for_backward(x, r, y)
            return r

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, r, y = ctx.saved_tensors
            assert (x.requires_grad, r.requires_grad, y.requires_grad) == (True, True, False)
            return g * y + 0 * r, g * x

    x, log = leaf(t), []
    with hooks(t, log):
        y = Product.apply(x, t.ones(2))
        y = y.clone().exp_()
        y = (t.outer(y, x) @ t.ones(2, 2)).softmax(0)
    y[0].prod().backward()
    return x.grad, log[:3], len(log) > 6, log.count("unpack") * 2 == len(log)


def again(t: Any) -> Any:
    x, log = leaf(t), []
    with hooks(t, log):
        y = (x.exp() * x).sin()
    (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
    h = t.autograd.grad(g.sum(), x, retain_graph=True)
    return g, h, sorted(log, key=str)  # what an operation saves first is its own affair


def on_cpu(t: Any) -> Any:
    x = leaf(t)
    with of(t).save_on_cpu():
        y = (x * x).cumsum(0).exp()
    return t.autograd.grad(y.sum(), x)


def edges(t: Any) -> Any:
    g, x = of(t), leaf(t)
    y = x * x
    e, f = g.get_gradient_edge(x), g.get_gradient_edge(y)
    told = type(e.node).__name__, type(f.node).__name__, f.output_nr, isinstance(e.node, g.Node), isinstance(y, g.Node)
    grads = t.autograd.grad(y.sum(), e, retain_graph=True), t.autograd.grad(f, x, t.ones(2), retain_graph=True)
    values, _ = x.sort()
    s = g.get_gradient_edge(values)
    t.autograd.backward([s], [t.ones(2)], inputs=[x])
    return told, grads, s.output_nr, x.grad, issubclass(type(y.grad_fn), g.Node)


def several(t: Any) -> Any:
    a, b = leaf(t), leaf(t)
    c, d, said = a * 2, b * 3, []
    one = of(t).register_multi_grad_hook((a, b, c, d), lambda g: said.append(list(g)))
    of(t).register_multi_grad_hook((c, d), lambda g: said.append(g), mode="any")
    c.sum().backward(retain_graph=True)
    (c + d).sum().backward(retain_graph=True)
    one.remove()
    (c + d).sum().backward()
    return said


def accumulators(t: Any) -> Any:
    x, said = leaf(t), []
    node = x.expand_as(x).grad_fn.next_functions[0][0]
    node.register_hook(lambda *a: said.append((a[0], len(a[1]), a[1][0].tolist())))
    node.register_prehook(lambda g: (g[0] * 10,))
    node.metadata["k"] = 1
    (x * x).sum().backward()
    y = (x * 2).sum()
    y.grad_fn.register_prehook(lambda g: (g[0] * 3,))
    y.backward()
    return said, x.grad, x.expand_as(x).grad_fn.next_functions[0][0].metadata, y.grad_fn.name(), y.grad_fn.metadata


def versions(t: Any) -> Any:
    x = t.ones(2)
    of(t).increment_version(x)
    of(t).increment_version([x, x])
    return x._version


RUNS = [rows, others, again, on_cpu, edges, several, accumulators, versions]


def compared(want: Any, got: Any) -> None:
    if isinstance(want, torch.Tensor):
        same(want.detach(), got.detach(), exact=False, strides=False)
    elif isinstance(want, (list, tuple)):
        assert len(want) == len(got), f"{got}, not {want}"
        for w, g in zip(want, got, strict=True):
            compared(w, g)
    else:
        assert want == got


@pytest.mark.parametrize("run", RUNS)
def test_behaviour(run: Any, device: str) -> None:
    compared(run(torch), run(tabtorch))


def unpacks_a_number(t: Any, g: Any) -> Any:
    with g.saved_tensors_hooks(lambda x: 3, lambda x: x):
        y = leaf(t).exp()
    y.sum().backward()


def writes(t: Any, g: Any) -> Any:
    with g.saved_tensors_hooks(lambda x: x.mul_(2), lambda x: x):
        leaf(t).exp()


def disabled(t: Any, g: Any) -> Any:
    with g.disable_saved_tensors_hooks("not now"), g.save_on_cpu():
        pass


def disabled_inside(t: Any, g: Any) -> Any:
    with g.save_on_cpu(), g.disable_saved_tensors_hooks("not now"):
        pass


def freed(t: Any, g: Any) -> Any:
    with g.saved_tensors_hooks(lambda x: x, lambda x: x):
        y = leaf(t).exp()
    y.sum().backward()
    y.sum().backward()


@pytest.mark.parametrize(
    "call",
    [
        unpacks_a_number,
        writes,
        disabled,
        disabled_inside,
        freed,
        lambda t, g: g.get_gradient_edge(t.ones(2)),
        lambda t, g: g.increment_version([1]),
        lambda t, g: g.register_multi_grad_hook((leaf(t),), print, mode="x"),
        lambda t, g: t.autograd.grad(g.get_gradient_edge(leaf(t) * 2), leaf(t)),
    ],
)
def test_errors(call: Any) -> None:
    said = []
    for t in (torch, tabtorch):
        with pytest.raises((RuntimeError, TypeError, ValueError)) as e:
            call(t, of(t))
        said.append((e.type, str(e.value)))
    assert said[0] == said[1]
    assert not thread_state.STATE.hooks
