"""The backward pass: from the roots down the tape in descending order of creation. No recursion, so any depth will do.

An edge always leads to an older function, so that order is topological, and it is the order PyTorch's engine takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd import zero_curvature
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.match_input import fit_gradient, in_dtype
from tabtorch.autograd.tape import LEAF, GradFn, edge, next_seq
from tabtorch.base.errors import Refused
from tabtorch.core.tensor import Tensor
from tabtorch.engine import graph
from tabtorch.engine.view import contiguous_strides, meta
from tabtorch.ops.machinery import registry

_by_seq = attrgetter("seq")

#: looks at the gradients that a step has made; set by `anomaly_mode`
check: Any = None
#: is told which functions run, and whether they are kept; set while a function is compiled
ran: Any = None
#: sums gradients that leave a batch; set by func/batch.py while there are batched values
leaving: Any = None


#: emptied once the warning of `create_graph` was given
_warn_of_cycle = [True]


def _add(a: Tensor, b: Tensor) -> Tensor:
    global _add
    _add = registry.function("add")  # type: ignore[assignment]
    return _add(a, b)


def _collect(roots: Sequence[Any], ends: Sequence[GradFn] = ()) -> tuple[list[GradFn], dict[Any, int]]:
    """The functions that can be reached, oldest first, and how many edges lead to each leaf. ends: it goes no further."""
    seen: set[GradFn] = set(ends)
    leaves: dict[Any, int] = {}
    stack: list[GradFn] = []
    for r in roots:
        if r.edge_kind == LEAF:
            leaves[r] = leaves.get(r, 0) + 1
        elif r.fn not in seen:
            seen.add(r.fn)
            stack.append(r.fn)
    found = list(stack)
    flips = STATE.flips
    if flips:
        found = [fn for fn in stack if not _lazy.forward_ad.is_hidden(fn)]
        stack = found.copy()
    while stack:
        for e in stack.pop().edges:
            if e is None:
                continue
            kind = e.edge_kind
            if kind:
                if kind == LEAF:
                    leaves[e] = leaves.get(e, 0) + 1
                    continue
                e = e.fn
            if e not in seen:
                seen.add(e)
                if flips and _lazy.forward_ad.is_hidden(e):
                    continue
                stack.append(e)
                found.append(e)
    found += ends
    found.sort(key=_by_seq)
    return found, leaves


class _Targets:
    """`inputs=` of a backward pass: which functions lead to them, and where their gradients are taken."""

    def __init__(self, inputs: Sequence[Tensor], order: list[GradFn], accumulate: bool, cut: bool) -> None:
        self.inputs = inputs
        self.accumulate = accumulate
        self.cut = cut
        self.edges = [(t._tab_grad_fn or edge(t)) if t._tab_requires_grad else None for t in inputs]
        self.grads: list[Tensor | None] = [None] * len(inputs)
        self.leaves: dict[Any, list[int]] = {}
        self.captures: dict[GradFn, list[tuple[int, int]]] = {}
        for i, e in enumerate(self.edges):
            if e is not None and e.edge_kind == LEAF:
                self.leaves.setdefault(e, []).append(i)
            elif e is not None:
                self.captures.setdefault(e.fn, []).append((e.nr if e.is_port else 0, i))
        self.leading: set[GradFn] = set()
        leading = self.leading
        for fn in order:  # oldest first: what its edges lead to is known
            for e in fn.edges:
                if e is not None and (
                    e in self.leaves if e.edge_kind == LEAF else e.fn in leading or e.fn in self.captures
                ):
                    leading.add(fn)
                    break

    def take(self, leaf: Tensor, g: Tensor) -> bool:
        """Keeps the gradient of a leaf for the caller; False if it belongs into `.grad`."""
        if self.accumulate:
            return False
        for i in self.leaves[leaf]:
            self.grads[i] = g
        return True


#: of a backward pass, by its number: what is called when it is done
callbacks: dict[int, list[Callable[[], Any]]] = {}


def queue_callback(callback: Callable[[], Any]) -> None:
    """`callback()` is called when the backward pass that is running is done. RuntimeError if none is."""
    if STATE.task is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    callbacks.setdefault(STATE.task[0], []).append(callback)


def run(
    roots: Sequence[Any],
    root_grads: Sequence[Tensor],
    retain_graph: bool,
    create_graph: bool,
    inputs: Sequence[Tensor] | None = None,
    accumulate: bool = True,
    cut: bool = False,
) -> list[Tensor | None]:
    """Runs backward from `roots` (edges). Gradients go to `.grad` of leaves, or, with `inputs` and not `accumulate`, are returned.

    cut: goes no further than the inputs, whose hooks are left to another pass.
    """
    order, leaf_count = _collect(
        roots, list({t._tab_grad_fn.fn: 0 for t in inputs or () if t._tab_grad_fn is not None}) if cut else ()
    )
    if ran is not None:
        ran(order, retain_graph)
    targets = None if inputs is None else _Targets(inputs, order, accumulate, cut)
    if cut and targets is not None:
        targets.leading.difference_update(targets.captures)
    leaf_grads: dict[Any, Tensor] = {}
    grads: dict[GradFn, Any] = {}
    outer, STATE.task = STATE.task, (next_seq(), roots, targets)
    outer_zeros, STATE.zeros = STATE.zeros, []
    if not STATE.lays_out:
        STATE.given = [g._tab_storage for g in root_grads]
    fn: Any = None
    before = STATE.enabled()
    STATE.enable(create_graph)
    if STATE.duals:
        retain_graph = True  # tangents are yet to be read off the tape
    try:
        for r, g in zip(roots, root_grads, strict=True):
            _send(r, g, grads, leaf_grads, leaf_count, targets, create_graph)
        roots = root_grads = ()
        r = g = d = None  # type: ignore[assignment]
        while order:
            fn = order.pop()
            g = grads.pop(fn, None)
            if targets is not None:
                if fn in targets.captures:
                    _capture(fn, g, targets)
                if fn not in targets.leading:
                    continue
            if fn.tensor_hooks is not None or fn.retains is not None:
                if targets is None or fn not in targets.captures:
                    g = run_tensor_hooks(fn, g)
            edges = fn.edges
            if fn.pre_hooks is not None:
                g = _run_pre_hooks(fn, g)
            if g is None and not fn.runs_undefined:
                results: Any = (None,) * len(edges)
            else:
                results = fn.apply(g)
                if len(results) != len(edges):
                    raise RuntimeError(
                        f"{fn.name()} returned an invalid gradient count: got {len(results)}, but expected {len(edges)}"
                    )
                if create_graph and zero_curvature.is_flat(fn):
                    results = zero_curvature.keep_edges(fn, results)
                if check is not None:
                    check(fn, results)
                if leaving is not None:
                    results = leaving(fn, results)
            if fn.post_hooks is not None:
                results = _run_post_hooks(fn, results, g)
            if not retain_graph:
                fn.release()
            metas = fn.metas
            k = -1
            for e in edges:
                k += 1
                if e is None:
                    continue
                d = results[k]
                if d is not None:
                    m = metas[k]
                    dm = d._tab_meta
                    if dm is not m and (
                        dm.shape != m.shape or dm.dtype is not m.dtype or dm.device.number != m.device.number
                    ):
                        d = fit_gradient(d, m, fn, k)
                kind = e.edge_kind
                if kind == LEAF:
                    left = leaf_count[e] = leaf_count[e] - 1
                    if d is not None:
                        if e._tab_grad_dtype:
                            d = in_dtype(d, e._tab_grad_dtype)
                        old = leaf_grads.get(e)
                        leaf_grads[e] = d if old is None else _add(old, d)
                    if not left:
                        _leaf_done(e, leaf_grads.pop(e, None), targets, create_graph)
                elif d is None:
                    pass
                elif kind:
                    _to_port(grads, e, d)
                elif e in grads:
                    grads[e] = _add(grads[e], d)
                else:
                    grads[e] = d
            # what this step held must not outlive it: the next one may need the memory
            results = d = g = old = None  # type: ignore[assignment]
        taken = targets.grads if targets is not None else []
        if STATE.zeros:
            _fill(zero_curvature.reached(STATE.zeros), leaf_count, targets)
        while callbacks and (waiting := callbacks.pop(STATE.task[0], None)):
            for f in waiting:
                f()
        return taken
    except Exception:
        if check is not None:
            check(fn, None)
        raise
    finally:
        callbacks.pop(STATE.task[0], None)
        STATE.task = outer
        STATE.given = ()
        STATE.zeros = outer_zeros
        STATE.enable(before)


def _fill(reached: set[Any], leaves: dict[Any, int], targets: _Targets | None) -> None:
    """Zeros for what a gradient of zeros has reached, and no other gradient."""
    if targets is not None and not targets.accumulate:
        for i, e in enumerate(targets.edges):
            if targets.grads[i] is None and e is not None:
                if (e if e.edge_kind == LEAF else (e.fn, e.nr if e.is_port else 0)) in reached:
                    targets.grads[i] = zero_curvature.zeros(targets.inputs[i])
        return
    for leaf in leaves if targets is None else targets.leaves:
        if leaf._grad is None and leaf in reached:
            leaf._grad = zero_curvature.zeros(leaf)


def _send(
    e: Any,
    g: Tensor,
    grads: dict[GradFn, Any],
    leaf_grads: dict[Any, Tensor],
    leaf_count: dict[Any, int],
    targets: _Targets | None,
    create_graph: bool,
) -> None:
    """The gradient of a root."""
    if e.edge_kind == LEAF:
        leaf_count[e] -= 1
        g = in_dtype(g, e._tab_meta.dtype if e._tab_grad_dtype is False else e._tab_grad_dtype)
        old = leaf_grads.get(e)
        leaf_grads[e] = g if old is None else _add(old, g)
        if not leaf_count[e]:
            _leaf_done(e, leaf_grads.pop(e), targets, create_graph)
    elif e.is_port:
        _to_port(grads, e, g)
    else:
        old = grads.get(e)
        grads[e] = g if old is None else _add(old, g)


def _to_port(grads: dict[GradFn, Any], port: Any, g: Tensor) -> None:
    slots = grads.get(port.fn)
    if slots is None:
        slots = grads[port.fn] = [None] * len(port.fn.outs)
    old = slots[port.nr]
    slots[port.nr] = g if old is None else _add(old, g)


# ---- leaves


def _leaf_done(leaf: Tensor, g: Tensor | None, targets: _Targets | None, create_graph: bool) -> None:
    """All of a leaf's gradient is there."""
    if targets is not None and leaf not in targets.leaves:
        return
    if g is None:
        return
    if leaf._backward_hooks and (targets is None or not targets.cut):
        g = call_hooks(leaf._backward_hooks, g)
    if targets is not None and targets.take(leaf, g):
        return
    if leaf._tab_grad_fn is not None:
        raise RuntimeError("leaf variable has been moved into the graph interior")
    if not leaf._tab_requires_grad:  # any more
        return
    accumulate_grad(leaf, g, create_graph)
    if leaf._tab_after_hooks:
        for hook in list(leaf._tab_after_hooks.values()):
            hook((), (g,))


