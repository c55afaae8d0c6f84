"""``torch.autograd.gradcheck``: derivatives beside finite differences of the function."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.autograd import forward_ad
from tabtorch.autograd.engine import grad
from tabtorch.autograd.tape import GradFn, next_seq
from tabtorch.core.tensor import Tensor

Tensors = Sequence[Any]


class GradcheckError(RuntimeError):
    """The derivatives are not those of the function."""


def _tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _wanted(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _differentiable(x: Any) -> tuple[Any, ...]:
    return tuple(o for o in _tuple(x) if o.requires_grad)


def _floating(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


class _Check:
    """One function of real outputs (or real inputs, in forward mode), and what is asked of it."""

    def __init__(self, options: dict[str, Any], func: Any, out: Any, inputs: tuple[Any, ...], forward: bool) -> None:
        self.o = options
        self.func = func
        self.all = _tuple(out)
        self.outputs = _differentiable(out)
        self.inputs = inputs
        self.places = [i for i, x in enumerate(inputs) if _wanted(x)]
        self.forward = forward

    # ---- finite differences

    def _values(self) -> list[Any]:
        return [o.detach().reshape(-1).clone() for o in _tuple(self.func(*self.inputs))]

    def _difference(self, x: Any, step: Any, size: Any, index: Any) -> list[Any]:
        """(f(x + step) - f(x - step)) / 2 size. `x` is written to and restored: the function may hold it in a closure."""
        data, before = x.data, x.detach().clone()
        try:
            data.copy_(before - step)
            low = self._values()
            data.copy_(before + step)
            high = self._values()
        finally:
            data.copy_(before)
        eps = self.o["eps"]
        for a, b in zip(low, high, strict=True):
            for what in ("shape", "dtype"):
                if getattr(a, what) != getattr(b, what):
                    raise AssertionError(
                        f"Expected `func` to return outputs with the same {what} when inputs are perturbed "
                        f"{index}by {eps}, but got: {what}s {getattr(a, what)} and {getattr(b, what)}."
                    )
        return [(b - a) / (2 * size) for a, b in zip(low, high, strict=True)]

    def _numerical(self, x: Any, u: Any, index: Any = "") -> list[Any]:
        """The derivative of all outputs along `u` (flat), a pair of directions where x is complex."""
        eps = self.o["eps"]
        if not x.is_complex():
            return self._difference(x, (u * eps).reshape(x.shape).to(x.dtype), eps, index)
        re, im = (u, u) if isinstance(u, Tensor) else u
        across = self._difference(x, (re * eps).reshape(x.shape).to(x.dtype), eps, index)
        up = self._difference(x, (im * (eps * 1j)).reshape(x.shape).to(x.dtype), eps, index)
        return [a + b * 1j for a, b in zip(across, up, strict=True)]

    def numerical(self) -> list[list[Any]]:
        """For each input the Jacobians (input elements, output elements) of all outputs."""
        found = []
        for i in self.places:
            x = self.inputs[i]
            real = x.real if x.is_complex() else x
            columns = []
            for k in range(x.numel()):
                at = _unravel(k, tuple(x.shape))
                columns.append(self._numerical(x, _unit(real, k), f"on index {at} "))
            empty = [o.new_zeros((0, o.numel())) for o in self.all]
            found.append([torch.stack(c) for c in zip(*columns, strict=True)] if columns else empty)
        return found

    # ---- derivatives

    def rows(self, o: Any, vectors: list[Any]) -> list[Any]:
        """vᵀJ of one output for each v: for each input (input elements, vectors)."""
        xs = [self.inputs[i] for i in self.places]
        twice = []
        for _ in range(2):
            found: list[list[Any]] = [[] for _ in xs]
            sized = typed = True
            for v in vectors:
                for column, g, x in zip(
                    found, grad(o, xs, v.reshape(o.shape), retain_graph=True, allow_unused=True), xs, strict=True
                ):
                    sized = sized and (g is None or g.shape == x.shape)
                    typed = typed and (g is None or g.dtype == x.dtype)
                    column.append(torch.zeros_like(x).reshape(-1) if g is None else g.detach().reshape(-1))
            twice.append(
                [torch.stack(c, 1) if c else x.new_zeros((x.numel(), 0)) for c, x in zip(found, xs, strict=True)]
            )
        if not typed and self.o["check_grad_dtypes"]:
            raise GradcheckError("Gradient has dtype mismatch")
        if not sized:
            raise GradcheckError("Analytical gradient has incorrect size")
        for a, b in zip(*twice, strict=True):
            if a.numel() and bool((a - b).abs().max() > self.o["nondet_tol"]):
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
                    "different values, although analytical gradient matches numerical gradient."
                    f"The tolerance for nondeterminism was {self.o['nondet_tol']}."
                )
        return twice[0]

    def along(self, i: int, u: Any) -> list[Any]:
        """The tangents of all floating outputs, flat, for the direction `u` of input `i`."""
        xs = [self.inputs[k].detach() for k in self.places]
        place = self.places.index(i)
        tangents = [u.reshape(x.shape).to(x.dtype) if k == place else torch.zeros_like(x) for k, x in enumerate(xs)]

        def f(*duals: Any) -> list[Any]:
            full = list(self.inputs)
            for k, d in zip(self.places, duals, strict=True):
                full[k] = d
            return [o for o in _tuple(self.func(*full)) if _floating(o)]

        outs, found = forward_ad.jvp(f, xs, tangents)
        if self.o["check_grad_dtypes"] and any(
            o.is_complex() != t.is_complex() for o, t in zip(outs, found, strict=True)
        ):
            raise GradcheckError("Forward AD gradient has dtype mismatch.")
        return [t.reshape(-1) for t in found]

    # ---- both

    def run(self, fast: bool, part: str) -> None:
        if not self.outputs:
            for per_input in self._directions() if fast else self.numerical():
                if any(bool((j != 0).any()) for j in per_input):
                    raise GradcheckError("Numerical gradient for function expected to be zero")
            return
        (self._fast if fast else self._slow)(part)

    def _slow(self, part: str) -> None:
        numerical = self._of_outputs(self.numerical())
        for j, per_output in enumerate(numerical):
            for i, (n, a) in enumerate(zip(per_output, self._analytical(j), strict=True)):
                if not _close(a, n, self.o["rtol"], self.o["atol"]):
                    raise GradcheckError(self._message(a, n, j, i, part))

    def _of_outputs(self, per_input: list[list[Any]]) -> list[tuple[Any, ...]]:
        return [n for o, n in zip(self.all, zip(*per_input, strict=True), strict=True) if o.requires_grad]

    def _analytical(self, j: int) -> list[Any]:
        o = self.outputs[j]
        if not self.forward:
            return self.rows(o, [_unit(o, k) for k in range(o.numel())])
        at = next(k for k, x in enumerate([x for x in self.all if _floating(x)]) if x is o)
        found = []
        for i in self.places:
            x = self.inputs[i]
            columns = [self.along(i, _unit(x, k))[at] for k in range(x.numel())]
            found.append(torch.stack(columns) if columns else o.new_zeros((0, o.numel())))
        return found

    def _directions(self) -> list[list[Any]]:
        g = torch.Generator()
        self.us = []
        for i in self.places:
            x = self.inputs[i]
            self.us.append((_vector(x, g, True), _vector(x, g, True)) if x.is_complex() else _vector(x, g))
        self.vs = [None if self.forward else _vector(o, g) for o in self.outputs]
        return [self._numerical(self.inputs[i], u) for i, u in zip(self.places, self.us, strict=True)]

    def _fast(self, part: str) -> None:
        numerical = self._of_outputs(self._directions())
        analytical = []
        for i, u in zip(self.places, self.us, strict=True) if self.forward else ():
            floating = [o for o in self.all if _floating(o)]
            analytical.append([t for t, o in zip(self.along(i, u), floating, strict=True) if o.requires_grad])
        for j, per_output in enumerate(numerical):
            v: Any = self.vs[j]
            rows = [] if self.forward else self.rows(self.outputs[j], [v])
            for i, (n, u) in enumerate(zip(per_output, self.us, strict=True)):
                if self.forward:
                    a = analytical[i][j]
                else:
                    n, r = (v * n).sum(), rows[i][:, 0]
                    a = (r.real * u[0]).sum() + 1j * (r.imag * u[1]).sum() if r.is_complex() else (r * u).sum()
                size = float(sum([d.sum() for d in u]) if isinstance(u, tuple) else u.sum())
                scale = size * (1.0 if v is None else float(v.real.sum()))
                if not _close(a, n, self.o["rtol"], self.o["atol"] * scale):
                    raise GradcheckError(self._message(a, n, j, i, part) + self._in_full(j, i))

    def _in_full(self, j: int, i: int) -> str:
        n = self._of_outputs(self.numerical())[j][i]
        a = self._analytical(j)[i]
        text = (
            "\nThe above quantities relating the numerical and analytical jacobians are computed \nin fast mode. See: "
            "https://github.com/pytorch/pytorch/issues/53876 for more background \nabout fast mode. Below, we recompute "
            f"numerical and analytical jacobians in slow mode:\n\nNumerical:\n {n}\nAnalytical:\n{a}\n\n"
            f"The max per-element difference (slow mode) is: {(n - a).abs().max()}.\n"
        )
        if _close(a, n, self.o["rtol"], self.o["atol"]):
            text += (
                "Fast gradcheck failed but element-wise differences are small. This means that the\n"
                "test might've passed in slow_mode!"
            )
        return text

    def _message(self, a: Any, n: Any, j: int, i: int, part: str) -> str:
        element = "inputs" if self.forward else "outputs"
        prefix = f"While considering the {part} part of complex {element} only, " if part else ""
        mode = "computed with forward mode " if self.forward else ""
        return (
            f"{prefix}Jacobian {mode}mismatch for output {j} with respect to input {i},\n"
            f"numerical:{n}\nanalytical:{a}\n"
        )


def _unravel(k: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    at = []
    for n in reversed(shape):
        k, r = divmod(k, n)
        at.append(r)
    return tuple(reversed(at))


def _unit(like: Any, k: int) -> Any:
    v = torch.zeros(like.numel(), dtype=like.dtype, device=like.device)
    v[k] = 1
    return v


def _vector(x: Any, generator: Any, real: bool = False) -> Any:
    v = torch.rand(x.numel(), generator=generator, device="cpu")
    v = v.to(dtype=x.real.dtype if real and x.is_complex() else x.dtype, device=x.device)
    return v / v.norm()


def _close(a: Any, b: Any, rtol: float, atol: float) -> bool:
    d = torch.promote_types(a.dtype, b.dtype)
    return bool(torch.allclose(a.to(d), b.to(d), rtol, atol))


# ---- the parts of a check


def _complex_parts(o: dict[str, Any], func: Any, out: Any, inputs: tuple[Any, ...]) -> None:
    """Real and imaginary parts apart, of outputs backward, of inputs forward."""
    fast = o["fast_mode"]
    if o["check_backward_ad"]:
        if any(t.is_complex() for t in _tuple(out)):
            for part, name in ((torch.imag, "imaginary"), (torch.real, "real")):

                def f(*x: Any, part: Any = part) -> Any:
                    return tuple(part(t) if t.is_complex() else t for t in _tuple(func(*x)))

                _Check(o, f, f(*inputs), inputs, False).run(fast, name)
        else:
            _Check(o, func, out, inputs, False).run(fast, "")
    if not o["check_forward_ad"]:
        return
    which = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.is_complex()]
    if not which:
        _Check(o, func, out, inputs, True).run(fast, "")
        return
    for name in ("imaginary", "real"):

        def g(*x: Any, name: str = name) -> Any:
            full = list(x)
            for i in which:
                c = inputs[i]
                full[i] = x[i] + c.imag * 1j if name == "real" else c.real + x[i] * 1j
            return _tuple(func(*full))

        halves = tuple((x.real if name == "real" else x.imag) if i in which else x for i, x in enumerate(inputs))
        halves = tuple(
            h.detach().clone().requires_grad_() if i in which and _wanted(inputs[i]) else h
            for i, h in enumerate(halves)
        )
        _Check(o, g, g(*halves), halves, True).run(fast, name)


def _check_inputs(inputs: tuple[Any, ...]) -> None:
    wanted = [(i, x) for i, x in enumerate(inputs) if _wanted(x)]
    for i, x in wanted:
        if x.dtype not in (torch.float64, torch.complex128):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This check will "
                "likely fail if all the inputs are not of double precision floating point or complex. ",
                stacklevel=4,
            )
        if not all(s > 0 or n <= 1 for s, n in zip(x.stride(), x.size(), strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to "
                "be able to compute the numerical gradients correctly. You should call .contiguous on the input before "
                "passing it to gradcheck."
            )
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )


class _Undefined(GradFn):
    """Passes values, and no gradient."""

    runs_undefined = True

    def apply(self, g: Any) -> Any:
        return (None,)


def _without_gradient(t: Any) -> Any:
    fn, out = _Undefined(), t.detach()
    fn.edges, fn.metas, fn.outs, fn.seq = (
        (t._tab_grad_fn or _lazy.tape.edge(t),),
        (t._tab_meta,),
        t._tab_meta,
        next_seq(),
    )
    out._tab_requires_grad, out._tab_grad_fn = True, fn
    return out


_NOTES = 'Please look at "Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'


def _check_undefined(func: Any, inputs: tuple[Any, ...]) -> None:
    """An output without a gradient counts as one whose gradient is zero."""
    xs = [x for x in inputs if _wanted(x)]
    count = len(_differentiable(func(*inputs)))
    for which in [None, *range(count)] if count > 1 else [None]:
        outs = [_without_gradient(o) if which in (None, k) else o for k, o in enumerate(_differentiable(func(*inputs)))]
        try:
            found = grad(outs, xs, [torch.zeros_like(o) for o in outs], allow_unused=True)
        except RuntimeError as e:
            raise GradcheckError("Expected backward function to handle undefined output grads. " + _NOTES) from e
        if any(g is not None and not bool(g.eq(0).all()) for g in found):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are undefined or zero. "
                + _NOTES
            )


def _check_zero(outputs: Tensors, inputs: tuple[Any, ...]) -> None:
    """The gradients are multiples of those of the outputs."""
    xs = [x for x in inputs if _wanted(x)]
    for g, x in zip(
        grad(outputs, xs, [torch.zeros_like(o) for o in outputs], allow_unused=True, retain_graph=True), xs, strict=True
    ):
        if g is None:
            continue
        if not bool(g.eq(0).all()):
            raise GradcheckError("backward not multiplied by grad_output")
        for what, a, b in (("type", g.dtype, x.dtype), ("device", g.device, x.device), ("size", g.size(), x.size())):
            if a != b:
                raise GradcheckError(f"grad is incorrect {what}")


def _check_batched(call: Callable[[Any], Any], like: Any, j: int) -> None:
    """`vmap` over two vectors gives what two calls give."""
    vs = [torch.randn_like(like.detach()) for _ in range(2)]
    expected = [torch.stack(parts) for parts in zip(*[call(v) for v in vs], strict=True)]
    try:
        result = torch.func.vmap(call)(torch.stack(vs))
    except RuntimeError as e:
        raise GradcheckError(f"While computing batched gradients, got: {e}") from e
    for i, (r, x) in enumerate(zip(result, expected, strict=True)):
        if not torch.allclose(r, x):
            raise GradcheckError(
                f"For output {j} and input {i}:\n\ngradcheck or gradgradcheck failed while testing batched gradient "
                f"computation.\n\nGot:\n{r}\n\nExpected:\n{x}\n"
            )


def _batched(o: dict[str, Any], func: Any, outputs: Tensors, inputs: tuple[Any, ...]) -> None:
    xs = [x for x in inputs if _wanted(x)]
    if o["check_batched_forward_grad"]:
        for k, x in enumerate(inputs):
            if _floating(x) and _wanted(x):

                def push(t: Any, k: int = k, x: Any = x) -> Any:
                    f = lambda d: [y for y in _tuple(func(*inputs[:k], d, *inputs[k + 1 :])) if y is not None]  # noqa: E731
                    return tuple(forward_ad.jvp(f, [x.detach()], [t])[1])

                _check_batched(push, x, k)
    if o["check_batched_grad"]:
        for j, out in enumerate(outputs):

            def pull(v: Any, out: Any = out) -> Any:
                found = grad(out, xs, v, retain_graph=True, allow_unused=True)
                return tuple(torch.zeros_like(x) if g is None else g for g, x in zip(found, xs, strict=True))

            _check_batched(pull, out, j)


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """True if the derivatives of `func` at `inputs` are its finite differences within atol + rtol; else GradcheckError.

    Meant for double precision, so for the cpu. eps: the step. raise_exception=False: False in place of the error.
    fast_mode: along one random direction, not the whole Jacobian. nondet_tol: how far two backward passes may differ.
    masked: only sparse tensors, which are not here, would tell.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    options = dict(locals())
    try:
        _gradcheck(options, func, _tuple(inputs))
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _gradcheck(o: dict[str, Any], func: Any, inputs: tuple[Any, ...]) -> None:
    _check_inputs(inputs)
    out = func(*inputs)
    outputs = _differentiable(out)
    _complex_parts(o, func, out, inputs)
    _batched(o, func, outputs, inputs)
    if o["check_backward_ad"] and outputs:
        _check_zero(outputs, inputs)
        if o["check_undefined_grad"]:
            _check_undefined(func, inputs)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """`gradcheck` of the gradients of `func` for `grad_outputs` (random ones by default)."""
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_batched_grad=True requires check_rev_over_rev to be True")
    inputs = _tuple(inputs)
    if grad_outputs is None:
        given = tuple(
            torch.testing.make_tensor(
                x.shape,
                dtype=x.dtype if _floating(x) else torch.float64,
                device=x.device,
                low=-1,
                high=1,
                requires_grad=True,
                noncontiguous=gen_non_contig_grad_outputs,
            )
            for x in _differentiable(func(*inputs))
        )
    else:
        given = _tuple(grad_outputs)
    n = len(given)
    wanted = [i for i, x in enumerate(inputs) if _wanted(x)]
    flags = [g.requires_grad for g in given]

    def gradients(*args: Any) -> Any:
        xs = [x.requires_grad_() if i in wanted else x for i, x in enumerate(args[:-n])]
        gs = [g.requires_grad_() if f else g for g, f in zip(args[-n:], flags, strict=True)]
        found = grad(_differentiable(func(*xs)), [xs[i] for i in wanted], gs, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients,
        inputs + given,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )
