"""torch.autograd.functional: products with Jacobians and Hessians of a function, and these matrices whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tabtorch as torch
from tabtorch.autograd import forward_ad
from tabtorch.autograd.engine import grad
from tabtorch.core.tensor import Tensor

Tensors = tuple[Tensor, ...]
Gradients = Sequence[Tensor | None]


#: said where v is left out
_MISSING = "The vector v can only be None if the {} a single Tensor with a single element."
_INPUT = _MISSING.format("input to the user-provided function is")


def _tuple(x: Any, what: str, name: str) -> tuple[bool, Tensors]:
    several = isinstance(x, tuple)
    for i, t in enumerate(x if several else (x,)):
        if not isinstance(t, Tensor):
            which = f"value at index {i}" if several else f"given {what}"
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the {which} has type {type(t)}."
            )
    return several, x if several else (x,)


def _prepared(inputs: Tensors, create_graph: bool, need_graph: bool = True) -> Tensors:
    """New tensors of the same values, so that those which `func` itself captures are not meant."""
    return tuple(
        t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_(need_graph) for t in inputs
    )


def _finished(x: Any, create_graph: bool) -> Any:
    if isinstance(x, Tensor):
        return x if create_graph else x.detach()
    return tuple(_finished(v, create_graph) for v in x)


def _call(func: Callable[..., Any], inputs: Tensors, strict: bool, name: str) -> tuple[bool, Tensors]:
    several, outputs = _tuple(func(*inputs), "outputs of the user-provided function", name)
    for i, t in enumerate(outputs):
        if strict and not t.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs must be computed in a "
                "differentiable manner from the input when running in strict mode."
            )
    return several, outputs


def _vector(v: Any, like: Tensors, several: bool, name: str, missing: str) -> Tensors:
    """`v` as a tuple, of the shapes of `like`; ones where none is given for a single element."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(missing)
        return (torch.ones_like(like[0]),)
    _, v = _tuple(v, "v", name)
    if len(v) != len(like):
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(like)} but got {len(v)}."
            if several
            else "The given v should contain a single Tensor."
        )
    for i, (a, b) in enumerate(zip(v, like, strict=True)):
        if a.shape != b.shape:
            at = f"Entry {i} in " if several else ""
            raise RuntimeError(f"{at}v has invalid size: should be {b.size()} but got {a.size()}.")
    return _prepared(v, False, False)


def _grad(outputs: Gradients, inputs: Tensors, v: Gradients | None = None, create_graph: bool = False) -> Gradients:
    """autograd.grad of those outputs that have a history; None for inputs that none depends on."""
    pairs = [
        (o, g) for o, g in zip(outputs, v or [None] * len(outputs), strict=True) if o is not None and o.requires_grad
    ]
    if not pairs:
        return [None] * len(inputs)
    found: Gradients = grad(
        [o for o, _ in pairs],
        inputs,
        [g for _, g in pairs],
        allow_unused=True,
        create_graph=create_graph,
        retain_graph=True,
    )
    return found


def _filled(grads: Gradients, like: Tensors, strict: bool, create_graph: bool, what: str) -> Tensors:
    """Zeros where there is no gradient; in strict mode an error."""
    for i, g in enumerate(grads):
        if strict and (g is None or create_graph and not g.requires_grad):
            kind = what if g is None else f"The {'jacobian' if 'utput' in what else 'hessian'}"
            end = " when create_graph=True." if g is not None else "."
            raise RuntimeError(
                f"{kind} of the user-provided function is independent of input {i}. "
                f"This is not allowed in strict mode{end}"
            )
    return tuple(torch.zeros_like(t) if g is None else g for g, t in zip(grads, like, strict=True))


def _one(several: bool, x: Any) -> Any:
    return x if several else x[0]


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), vᵀJ). v: as the outputs; may be left out for a single element."""
    with torch.enable_grad():
        several, inputs = _tuple(inputs, "inputs", "vjp")
        inputs = _prepared(inputs, create_graph)
        outs, outputs = _call(func, inputs, strict, "vjp")
        v = _vector(
            v,
            outputs,
            outs,
            "vjp",
            _MISSING.format("user-provided function returns"),
        )
    with torch.set_grad_enabled(create_graph or torch.is_grad_enabled()):
        found = _filled(_grad(outputs, inputs, v, create_graph), inputs, strict, create_graph, "The output")
    return _one(outs, _finished(outputs, create_graph)), _one(several, _finished(found, create_graph))


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), Jv), by differentiating vᵀJ with respect to v. v: as the inputs; may be left out for a single element."""
    with torch.enable_grad():
        several, inputs = _tuple(inputs, "inputs", "jvp")
        inputs = _prepared(inputs, create_graph)
        v = _vector(
            v,
            inputs,
            several,
            "jvp",
            _INPUT,
        )
        outs, outputs = _call(func, inputs, strict, "jvp")
        probes = tuple(torch.zeros_like(o, requires_grad=True) for o in outputs)
        first = _filled(_grad(outputs, inputs, probes, True), inputs, strict, True, "The output")
        found = _filled(_grad(first, probes, v, create_graph), probes, strict, create_graph, "The jacobian")
    return _one(outs, _finished(outputs, create_graph)), _one(outs, _finished(found, create_graph))