def accumulate_grad(leaf: Tensor, g: Tensor, create_graph: bool) -> None:
    """Adds to `.grad`: the first gradient is taken as it is, later ones are added in place, unless the graph is kept."""
    with graph.LOCK:  # other threads may have a gradient for it
        have = leaf._grad
        if have is None:
            try:
                if create_graph or (STATE.duals and g._tab_requires_grad):
                    laid = _laid_out_as(leaf, g) if g._tab_grad_fn is None else g
                    leaf._grad = laid.clone() if create_graph else laid  # it may be a tensor that somebody holds
                else:
                    if STATE.lays_out or g._tab_storage in STATE.given:
                        g = _laid_out_as(leaf, g)
                    # a tensor of its own, whoever else holds the gradient: its value is shared, not its storage
                    leaf._grad = Tensor._wrap(g._tab_storage.node, g._tab_meta)
            except Refused:  # one of them is sparse: it lies in no order
                leaf._grad = g.clone() if create_graph else g.detach()
        elif create_graph or have.layout is not g.layout:
            leaf._grad = _add(have, g)
        else:
            have.add_(g)
    if leaf._post_accumulate_grad_hooks:
        for hook in list(leaf._post_accumulate_grad_hooks.values()):
            r = hook(leaf)
            if r is None or r is leaf:  # as a method that writes to it returns
                continue
            if not isinstance(r, Tensor):
                raise TypeError(f"expected Variable, but hook returned '{type(r).__name__}'")
            raise RuntimeError("Tensor post accumulate grad hooks should return None.")


