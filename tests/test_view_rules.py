"""What PyTorch says of views and writes, case by case: what the fuzzer once found different. See tests/fuzz/aliases.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tabtorch
from fuzz.steps import error_of
from sidebyside import DEVICES, values

#: a tensor of integers that requires grad
WRITTEN_BY_LT = "x, y = t.ones(2, requires_grad=True) * 1, t.ones(2, dtype=t.int64)\ny.lt_(x)\n"
#: a result, and what is then written to
CHANGED = """y = {}
with t.no_grad():
    for changed in ({},):
        changed.add_(1)
(y[0] if type(y) is not t.Tensor else y).sum().backward()"""
#: whether the gradient of the square of a part requires grad
GRAD_OF_PART = """x = t.zeros(2, 2, requires_grad=True)
y = {}
t.autograd.grad((y * y).sum(), x, create_graph=True)[0].requires_grad"""

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
    "what a comparison wrote to, in a new result": WRITTEN_BY_LT + "y + 1",
    "what a comparison wrote to, seen": WRITTEN_BY_LT + "y[0]",
    "what a comparison wrote to, kept before a write": WRITTEN_BY_LT + "y.erf_()",
    "what a comparison wrote to, with nothing kept": WRITTEN_BY_LT + "y.add_(1)\ny.grad_fn.name()",
    "set_ counts, and versions stay its own": """
        x, y = t.zeros(3), t.ones(2)
        y.add_(1)
        x.set_(y)
        y.add_(1)
        a = x._version, y._version
        x.set_()
        a, x._version""",
    "data that is set brings no versions": """
        x, y = t.zeros(3), t.ones(2)
        v = y[:]
        y.add_(1)
        x.data = y
        x[1:].mul_(3)
        x._version, y._version, v._version, v""",
    "a write through data that is set leaves views alone": """
        x, y = t.zeros(4), t.ones(2, requires_grad=True)
        (v,) = y.split(2)
        x.data = y
        x[None].add_(1)
        v * 2""",
    "data of an inference tensor, in that mode": """
        with t.inference_mode():
            x = t.zeros(3).data
        x.add_(1)""",
    "a result is kept for any operand": "x = t.ones(3, requires_grad=True)\n"
    + CHANGED.format("t.ones(3).copysign(x)", "y"),
    "what two gradients need is kept": "x, z = t.ones(3, requires_grad=True), t.ones(3)\n"
    + CHANGED.format("x.addcdiv(z, z)", "z"),
    "what one gradient needs is kept for that": "x, z = t.ones(3, requires_grad=True), t.ones(3)\n"
    + CHANGED.format("x.mul(z)", "x"),
    "the divisor of a rounded quotient": "x, z = t.ones(3, requires_grad=True), t.ones(3)\n"
    + CHANGED.format("t.div(x, z, rounding_mode='floor')", "z"),
    "logaddexp2 keeps no result": "x = t.ones(3, requires_grad=True)\n" + CHANGED.format("t.logaddexp2(x, x)", "y"),
    "sinc keeps no result": "x = t.ones(3, requires_grad=True)\n" + CHANGED.format("x.sinc()", "y"),
    "erfinv keeps no result": "x = t.zeros(3, requires_grad=True)\n" + CHANGED.format("x.erfinv()", "y"),
    "gather notices its input": "x, i = t.ones(3, requires_grad=True), t.tensor([1])\n"
    + CHANGED.format("x.gather(0, i)", "x"),
    "take notices its input": "x, i = t.ones(3, requires_grad=True), t.tensor([1])\n"
    + CHANGED.format("x.take(i)", "x"),
    "put notices its source": "x, i = t.ones(1, requires_grad=True), t.tensor([1])\n"
    + CHANGED.format("t.ones(3).put(i, x)", "x"),
    "index_add notices its source": "x, i = t.ones(1, requires_grad=True), t.tensor([1])\n"
    + CHANGED.format("t.ones(3).index_add(0, i, x)", "x"),
    "index_copy notices its source": "x, i = t.ones(1, requires_grad=True), t.tensor([1])\n"
    + CHANGED.format("t.ones(3).index_copy(0, i, x)", "x"),
    "index_add_ notices a view of its source": """
        x, i = t.ones(2, requires_grad=True) * 1, t.tensor([0, 1])
        y = t.ones(3).index_add_(0, i, x[:])
        x.cumsum_(0)
        y.sum().backward()""",
    "index_select of a scalar notices its index": "x, i = t.ones((), requires_grad=True), t.tensor([0])\n"
    + CHANGED.format("x.index_select(0, i)", "i"),
    "no function made indices": "x = t.ones(3, requires_grad=True)\n" + CHANGED.format("x.sort()", "y[1]"),
    "the first by name is told, of a product": "x = t.ones(3, 3, requires_grad=True)\nz = t.ones(3, 1, requires_grad=True)\n"
    + CHANGED.format("x.mm(z)", "x, z"),
    "copy_ of a view that cannot be used, to its base": """
        x = t.ones(4, requires_grad=True) * 1
        a, b = x.split(2)
        x.abs_()
        x.copy_(b.expand(2, 2).reshape(4)[:1])
        x.copy_(b)""",
    "resize_ of a view, in inference mode": """
        x = t.ones(2, requires_grad=True)
        with t.inference_mode():
            n = x[:].resize_(1).shape
        n""",
    "the first by name is told": "x = t.ones(3, requires_grad=True)\nz = t.ones(2, 3, requires_grad=True)\n"
    + CHANGED.format("x * z", "x, z"),
    "what copy_ made, in an error": "x, z = t.ones(3, requires_grad=True), t.ones(3)\nz.copy_(x)\n"
    + CHANGED.format("z * z", "z"),
    "a view that is to be made anew, in an error": "x = t.ones(3, requires_grad=True) * 1\nv = x[1:]\n"
    + CHANGED.format("v * v", "x"),
    "what wrote to a view, in an error": "x = t.ones(3, requires_grad=True) * 1\nv = x[1:]\n"
    + CHANGED.format("v.sigmoid_()", "v"),
    "a mask of no dimension counts as it was": """
        x, m = t.ones(2, requires_grad=True) * 1, t.tensor(True)
        x[m] = 2.
        m.zero_()
        x.sum().backward()
        x""",
    "what was detached in place and is needed": """
        x = t.ones(2, requires_grad=True) * 1
        y = x * x + t.mv(t.ones(2, 2, requires_grad=True), x)
        x.detach_()
        y.sum().backward()""",
    "a function of several keeps what was detached in place": """
        x = t.ones(2, requires_grad=True) * 1
        y = t.mv(t.ones(2, 2, requires_grad=True), x)
        x.detach_()
        y.sum().backward()""",
    "views of what was detached in place": """
        x = t.zeros(2)
        v = x[:]
        x.requires_grad_()
        x.detach_()
        v.requires_grad""",
    "a leaf that was detached and written to": """
        x = t.ones(2, requires_grad=True)
        y, z = x * 1, t.ones(2, requires_grad=True) * 1
        x.detach_()
        x.copy_(z)
        y.sum().backward()""",
    "a leaf that requires grad no more": """
        x = t.ones(2, 3, requires_grad=True)
        y = x * 1
        x.requires_grad = False
        x.unsqueeze_(0)
        y.sum().backward()
        x.grad is None""",
    "requires_grad of a no_grad view of what was written to": """
        x = t.ones(2, requires_grad=True) * 1
        with t.no_grad():
            v = x[:]
            x.mul_(2)
        v.requires_grad = False
        v.requires_grad""",
    "an inference view lasts": """
        x = t.ones(2, 3, requires_grad=True)
        with t.inference_mode():
            v = x[:1]
        with t.no_grad():
            w = v.t()
            x.add_(1)
        w.is_leaf""",
    "pieces of an inference view": """
        x = t.ones(2, 3, requires_grad=True)
        with t.inference_mode():
            v = x[:1]
        (w,) = v.split(2)
        with t.no_grad():
            x.add_(1)
        w.is_leaf""",
    "in-place views in inference mode": """
        x = t.ones(2, requires_grad=True)
        with t.inference_mode():
            v = x[:]
            v.abs_()
            v.unsqueeze_(4)""",
    "resize_ of an inference view": """
        with t.inference_mode():
            x = t.ones(())
        x[...].resize_(1)""",
    "copy_ to one of several views of integers": "a, b = t.zeros(2, dtype=t.int64).unbind()\na.copy_(t.ones(8, requires_grad=True))",
    "a view that cannot be used, before overlap": """
        x = t.ones(4, requires_grad=True) * 1
        a, b = x.split(2)
        x.add_(1)
        x[1:].sub_(a.expand(3, 2)[:, 0])""",
    "the origin has a gradient": "x, y = (t.zeros(2, requires_grad=True) for _ in 'xy')\nt.autograd.grad(x.atan2(y).sum(), [x, y])",
    "the gradient of nothing requires grad": GRAD_OF_PART.format("x[0, 0:0]"),
    "the gradient of an empty diagonal requires grad": GRAD_OF_PART.format("x.diagonal(2)"),
    "the gradient of relu_ in a view requires grad": GRAD_OF_PART.format("(x * 1)[:].relu_()"),
    "the gradient of a view of nothing has no memory": """
        x = t.zeros(0, 3, requires_grad=True)
        with t.no_grad():
            v = x.narrow(1, 1, 1)
            v.zero_()
        (x.as_strided((0,), (1,), 2) * 1).sum().backward()
        x.grad.untyped_storage().nbytes()""",
    "the gradient of a leaf without elements": """
        x = t.zeros(3, 1).split([1, 0], 1)[1][None, -1:2].requires_grad_()
        (x * 0.5).sum().backward()
        x.stride(), x.grad.stride()""",
    "roll of nothing": "t.zeros(0, 3, requires_grad=True).roll(1, 7).grad_fn.name()",
    "cat of nothing": "t.cat([t.zeros(0), t.zeros(0)], 5)",
    "unbind of nothing that cannot be used": """
        x = t.zeros(0, requires_grad=True) * 1
        a, b = x.split_with_sizes([0, 0])
        x.add_(1)
        b.unbind()""",
    "sizes of three that do not fit": "t.addcmul(t.ones(6), t.ones(8), t.ones(2, 2, 2))",
    "unbind of no dimension": "t.zeros(()).unbind(2)",
    "amax of complex numbers in no dimension": "t.zeros(2, dtype=t.complex64).amax(3)",
    "mm of no bools": "t.mm(t.ones(3, 0, dtype=t.bool), t.ones(0, 2, dtype=t.bool)), t.mv(t.ones(0, 3) > 0, t.ones(3) > 0)",
    "mm of bools": "t.mm(t.ones(3, 1, dtype=t.bool), t.ones(1, 2, dtype=t.bool))",
    "addmm_ of what it writes to": "x = t.ones(3, 3)\nx[:2, :2].addmm_(x[1:, 1:], x[:2, 1:])[0, 0]",
    "addmm_ to an expanded tensor": "t.ones(1).expand(2, 2).addmm_(t.ones(2, 0), t.ones(0, 2))",
    "addmv_ to an expanded tensor": "t.ones(1, dtype=t.int64).expand(3).addmv_(t.ones(3, 3).long(), t.ones(3).long()).shape",
    "addmv_ of nothing to an expanded tensor": "t.ones(1).expand(3).addmv_(t.ones(3, 0), t.ones(0))",
    "baddbmm_ to an expanded tensor": "t.ones(1, 3, 3).expand(2, 3, 3).baddbmm_(t.ones(2, 3, 3), t.ones(2, 3, 3)).shape",
    "addr_ of its own column": "x = t.ones(3)\nx.view(3, 1).addr_(x, t.ones(1))",
    "addr_ of its own row": "x = t.ones(3)\nx.view(1, 3).addr_(t.ones(1), x)",
    "tril_ of matrices that lie one after another": "t.ones(2, 2).expand(3, 2, 2).tril_().shape",
    "tril_ of matrices that do not": "t.ones(2, 2).expand(3, 3, 2, 2).tril_()",
    "nan_to_num_ of integers": "t.ones(1, dtype=t.int64).expand(2).nan_to_num_()",
    "nan_to_num_ of an expanded tensor": "t.ones(1).expand(2).nan_to_num_()",
    "types before shapes": "x = t.ones(6) > 0\nx -= t.ones(3) > 0",
    "types before overlap": "x = (t.ones(1) > 0).expand(3)\nx -= 1",
    "shapes before kernels": "t.ones(2, dtype=t.complex64).fmod(t.ones(3))",
    "casts before kernels": "(t.ones(3) > 0).hypot_(t.ones(3, dtype=t.int64))",
    "overlap before kernels": "t.ones(1, dtype=t.int64).expand(2).lerp_(t.ones(2).long(), 0.5)",
    "sizes of a mask in place": "t.ones(6, 2).masked_fill_(t.ones(6) > 0, 1)",
    "gradients before dimensions, with out=": "x = t.ones(2, requires_grad=True)\nt.gather(x, 5, t.tensor([0]), out=t.ones(1))",
    "complex numbers without gaps keep their strides": """
        x = t.zeros(1, 4, dtype=t.complex64)[:, :2]
        [f(x).stride() for f in (t.abs, t.angle, t.conj_physical, t.sgn)]""",
    "numbers that say nothing about the layout": """
        x = t.zeros(9).as_strided((1, 3), (1, 1))
        [y.stride() for y in (x**2, x**4, 2**x, x.int() ** 2, x.lerp(x, 0.5), x.clamp(1), x.clamp_max(1), x.fmod(2))]""",
    "take gives no view": "x = t.ones(3, requires_grad=True)\ny = x.take(t.tensor([0, 1]))\ny.mul_(2)\ny._is_view(), y.grad_fn.name()",
    "what is picked is no view": "x = t.ones(3)\n[y._is_view() for f in (x.kthvalue, x.topk) for y in f(1)], x.median()._is_view()",
    "numbers that a small type cannot hold": """
        x = t.tensor([3], dtype=t.uint8)
        x // -5, x % -5, x == -253, -5 < x, x.lt(t.tensor(-5)), x.maximum(t.tensor(-5)), x.lt_(-5)""",
    "numbers that a small signed type cannot hold": """
        x = t.tensor([3], dtype=t.int8)
        x < 200, x.gt(t.tensor(200)), x.minimum(t.tensor(300)), x.lt(t.tensor([300])), x.floor_divide(300)""",
    "the gradient of a narrow leaf without elements": """
        x = t.zeros(2, 1, 3).narrow(-1, 3, 0).requires_grad_()
        (x * 0.5).sum().backward()
        x.grad.stride()""",
    "the gradient of a sum over nothing": """
        x = t.zeros(0, 1, requires_grad=True)
        y = x * 1
        (g,) = t.autograd.grad(y.sum(), y, create_graph=True)
        g.stride(), t.autograd.grad((y * y).sum(), x, create_graph=True)[0].requires_grad""",
    "backward twice through what keeps nothing": """
        x = t.ones(3, requires_grad=True)
        y = x.clone()
        y.index_add_(0, t.tensor([0]), t.ones(1))
        y.sum().backward(), y.sum().backward()
        x.grad""",
    "a view that may not be used, before one that cannot be": """
        x = t.ones(4, 4, requires_grad=True) * 1
        a, b = x.split(2, 1)
        x.add_(1)
        a.view(8)""",
    "a view that cannot be has a history all the same": """
        x = t.ones(4)
        v = x[1:]
        x.add_(t.ones(4, requires_grad=True))
        try:
            v.split([1, 1])
        except RuntimeError:
            v.mul_(2)
        v""",
    "complex numbers whose pairs have moved": """
        x = t.ones(2, 3, 2, requires_grad=True) * 1
        z = t.view_as_complex(x)
        x.transpose_(0, 2)
        z.copy_(z)""",
    "sizes of a mask before its type": "t.ones(2, 0).masked_fill(t.ones(2, 3, 2), 1)",
    "operands of another type are copied first": """
        x, y = t.ones(12).bool().as_strided((3, 1), (2, 3)), t.ones(9).long().as_strided((1, 2), (3, 3))
        [f(z).stride() for f in (t.exp2, t.tanh, t.neg, t.logical_not) for z in (x.long(), x.float(), y, y.float())]""",
    **{
        f"{f} keeps its result": f"""
        x = t.tensor([-2.0, 0.0, 3.0], requires_grad=True)
        y = x * 1
        z = t.nn.functional.{f}, y.grad_fn.name()
        (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
        (h,) = t.autograd.grad((g * g).sum() + (x * x).sum(), x)
        [round(v, 3) for v in g.tolist() + h.tolist()], z[1]"""
        for f in (
            "elu(y, 2.0, True)",
            "celu(y, 2.0, True)",
            "selu(y, True)",
            "leaky_relu(y, 0.5, True)",
            "threshold(y, 1, 2, True)",
        )
    },
    **{
        f"{f} and a later write": f"""
        x = t.ones(3, requires_grad=True)
        y = x * 1
        t.nn.functional.{f}.add_(1)
        y.sum().backward()"""
        for f in ("elu(y, 2.0, True)", "celu(y, 2.0, True)", "leaky_relu(y, 0.5, True)", "leaky_relu(y, -0.5, True)")
    },
    "elu_ with a slope that does not come back": """
        x = t.ones(3, requires_grad=True) * 1
        t.nn.functional.elu(x, -1.0, True).sum().backward()""",
    "formulas that end in a view give none": """
        x = t.ones(4, 4)
        f = t.nn.functional
        [y._is_view() for y in (t.kron(x, x), x.logsumexp(0), f.unfold(x[None, None], 2), f.group_norm(x, 2), x.quantile(0.5),
         f.grid_sample(x[None, None], t.zeros(1, 1, 1, 2)), f.affine_grid(x[None, :2, :3], (1, 1, 2, 2)))]""",
    **{
        f"{f}, d is a tensor that is written to": f"""
        f, w, results = t.nn.functional, t.arange(24.0).reshape(2, 3, 4) / 8 + 0.5, []
        d = t.tensor(1)
        for k in (1, 0):
            d.fill_(k)
            x = w.clone().requires_grad_()
            y = {f}
            d.fill_(1 - k)
            (g,) = t.autograd.grad((y.flatten() * t.arange(float(y.numel()))).sum(), x)
            results += [list(y.shape), *[round(v, 2) for v in g.flatten().tolist()]]
        results"""
        for f in (
            "x.transpose(d, 2)",
            "x.select(d, 0)",
            "x.narrow(d, 0, 2)",
            "x.sum((d, 2))",
            "x.unbind(d)[0]",
            "x.cumsum(d)",
            "x.nansum(d)",
            "x.cumprod(d)",
            "x.softmax(d)",
            "t.cat([x, x], d)",
            "x.movedim(d, 2)",
            "x.quantile(0.5, d)",
            "x.roll(1, d)",
            "x.prod(d)",
            "x.diagonal(0, d, 2)",
            "x.unfold(d, 1, 1)",
            "f.avg_pool1d(x, d + 1)",
            "x.chunk(d + 1)[0]",
        )
    },
    "what is given as a number is not written to": "n = t.tensor(5)\nt.matrix_power(t.eye(2), n), n",
    "the condition of where is copied by nobody": """
        x, c = t.ones(1, 3, 1, 2).permute(3, 1, 2, 0).contiguous().permute(3, 1, 2, 0), t.ones(1, 3, 1, 2) > 0
        c = c.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
        t.where(c, x, x).stride(), t.where(c, x, x.half()).stride()""",
    "bools that require grad cannot be split": """
        x = t.ones(2, dtype=t.int64)
        x.ne_(t.ones(2, requires_grad=True))
        x.chunk(2)""",
    "a gradient that is kept is another tensor": """
        x, g = t.ones(2, requires_grad=True), t.ones(2)
        x.backward(g, create_graph=True)
        x.grad.zero_()
        g""",
    "what backward is asked for keeps its gradient": """
        x = t.ones(2, requires_grad=True)
        y = x * 2
        for _ in range(2):
            (y * y).sum().backward(inputs=[y], retain_graph=True)
        y.retains_grad, y.grad, x.grad is None""",
    "grad mode in inference mode": """
        x = t.ones(2, requires_grad=True)
        with t.inference_mode():
            with t.set_grad_enabled(True):
                x.add_(1)
        x""",
    "running extremes keep what they are of": """
        x = t.ones(3, requires_grad=True) * 1
        y, _ = x.cummax(0)
        x.add_(1)
        y.sum().backward()""",
    "indices of what is picked lie by themselves": """
        x = t.arange(8).reshape(2, 4)
        [(y.stride(), y.storage_offset()) for f in (x.kthvalue, x.topk) for y in f(1)], x.median(-1)[1].storage_offset()""",
    "results that are channels last": """
        f, x = t.nn.functional, t.ones(2, 3, 4, 5).contiguous(memory_format=t.channels_last)
        y = f.interpolate(x, size=(3, 3), mode="bilinear", antialias=True)
        [r.stride() for r in (t.cat([x, x], 1), t.cat([x]), t.cat([x, x.contiguous()]), t.cat([x[:, :0], x], 1), y)]""",
    "a least-squares solution lies in the place of B": """
        [t.linalg.lstsq(t.eye(4)[:, :3].expand(2, 4, 3), b).solution.stride() for b in (t.ones(2, 4, 2), t.ones(2, 4))]""",
    "sorted as what is sorted lies": """
        x, c = t.tensor([[5., 1, 4], [2, 6, 3]]).t(), t.arange(24).flip(0).reshape(2, 3, 4).permute(2, 0, 1)
        parts = x, x[:, :1], x.expand(2, 3, 2), c, c[:, ::2], c[::2], c[:0]
        both = [f(y, d) for f in (t.sort, t.argsort) for y in parts for d in (0, 1)]
        sorts = [z for r in both for z in (r if isinstance(r, tuple) else (r,))] + [t.msort(x)]
        [z.stride() for z in sorts], sorts""",
    "a sort of columns, recorded": """
        w = t.tensor([[5., 1, 4], [2, 6, 3]], requires_grad=True)
        y = w.t().sort(0)[0]
        (y * t.arange(6.).reshape(3, 2)).sum().backward()
        y.grad_fn.name(), y, w.grad""",
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
        return list(r.shape), str(r.dtype)[6:], r.requires_grad, r.is_conj(), r.is_neg(), values(r).tolist()
    return [shown(x) for x in r] if isinstance(r, (tuple, list)) else r


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str, device: str) -> None:
    want = seen(CASES[name], torch, "cpu")
    with tabtorch.device(device):
        got = seen(CASES[name], tabtorch, device)
    assert got == want
