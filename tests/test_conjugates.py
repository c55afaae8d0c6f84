"""Conjugates and negatives that are views: what PyTorch says of them, case by case. In the style of test_view_rules.py."""

from __future__ import annotations

import pytest
import torch

import tabtorch
from sidebyside import DEVICES
from tabtorch.engine import graph
from test_view_rules import seen

SETUP = """x = t.tensor([1 + 2j, 3 - 4j])
m = t.tensor([[1 + 2j, 3 - 4j], [-1 + 1j, 2 + .5j]])
r, i, w = t.tensor([1., -2.]), t.tensor([1, -2]), t.tensor([1 + 2j, 3 - 4j], requires_grad=True)
y, n, c = x.conj(), x.conj().imag, m.conj()
"""
#: each row of a case is an expression: what it gives, and what `x` or `m` are then
ROWS = {
    "what it is": """
        y.is_conj(), x.is_conj(), y._is_view(), y._base is x, y.data_ptr() == x.data_ptr(), y.is_contiguous(), y.stride()
        n.is_neg(), n._is_view(), n.data_ptr() - x.data_ptr(), n.stride(), y.real.is_neg(), y.real.data_ptr() == x.data_ptr()
        y.conj().is_conj(), y.conj()._is_view(), y.conj() is x, y.conj().imag.is_neg(), y.conj()._base is x
        r.conj() is r, i.conj() is i, r.resolve_conj() is r, r.resolve_neg() is r, x.resolve_conj() is x, t.real(r) is r
        t.is_conj(y), t.is_neg(n), t.conj(y), t.conj_physical(y), t.resolve_conj(y), t.resolve_neg(n), y.conj_physical()
        y.is_set_to(x), t.equal(y, x), t.equal(y, x.conj()), x.conj_physical()
        t.zeros(0, dtype=t.complex64).conj(), t.zeros(0, dtype=t.complex64).conj().imag
        [f(t._neg_view(x)) for f in (t.real, t.imag, t.conj, t.view_as_real, t.resolve_conj, lambda z: z.conj().imag)]
        t._neg_view(i), t._neg_view(r).contiguous(), t._neg_view(t._neg_view(r)), t.view_as_complex(t._neg_view(r[None]))
        """,
    "what keeps the mark": """
        y.detach(), y.data, y[1:], y.view(2, 1), y.reshape(1, 2), y.contiguous(), y.to(t.complex64)
        c.t(), c.mT, c.transpose(0, 1), c.permute(1, 0), c[None], c.expand(2, 2, 2), c.diagonal(), c.flatten(), c.squeeze()
        c.unbind()[0], c.split(1)[1], c.movedim(0, 1), c.as_strided((2,), (1,), 1), c.unfold(0, 2, 1), c.narrow(1, 1, 1)
        c.view_as(m), c.positive(), c.ravel(), t.atleast_3d(c), c.chunk(2)[1], c.select(0, 1), c.T, list(c)[1], c[..., 0]
        m.mH, m.H, m.adjoint(), c.mH, c.H, c.adjoint()
        t.as_tensor(y), t.nn.Parameter(y), n[1:], n.detach(), n[None]
        """,
    "what does not": """
        y.clone(), c.t().contiguous(), y.resolve_conj(), n.clone(), n.resolve_neg(), y.to(t.complex64, copy=True), t.tensor(y)
        c.flip(0), c[t.tensor([0])], c.roll(1), c.repeat(1, 2), t.cat([c, c]), t.stack([c, m]), t.where(r > 0, c, m)
        t.empty_like(c).is_conj(), t.zeros_like(c), c.new_zeros(2), t.view_as_real_copy(y), y.float(), y.bool(), n.int()
        """,
    "what reads it": """
        c + 1, -c, c * m, c == m, c @ m, t.mv(c, x), t.dot(y, x), t.vdot(y, x), t.einsum("ij,kj->ik", c, m), c.sum(0), c.prod()
        c.cumsum(0), c.cumprod(1), (c.abs() ** 2).round(), c.mean(), t.trace(c), c.index_select(0, t.tensor([1])), c.take(t.tensor([1]))
        c.gather(0, t.tensor([[1, 0]])), c[c.real > 1], c.masked_fill(c.real > 1, 1j), c.tril(), c.nonzero(), t.kron(c, m)
        t.addmm(c, m, c.mH), t.outer(y, x), t.block_diag(c, m), t.fft.fft(t.eye(2) * c).abs(), t.linalg.norm(c) ** 2
        n + 1, abs(n), n.sum(), n.max(), n.sort(), n.argsort(), n.floor(), n * i, t._neg_view(i) // 2, t._neg_view(i).sum()
        c.tolist(), c[1, 0].item(), complex(y[0]), float(n[1]), int(n[1]), n.tolist(), repr(c), str(n), f"{y[0]}"
        """,
    "what is no view of it": """
        t.view_as_real(y)
        y.view(t.float32)
        y.view(t.complex64)
        n.view(t.int32)
        y.numpy()
        n.numpy()
        y.detach_()
        """,
    "gradients": """
        w.conj(), w.conj().grad_fn.name(), w.conj().conj().grad_fn.name(), w.conj_physical().grad_fn.name()
        w[None].mH.grad_fn.name(), w[None].mH.grad_fn.next_functions[0][0].name(), w.conj().resolve_conj().grad_fn.name()
        w.conj().imag.grad_fn.name(), w.conj().imag.grad_fn.next_functions[0][0].name(), w.conj().real.grad_fn.name()
        t.autograd.grad((w.conj() * w.conj() * x).real.sum(), w)
        t.autograd.grad(w.conj(), w, x)
        t.autograd.grad(w.conj().imag, w, r)[0].resolve_conj()
        t.autograd.grad(w.conj().real, w, r)[0].resolve_conj()
        t.autograd.grad(w.conj_physical(), w, x)
        t.autograd.grad(t.view_as_complex(t.view_as_real(w)).conj(), w, x)[0].resolve_conj()
        w.conj().mul_(2)
        """,
    "vmap and forward mode": """
        t.func.vmap(lambda a: a.conj() * a)(m), t.func.vmap(lambda a: a * a.sum())(c), t.func.vmap(t.conj)(m).resolve_conj()
        t.func.grad(lambda a: (a.conj() * a).real.sum())(x)
        t.func.jvp(lambda a: a.conj() * (2 + 1j), (x,), (x,))[1], t.func.jvp(lambda a: a.conj().imag * 2, (x,), (x * 1j,))[1]
        """,
}
CASES = {
    "in place": "y.mul_(2j), x, y._version, x._version",
    "an item": "y[0] = 1j\nx, y",
    "numbers": "y.fill_(1j)\nn.mul_(2)\nx",
    "parts": "y.real = r\ny.imag = r * 3\nx",
    "of itself": "y.mul_(y)\nx.add_(y)\ny.copy_(x)\nx",
    "copies": "y.copy_(t.tensor([1j, 2j]))\nn.copy_(t.tensor([5, 6]))\nx",
    "out=": "t.add(x, 1, out=y)\nt.mul(r, 3, out=n)\nt.conj_physical(x * 1, out=m[0].conj())\nx.resolve_conj(), m",
    "conj_physical_": "y.conj_physical_()\nx, y",
    "a matrix": "c.t().mul_(1j)\nc.addmm_(m * 1, m * 1)\nc.cumsum_(0)\nm",
    "indices": """c[t.tensor([0])] = 3j
c.index_fill_(0, t.tensor([1]), 2j).index_add_(0, t.tensor([1]), m[:1] * 1).scatter_(0, t.tensor([[1, 0]]), m[:1] * 1)
c.index_put_((t.tensor([0]), t.tensor([1])), t.tensor(5j), accumulate=True)
c.masked_fill_(t.tensor([[True, False], [False, False]]), 2j).put_(t.tensor([3]), t.tensor([1j]))
m""",
    "the base": "x.mul_(1j)\nx.real.add_(5)\ny, n",
    "views of views": "z = c.t()[1:].conj().imag\nz.add_(1)\nc[:, 1].conj().mul_(2)\nm, z, z.is_neg()",
    "shapes in place": "c.t_()\ny.unsqueeze_(0)\nz = x.conj()\nz.as_strided_((1,), (1,), 1)\nc, y, z",
    "other memory": "z = t.zeros(2, dtype=t.complex64)\nz.data = y\ny.set_(m)\na = t.ones(1) * 1j\na.set_(m.conj())\nz, y, a",
    "copies of objects": """import copy, pickle
a, b, d = copy.copy(y), copy.deepcopy(y), pickle.loads(pickle.dumps(y))
x.add_(1j)
a, b, d""",
    "saved": """import io
f = io.BytesIO()
t.save([x, y, m.mH], f)
f.seek(0)
a, b, d = t.load(f)
a.mul_(1j)
a, b, d""",
    "a write through a recorded view": """z = w * 1
v = z.conj()
v.mul_(2j)
v.imag.add_(z.real)
(z * (1 - 2j)).real.sum().backward()
v.grad_fn.name(), z.grad_fn.name(), w.grad.resolve_conj()""",
    "an item of a recorded view": "z = w * 1\nz.conj()[0] = w[1] * 2j\n(z * (1 - 2j)).real.sum().backward()\nw.grad.resolve_conj()",
    "a recorded view after a write": """z = w * 1
v, u = z.conj(), z.conj()[1:].imag
z.mul_(2j)
((v * v).real.sum() + u.sum()).backward()
v.grad_fn.name(), u.grad_fn.name(), w.grad.resolve_conj()""",
    "a base that is one": "b = y.detach()\nv = t.view_as_real(b.conj())\nb.mul_(w)\nv.sum().backward()\nw.grad.resolve_conj()",
    "recorded views of views after a write": """z = w * 1
v, u = z.conj().conj(), z._neg_view()._neg_view().conj()._neg_view()
z.mul_(2j)
((v * v).real.sum() + (u * (1 + 3j)).real.sum()).backward()
w.grad.resolve_conj()""",
    "a view that changed": "z = w * 1\nv = z.conj()\nu = v * v\nz.mul_(2)\nu.real.sum().backward()",
    "a leaf that is one": "p = c.requires_grad_()\n(p @ m).abs().sum().backward()\np.grad.is_conj(), p.is_leaf, p",
    "a gradient of a gradient": """g, = t.autograd.grad((w.conj() * w.conj() * w).real.sum(), w, create_graph=True)
t.autograd.grad((g * g).real.sum(), w)[0].resolve_conj()""",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*ROWS, *CASES])
def test_as_pytorch(name: str, device: str) -> None:
    rows = [row.strip() for row in ROWS[name].strip().split("\n")] if name in ROWS else [CASES[name]]
    for row in rows:
        want = seen(SETUP + row, torch, "cpu")
        with tabtorch.device(device):
            assert seen(SETUP + row, tabtorch, device) == want, row


def test_conjugates_fuse(device: str) -> None:
    """A conjugate costs no kernel of its own, and is no reason to begin one: it is read where what it is of is made."""
    launches = []
    for seen_as in (lambda z: z, lambda z: z.conj()):
        z = tabtorch.randn(4, 8, dtype=tabtorch.complex64, device=device)
        graph.flush()
        e = z.exp()
        out = e, seen_as(e).abs(), (seen_as(e) * 2).sum(1), seen_as(e.sum(1)) * 3
        graph.flush()
        launches.append(len(next(reversed(graph._plans.values())).steps))
        del e, out
    assert launches[0] == launches[1]
