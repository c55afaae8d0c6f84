"""Factorisations that NumPy does not show, over NumPy arrays (batch, rows, columns): as LAPACK does them, all matrices at once.

A loop goes over the columns of a matrix; each of its steps is over the whole batch. Wide blocks are products of matrices.
"""

from __future__ import annotations

import math
from typing import Any

from tabtorch.ops.linalg.host_arrays import numpy

_BLOCK = 32  # columns between two products of matrices


def flat(a: Any, batch: tuple[int, ...] | None = None) -> Any:
    """One batch dimension, after broadcasting to `batch`."""
    np = numpy()
    if batch is not None:
        a = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    return a.reshape(math.prod(a.shape[:-2]), *a.shape[-2:])


def adjoint(a: Any) -> Any:
    return a.conj().swapaxes(-1, -2)


def _size(a: Any) -> Any:
    """What LAPACK compares in place of |a|."""
    return abs(a.real) + abs(a.imag) if a.dtype.kind == "c" else abs(a)


def cholesky(a: Any) -> tuple[Any, Any]:
    """L with L Lᴴ = a, of the lower triangle of `a`, and info: 0, or the order of the first minor that is not positive."""
    np = numpy()
    try:
        low = np.linalg.cholesky(a)
        if not np.isnan(low).any():  # not all of the libraries below NumPy look for it
            return low, np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        pass
    x = np.tril(flat(a))
    info = np.zeros(len(x), np.int32)
    with np.errstate(all="ignore"):
        for j in range(x.shape[-1]):
            d = x[:, j, j].real - (abs(x[:, j, :j]) ** 2).sum(-1)
            bad = ~(d > 0)
            info[bad & (info == 0)] = j + 1
            d = np.sqrt(np.where(bad, 1, d))
            x[:, j, j] = d
            x[:, j + 1 :, j] -= (x[:, j + 1 :, :j] @ x[:, j, :j, None].conj())[..., 0]
            x[:, j + 1 :, j] /= d[:, None]
    return x.reshape(a.shape), info.reshape(a.shape[:-2])


def lu(a: Any, pivot: bool = True) -> tuple[Any, Any, Any]:
    """(LU in one matrix, pivots counted from 1, info: 0 or the first diagonal element of U that is zero, from 1)."""
    np = numpy()
    x = flat(a).copy()
    b, (m, n) = len(x), x.shape[-2:]
    k, each = min(m, n), np.arange(b)
    pivots = np.tile(np.arange(1, k + 1, dtype=np.int32), (b, 1))
    info = np.zeros(b, np.int32)
    with np.errstate(all="ignore"):
        for start in range(0, k, _BLOCK):
            stop = min(start + _BLOCK, k)
            for j in range(start, stop):
                if pivot:
                    p = _size(x[:, j:, j]).argmax(1) + j
                    pivots[:, j] = p + 1
                    x[each, j], x[each, p] = x[each, p], x[each, j]
                d = x[:, j, j]
                info[(d == 0) & (info == 0)] = j + 1
                x[:, j + 1 :, j] /= np.where(d == 0, 1, d)[:, None]
                x[:, j + 1 :, j + 1 : stop] -= x[:, j + 1 :, j, None] * x[:, None, j, j + 1 : stop]
            if stop < n:
                top = substitute(x[:, start:stop, start:stop], x[:, start:stop, stop:], unit=True)
                x[:, start:stop, stop:] = top
                x[:, stop:, stop:] -= x[:, stop:, start:stop] @ top
    batch = a.shape[:-2]
    return x.reshape(a.shape), pivots.reshape(*batch, k), info.reshape(batch)


def permutation(pivots: Any, m: int) -> Any:
    """Row i of L U is row permutation[i] of the matrix. ValueError for a pivot that is not in 1 to `m`."""
    np = numpy()
    swaps = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1]) - 1
    if ((swaps < 0) | (swaps >= m)).any():
        raise ValueError("no such row")
    rows = np.tile(np.arange(m), (len(swaps), 1))
    each = np.arange(len(rows))
    for j, p in enumerate(swaps.T):
        rows[each, j], rows[each, p] = rows[each, p], rows[each, j]
    return rows.reshape(*pivots.shape[:-1], m)


