"""Programs that were once not the same compiled: each is the smallest that showed one defect. What is compared, and how, is in
fuzz/compiled.py, which found most of them."""

from __future__ import annotations

import pytest

import tabtorch as torch
from fuzz.compiled import judged

TRAINING = """
net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 6))
first = net[0].weight
kept = []
{optimizer}
def step(x, y):
    optimizer.zero_grad({zeroed})
    out = net(x)
    loss = F.mse_loss(out, y)
    loss.backward()
{inside}
    return {returned}
step = compile(step)
def call(i):
    global result, x
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    result = step(x, y)
{after}
"""

INFERENCE = """
kept = []
{top}
@compile
def f(x, y):
{body}
def call(i):
    global result, x
    x, y = torch.randn(4, 6), torch.randn(2, 6)
{before}
    result = f(x, y)
{after}
"""


def training(
    inside: str = "",
    after: str = "pass",
    optimizer: str = "torch.optim.SGD(net.parameters(), lr=0.1)",
    returned: str = "loss",
    zeroed: str = "",
) -> str:
    inside = f"{inside}\noptimizer.step()".strip()
    return TRAINING.format(
        optimizer=f"optimizer = {optimizer}",
        inside="\n".join(f"    {line}" for line in inside.split("\n")),
        after="\n".join(f"    {line}" for line in after.split("\n")),
        returned=returned,
        zeroed=zeroed,
    )


def function(body: str, top: str = "", after: str = "pass", before: str = "pass") -> str:
    return INFERENCE.format(
        top=top,
        before="\n".join(f"    {line}" for line in before.split("\n")),
        body="\n".join(f"    {line}" for line in body.split("\n")),
        after="\n".join(f"    {line}" for line in after.split("\n")),
    )


SGD = "torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)"
ADAM = "torch.optim.Adam(net.parameters(), lr=0.01)"

