"""`einsum`: letters, ellipsis, repeated letters (diagonals), and the form with lists of numbers."""

from __future__ import annotations

from typing import Any

from tabtorch.autograd.tape import named
from tabtorch.core.shapes import permuted, unsqueezed
from tabtorch.core.tensor import Tensor
from tabtorch.ops.linalg.contract import Spec, contract, same_types
from tabtorch.ops.machinery.dispatch import layout_of
from tabtorch.ops.machinery.operation import operation
from tabtorch.ops.shaping.convert import recorded_in_order

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DOTS = -1  # stands for the ellipsis


def _labels(text: str, what: str, k: int = 0) -> list[int]:
    out: list[int] = []
    i = 0
    while i < len(text):
        c = text[i]
        if c == " ":
            i += 1
            continue
        if c == ".":
            if text[i : i + 3] != "..." or _DOTS in out:
                raise RuntimeError(
                    f"einsum(): found '.' for {what} that is not part of any ellipsis"
                    if text[i : i + 3] != "..."
                    else f"einsum(): found '.' for {what} for which an ellipsis was already found"
                )
            out.append(_DOTS)
            i += 3
            continue
        if c not in _LETTERS:
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {i} in the equation string, subscripts must be in [a-zA-Z]"
            )
        out.append(_LETTERS.index(c))
        i += 1
    return out


def _parse(args: tuple[Any, ...]) -> tuple[list[list[int]], list[int] | None, list[Tensor]]:
    """(labels of each operand, of the output or None, operands)."""
    if isinstance(args[0], str):
        equation = args[0]
        operands = args[1] if len(args) == 2 and isinstance(args[1], (list, tuple)) else args[1:]
        left, arrow, right = equation.partition("->")
        terms = left.split(",")
        if len(terms) != len(operands):
            more = "more" if len(operands) > len(terms) else "fewer"
            raise RuntimeError(f"einsum(): {more} operands were provided than specified in the equation")
        ins = [_labels(t, f"operand {k}") for k, t in enumerate(terms)]
        return ins, _labels(right, "output") if arrow else None, list(operands)
    operands, ins = [], []
    k = 0
    while k + 1 < len(args):
        operands.append(args[k])
        ins.append([_DOTS if x is Ellipsis else _number(x) for x in args[k + 1]])
        k += 2
    out = [_DOTS if x is Ellipsis else _number(x) for x in args[k]] if k < len(args) else None
    return ins, out, list(operands)


def _number(x: int) -> int:
    if not 0 <= x < 52:
        raise ValueError(f"einsum(): subscript {x} is not within the valid range [0, 52)")
    return int(x)


def _show(x: int) -> str:
    return _LETTERS[x]


def _diagonals(t: Tensor, labels: list[int]) -> tuple[Tensor, list[int]]:
    """Repeated letters as one dimension."""
    for x in dict.fromkeys(labels):
        while labels.count(x) > 1:
            a = labels.index(x)
            b = labels.index(x, a + 1)
            if t.shape[a] != t.shape[b]:
                raise RuntimeError(
                    f"einsum(): subscript {_show(x)} is repeated for operand 0 but the sizes don't match, "
                    f"{t.shape[b]} != {t.shape[a]}"
                )
            t = t.diagonal(0, a, b)
            labels = [y for d, y in enumerate(labels) if d not in (a, b)] + [x]
    return t, labels