def substitute(t: Any, b: Any, upper: bool = False, unit: bool = False) -> Any:
    """x with t x = b, of one triangle of `t`; with `unit` its diagonal counts as ones. A zero there makes inf and nan."""
    np = numpy()
    if upper:
        return substitute(t[:, ::-1, ::-1], b[:, ::-1], False, unit)[:, ::-1]
    x = b.copy()
    n = t.shape[-1]
    with np.errstate(all="ignore"):
        for start in range(0, n, _BLOCK):
            stop = min(start + _BLOCK, n)
            if start:
                x[:, start:stop] -= t[:, start:stop, :start] @ x[:, :start]
            for j in range(start, stop):
                if j > start:
                    x[:, j] -= (t[:, j, None, start:j] @ x[:, start:j])[:, 0]
                if not unit:
                    x[:, j] /= t[:, j, j, None]
    return x


def triangular(t: Any, b: Any, upper: bool, left: bool = True, unit: bool = False) -> Any:
    """`substitute` with any batch dimensions, and x t = b where not `left`."""
    np = numpy()
    batch = np.broadcast_shapes(t.shape[:-2], b.shape[:-2])
    if not left:
        return adjoint(triangular(adjoint(t), adjoint(b), not upper, True, unit))
    return substitute(flat(t, batch), flat(b, batch), upper, unit).reshape(*batch, *b.shape[-2:])


def lu_solve(packed: Any, pivots: Any, b: Any, left: bool = True, adjoint_: bool = False) -> Any:
    """x with A x = b (Aᴴ x = b with `adjoint_`, x A = b where not `left`), of the LU of A."""
    np = numpy()
    if not left:
        return adjoint(lu_solve(packed, pivots, adjoint(b), True, not adjoint_))
    rows = permutation(pivots, packed.shape[-1])
    batch = np.broadcast_shapes(packed.shape[:-2], b.shape[:-2])
    rows = np.broadcast_to(rows[..., None], (*batch, *b.shape[-2:]))
    b = np.broadcast_to(b, rows.shape)
    if not adjoint_:
        y = triangular(packed, np.take_along_axis(b, rows, -2), False, unit=True)
        return triangular(packed, y, True)
    h = adjoint(packed)
    y = triangular(h, triangular(h, b, False), True, unit=True)
    x = np.empty_like(y)
    np.put_along_axis(x, rows, y, -2)
    return x


def solve(a: Any, b: Any) -> tuple[Any, Any]:
    """(x with a x = b, info as `lu`'s). For a singular matrix x has inf and nan."""
    np = numpy()
    b = b.reshape((1,) * (a.ndim - b.ndim) + b.shape)  # NumPy 1 takes what has one dimension less for vectors
    try:
        return np.linalg.solve(a, b), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        packed, pivots, info = lu(a)
        # what LAPACK found counts: a sum in another order may have missed it
        singular = (np.linalg.slogdet(a)[0] == 0) & np.isfinite(a).all((-2, -1))
        info = np.where(singular, np.where(info == 0, a.shape[-1], info), 0).astype(np.int32)
        return lu_solve(packed, pivots, b), info


def determinant(a: Any) -> tuple[Any, Any, Any]:
    """(det, its sign, log of its size)."""
    np = numpy()
    if np.isfinite(a).all():
        return np.linalg.det(a), *np.linalg.slogdet(a)
    packed, pivots, _ = lu(a)  # NumPy does not always tell nan from singular
    d = np.diagonal(packed, 0, -2, -1)
    odd = (pivots != np.arange(1, a.shape[-1] + 1)).sum(-1) % 2
    with np.errstate(all="ignore"):
        size = abs(d)
        flip = (1 - 2 * odd).astype(a.dtype)
        return d.prod(-1) * flip, (d / size).prod(-1) * flip, np.log(size).sum(-1)


# ---- L D Lᵀ


