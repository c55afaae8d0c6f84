"""A recurrent layer over its time steps: a product and one more kernel a step, forward and backward, and one product in the
end for each weight's gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import _lazy, ops
from tabtorch.autograd.grad_mode import STATE, no_grad
from tabtorch.autograd.tape import record
from tabtorch.core.tensor import Tensor
from tabtorch.engine.expr import cast, const, exp, tanh, where
from tabtorch.engine.graph import Map, inst
from tabtorch.engine.view import contiguous_meta, meta
from tabtorch.ops.machinery.operation import run

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _sigmoid(x: Any) -> Any:
    return 1.0 / (exp(-x) + 1.0)


def _lstm_cell(xi: Any, xf: Any, xg: Any, hi: Any, hf: Any, hg: Any, c: Any) -> Any:
    return _sigmoid(xf + hf) * c + _sigmoid(xi + hi) * tanh(xg + hg)


def _lstm_hidden(xo: Any, ho: Any, c: Any) -> Any:
    return _sigmoid(xo + ho) * tanh(c)


def _gru_hidden(xr: Any, xz: Any, xn: Any, hr: Any, hz: Any, hn: Any, h: Any) -> Any:
    new = tanh(xn + _sigmoid(xr + hr) * hn)
    return (h - new) * _sigmoid(xz + hz) + new


def _values(p: Any, i: int, *place: Any) -> Any:
    return cast(p.at(i, list(place)), p.inst.out.dtype.compute)


def _lstm_gates_at(p: Any) -> Any:
    """(L · N, 4, H): i, f, g, o of all steps, from the two parts."""
    n, k, h = p.coords
    x = p.k.let(_values(p, 0, n, k, h) + _values(p, 1, n, k, h), "x")
    return where(k == 2, tanh(x), _sigmoid(x))


def _gru_gates_at(p: Any) -> Any:
    """(L · N, 3, H): r, z, n of all steps."""
    n, k, h = p.coords
    first = where(k == 1, k, const(0, "u32"))
    gate = p.k.let(_sigmoid(_values(p, 0, n, first, h) + _values(p, 1, n, first, h)), "gate")
    two = const(2, "u32")
    return where(k == 2, tanh(_values(p, 0, n, two, h) + gate * _values(p, 1, n, two, h)), gate)


def _choose(k: Any, values: list[Any]) -> Any:
    """Value number `k`."""
    out = values[-1]
    for i in range(len(values) - 2, -1, -1):
        out = where(k == i, values[i], out)
    return out


def _lstm_back_at(p: Any) -> Any:
    """(N, 5, H): the gradients of the four gates, and of the cell before.

    Inputs: the gates, the cell before, tanh of the new one; the gradients of the output, and of h and c from the step after.
    """
    n, k, h = p.coords
    i, f, g, o = (_values(p, 0, n, const(q, "u32"), h) for q in range(4))
    before, t, d_out, d_h, d_c = (_values(p, q, n, h) for q in range(1, 6))
    d = p.k.let(d_out + d_h, "d")
    dc = p.k.let(d_c + d * o * (1.0 - t * t), "dc")
    gates = [dc * g * i * (1.0 - i), dc * before * f * (1.0 - f), dc * i * (1.0 - g * g), d * t * o * (1.0 - o)]
    return _choose(k, [*gates, dc * f])


def _gru_back_at(p: Any) -> Any:
    """(N, 7, H): the gradients of the gates' hidden parts, of their inputs, and what goes straight to the state before.

    Inputs: the gates, their hidden part, the state before; the gradients of the output, and, in two parts, of h.
    """
    n, k, h = p.coords
    r, z, new = (_values(p, 0, n, const(q, "u32"), h) for q in range(3))
    part = _values(p, 1, n, const(2, "u32"), h)
    old, d_out, d_h, d_straight = (_values(p, q, n, h) for q in range(2, 6))
    d = p.k.let(d_out + d_h + d_straight, "d")
    dn = p.k.let(d * (1.0 - z) * (1.0 - new * new), "dn")
    dz = p.k.let(d * (old - new) * z * (1.0 - z), "dz")
    dr = p.k.let(dn * part * r * (1.0 - r), "dr")
    return _choose(k, [dr, dz, dn * r, dr, dz, dn, d * z])


_CELL = Map("lstm_cell", _lstm_cell, cost=60)
_HIDDEN = {"LSTM": Map("lstm", _lstm_hidden, cost=30), "GRU": Map("gru", _gru_hidden, cost=60)}
_GATE_VALUES = {
    "LSTM": Map("lstm_gates", _lstm_gates_at, indexed=True, cost=30),
    "GRU": Map("gru_gates", _gru_gates_at, indexed=True, cost=40),
}
_BACK = {
    "LSTM": Map("lstm_backward", _lstm_back_at, indexed=True, cost=40),
    "GRU": Map("gru_backward", _gru_back_at, indexed=True, cost=40),
}


def _gate(t: Tensor, gates: int, k: int, step: int | None = None) -> Any:
    """The Meta of gate `k` (N, H) of (N, gates · H), or of one step of (L, N, gates · H)."""
    m = t._tab_meta
    n, width = m.shape[-2:]
    s, one = m.strides[-2:]
    size = width // gates
    offset = m.offset + size * one * k + (m.strides[0] * step if step is not None else 0)
    return m.view((n, size), (s, one), offset)


def _by_gate(t: Tensor, gates: int, step: int) -> Any:
    """The Meta of one step of (L, N, gates · H) as (N, gates, H)."""
    m = _gate(t, gates, 0, step)
    (n, size), (s, one) = m.shape, m.strides
    return m.view((n, gates, size), (s, size * one, one), m.offset)


def _part(t: Tensor, m: Any) -> Tensor:
    return Tensor._view_of(t, m)


def scan(
    mode: str,
    gates: Tensor,
    h: Tensor,
    c: Tensor | None,
    w_hh: Tensor,
    b_hh: Tensor | None,
    w_hr: Tensor | None,
    reverse: bool,
    reference: Callable[..., Any],
) -> tuple[Tensor, Tensor | None]:
    """The outputs (L, N, H) and the last cell, from the inputs' part of the gates (L, N, gates · H).

    reference: the same with operations that autograd knows, for gradients that are to be differentiated again.
    """
    order = range(gates.size(0))
    order = order[::-1] if reverse else order
    with no_grad():
        outs, cells = _forward(mode, gates, h, c, w_hh, b_hh, w_hr, order)
        out = ops.stack(outs)
    last = None if c is None else _part(cells[order[-1]], cells[order[-1]]._tab_meta)
    inputs = (gates, h, c, w_hh, b_hh, w_hr)

    def backward(gs: Any, *saved: Any) -> Any:
        gs = [gs] if c is None else gs
        if STATE.grad:
            return _again(mode, gs, saved[:6], reverse, reference)
        return _backward(mode, gs, saved, order)

    name = "MkldnnRnnLayerBackward0" if mode == "LSTM" and w_hr is None else "StackBackward0"
    record(name, inputs, out if last is None else (out, last), backward, (*inputs, out, *cells))
    return out, last


def _forward(mode: str, gates: Any, h: Any, c: Any, w_hh: Any, b_hh: Any, w_hr: Any, order: range) -> Any:
    count = GATES[mode]
    g = gates._tab_meta
    out = contiguous_meta((g.shape[1], g.shape[2] // count), g.dtype, g.device)
    outs: list[Any] = [None] * len(order)
    cells: list[Any] = [None] * len(order) if mode == "LSTM" else []
    w, w_r = w_hh.t(), None if w_hr is None else w_hr.t()
    for t in order:
        hidden = ops.mm(h, w) if b_hh is None else ops.addmm(b_hh, h, w)
        if count == 1:
            total = gates[t] + hidden
            h = ops.tanh(total) if mode == "RNN_TANH" else ops.relu(total)
        else:
            x = [_gate(gates, count, k, t) for k in range(count)]
            y = [_gate(hidden, count, k) for k in range(count)]
            three, before = (gates,) * 3 + (hidden,) * 3, c if cells else h
            made = run(
                inst(_CELL if cells else _HIDDEN[mode], (*x[:3], *y[:3], before._tab_meta), out), out, *three, before
            )
            if cells:
                c = cells[t] = made
                made = run(inst(_HIDDEN[mode], (x[3], y[3], out), out), out, gates, hidden, c)
            h = made if w_r is None else ops.mm(made, w_r)
        outs[t] = h
    return outs, cells


def _backward(mode: str, gs: Any, saved: Any, order: range) -> Any:
    gates, h0, c0, w_hh, b_hh, w_hr, out, *cells = saved
    count, lstm, gru = GATES[mode], mode == "LSTM", mode == "GRU"
    steps, n = gates.size(0), gates.size(1)
    size = w_hh.size(0) // count
    zero = ops.zeros((1, 1), dtype=gates.dtype, device=gates.device)
    none, rest = zero.expand(n, size), zero.expand(n, out.size(2))
    g_out = gs[0]
    # the states before each step, and what came of them: one product for all steps
    start = h0.unsqueeze(0)
    before = ops.cat([start, out[:-1]] if order[0] == 0 else [out[1:], start])
    flat = before.flatten(0, 1)
    rows = 5 if lstm else 7 if gru else 1
    if count > 1:
        hidden = ops.mm(flat, w_hh.t()) if b_hh is None else ops.addmm(b_hh, flat, w_hh.t())
        parts = [t.reshape(steps * n, count, size) for t in (gates, hidden)]
        shown = contiguous_meta((steps * n, count, size), gates.dtype, gates.device)
        values = run(inst(_GATE_VALUES[mode], tuple([t._tab_meta for t in parts]), shown), shown, *parts)
        values, hidden = values.view(steps, n, count * size), hidden.view(steps, n, count * size)
        tanh_c: Any = ops.stack(cells).tanh() if lstm else None
        shown = contiguous_meta((n, rows, size), gates.dtype, gates.device)
        straight = meta((n, size), (rows * size, 1), (rows - 1) * size, gates.dtype, gates.device)
        of_hidden = meta((n, count * size), (rows * size, 1), 0, gates.dtype, gates.device)
    dh, dc = rest, none if not lstm or gs[1] is None else gs[1]
    projected: list[Any] = [None] * steps
    made: list[Any] = [None] * steps
    for t in order[::-1]:
        d = rest if g_out is None else g_out[t]
        if count == 1:
            s = made[t] = (ops._tanh_backward if mode == "RNN_TANH" else ops._relu_backward)(d + dh, out[t])
            dh = ops.mm(s, w_hh)
            continue
        if w_hr is not None:
            projected[t] = d + dh
            d, dh = ops.mm(projected[t], w_hr), none
        if lstm:
            k = t - 1 if order[0] == 0 else t + 1
            srcs: Any = (values, cells[k] if 0 <= k < steps else c0, tanh_c[t], d, dh, dc)
            ins = (_by_gate(values, count, t), *[s._tab_meta for s in srcs[1:]])
        else:
            srcs = (values, hidden, before[t], d, dh, dc)
            ins = (_by_gate(values, count, t), _by_gate(hidden, count, t), *[s._tab_meta for s in srcs[2:]])
        s = made[t] = run(inst(_BACK[mode], ins, shown), shown, *srcs)
        dc = _part(s, straight)
        dh = ops.mm(_part(s, of_hidden), w_hh)
    every = ops.stack(made)  # (L, N, rows, H), or (L, N, H)
    d_hidden = every if count == 1 else every[:, :, :count].flatten(2)
    by_weight = d_hidden.flatten(0, 1)
    d_proj = None
    if w_hr is not None:
        full = values[..., 3 * size :] * tanh_c
        d_proj = ops.mm(ops.stack(projected).flatten(0, 1).t(), full.flatten(0, 1))
    return (
        every[:, :, 3:6].flatten(2) if gru else d_hidden,
        dh + dc if gru else dh,
        dc if lstm else None,
        ops.mm(by_weight.t(), flat),
        None if b_hh is None else by_weight.sum(0),
        d_proj,
    )


def _again(mode: str, gs: Any, inputs: Any, reverse: bool, reference: Any) -> Any:
    """The gradients as a function of the inputs that has gradients itself."""
    out, last = reference(mode, *inputs, reverse)
    pairs = [(y, g) for y, g in zip((out, last), gs) if g is not None and y is not None]
    wanted = [t for t in inputs if t is not None and t.requires_grad]
    found = iter(
        _lazy.autograd.grad([y for y, _ in pairs], wanted, [g for _, g in pairs], create_graph=True, allow_unused=True)
    )
    return tuple([next(found) if t is not None and t.requires_grad else None for t in inputs])
