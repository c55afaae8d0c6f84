"""torch.vmap: batches, beside real PyTorch's. A batch is one computation: what reaches the device does not grow with it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import outcome, same, to_tab
from tabtorch.base.thread_state import STATE
from tabtorch.bridge import get_bridge

X = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
Y = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(1))
I = torch.randint(0, 3, (4, 3, 5), generator=torch.Generator().manual_seed(2))
IMAGES = torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(3))
W = torch.randn(3, 2, 3, 3, generator=torch.Generator().manual_seed(4))


def inplace(t: Any) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        y = x * 2
        y[0] = x[1]
        y[:, 1].add_(3)
        y.t()[2].copy_(x[:, 0])
        return y

    return f


#: name -> (function of a namespace that gives the function of one example, its arguments, in_dims)
CASES: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "elementwise": (lambda t: lambda x: t.where(x > 0, x.exp(), x * 2) + x.mean(), (X,), 0),
    "broadcast": (lambda t: lambda x, y: x * y + y.sum(), (X, X[0, 0]), (0, None)),
    "reductions": (lambda t: lambda x: (x.sum(0), x.amax(1), x.argmin(), x.std(1), x.logsumexp(0)), (X,), 1),
    "views": (lambda t: lambda x: (x.t()[1:, ::2], x.reshape(5, 3), x.unfold(1, 2, 1), x.diagonal()), (X,), 0),
    "matmul": (lambda t: lambda x, y: x @ y, (X, Y), 0),
    "matmul one side": (lambda t: lambda x, y: (x @ y, y.t() @ x[0]), (X, Y[0]), (0, None)),
    "matmul other side": (lambda t: lambda x, y: (x @ y, x @ y[:, 0]), (X[0], Y), (None, 0)),
    "einsum": (lambda t: lambda x, y: t.einsum("ij,jk->ki", x, y), (X, Y), 0),
    "conv2d": (lambda t: lambda x: t.nn.functional.conv2d(x, W_(t, x), padding=1), (IMAGES,), 0),
    "conv2d weights": (lambda t: lambda x, w: t.nn.functional.conv2d(x, w), (IMAGES[0], torch.stack([W, W * 2])), (None, 0)),
    "pool": (lambda t: lambda x: t.nn.functional.max_pool2d(x, 2) + t.nn.functional.avg_pool2d(x, 2), (IMAGES,), 0),
    "norms": (lambda t: lambda x: t.nn.functional.layer_norm(x, (5,)) + t.nn.functional.normalize(x), (X,), 0),
    "batch_norm": (lambda t: lambda x: t.nn.functional.batch_norm(x[None], None, None, training=True), (IMAGES,), 0),
    "softmax": (lambda t: lambda x: x.softmax(-1) + x.log_softmax(0), (X,), 0),
    "attention": (lambda t: lambda x: t.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True), (IMAGES,), 0),
    "indexing": (lambda t: lambda x, i: (x[i[:, 0]], x[:, i[0]], x.gather(1, i), x[i[0], i[1]]), (X, I), 0),
    "one index": (lambda t: lambda x, i: x[i], (X, I[:, 0, 0]), 0),
    "index of all": (lambda t: lambda x, i: x[i], (X[0], I), (None, 0)),
    "embedding": (lambda t: lambda w, i: t.nn.functional.embedding(i, w), (X[0], I), (None, 0)),
    "scatter": (lambda t: lambda x, i: (x.scatter_add(1, i, x), x.scatter(0, i, 1.5)), (X, I), 0),
    "index_put": (lambda t: lambda x, i: x.index_put((i[:, 0],), x, accumulate=True), (X, I), 0),
    "index_put behind": (
        lambda t: lambda x, i: x.index_put((t.arange(3)[:, None], t.stack([i[:, 0], i[:, 0] + 1], 1)), x[:, :2]),
        (X, I),
        0,
    ),
    "scan": (lambda t: lambda x: (x.cumsum(0), x.cumprod(1), x.cummax(0).values, x.logcumsumexp(1)), (X,), 0),
    "sort": (lambda t: lambda x: (*x.sort(0), *x.topk(2), x.median()), (X,), 0),
    "search": (lambda t: lambda x, y: t.searchsorted(y.sort()[0], x.contiguous()), (X, Y[:, :, 0].contiguous()), 0),
    "joining": (lambda t: lambda x: t.cat([x, x * 2, t.ones(1, 5)]) .roll(1, 0).flip(1), (X,), 0),
    "padding": (lambda t: lambda x: t.nn.functional.pad(x, (1, 2), mode="reflect") .tril(), (X,), 0),
    "fft": (lambda t: lambda x: (t.fft.fft(x, dim=0).abs(), t.fft.rfft2(x).abs()), (X,), 0),
    "linalg": (lambda t: lambda x: (t.linalg.inv(x @ x.mT + 3 * t.eye(3)), t.linalg.svdvals(x), t.linalg.matrix_exp(x[:, :3])), (X,), 0),
    "losses": (lambda t: lambda x, i: (t.nn.functional.cross_entropy(x, i[:, 0]), t.nn.functional.mse_loss(x, x + 1)), (X, I), 0),
    "checked values": (lambda t: lambda i: t.nn.functional.one_hot(i, 3), (I,), 0),
    "in place": (inplace, (X,), 0),
    "in_dims and out": (lambda t: lambda x, d: x * d["a"] + d["b"], (X, {"a": X, "b": 2.0}), (1, {"a": 1, "b": None})),
    "no examples": (lambda t: lambda x: x.sum(), (torch.zeros(0, 3),), 0),
    "copies": (lambda t: lambda x, y: x.clone().select_scatter(y, 0, 1), (X[0], X[:, 1]), (None, 0)),
}  # fmt: skip


def W_(t: Any, x: Any) -> Any:
    return W if t is torch else to_tab(W, x.device)


def both(case: Any, device: str, wrap: Any) -> None:
    """`wrap(namespace, function)` over the arguments, in both libraries."""
    f, args, in_dims = case
    mine = to_tab(args, device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = wrap(torch, f(torch), in_dims)(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing here takes the slow way
        got = wrap(tabtorch, f(tabtorch), in_dims)(*mine)
    near(want, got)


def near(want: Any, got: Any) -> None:
    if isinstance(want, torch.Tensor):
        same(want, got, strides=False, exact=False)
        return
    for a, b in zip(want, got, strict=True):
        near(a, b)


@pytest.mark.parametrize("name", CASES)
def test_batches(name: str, device: str) -> None:
    both(CASES[name], device, lambda t, f, d: t.vmap(f, d))


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c[1][0] is X and c[2] == 0 and len(c[1]) == 1])
def test_two_levels(name: str, device: str) -> None:
    """The batch itself in a batch, of which it is another dimension."""
    f, (x,), _ = CASES[name]
    case = (f, (torch.stack([x, x * 1.5], 1),), 0)
    both(case, device, lambda t, f, d: t.vmap(t.vmap(f, 0, 0), 1, 1))


def test_outer_product_of_levels(device: str) -> None:
    for t in (torch, tabtorch):
        a, b = (X[0], Y[0].t().contiguous()) if t is torch else to_tab((X[0], Y[0].t().contiguous()), device)
        r = t.vmap(lambda x: t.vmap(lambda y: (x * y, (x + 1).cumsum(0) @ y, y.sort()[0]))(b))(a)  # noqa: B023
        if t is torch:
            want = r
        else:
            near(want, r)


@pytest.mark.parametrize("out_dims", [0, 1, -1, (1, 0)])
@pytest.mark.parametrize("chunk_size", [None, 1, 3, 4, 9])
def test_out_dims_and_chunks(out_dims: Any, chunk_size: Any, device: str) -> None:
    case = (lambda t: lambda x: (x * 2, x.sum(0)), (X,), 0)
    both(case, device, lambda t, f, d: t.vmap(f, d, out_dims, chunk_size=chunk_size))


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("randomness", ["same", "different"])
@pytest.mark.parametrize("draw", ["rand(3, 5)", "randn(3, 5)", "randint(0, 9, (3, 5))", "empty_like(x).uniform_()"])
def test_random_numbers(draw: str, randomness: str, chunk_size: Any, device: str) -> None:
    """The numbers that PyTorch draws."""
    results = []
    for t in (torch, tabtorch):
        t.manual_seed(0)
        x = X if t is torch else to_tab(X, device)
        f = eval(f"lambda x: x + t.{draw}", {"t": t})
        results.append(t.vmap(f, randomness=randomness, chunk_size=chunk_size)(x))
    near(*results)


def test_dropout_differs_and_its_gradient_knows_how(device: str) -> None:
    x = tabtorch.ones(4, 50, requires_grad=True)
    y = tabtorch.vmap(lambda x: tabtorch.nn.functional.dropout(x), randomness="different")(x)
    assert len({tuple(row) for row in y.tolist()}) == 4
    (g,) = tabtorch.autograd.grad(y.sum(), x)
    assert g.tolist() == y.tolist()
    same_for_all = tabtorch.vmap(lambda x: tabtorch.nn.functional.dropout(x), randomness="same")(x)
    assert len({tuple(row) for row in same_for_all.tolist()}) == 1


def test_a_write_to_an_example_is_one_to_the_argument(device: str) -> None:
    case = (lambda t: lambda x: x.add_(1).t().mul_(2), (X.clone(),), 1)
    both(case, device, lambda t, f, d: lambda x: (t.vmap(f, d)(x), x))


def captured(t: Any) -> Any:
    z = t.zeros(3, 5)
    return lambda x: z.add_(x)


def captured_item(t: Any) -> Any:
    z = t.zeros(3, 5)

    def f(x: Any) -> Any:
        z[0] = x[0]
        return z

    return f


ERRORS: dict[str, Any] = {
    "item": lambda t: t.vmap(lambda x: x.sum().item()),
    "control flow": lambda t: t.vmap(lambda x: x if x.sum() > 0 else -x),
    "float": lambda t: t.vmap(t.vmap(t.vmap(float))),
    "tolist": lambda t: t.vmap(lambda x: x.tolist()),
    "numpy": lambda t: t.vmap(lambda x: x.numpy()),
    "nonzero": lambda t: t.vmap(lambda x: x.nonzero()),
    "mask": lambda t: t.vmap(lambda x: x[x > 0]),
    "masked_select": lambda t: t.vmap(lambda x: x.masked_select(x > 0)),
    "unique": lambda t: t.vmap(lambda x: x.unique()),
    "random": lambda t: t.vmap(lambda x: x + t.rand(3, 1)),
    "random like": lambda t: t.vmap(t.randn_like),
    "dropout": lambda t: t.vmap(t.nn.functional.dropout),
    "captured": lambda t: t.vmap(captured(t)),
    "captured item": lambda t: t.vmap(captured_item(t)),
    "backward": lambda t: t.vmap(lambda x: x.sum().backward()),
    "requires_grad_": lambda t: t.vmap(lambda x: x.requires_grad_()),
    "no inputs": lambda t: lambda x: t.vmap(lambda: x)(),
    "no tensors": lambda t: lambda x: t.vmap(lambda y: x)(3),
    "nothing batched": lambda t: t.vmap(lambda x: x, None),
    "no batched": lambda t: t.vmap(lambda x: x, (None,)),
    "in_dims out of range": lambda t: t.vmap(lambda x: x, 5),
    "in_dims too many": lambda t: t.vmap(lambda x: x, (0, 0)),
    "in_dims of a str": lambda t: t.vmap(lambda x: x, ("a",)),
    "sizes": lambda t: lambda x: t.vmap(lambda x, y: x)(x, t.zeros(3)),
    "out_dims of a str": lambda t: t.vmap(lambda x: x, 0, "a"),
    "out_dims out of range": lambda t: t.vmap(lambda x: x, 0, 7),
    "out_dims too many": lambda t: t.vmap(lambda x: x, 0, (0, 0)),
    "out_dims None": lambda t: t.vmap(lambda x: x, 0, None),
    "returns a number": lambda t: t.vmap(lambda x: 3),
    "randomness": lambda t: t.vmap(lambda x: x, randomness="some"),
    "chunk_size": lambda t: t.vmap(lambda x: x, chunk_size=0),
    "index out of range": lambda t: t.vmap(lambda x: x[7]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str, device: str) -> None:
    """PyTorch's exception and message."""
    want = outcome(lambda: ERRORS[name](torch)(X))
    got = outcome(lambda: ERRORS[name](tabtorch)(to_tab(X, device)))
    assert want[0] == "error"
    assert (want[1][0], want[1][1].replace("0x", "")[:60]) == (got[1][0], got[1][1].replace("0x", "")[:60])
    if "<function" not in want[1][1]:
        assert want == got


