"""View operations against real PyTorch: shapes, strides, values, errors, names of backward nodes, gradients."""

from __future__ import annotations

import pytest
import torch

import tabtorch
from sidebyside import DEVICES, compare, same, to_tab


def inputs() -> dict[str, torch.Tensor]:
    x = torch.arange(12.0).reshape(3, 4).requires_grad_()
    y = torch.arange(24.0).reshape(2, 3, 4).requires_grad_()
    z = torch.tensor(1.5).requires_grad_()
    c = torch.complex(torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)).requires_grad_()
    i = torch.arange(12).reshape(3, 4)
    return {"x": x, "y": y, "z": z, "c": c, "i": i, "e": torch.zeros(0, 3), "one": torch.zeros(1, 3, 1, 2)}


VIEWS = """
x.view(12); x.view(2, 6); x.view(-1, 3); x.view((4, 3)); x.view(torch.Size([2, 2, 3])); x.view(5); x.view(-2)
x.view(-1, -1); x.view(-1, 5); e.view(-1, 0); x.t().view(12); e.view(3, 0); y.transpose(0, 1).view(3, 8)
y.transpose(1, 2).view(2, 2, 2, 3); x.view(torch.int32); x.view(torch.int16).shape; x.t().view(torch.int16)
z.view(torch.int16); i.view(torch.int32); x.view_as(torch.zeros(2, 6)); x.reshape(12); x.reshape(5)
x.t().reshape(12); x.t().reshape(2, 6); z.reshape(1, 1); x.reshape(-1); x.reshape_as(torch.zeros(4, 3))
torch.reshape(x, (2, 6)); y.flatten(); y.flatten(1); y.flatten(0, 1); y.transpose(0, 1).flatten(); z.flatten()
x.flatten(1, 0); x.ravel(); z.ravel(); x.t().ravel(); x.unflatten(1, (2, 2)); x.unflatten(1, (-1, 2))
x.unflatten(1, (3, 2)); x.unflatten(1, (-1, 3)); x.unflatten(1, ()); x.unflatten(0, (3, 1)); x.contiguous()
x.t().contiguous(); one.squeeze(); one.squeeze(0); one.squeeze(1); one.squeeze(-2); one.squeeze((0, 2))
x.squeeze(2); x.squeeze((0, 0)); y.squeeze((0, 5)); z.squeeze(0); x.unsqueeze(0); x.unsqueeze(-1); x.unsqueeze(1)
x.unsqueeze(3); x.unsqueeze(-4); z.unsqueeze(0); x.expand(2, 3, 4); x.expand(2, -1, -1); x.expand(3); x.expand(5, 4)
x.expand(-1, 3, 4); one.expand(2, 3, 5, 2); z.expand(2, 3); x.expand_as(torch.zeros(2, 3, 4))
x.broadcast_to((2, 3, 4)); x.broadcast_to((2, 3)); x.broadcast_to(2, 3, 4); torch.broadcast_to(z, (2,))
x.broadcast_to(2, 3, 4, foo=1); x.broadcast_to(); x.broadcast_to(size=(2, 3, 4)); x.expand(2, 3, 4, foo=1); x.expand(size=(2, 3, 4))
torch.broadcast_tensors(x, z, torch.zeros(2, 1, 1)); torch.broadcast_tensors(x, torch.zeros(3)); torch.atleast_1d(z)
torch.atleast_2d(z, x[0]); torch.atleast_3d(x); torch.atleast_3d(z, x[0], x, y); x.transpose(0, 1)
y.transpose(0, 2); y.transpose(-1, 0); x.transpose(0, 2); z.transpose(0, 1); z.transpose(0, 0); x.swapaxes(0, 1)
x.swapdims(0, 5); x.permute(1, 0); y.permute(2, 0, 1); y.permute((-1, 0, 1)); x.permute(0); x.permute(0, 0)
x.permute(0, 2); torch.permute(y, (1, 2, 0)); x.t(); z.t(); y.t(); x[0].t(); x.T; y.mT; x.H; y.H; c.H; c.adjoint()
x.adjoint(); x[0].adjoint(); y.mH; y.movedim(0, 2); y.movedim((0, 1), (2, 0)); y.moveaxis(0, -1)
x.movedim((0, 1), (0,)); x.movedim((0, 0), (0, 1)); x.select(0, 1); x.select(1, -1); y.select(-1, 2); x.select(0, 3)
z.select(0, 0); x.select(3, 0); x.narrow(0, 1, 2); x.narrow(1, -2, 2); x.narrow(0, 0, 4); x.narrow(0, 4, 0)
x.narrow(0, 0, -1); x.narrow(0, -5, 1); z.narrow(0, 0, 1); x.narrow(0, torch.tensor(1), 1); x.unfold(1, 2, 1)
x.unfold(1, 3, 1); x.unfold(0, 2, 1); y.unfold(2, 2, 2); x.unfold(0, 5, 1); x.unfold(0, 2, 0); x.unfold(0, -1, 1)
x.unfold(1, 2, 3); z.unfold(0, 1, 1); x.diagonal(); x.diagonal(1); x.diagonal(-1); x.diagonal(5)
y.diagonal(0, 1, 2); y.diagonal(1, 0, 2); y.diagonal(-1, 2, 0); x.diagonal(0, 0, 0); z.diagonal()
x.as_strided((2, 2), (1, 2)); x.as_strided((2, 2), (1, 1), 3); x.as_strided((2, 2), (1,)); x.as_strided((20,), (1,))
x.as_strided((2,), (-1,)); x.t().as_strided((3,), (4,)); x.as_strided((3, 3), (0, 2)); x.split(1); x.split(2)
x.split(2, 1); x.split((1, 2)); x.split([1, 3], dim=1); x.split(0); x.split((1, 1)); x.split(-1); x.split((4, -1))
z.split(1); x.split(7); e.split(2); x.chunk(2); x.chunk(3, 1); x.chunk(5, 1); x.chunk(0); z.chunk(1)
x.tensor_split(2); x.tensor_split(3, 1); x.tensor_split((1, 2), 1); x.tensor_split([2]); x.tensor_split(0)
z.tensor_split(2); x.hsplit(2); x.hsplit(3); x.vsplit(3); x.vsplit(2); z.hsplit(2); y.dsplit(2); x[0].hsplit(2)
x[0].vsplit(1); x.hsplit([1, 2]); x.unbind(); x.unbind(1); y.unbind(-1); z.unbind(); x.unbind(2); e.unbind()
torch.view_as_real(c); torch.view_as_real(x); torch.view_as_complex(y.reshape(3, 4, 2)); torch.view_as_complex(x)
torch.view_as_complex(x[:, :2]); torch.view_as_complex(i); c.real; c.imag; x.real; x.imag; torch.real(c)
torch.imag(c); x.detach(); torch.broadcast_shapes((2, 1), (3,)); x.T.T.view(12); x.t().unsqueeze(1).transpose(0, 2)
y[:, 1].t().view(-1, 2); y.permute(2, 0, 1).flatten(1); x.unfold(1, 2, 1).flatten(1)
x.expand(2, 3, 4).reshape(6, 4); x.t()[1:3].unflatten(1, (3, 1)); x.flatten().unflatten(0, (2, 6)).t()
"""
EXPRESSIONS = [e.strip() for line in VIEWS.strip().split("\n") for e in line.split(";")]


