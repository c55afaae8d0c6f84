"""Attention by tuned kernels, on GPUs with workgroup memory: one pass over the keys forward, and two kernels and a sum of
products backward, which make the scores again from the logarithms of their totals. Scores are never in memory. Dropout is drawn
where it is wanted, forward and backward; a mask's gradient is a kernel more.

Views are read as they are, halves computed in float32. `served` says what this is for; all else is the formula of
`nn.functional`, which is also what derivatives of gradients are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import record
from tabtorch.base import dtypes
from tabtorch.core.tensor import Tensor
from tabtorch.engine.graph import inst
from tabtorch.engine.symbols import fixed
from tabtorch.engine.target import Target, target
from tabtorch.engine.view import Meta, broadcast_strides, contiguous_meta, contiguous_strides, meta
from tabtorch.ops.machinery.batching import batches
from tabtorch.ops.machinery.operation import run
from tabtorch.ops.neural.attention_functions import Traced
from tabtorch.ops.neural.attention_kernels import (
    ATTENTION,
    DROPOUT_TYPES,
    FEW,
    KEY,
    MASK,
    QUERY,
    Static,
    gradient_view,
    result_view,
    spread,
    words,
)
from tabtorch.ops.reductions.reduce import quiet

#: bytes of workgroup memory without which the formula serves
_LEAST = 16384
_WIDEST = 256
#: threads of a workgroup that makes one of a few rows; rows in all up to which that is not slower than the formula, whose products
#: fill their tiles better; and keys that one workgroup walks if there are fewer rows than that to keep a large GPU busy
_THREADS, _MOST, _LONGEST, _BUSY = 256, 4096, 4096, 64


def served(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, grouped: bool) -> bool:
    """Whether the kernels do this attention."""
    seen = [q, k, v] if mask is None else [q, k, v, mask]
    recorded = STATE.grad and any(t._tab_requires_grad for t in seen)
    return fits(q._tab_meta, k._tab_meta, v._tab_meta, None if mask is None else mask._tab_meta, grouped, recorded)


def _few(t: Target, rows: int, batch: int, keys: int, recorded: bool) -> bool:
    """Whether a workgroup a row is the way. Its gradients would leave most of their tiles empty."""
    return (
        not recorded
        and t.invocations >= _THREADS
        and rows * batch <= _MOST
        and (keys <= _LONGEST or rows * batch >= _BUSY)
    )


def fits(m: Meta, mk: Meta, mv: Meta, d: Meta | None, grouped: bool, recorded: bool) -> bool:
    """The same of tensors that look so: queries, keys, values, and the mask. recorded: whether gradients are wanted."""
    if m.device.type != "webgpu" or batches[0]:
        return False
    t = target(0)
    if not t.barriers or t.workgroup_bytes < _LEAST or m.dtype.name not in ("float32", "float16", "bfloat16"):
        return False
    if not (mk.ndim == mv.ndim == m.ndim >= 2) or mk.device is not m.device or mv.device is not m.device:
        return False
    rows, width = m.shape[-2:]
    keys, values = mv.shape[-2:]
    if mk.shape[-2:] != (keys, width) or not (rows and keys and 0 < width <= _WIDEST and 0 < values <= _WIDEST):
        return False
    if m.dtype.itemsize == 2 and (width % 2 or values % 2):
        return False  # an element would share its word with one of another row
    lead = m.shape[:-2]
    if mk.shape[:-2] != mv.shape[:-2] or (
        mk.shape[:-2] != lead if not grouped else (len(lead) < 1 or mk.shape[:-3] != lead[:-1] or not mk.shape[-3])
    ):
        return False
    if not 0 < prod(lead) <= 65535 or (rows < FEW and not _few(t, rows, prod(lead), keys, recorded)):
        return False
    if d is None:
        return True
    shape = (*lead, rows, keys)
    return (
        d.device is m.device
        and (d.dtype.name == "bool" or (d.dtype.category == 2 and d.dtype.itemsize < 8))
        and d.ndim <= len(shape)
        and all(n in (1, want) for n, want in zip(reversed(d.shape), reversed(shape)))
    )


def _flat(numel: int, like: Meta) -> Meta:
    return contiguous_meta((numel,), like.dtype, like.device)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    formula: Callable[..., Any],
    traced: Traced | None = None,
    blocks: tuple[Tensor, tuple[int, int]] | None = None,
    totals: bool = False,
    dropout: tuple[Any, ...] = (),
    of_read: Callable[..., Any] | None = None,
    made: tuple[Tensor, Tensor] | None = None,
) -> Any:
    """softmax(q kᵀ · scale + mask) v for what is `served`, recorded.

    `formula(g, q, k, v, mask)`: the gradients of q, k, v, the mask, and of what the functions read, by operations that have
    gradients themselves.
    traced: FlexAttention's functions, in place of a mask. blocks: (batch, heads, rows, columns) of 0 to 3, see `_Writer.block`,
    and the size of one. totals: gives (result, logarithms of the sums of exp(score)), and `formula` a list of two gradients.
    dropout: its numbers, see `dropout_numbers`. of_read: of the gradients of the functions' results those of what they read.
    made: the result and the logarithms, where they are there already, and only their gradients are to be recorded.
    """
    m, mk, mv = q._tab_meta, k._tab_meta, v._tab_meta
    extra = [] if mask is None else [mask]
    views = [m, mk, mv]
    if mask is not None:
        shape = (*m.shape[:-1], mk.shape[-2])
        views.append(mask._tab_meta.view(shape, broadcast_strides(mask._tab_meta, shape), mask._tab_meta.offset))
    if blocks is not None:
        extra.append(blocks[0])
        views.append(blocks[0]._tab_meta)
    scalars: tuple[Any, ...] = (float(scale),)
    types: tuple[str, ...] = ("f32",)
    if traced is not None:
        extra += traced.captured
        views += [t._tab_meta for t in traced.captured]
        scalars += tuple(traced.scalars)
        types += tuple(traced.types)
    if dropout:
        scalars += dropout
        types += DROPOUT_TYPES
    group = fixed(m.shape[-3] // mk.shape[-3]) if m.ndim > 2 else 1
    wanted = traced.wanted if traced is not None else []
    recording = STATE.grad and (
        q._tab_requires_grad
        or k._tab_requires_grad
        or v._tab_requires_grad
        or (mask is not None and mask._tab_requires_grad)
        or bool(wanted)
    )
    # as the queries lie, so that joining the heads again copies nothing. Where elements of a row lie apart in memory PyTorch takes no
    # kernel but the formula, whose result is row by row
    turned = (
        m.ndim == 4
        and m.strides[1] < m.strides[2]
        and m.shape[-1] == mv.shape[-1]
        and all(x.strides[-1] == 1 for x in (m, mk, mv))
    )
    static = Static(
        bool(causal),
        mask is not None,
        group,
        recording or totals,
        traced and traced.functions,
        blocks and blocks[1],
        bool(dropout),
        turned=bool(turned),
    )
    shown = result_view(m, mv, static.turned)
    if not static.lse:
        i = inst(ATTENTION, tuple(views), _flat(shown.numel, shown) if turned else shown, types, static)
        return run(i, shown, q, k, v, *extra, scalars=scalars)

    if made is not None:
        out, lse = (t.detach() for t in made)
    else:
        # the result, and behind it the logarithms, in one value: of words, where it is of halves
        rows = shown.numel // shown.shape[-1]
        start = words(shown.numel, shown.dtype)
        word = dtypes.float32 if shown.dtype.itemsize == 4 else dtypes.int32
        i = inst(ATTENTION, tuple(views), contiguous_meta((start + rows,), word, m.device), types, static)
        out = run(i, shown, q, k, v, *extra, scalars=scalars)
        shown_totals = meta(m.shape[:-1], contiguous_strides(m.shape[:-1]), start, dtypes.float32, m.device)
        lse = Tensor._wrap(out._tab_storage.node, shown_totals)

    #: of each dimension of the scores, whether all of it shares an element of the mask, if a gradient of that is wanted
    shared: tuple[bool, ...] | None = None
    if mask is not None and mask._tab_requires_grad:
        own = (1,) * (len(shape) - mask._tab_meta.ndim) + tuple(mask._tab_meta.shape)
        shared = tuple([a == 1 != b for a, b in zip(own, shape, strict=True)])

    def back(g: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *extra: Any) -> Any:
        given = g if totals else [g]
        saved = (*given, q, k, v, out, lse, *extra)
        if STATE.grad or batches[0] or any(t is not None and t._tab_meta.device is not m.device for t in saved):
            return tuple(formula(g, q, k, v, extra[0] if mask is not None else None))
        g, more = (*given, None)[:2]
        with quiet():
            g = out.new_zeros(out.shape) if g is None else g
            delta = (g.float() * out.float()).sum(-1)
            if more is not None:
                delta = delta - more
        args = [q, k, v, *extra, g, lse, delta]
        seen = [t._tab_meta for t in args]
        if mask is not None:
            seen[3] = views[3]
        plain = static._replace(lse=False, turned=False)

        def made(op: Any, out: Meta, shown: Meta, **more: Any) -> Tensor:
            return run(inst(op, tuple(seen), out, types, plain._replace(**more)), shown, *args, scalars=scalars)

        def of_scores(summed: tuple[bool, ...], shape: tuple[int, ...] | None = None) -> Tensor:
            """The gradient of what is added to the scores."""
            wide = contiguous_meta(spread((*m.shape[:-1], mk.shape[-2]), summed), dtypes.float32, m.device)
            shown = wide if shape is None else contiguous_meta(shape, dtypes.float32, m.device)
            return made(MASK, wide, shown, summed=summed)

        dq = made(QUERY, _flat(m.numel, m), gradient_view(seen[0]))
        both = made(KEY, _flat(mk.numel + mv.numel, m), gradient_view(seen[1]))
        found = [dq, both, Tensor._wrap(both._tab_storage.node, gradient_view(seen[2], mk.numel)), None]
        if shared is not None:
            found[3] = of_scores(shared, None if any(shared[-2:]) else tuple(extra[0]._tab_meta.shape))
        if wanted:
            assert of_read is not None
            found += of_read(of_scores((False,) * m.ndim), q, k)
        return tuple(found)

    name = "ScaledDotProductFlashAttentionForCpu"
    if m.ndim != 4 or m.shape[-1] != mv.shape[-1] or dropout or shared is not None:
        name = "UnsafeView" if m.ndim > 2 else "Mm"
    results = (out, lse) if totals else out
    record(name + "Backward0", (q, k, v, mask, *wanted), results, back, (q, k, v, out, lse, *extra))
    return results


__all__ = ["attention", "served"]