def dispatches(f: Any) -> int:
    tabtorch.accelerator.synchronize()
    before = get_bridge().stats()["dispatches"]
    r = f()
    for t in r if isinstance(r, tuple) else (r,):
        t.tolist()
    return get_bridge().stats()["dispatches"] - before


@pytest.mark.parametrize(
    "name", ["conv2d", "indexing", "scatter", "index_put", "scan", "sort", "search", "fft", "losses"]
)
def test_dispatches_do_not_grow_with_the_batch(name: str, device: str) -> None:
    f, args, in_dims = CASES[name]
    counts = []
    for copies in (1, 4):
        mine = [tabtorch.cat([a] * copies) for a in to_tab(args, device)]
        counts.append(dispatches(lambda a=mine: tabtorch.vmap(f(tabtorch), in_dims)(*a)))
    assert counts[0] == counts[1] < 20


def test_what_has_no_rule_runs_example_by_example(device: str) -> None:
    """With a warning, once."""
    from tabtorch.func import batch_kernels

    batch_kernels._warned.clear()
    f = tabtorch.vmap(lambda x: tabtorch.nn.functional.ctc_loss(x, tabtorch.tensor([[1, 2]]), (7,), (2,)))
    theirs = torch.vmap(lambda x: torch.nn.functional.ctc_loss(x, torch.tensor([[1, 2]]), (7,), (2,)))
    x = torch.randn(3, 7, 1, 4).log_softmax(-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = theirs(x)
    with pytest.warns(UserWarning, match="performance drop because we have not yet implemented the batching rule"):
        got = f(to_tab(x, device))
    near(want, got)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near(want, f(to_tab(x, device)))


def test_printing(device: str) -> None:
    """Of a batched tensor, of one level and of two."""
    lines: dict[Any, list[str]] = {torch: [], tabtorch: []}
    for t, said in lines.items():
        x = t.arange(6.0, device="cpu").reshape(2, 3)
        t.vmap(lambda x: (said.append(repr(x)), said.append(str(x.sum())), x)[-1])(x)  # noqa: B023
        t.vmap(t.vmap(lambda x: (said.append(repr(x)), x)[-1]))(x)  # noqa: B023
    assert lines[torch] == [line.replace(", device='cpu'", "") for line in lines[tabtorch]]


def test_nothing_is_left_behind(device: str) -> None:
    """After vmap the queues are as they were, and operations cost what they cost."""
    from tabtorch.engine import graph
    from tabtorch.ops.machinery import batching

    x = tabtorch.randn(3, 4)
    tabtorch.vmap(lambda x: x.sin())(x).tolist()
    assert batching.batches == [0] and STATE.levels == () and STATE.nesting == 0
    (x + 1).tolist()
    assert type(graph.queue_of(x._tab_meta.device).nodes) is graph.Nodes
    with pytest.raises(RuntimeError):
        tabtorch.vmap(lambda x: x.sum().item())(x)
    assert STATE.levels == () and STATE.nesting == 0