@pytest.mark.parametrize("device", DEVICES)
def test_against_torch(device: str) -> None:
    wrong = []
    for e in EXPRESSIONS:
        try:
            compare(e, inputs, device)
        except Exception as err:  # all of them are wanted in one report
            wrong.append(f"{e}\n    {type(err).__name__}: {str(err).strip()[:400]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", DEVICES)
def test_views_share_memory(device: str) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    y = to_tab(x, device)
    for f in (
        lambda t: t.transpose(0, 2)[1],
        lambda t: t.reshape(6, 4)[::2],
        lambda t: t.diagonal(0, 1, 2),
        lambda t: t.unfold(2, 2, 2)[0],
        lambda t: t.flatten()[5:9],
        lambda t: t.split(1, 2)[3],
    ):
        f(x).mul_(2).add_(1)
        f(y).mul_(2).add_(1)
        same(x, y)


def test_view_of_a_view_is_one_lookup() -> None:
    from tabtorch.core import shapes

    x = tabtorch.zeros(3, 4)
    assert x.transpose(0, 1)._tab_meta is x.transpose(0, 1)._tab_meta
    assert x.t().t()._tab_meta is x._tab_meta
    assert shapes.transposed(x._tab_meta, 0, 1) is x.t()._tab_meta
    assert x[1:, None, 2]._tab_meta is x[1:, None, 2]._tab_meta


def test_views_compute_nothing() -> None:
    from tabtorch.engine import graph

    x = tabtorch.zeros(3, 4)
    graph.flush()
    before = {q: len(q.nodes) for q in graph.all_queues()}
    x.t().reshape(2, 2, 3) if False else x.t()[1:].unsqueeze(0).expand(5, 3, 3).squeeze().diagonal()
    x.view(2, 6).split(2, 1)
    assert before == {q: len(q.nodes) for q in graph.all_queues()}


def test_base_and_double_backward() -> None:
    x = tabtorch.arange(6.0).requires_grad_()
    y = x * 1
    v = y.view(2, 3)[1]
    assert v._base is y and v._is_view() and not y._is_view()
    g = tabtorch.autograd.grad((v**3).sum(), x, create_graph=True)[0]
    gg = tabtorch.autograd.grad(g.sum(), x)[0]
    assert gg.tolist() == [0.0, 0.0, 0.0, 18.0, 24.0, 30.0]


def test_names_of_the_arguments_of_both_forms() -> None:
    x, y = torch.arange(12.0).reshape(2, 3, 2), tabtorch.arange(12.0, device="cpu").reshape(2, 3, 2)
    for m, t in ((torch, x), (tabtorch, y)):
        found = [
            *m.tensor_split(t, sections=2, dim=1), *m.tensor_split(t, indices=(-1,), dim=-3), *t.hsplit(sections=3),
            *m.tensor_split(t, tensor_indices_or_sections=m.tensor([1]), dim=2), *m.vsplit(t, indices=[1]), *t.dsplit(sections=2),
            m.swapaxes(t, axis0=0, axis1=2), t.swapdims(dim0=0, dim1=1), m.isin(elements=t, test_element=3),
            m.isin(element=3.0, test_elements=t),
        ]  # fmt: skip
        shown = [(tuple(v.shape), v.tolist()) for v in found]
        kind = str(m.result_type(tensor=t, other=1))
        if m is torch:
            want = shown, kind
    assert want == (shown, kind)