def _laid_out_as(leaf: Tensor, g: Tensor) -> Tensor:
    """A gradient lies in memory as its leaf does, if that is dense, else row by row: PyTorch's contract."""
    want, m = leaf._tab_meta, g._tab_meta
    if not want.numel:
        if all(n == 1 or a == b for n, a, b in zip(m.shape, m.strides, want.strides)):
            return g
        return Tensor._view_of(g, m.view(want.shape, want.strides, 0))
    if want.contiguous:
        g = g if m.contiguous else g.contiguous()
        plain = contiguous_strides(want.shape)
        return g if g._tab_meta.strides == plain else Tensor._view_of(g, m.view(m.shape, plain, m.offset))
    if not _lazy.inplace.is_dense(want):
        return g if m.contiguous else g.contiguous()
    if m.strides == want.strides and not m.offset:
        return g
    r = _lazy.convert.converted(g, want.shape, m.dtype, _lazy.dispatch.layout_of([want], want.shape))
    r._tab_meta = meta(want.shape, want.strides, 0, m.dtype, m.device)
    return r


# ---- hooks


def call_hooks(hooks: dict[int, Any], g: Tensor) -> Tensor:
    """Runs a tensor's hooks in order; each may replace the gradient."""
    for hook in list(hooks.values()):
        r = hook(g)
        if r is not None:
            if not isinstance(r, Tensor):
                raise TypeError(f"expected Tensor, but hook returned '{type(r).__name__}'")
            if r._tab_meta.shape != g._tab_meta.shape:
                raise RuntimeError(f"hook '{getattr(hook, '__name__', 'hook')}' has changed the size of value")
            g = r
    return g