def ldl(a: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    """(L and D in one lower triangle, pivots, info) of symmetric or Hermitian matrices: Bunch and Kaufman (1977).

    A pivot p > 0 at k: rows k and p were swapped; p < 0 at k and k + 1: a block of two, rows k + 1 and -p were.
    """
    np = numpy()
    low = np.tril(flat(a))
    x = low + np.tril(low, -1).swapaxes(-1, -2) if not hermitian else low + adjoint(np.tril(low, -1))
    b, n = x.shape[:2]
    diagonal = np.arange(n)
    conj = np.conj if hermitian else np.asarray
    alpha = (1 + math.sqrt(17)) / 8
    pivots, info = np.zeros((b, n), np.int32), np.zeros(b, np.int32)
    second = np.zeros(b, bool)  # in the second column of a block of two
    with np.errstate(all="ignore"):
        for k in range(n):
            if hermitian:  # or rounding grows
                x[:, diagonal, diagonal] = x[:, diagonal, diagonal].real
            e = np.flatnonzero(~second)
            second[:] = False
            here, column = _size(x[e, k, k]), _size(x[e, k + 1 :, k])
            far = column.argmax(1) + k + 1 if k + 1 < n else np.full(len(e), k)
            most = column.max(1) if k + 1 < n else np.zeros(len(e))
            row = _size(x[e, k:, far])
            row[np.arange(len(e)), far - k] = 0
            across = row.max(1)
            stay = (here >= alpha * most) | (here * across >= alpha * most * most)
            one = stay | (_size(x[e, far, far]) >= alpha * across)
            p = np.where(stay, k, far)
            lost = ~(np.maximum(here, most) > 0) | np.isnan(here)
            one, p = one | lost, np.where(lost, k, p)
            info[e[lost & (info[e] == 0)]] = k + 1
            q = np.where(one, k, k + 1)
            x[e, q, k:], x[e, p, k:] = x[e, p, k:], x[e, q, k:]
            x[e, k:, q], x[e, k:, p] = x[e, k:, p], x[e, k:, q]
            pivots[e, k] = np.where(one, p + 1, -p - 1)
            s = e[one & ~lost]
            v = x[s, k + 1 :, k]
            w = v / x[s, k, k, None]
            x[s, k + 1 :, k + 1 :] -= w[:, :, None] * conj(v)[:, None]
            x[s, k + 1 :, k] = w
            s = e[~one]
            if len(s):
                second[s] = True
                pivots[s, k + 1] = pivots[s, k]
                first, next_ = x[s, k + 2 :, k], x[s, k + 2 :, k + 1]
                w0, w1 = _block(x, s, k, conj, first, next_, True)
                x[s, k + 2 :, k + 2 :] -= w0[:, :, None] * conj(first)[:, None] + w1[:, :, None] * conj(next_)[:, None]
                x[s, k + 2 :, k], x[s, k + 2 :, k + 1] = w0, w1
    batch = a.shape[:-2]
    return np.tril(x).reshape(a.shape), pivots.reshape(*batch, n), info.reshape(batch)


def _block(x: Any, s: Any, k: int, conj: Any, r0: Any, r1: Any, right: bool) -> tuple[Any, Any]:
    """(r0, r1) times the inverse of the block of two at k; on its right side, or on its left."""
    b = x[s, k + 1, k, None]
    c = conj(b)
    if not right:
        b, c = c, b
    d0, d1 = x[s, k, k, None] / c, x[s, k + 1, k + 1, None] / b
    t = d0 * d1 - 1
    return (d1 * r0 - r1) / (c * t), (d0 * r1 - r0) / (b * t)


def ldl_solve(ld: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    """x with A x = b, of the result of `ldl`."""
    np = numpy()
    batch = np.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
    a, x = flat(ld, batch), flat(b, batch).copy()
    n = a.shape[-1]
    ps = flat(pivots[..., None], batch)[..., 0]
    conj = np.conj if hermitian else np.asarray
    swap = abs(ps).astype(np.int64) - 1
    first = np.zeros(ps.shape, bool)
    for k in range(n - 1):
        first[:, k] = (ps[:, k] < 0) & ~(first[:, k - 1] if k else False)
    with np.errstate(all="ignore"):
        for k in range(n):
            e = np.flatnonzero(ps[:, k] > 0)
            p = swap[e, k]
            x[e, k], x[e, p] = x[e, p], x[e, k]
            x[e, k + 1 :] -= a[e, k + 1 :, k, None] * x[e, None, k]
            x[e, k] /= a[e, k, k, None]
            e = np.flatnonzero(first[:, k])
            if len(e):
                p = swap[e, k]
                x[e, k + 1], x[e, p] = x[e, p], x[e, k + 1]
                x[e, k + 2 :] -= a[e, k + 2 :, k : k + 2] @ x[e, k : k + 2]
                x[e, k], x[e, k + 1] = _block(a, e, k, conj, x[e, k], x[e, k + 1], False)
        for k in range(n - 1, -1, -1):
            # the first column of a block of two reaches below the block only, and the swap comes after both its rows
            two = np.flatnonzero(first[:, k])
            for e, below in ((np.flatnonzero(~first[:, k]), k + 1), (two, k + 2)):
                x[e, k] -= (conj(a[e, None, below:, k]) @ x[e, below:])[:, 0]
            for e, at in ((np.flatnonzero(ps[:, k] > 0), k), (two, k + 1)):
                if len(e):
                    p = swap[e, k]
                    x[e, at], x[e, p] = x[e, p], x[e, at]
    return x.reshape(*batch, *b.shape[-2:])