@operation("einsum", method=False)
def einsum(*args: Any) -> Tensor:
    """Sums of products of elements by Einstein's convention, e.g. `einsum("bij,bjk->bik", a, b)`."""
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"
        )
    ins, out, ts = _parse(args)
    if not ts:
        raise RuntimeError("einsum(): must provide at least one operand")
    # the ellipsis becomes labels 100…, the same for all, from the right
    dots = 0
    for k, (labels, t) in enumerate(zip(ins, ts, strict=True)):
        named = len(labels) - (_DOTS in labels)
        if _DOTS in labels:
            if t.ndim < named:
                raise RuntimeError(
                    f"einsum(): the number of subscripts in the equation ({named}) is more than the number of dimensions "
                    f"({t.ndim}) for operand {k}"
                )
            dots = max(dots, t.ndim - named)
        elif t.ndim != named:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) does not match the number of dimensions "
                f"({t.ndim}) for operand {k} and no ellipsis was given"
            )
    ellipsis = [100 + d for d in range(dots, 0, -1)]

    def open_up(labels: list[int], ndim: int) -> list[int]:
        if _DOTS not in labels:
            return labels
        at = labels.index(_DOTS)
        n = ndim - (len(labels) - 1)
        return [*labels[:at], *ellipsis[dots - n :], *labels[at + 1 :]]

    full = [open_up(labels, t.ndim) for labels, t in zip(ins, ts, strict=True)]
    everything = [x for labels in full for x in labels]
    if out is None:
        lo = ellipsis + sorted(x for x in dict.fromkeys(everything) if x < 100 and everything.count(x) == 1)
    else:
        lo = [y for x in out for y in (ellipsis if x == _DOTS else [x])]
        for x in lo:
            if lo.count(x) > 1:
                raise RuntimeError(f"einsum(): output subscript {_show(x)} appears more than once in the output")
            if x not in everything:
                raise RuntimeError(
                    f"einsum(): output subscript {_show(x)} does not appear in the equation for any input operand"
                )
    _check_sizes(full, ts)
    pairs = [_diagonals(t, labels) for t, labels in zip(ts, full, strict=True)]
    t, labels = pairs[0]
    for k in range(1, len(pairs)):
        u, more = pairs[k]
        t, u = same_types("einsum", t, u)
        later = {x for _, ls in pairs[k + 1 :] for x in ls}
        keep = lo if k == len(pairs) - 1 else [x for x in dict.fromkeys((*labels, *more)) if x in later or x in lo]
        keep = [x for x in keep if x in labels or x in more]
        if t.dtype.category == 1 and _sums_alone(t, labels, more, keep) | _sums_alone(u, more, labels, keep):
            t, u = t.long(), u.long()
        if set(labels).union(more) - set(keep):
            t = contract(t, u, (tuple(labels), tuple(more), tuple(keep)), "ViewBackward0")
        else:
            t = _multiplied(t, u, (tuple(labels), tuple(more), tuple(keep)))
        labels = list(keep)
    if len(pairs) > 1:
        return t  # the last step has kept what the output has, in its order
    gone = [d for d, x in enumerate(labels) if x not in lo]
    t = t.permute((*(labels.index(x) for x in lo), *gone))
    return t.sum(tuple(range(len(lo), t.ndim))) if gone else t


def _multiplied(t: Tensor, u: Tensor, spec: Spec) -> Tensor:
    """A contraction that sums nothing: to PyTorch an elementwise product, and laid out as one."""
    *given, keep = spec
    seen = []
    for m, labels in zip((t._tab_meta, u._tab_meta), given):
        m = permuted(m, tuple([labels.index(x) for x in keep if x in labels]))
        for d, x in enumerate(keep):
            if x not in labels:
                m = unsqueezed(m, d)
        seen.append(m)
    r = contract(t, u, spec, "MulBackward0")
    return named(recorded_in_order(r, layout_of(seen, r._tab_meta.shape) or ()), "MulBackward0")


def _sums_alone(t: Tensor, own: list[int], other: list[int], keep: list[int]) -> bool:
    """Whether a dimension of one operand alone is summed: a sum of integers is int64, a product keeps its type."""
    return any(n != 1 and x not in other and x not in keep for x, n in zip(own, t.shape, strict=True))


def _check_sizes(full: list[list[int]], ts: list[Tensor]) -> None:
    size: dict[int, int] = {}
    for k, (labels, t) in enumerate(zip(full, ts, strict=True)):
        for x, n in zip(labels, t.shape, strict=True):
            if n != 1 and size.setdefault(x, n) != n:
                name = _show(x) if x < 100 else "..."
                raise RuntimeError(
                    f"einsum(): subscript {name} has size {n} for operand {k} which does not broadcast with previously seen "
                    f"size {size[x]}"
                )