PROGRAMS = {
    "versions of tensors whose data was replaced": training(
        optimizer="torch.optim.SGD(net.parameters(), lr=0.1)\nfirst.data = first.data * 2"
    ),
    "versions of data that is given": function("x.mul_(2)\nreturn x + y[0]", before="x = x.data"),
    # the clipped gradients are windows onto one buffer, and that buffer is the momentum's first value
    "momentum and clipping": training("nn.utils.clip_grad_norm_(net.parameters(), 0.1)", optimizer=SGD),
    "gradients that are kept": training(after="kept.append([p.grad for p in net.parameters()])"),
    "the state of an optimizer that is kept": training(
        after="kept.append(optimizer.state_dict()['state'])", optimizer=ADAM
    ),
    "a step count that is written to": training(
        after="if i == 4:\n    for s in optimizer.state.values():\n        s['step'].fill_(1.0)", optimizer=ADAM
    ),
    "a state that is cleared": training(after="if i == 3:\n    optimizer.state.clear()", optimizer=ADAM),
    "a copied state that lay where parameters are written": training(
        after="kept.append(copy.deepcopy(optimizer.state_dict()))",
        optimizer="torch.optim.ASGD(net.parameters(), lr=0.05)",
    ),
    "strides of gradients": function(
        "return F.linear(x, w.t()), x.sum() * w.sum()",
        top="w = torch.randn(6, 6, requires_grad=True)",
        after="kept.append(torch.autograd.grad(result[0].sum() + result[1], w))",
    ),
    "a hook that comes and goes": training(
        after="global handle\nif i == 2:\n    handle = first.register_hook(lambda g: g * 0.5)\nif i == 5:\n    handle.remove()"
    ),
    "an argument with hooks and attributes": function(
        "x.sum().backward()\nreturn x * (x.mark if hasattr(x, 'mark') else 1)",
        before="x.requires_grad_()\nif i % 2:\n    x.register_hook(lambda g: kept.append(g))\nelse:\n    x.mark = i",
    ),
    "versions of kept gradients": training(
        "nn.utils.clip_grad_norm_(net.parameters(), 0.1)", after="kept.append(first.grad[:1])"
    ),
    "a gradient that is returned": training(returned="loss, first.grad, first.grad.view(-1)"),
    "an inference tensor": function("with torch.inference_mode():\n    h = x * 2\nreturn h, x.sum()"),
    "another version of an argument": function("return x.data", after="result.add_(1)"),
    "a gradient that stays and is returned": training(returned="first.grad").replace("optimizer.zero_grad()", "pass"),
    "a list that is given and returned": function(
        "return x",
        top="items = [torch.ones(2)]\n@compile\ndef g(xs):\n    return xs, xs[0] * 2",
        after="kept.append(g(items)[0] is items)",
    ),
    "a mode that is changed": function(
        "torch.set_grad_enabled(False)\nreturn x * 2",
        after="kept.append(torch.is_grad_enabled())\ntorch.set_grad_enabled(True)",
    ),
    "an attribute of a function": function("f.n = getattr(f, 'n', 0) + 1\nreturn x * f.n"),
    "an attribute of a tensor": function(
        "x.mark = 3\nw.n = getattr(w, 'n', 0) + 1\nreturn x * w.n", top="w = torch.ones(6)"
    ),
    "a gradient with a history": function(
        "(x @ w).square().sum().backward(create_graph=True)\nreturn x.sum()",
        top="w = torch.randn(6, 6, requires_grad=True)",
        after="kept.append(w.grad.square().sum())\nkept[-1].backward()\nw.grad = None",
    ),
    "a hook that is added inside": function(
        "w.register_hook(lambda g: g * 0.5) if len(kept) == 0 else None\n(x @ w).sum().backward()\nreturn x.sum()",
        top="w = torch.randn(6, 6, requires_grad=True)",
        after="kept.append(w.grad)\nw.grad = None",
    ),
    "a retained gradient": function(
        "(v * x.sum()).sum().backward()\nreturn x.sum()",
        top="w = torch.randn(6, requires_grad=True)\nv = w * 2\nv.retain_grad()",
        before="global v\nv = w * 2\nv.retain_grad()",
        after="kept.append((v.grad, w.grad.clone()))",
    ),
    # one value in two storages, each written over by a function that remembers where it lies
    "two functions and a copy": function(
        "p.add_(1)\nreturn p.sum()",
        top="p = torch.zeros(6)\nc = torch.zeros(6)\n@compile\ndef g():\n    c.mul_(2)\n    c.sub_(1)",
        after="if i % 3 == 2:\n    with torch.no_grad():\n        c.copy_(p)\ng()\nkept.append((p.clone(), c.clone()))",
    ),
    "two batch sizes": training().replace(
        "torch.randn(4, 6), torch.randn(4, 6)", "torch.randn(3 + i % 2, 6), torch.randn(3 + i % 2, 6)"
    ),
    # the gradients are windows onto one buffer, and a layer norm's are written by one launch
    "gradients that are written to where they are": training(
        zeroed="set_to_none=False", after="nn.utils.clip_grad_norm_(net.parameters(), 0.1)"
    ).replace("nn.Tanh()", "nn.LayerNorm(4)"),
    "the value before a write": function("old = C.clone()\nC.add_(1)\nreturn old, C + 1", top="C = torch.zeros(6)"),
    "a view of a parameter": function(
        "return w[1:], w.t(), x @ w",
        top="w = torch.randn(6, 6, requires_grad=True)",
        after="result[0].sum().backward()",
    ),
    "a result that is written to": function(
        "h = (x @ w).tanh()\nreturn h[:2], h[2:].t()",
        top="w = torch.randn(6, 6, requires_grad=True)",
        after="a, b = result\na.mul_(2)\n(a.sum() + b.square().sum()).backward()",
    ),
    "results that lead to each other": function(
        "h = x @ w\nout = h.relu()\nreturn (out.square() + h).mean(), out, out.view(-1), out.t().sum(0)",
        top="w = torch.randn(6, 6, requires_grad=True)",
        after="loss, out, flat, total = result\nout.retain_grad()\nflat.register_hook(lambda g: kept.append(g))\n"
        "total.register_hook(lambda g: g * 2)\n(loss + flat[1:].sum() + total.square().sum()).backward()\nkept.append(out.grad)",
    ),
    "a gradient between two results": function(
        "h = (x @ w)[:3]\nreturn h, h.exp().sum()",
        top="w = torch.randn(6, 6, requires_grad=True)",
        after="kept.append(torch.autograd.grad(result[1], result[0], retain_graph=True))\n(result[1] * 2).backward()",
    ),
    "one of several outputs of a function": function(
        "a, b = (x @ w).chunk(2, 1)\nreturn a, (a * b).sum()",
        top="w = torch.randn(6, 6, requires_grad=True)",
        after="result[0].retain_grad()\nresult[1].backward()\nkept.append(result[0].grad)",
    ),
    "parts of a result": function(
        "return (x @ w).chunk(2, 1)",
        top="w = torch.randn(6, 6, requires_grad=True)",
        after="kept.append([t.is_leaf for t in result])\nif i % 2:\n    result[0].mul_(2)\nresult[1].square().sum().backward()",
    ),
    "parts of an argument": function(
        "return x.split(2, 1), x.unbind()[0].t()",
        before="x.requires_grad_()",
        after="(result[0][0].sum() + result[0][2].square().sum() + result[1].sum()).backward()\nkept.append(x.grad)",
    ),
    "a view of a view, both returned": function(
        "h = (x @ w)[1:]\na, b = h.chunk(2, 1)\nreturn h, h.t(), a, b, a[:1], x.t(), x.t()[1:]",
        top="w = torch.randn(6, 6, requires_grad=True)",
        before="x.requires_grad_()",
        after="for t in result:\n    t.retain_grad()\nsum([t.square().sum() for t in result]).backward()\n"
        "kept.append([t.grad for t in result])",
    ),
    "how the gradient of a view lies": function(
        "return x.t(), x.view_as(x)",
        before="x = x.requires_grad_() * 2\nx.retain_grad()",
        after="kept.append([t.grad_fn.name() for t in result])\nresult[0].square().sum().backward()\nkept.append(x.grad)",
    ),
    "a view of a view that was given": function(
        "return x.t()[1:]",
        before="x = x.requires_grad_()[1:]\nx.retain_grad()",
        after="result.square().sum().backward()\nkept.append(x.grad)",
    ),
    # what eager code comes to after it has no gradient then
    "a hook of a parameter that raises": function(
        "return ((x @ a).relu() @ b).relu() @ a1",
        top="a, b, a1 = (torch.randn(6, 6, requires_grad=True) for _ in range(3))\n"
        "b.register_post_accumulate_grad_hook(lambda p: p.grad)",
        after="result.sum().backward()",
    ),
    # what a plan has as numbers: where arguments begin
    "windows that slide together": function(
        "h = x[1:] * 2\nx[0] += 1\nreturn h.sum(0) + y.sum(0), (x @ w).relu().sum()",
        top="D, w = torch.randn(40, 6), torch.randn(6, 6, requires_grad=True)",
        before="x, y = D[2 * i + 2 : 2 * i + 6], D[2 * i + 3 : 2 * i + 5]",
        after="result[1].backward()\nkept.append(w.grad.clone())",
    ),
    "windows that slide apart": function(
        "return x.sum() + y[1:].sum() * 2",
        top="D = torch.randn(80, 6)",
        before="x, y = D[i + 2 : i + 6], D[i * i + 20 : i * i + 24] if i > 3 else D[i + 20 : i + 24]",
    ),
    "a window and what it is one of": function(
        "return x + D[2:6]", top="D = torch.randn(40, 6)", before="x = D[2 * i + 2 : 2 * i + 6]"
    ),
    "a window that is returned": function(
        "return x.t(), x.sum()",
        top="D = torch.randn(40, 6)",
        before="x = D[2 * i + 2 : 2 * i + 6]",
        after="result[0].mul_(2)",
    ),
    "a function that asks where a window begins": function(
        "return (x * 2 if x.storage_offset() < 40 else x), y * (2 if y.data_ptr() - _p < 160 else 1)",
        top="D = torch.randn(40, 6)\n_p = D.data_ptr()",
        before="x = y = D[2 * i + 2 : 2 * i + 6]",
    ),
    "a place that is not the window's": function(
        "return x.sum() + x.as_strided((2, 2), (6, 1), 3)",
        top="D = torch.randn(40, 6)",
        before="x = D[2 * i + 2 : 2 * i + 6]",
    ),
    "indices that the host knows, in a window": function(
        "return w[x] * 2",
        top="D, w = torch.tensor([0, 1, 2, 3, 5] * 3 + [9] + [0] * 20), torch.randn(6, 6)",
        before="x = D[3 * i + 1 : 3 * i + 5]",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_found(name: str, device: str) -> None:
    assert judged(PROGRAMS[name], 0, torch, device) == []


def test_an_exception_after_a_clip(device: str) -> None:
    """Which waiting values were to be windows is forgotten with the window that they are in."""
    p, q = torch.ones(4, requires_grad=True), torch.ones(2, requires_grad=True)

    @torch.compile
    def step() -> None:
        p.grad = q.grad = None
        ((p * torch.arange(4.0)).sum() + q.sum()).backward()
        torch.nn.utils.clip_grad_norm_([p, q], 1.0, norm_type=1.0)
        raise ValueError("after the clip")

    for _ in range(2):
        kept = torch.ones(3)  # in a window that is shorter than that of the clip
        with pytest.raises(ValueError, match="after the clip"):
            step()
        assert kept.tolist() == [1.0] * 3
        assert q.grad is not None and q.grad.tolist() == pytest.approx([1 / 8, 1 / 8], 1e-4)


def test_a_window_onto_a_state(device: str) -> None:
    """Eager: a buffer that gradients are windows onto is a state's value too, and is not written over in place."""
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.ones(2, 3)).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    optimizer.step()
    assert net.weight.grad is not None
    want = net.weight.grad.clone().tolist()
    state = optimizer.state[net.weight]["momentum_buffer"]
    state[:, 1:2] = 7.0
    assert state[0, 1].item() == 7.0
    assert net.weight.grad.tolist() == want


def test_a_compiled_module_that_has_run_is_part_of_a_compiled_function(device: str) -> None:
    """Its own recordings hold the bridge, of which guards would say that they cannot look inside."""
    m = torch.compile(torch.nn.Linear(3, 2))
    x = torch.ones(4, 3)
    want = m(x).sum()
    outer = torch.compile(lambda x: m(x).sum())
    for _ in range(5):
        assert torch.equal(outer(x), want)
    (entry,) = outer._compiled.entries.values()
    assert entry.why == "" and entry.replays
