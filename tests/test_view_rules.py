"""What PyTorch says of views and writes, case by case: what the fuzzer once found different. See tests/fuzz/aliases.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tabtorch
from fuzz.steps import error_of
from sidebyside import DEVICES, values

#: each ends with what is to be seen: an expression for a tensor, a number, a name or several of them
CASES = {
    "fill_ of an expanded tensor": "x = t.zeros(1).expand(3)\nx.fill_(2)\nx",
    "fill_ of an expanded tensor with a tensor": "x = t.zeros(1).expand(3)\nx.fill_(t.ones(()))",
    "zero_ of an expanded tensor": "x = t.ones(1).expand(3)\nx.zero_()\nx",
    "setitem of an expanded tensor": "x = t.zeros(1).expand(3)\nx[...] = 1.",
    "masked_fill_ of an expanded tensor": "x = t.zeros(1).expand(3)\nx.masked_fill_(t.tensor([True] * 3), 1.)\nx",
    "scatter_ into an expanded tensor": "x = t.zeros(1).expand(3)\nx.scatter_(0, t.tensor([0]), 1.)",
    "scatter_add_ of what it reads": "x = t.ones(3)\nx.scatter_add_(0, t.tensor([0, 1, 2]), x)",
    "index_add_ of an overlapping part": "x = t.ones(4)\nx[:3].index_add_(0, t.tensor([0, 1, 2]), x[1:])",
    "an operand of another type that overlaps": "x = t.ones(4)\nx.view(t.int32).add_(x[1:3].view(t.int32).repeat(2)[:4])\nx",
    "write to one of several views": "a, b = (t.ones(4, requires_grad=True) * 1).split(2)\na.add_(1)",
    "use of one of several views after a write": "x = t.ones(4, requires_grad=True) * 1\na, b = x.split(2)\nx.add_(1)\na * 2",
    "a write with no grad makes views look again": """
        x = t.ones(4, requires_grad=True) * 1
        v = x[1:]
        with t.no_grad():
            x.mul_(2)
        v.grad_fn.name()""",
    "a no_grad view of what requires grad": """
        x = t.ones(3, requires_grad=True)
        with t.no_grad():
            v = x[1:]
        y = v * 2
        y.sum().backward()
        v.requires_grad, v.is_leaf, v.grad_fn is None, y.grad_fn.next_functions[0], x.grad is None, v.grad is None""",
    "a view of a no_grad view": """
        x = t.ones(3, requires_grad=True)
        with t.no_grad():
            v = x.t()
        v[1:].mul_(2)""",
    "requires_grad_ of a base": "x = t.zeros(3)\nv = x[1:]\nx.requires_grad_()\nv.requires_grad, v.is_leaf, (v * 2).grad_fn.name()",
    "a stale view that had no history": "x = t.zeros(3)\nv = x[1:]\nx.add_(t.ones(3, requires_grad=True))\nv.mul_(2)",
    "a write of what requires grad to a chunk": "a, b = t.zeros(4).chunk(2)\na.copy_(t.ones(2, requires_grad=True))",
    "a write to an inference view": """
        x = t.zeros(3)
        with t.inference_mode():
            v = x[1:]
        v.add_(t.ones(2, requires_grad=True))""",
    "data of an inference tensor": """
        with t.inference_mode():
            x = t.zeros(3)
        x.data.add_(1)
        x""",
    "a write to a real part, recorded": """
        x = t.ones(2, dtype=t.complex64, requires_grad=True)
        y = x * (1 + 2j)
        y.real.mul_(3)
        (y * (2 - 1j)).real.sum().backward()
        x.grad""",
    "a real part after a write": """
        x = t.ones(2, dtype=t.complex64, requires_grad=True)
        y = x * 1
        r = y.imag
        y.mul_(1j)
        (r * t.tensor([1., 2.])).sum().backward()
        x.grad, r.grad_fn.name()""",
    "view as another type is not followed": "x = t.ones(4, requires_grad=True)\nv = x.view(t.float32)\nv.requires_grad, v._is_view()",
    "in-place transposition": "x = t.ones(2, 3, requires_grad=True) * 1\nx.transpose_(0, 1)\nx.grad_fn.name(), x._version, x.shape",
    "in-place squeeze of a leaf": "t.ones(1, requires_grad=True).squeeze_()",
    "comparison in place": "x = t.ones(2, requires_grad=True) * 1\nx.gt_(0.5)\nx.grad_fn.name()",
    "comparison in place of a leaf": "t.ones(2, requires_grad=True).gt_(0.5)",
    "cumsum_": "x = t.ones(3, requires_grad=True) * 1\nx.cumsum_(0)\nx.sum().backward()\nx.grad_fn.name()",
    "a mask that changed": "x = t.ones(3, requires_grad=True)\nm = t.tensor([True] * 3)\ny = x[m]\nm.zero_()\ny.sum().backward()",
    "an index that changed": "x = t.ones(3, requires_grad=True)\ni = t.tensor([1])\ny = x[i]\ni.zero_()\ny.sum().backward()",
    "a half that changed": "x = t.ones(3, dtype=t.half, requires_grad=True) * 1\ny = x * x\nx.add_(1)\ny.sum().backward()",
    "div_ and a later write": "y = t.ones(3, requires_grad=True)\nx = t.ones(3)\nx.div_(y)\nx.mul_(2)\nx.sum().backward()\ny.grad",
    "unsafe_chunk": "a, b = (t.ones(4, requires_grad=True) * 1).unsafe_chunk(2)\na.mul_(2)\na._is_view(), a._version, b._version",
    "out= that is too small keeps its memory": "x = t.zeros(4)\nv = x[1:2]\nt.add(t.ones(3), 1, out=v)\nx",
    "out= that requires grad": "t.add(t.ones(3), 1, out=t.ones(3, requires_grad=True) * 1)",
    "out= of a comparison": "t.eq(t.ones(3, requires_grad=True), 1, out=t.zeros(3))",
    "out= that is also read cannot grow": "x = t.ones(1)\nt.add(x, t.ones(3), out=x)",
    "broadcast_tensors of one shape": "x = t.ones(2)\nt.broadcast_tensors(x, t.ones(2))[0] is x",
    "resize_ counts": "x = t.ones(2)\nx.resize_(2)\na = x._version\nx.resize_(1)\na, x._version",
    "a gradient lies as its leaf": "x = t.ones(3, 2).t().requires_grad_()\n(x.contiguous() * 2).sum().backward()\nx.grad.stride()",
    "an index with tensors lies as what it reads": "x = t.ones(3, 4, 2).permute(2, 0, 1)\nx[t.tensor([0, 1])].stride()",
    "a number beside a tensor with odd strides": "x = t.zeros(9).as_strided((1, 3), (1, 1))\n(x + 1).stride(), x.sin().stride()",
    "zeros_like of odd strides": "t.zeros_like(t.zeros(9).as_strided((1, 3), (7, 1))).stride()",
    "flip of columns": "t.ones(2, 3).t().flip(0).stride(), t.ones(4, 6)[:, ::2].t().flip(0).stride()",
    "views of a base whose places come to share memory": """
        x = t.arange(6.).requires_grad_()
        a = x * 1
        b, c = a.view(2, 3), a[1:]
        a.as_strided_((2, 3), (3, 0), 1)
        [t.autograd.grad((y * y.detach()).sum(), x, retain_graph=True)[0] for y in (a, b, c)]""",
    "slice_scatter keeps the place": "t.ones(4)[2:].slice_scatter(t.zeros(1), 0, 0, 1).storage_offset()",
    "movedim of nothing": "t.ones((), requires_grad=True).movedim(0, 0).grad_fn.name()",
    "slices that leave out nothing": """
        x = t.ones(3, 3, requires_grad=True)
        x[:, :].grad_fn.name(), x[:].grad_fn.name(), x[-3:, 0:3].grad_fn.name()""",
    "a full slice of a leaf is the leaf": "x = t.ones(3, requires_grad=True)\nx[:] = 1.",
    "one place of a leaf is a view of it": "x = t.ones(3, requires_grad=True)\nx[0] = 1.",
    "x[None] = x": "x = t.ones(3)\nx[None] = x\nx",
    "index in a tuple": "t.ones(2, 0)[None, ..., 0]",
    "slice of no dimension": "t.ones(())[:]",
}


def seen(source: str, lib: Any, device: str) -> Any:
    lines = list(source.strip("\n").split("\n"))
    indent = len(lines[0]) - len(lines[0].lstrip())
    lines = [line[indent:] for line in lines]
    names: dict[str, Any] = {"t": lib}
    try:
        exec("\n".join(lines[:-1]), names)
        try:
            r = eval(lines[-1], names)
        except SyntaxError:
            exec(lines[-1], names)
            r = None
    except Exception as e:
        return tuple(error_of(e))
    return shown(r)


def shown(r: Any) -> Any:
    if hasattr(r, "requires_grad"):
        return list(r.shape), str(r.dtype)[6:], r.requires_grad, values(r).tolist()
    return [shown(x) for x in r] if isinstance(r, (tuple, list)) else r


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str, device: str) -> None:
    want = seen(CASES[name], torch, "cpu")
    with tabtorch.device(device):
        got = seen(CASES[name], tabtorch, device)
    assert got == want