def run_tensor_hooks(fn: GradFn, g: Any) -> Any:
    """Hooks and `retain_grad` of the outputs of a function, once their gradients are complete."""
    several = isinstance(fn.outs, tuple)
    values = ([None] * len(fn.outs) if g is None else list(g)) if several else [g]
    if fn.tensor_hooks is not None:
        for nr, hooks in fn.tensor_hooks.items():
            if values[nr] is not None and hooks:
                values[nr] = call_hooks(hooks, values[nr])
    if fn.retains is not None:
        for nr, ref in fn.retains.items():
            t = ref()
            v = values[nr]
            if t is not None and v is not None:
                if t._grad is not None:
                    t._grad = _add(t._grad, v)
                else:
                    t._grad = (
                        v
                        if v._tab_requires_grad or not v._tab_meta.whole
                        else Tensor._wrap(v._tab_storage.node, v._tab_meta)
                    )
    return values if several else values[0]


def _run_pre_hooks(fn: GradFn, g: Any) -> Any:
    several = isinstance(fn.outs, tuple)
    values: Any = tuple(g) if several and g is not None else (g,)
    for hook in list(fn.pre_hooks.values()):
        r = hook(values)
        if r is not None:
            values = r if isinstance(r, tuple) else (r,)
    return list(values) if several else values[0]


def _run_post_hooks(fn: GradFn, results: Any, g: Any) -> Any:
    out = tuple(g) if isinstance(g, list) else (g,)
    results = tuple(results)
    for hook in list(fn.post_hooks.values()):
        r = hook(results, out)
        if r is not None:
            r = r if isinstance(r, tuple) else (r,)
            if len(r) != len(results):
                raise RuntimeError(
                    f"hook '{getattr(hook, '__name__', 'hook')}' has returned an incorrect number of values "
                    f"(got {len(r)}, but expected {len(results)})"
                )
            results = r
    return results


def _capture(fn: GradFn, g: Any, targets: _Targets) -> None:
    if not targets.cut and (fn.tensor_hooks is not None or fn.retains is not None):
        g = run_tensor_hooks(fn, g)
    for nr, i in targets.captures[fn]:
        targets.grads[i] = g[nr] if isinstance(g, list) else g


# ---- the public functions


def _root_grad(out: Tensor, g: Tensor | None, create_graph: bool) -> Tensor:
    if g is None:
        if out._tab_meta.numel != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if not out._tab_meta.dtype.is_floating_point:
            raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {out.dtype}")
        ones: Any = registry.function("ones_like")
        return ones(out.detach())
    if not isinstance(g, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
    if g._tab_meta.shape != out._tab_meta.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[0] has a shape of {g.shape} and output[0] has a shape of {out.shape}."
        )
    if out._tab_meta.dtype.is_complex != g._tab_meta.dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
            f"grad_output[0] has a dtype of {g.dtype} and output[0] has a dtype of {out.dtype}."
        )
    return g if create_graph or not g._tab_requires_grad else g.detach()


def _check_roots(tensors: Sequence[Tensor]) -> list[Any]:
    roots: list[Any] = []
    for i, t in enumerate(tensors):
        # a view of a leaf made where nothing is recorded says that it requires a gradient, and has no history
        if not t.requires_grad or (t._tab_borrowed and t.grad_fn is None):
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        roots.append(t._tab_grad_fn or edge(t))
    return roots