# ---- PyTorch's own parts of this module, which libraries import


def _as_tuple(inp: Any, arg_name: str | None = None, fn_name: str | None = None) -> tuple[bool, Tensors]:
    """(whether `inp` is a tuple, the tensors). TypeError for what is no tensor."""
    if arg_name is None and fn_name is None:
        return isinstance(inp, tuple), inp if isinstance(inp, tuple) else (inp,)
    return _tuple(inp, arg_name or "", fn_name or "")


def _grad_postprocess(inputs: Any, create_graph: bool) -> Any:
    """The results, however nested, cut from the tape unless `create_graph`."""
    if isinstance(inputs, tuple):
        return tuple([_grad_postprocess(x, create_graph) for x in inputs])
    return inputs if create_graph or inputs is None else inputs.detach()


def _tuple_postprocess(inp: Any, to_unpack: Any) -> Any:
    """Unpacks the outer tuple, and those in it, where `to_unpack` says that there was none."""
    if isinstance(to_unpack, tuple):
        if not to_unpack[1]:
            inp = tuple([x[0] for x in inp])
        return inp if to_unpack[0] else inp[0]
    return inp if to_unpack else inp[0]


def _construct_standard_basis_for(tensors: Tensors, tensor_numels: tuple[int, ...]) -> Tensors:
    """For each tensor its part of the standard basis of them all, of shape (sum of sizes, its size)."""
    total, start, chunks = sum(tensor_numels), 0, []
    for t, n in zip(tensors, tensor_numels, strict=True):
        chunk = t.new_zeros(total, n)
        chunk.diagonal(start).fill_(1)
        start -= n
        chunks.append(chunk)
    return tuple(chunks)


def _basis(t: Tensor) -> Tensor:
    """The tensors of t's shape with a single 1, stacked."""
    return torch.eye(t.numel(), dtype=t.dtype, device=t.device).reshape(t.numel(), *t.shape)


def _jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool, strict: bool, name: str, vectorize: bool = False
) -> Any:
    with torch.enable_grad():
        several, inputs = _tuple(inputs, "inputs", name)
        inputs = _prepared(inputs, create_graph)
        outs, outputs = _call(func, inputs, strict, name)
        if vectorize and strict:
            raise RuntimeError(
                "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. Please "
                "either set `strict=False` or `vectorize=False`."
            )
        rows = []
        for i, out in enumerate(outputs):
            if vectorize and out.numel():

                def pull(v: Tensor, out: Tensor = out) -> Tensors:
                    return _filled(_grad([out], inputs, [v], create_graph), inputs, False, create_graph, "")

                found = torch.func.vmap(pull)(_basis(out))
                rows.append(tuple(g.reshape(*out.shape, *t.shape) for g, t in zip(found, inputs, strict=True)))
                continue
            columns: list[list[Tensor]] = [[] for _ in inputs]
            for element in out.reshape(-1).unbind():
                found = _filled(
                    _grad([element], inputs, None, create_graph), inputs, strict, create_graph, f"Output {i}"
                )
                for column, g in zip(columns, found, strict=True):
                    column.append(g)
            rows.append(
                tuple(
                    (torch.stack(c) if c else t.new_zeros((0, *t.shape))).reshape(tuple(out.shape) + tuple(t.shape))
                    for c, t in zip(columns, inputs, strict=True)
                )
            )
    result = _finished(tuple(rows), create_graph)
    return _one(outs, tuple(_one(several, row) for row in result))


def _forward(func: Callable[..., Any], inputs: Any, strict: bool, vectorize: bool) -> Any:
    """The Jacobian by its columns, all at once."""
    if strict:
        raise RuntimeError(
            'torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are not supported together '
            '(yet). Please either set `strict=False` or `strategy="reverse-mode"`.'
        )
    several, inputs = _tuple(inputs, "inputs", "jacobian")
    if not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for `vectorize=True`."
        )
    outs = False

    def call(*x: Tensor) -> Tensors:
        nonlocal outs
        outs, outputs = _tuple(func(*x), "outputs of the user-provided function", "jacobian")
        return outputs

    rows: list[Any] = []
    for k, x in enumerate(inputs):

        def push(v: Tensor, k: int = k) -> Tensors:
            given = [v if i == k else torch.zeros_like(t) for i, t in enumerate(inputs)]
            return tuple(forward_ad.jvp(call, inputs, given)[1])

        found = torch.func.vmap(push, out_dims=-1)(_basis(x))
        rows.append([j.reshape(*j.shape[:-1], *x.shape) for j in found])
    result = tuple(zip(*rows, strict=True))
    return _one(outs, tuple(_one(several, row) for row in result))


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The derivative of every output by every input, (*output, *input); tuples of these where either is a tuple.

    One backward pass an element of the output; with vectorize, one for all of them, by `torch.func.vmap`. strategy
    "forward-mode", which needs vectorize: by columns, one forward pass for all elements of an input.
    """
    _check_strategy(
        strategy,
        ' Hint: If your function has more outputs than inputs, "forward-mode" tends to be more performant. Otherwise, prefer '
        'to use "reverse-mode".',
    )
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                'torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported '
                'together (yet). Please either set `create_graph=False` or `strategy="reverse-mode"`.'
            )
        return _forward(func, inputs, strict, vectorize)
    return _jacobian(func, inputs, create_graph, strict, "jacobian", vectorize)


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function with one element by its inputs, (*input, *input); tuples of tuples for a tuple."""
    _check_strategy(outer_jacobian_strategy)
    several, inputs = _tuple(inputs, "inputs", "hessian")

    def single(*x: Tensor) -> Tensor:
        outs, out = _call(func, x, strict, "hessian")
        return _scalar(out, outs, "hessian")

    def first(*x: Tensor) -> Any:
        if outer_jacobian_strategy == "forward-mode":
            x = tuple(t.requires_grad_() for t in x)
        rows = _jacobian(single, x, True, False, "jacobian")
        for i, row in enumerate(rows):
            if strict and not row.requires_grad:
                raise RuntimeError(
                    "While computing the hessian, found that the jacobian of the user-provided function with respect to "
                    f"input {i} is independent of the input. This is not allowed in strict mode. You should ensure that "
                    "your function is twice differentiable and that the jacobian depends on the inputs (this would be "
                    "violated by a linear function for example)."
                )
        return rows

    if outer_jacobian_strategy == "forward-mode":
        result = jacobian(first, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    else:
        result = _jacobian(first, inputs, create_graph, strict, "hessian", vectorize)
    return result if several else result[0][0]


def _check_strategy(strategy: str, hint: str = "") -> None:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".' + hint)


def _scalar(outputs: Tensors, several: bool, name: str) -> Tensor:
    if several or not isinstance(outputs[0], Tensor):
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")
    return outputs[0].squeeze()


def vhp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), vᵀH) of a function with one element. v: as the inputs."""
    with torch.enable_grad():
        several, inputs = _tuple(inputs, "inputs", "vhp")
        inputs = _prepared(inputs, create_graph)
        v = _vector(v, inputs, several, "vhp", _INPUT)
        outs, outputs = _call(func, inputs, strict, "vhp")
        _scalar(outputs, outs, "vhp")
        first = _filled(_grad(outputs, inputs, None, True), inputs, strict, True, "The output")
        found = _filled(_grad(first, inputs, v, create_graph), inputs, strict, create_graph, "The jacobian")
    return _finished(outputs[0], create_graph), _one(several, _finished(found, create_graph))


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(func(inputs), Hv) of a function with one element: that is vᵀH, since H is symmetric. v: as the inputs."""
    with torch.enable_grad():
        several, inputs = _tuple(inputs, "inputs", "hvp")
        inputs = _prepared(inputs, create_graph)
        v = _vector(v, inputs, several, "hvp", _INPUT)
        outs, outputs = _call(func, inputs, strict, "hvp")
        _scalar(outputs, outs, "hvp")
        probes = tuple(torch.zeros_like(t, requires_grad=True) for t in inputs)
        first = _filled(_grad(outputs, inputs, None, True), inputs, strict, True, "The output")
        second = _filled(_grad(first, inputs, probes, True), inputs, strict, True, "The jacobian")
        found = _filled(_grad(second, probes, v, create_graph), probes, strict, create_graph, "The hessian")
    return _finished(outputs[0], create_graph), _one(several, _finished(found, create_graph))