def _as_tuple(x: Any) -> tuple[Any, ...]:
    x = (x,) if x is None or isinstance(x, Tensor) or hasattr(x, "ownership_token") else tuple(x)
    for e in x:
        if not isinstance(e, Tensor) and hasattr(e, "ownership_token"):
            return tuple(
                [
                    _lazy.autograd_graph.tensor_at(e) if isinstance(e, _lazy.autograd_graph.GradientEdge) else e
                    for e in x
                ]
            )
    return x


def _check_given(gradients: Sequence[Any]) -> None:
    for g in gradients:
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """`torch.autograd.backward`: adds the gradients of `tensors` to `.grad` of the leaves.

    RuntimeError: nothing requires grad; a tensor that is no scalar and has no gradient given; the graph was freed.
    """
    if grad_variables is not None and grad_tensors is None:
        grad_tensors = grad_variables
    if inputs is not None:
        inputs = _as_tuple(inputs)
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    if STATE.nesting:
        raise RuntimeError(
            "backward() called inside a functorch transform. This is not supported, please use functorch.grad or "
            "functorch.vjp instead or call backward() outside of functorch transforms."
        )
    if create_graph and _warn_of_cycle:
        import warnings

        _warn_of_cycle.clear()
        warnings.warn(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
            "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you "
            "have to use this function, make sure to reset the .grad fields of your parameters to None after use to break "
            "the cycle and avoid the leak.",
            stacklevel=3,
        )
    tensors = _as_tuple(tensors)
    given = (None,) * len(tensors) if grad_tensors is None else _as_tuple(grad_tensors)
    if len(given) != len(tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(given)} gradients")
    _check_given(given)
    roots = _check_roots(tensors)
    gs = [_root_grad(t, g, create_graph) for t, g in zip(tensors, given, strict=True)]
    keep = create_graph if retain_graph is None else retain_graph
    for t in inputs or ():
        if t._tab_requires_grad:  # as PyTorch: what is no leaf keeps its gradient from then on
            t.retain_grad()
    run(roots, gs, keep, create_graph, inputs)
    graph.flush()


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """`torch.autograd.grad`: the gradients of `outputs` with respect to `inputs`, as a tuple; `.grad` is left alone."""
    if is_grads_batched:

        def each(*gs: Tensor) -> Any:
            found = grad(
                outputs, inputs, gs, retain_graph, create_graph, only_inputs, allow_unused, False, materialize_grads
            )
            missing.update(k for k, g in enumerate(found) if g is None)
            return tuple(g for g in found if g is not None)

        for k, (o, g) in enumerate(zip(_as_tuple(outputs), _as_tuple(grad_outputs), strict=False)):
            if g is not None and g.shape[1:] != o.shape:
                raise RuntimeError(
                    "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. "
                    "The sizes of the remaining dimensions are expected to match the shape of corresponding output, but a "
                    f"mismatch was detected: grad_output[{k}] has a shape of {g.shape[1:]} and output[{k}] has a shape of "
                    f"{o.shape}. If you only want some tensors in `grad_output` to be considered batched, consider using "
                    "vmap."
                )
        missing: set[int] = set()
        batched = iter(_lazy.func.vmap(each)(*_as_tuple(grad_outputs)))
        return tuple([None if k in missing else next(batched) for k in range(len(_as_tuple(inputs)))])
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    if allow_unused is None:
        allow_unused = materialize_grads
    outputs, inputs = _as_tuple(outputs), _as_tuple(inputs)
    if not inputs:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    given = (None,) * len(outputs) if grad_outputs is None else _as_tuple(grad_outputs)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    _check_given(given)
    roots = _check_roots(outputs)
    for t in inputs:
        if not t.requires_grad:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    gs = [_root_grad(t, g, create_graph) for t, g in zip(outputs, given, strict=True)]
    keep = create_graph if retain_graph is None else retain_graph
    result = run(roots, gs, keep, create_graph, inputs, accumulate=False)
    if materialize_grads:
        zeros: Any = registry.function("zeros_like")
        result = [zeros(t) if g is None else g for g, t in zip(result, inputs, strict=True)]
    elif not allow_unused:
        for i, g in enumerate(result):
            if g is None:
                raise RuntimeError(
                    f"The differentiated Tensor at index {i} appears to not have been used in the graph. Set "
                    "allow_unused=True if this is the desired behavior."
                )
    return tuple(result)
