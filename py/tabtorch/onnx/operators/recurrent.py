"""RNN, GRU and LSTM: with all of ONNX's activations, in both directions, with lengths, peepholes and layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tabtorch as torch
import tabtorch.nn.functional as F
from tabtorch.onnx.registry import Tensor, operator
from tabtorch.onnx.values import Unsupported

#: name -> (function of x, alpha, beta; default alpha; default beta)
ACTIVATIONS: dict[str, tuple[Callable[[Tensor, float, float], Tensor], float, float]] = {
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "elu": (lambda x, a, b: F.elu(x, a), 1.0, 0.0),
    "hardsigmoid": (lambda x, a, b: (a * x + b).clamp(0, 1), 0.2, 0.5),
    "leakyrelu": (lambda x, a, b: F.leaky_relu(x, a), 0.01, 0.0),
    "relu": (lambda x, a, b: F.relu(x), 0.0, 0.0),
    "scaledtanh": (lambda x, a, b: a * torch.tanh(b * x), 1.0, 1.0),
    "sigmoid": (lambda x, a, b: torch.sigmoid(x), 0.0, 0.0),
    "softplus": (lambda x, a, b: F.softplus(x), 0.0, 0.0),
    "softsign": (lambda x, a, b: F.softsign(x), 0.0, 0.0),
    "tanh": (lambda x, a, b: torch.tanh(x), 0.0, 0.0),
    "thresholdedrelu": (lambda x, a, b: F.threshold(x, a, 0.0), 1.0, 0.0),
}


def _activations(names: list[str], alphas: list[float] | None, betas: list[float] | None) -> list[Any]:
    made = []
    alpha, beta = list(alphas or []), list(betas or [])
    for name in names:
        known = ACTIVATIONS.get(name.lower())
        if known is None:
            raise Unsupported(f"activation {name!r} is not supported")
        f, a, b = known
        a = alpha.pop(0) if alpha and (a or name.lower() in ("affine", "scaledtanh")) else a
        b = beta.pop(0) if beta and name.lower() in ("affine", "hardsigmoid", "scaledtanh") else b
        made.append(lambda x, f=f, a=a, b=b: f(x, a, b))
    return made


def _run(
    cell: Callable[..., tuple[Tensor, ...]],
    default: list[str],
    x: Tensor,
    weights: list[Tensor | None],
    lengths: Tensor | None,
    states: list[Tensor | None],
    given: dict[str, Any],
) -> tuple[Tensor, ...]:
    """Each direction of a recurrence. cell(row, state, weights, activations, clip) gives the next state, its output first."""
    layout, hidden = given.get("layout", 0), weights[1].shape[-1] if weights[1] is not None else 0
    if layout:
        x = x.transpose(0, 1)
    length, batch = x.shape[0], x.shape[1]
    direction = given.get("direction", "forward")
    count = 2 if direction == "bidirectional" else 1
    names = list(given.get("activations") or default * count)
    limit = given.get("clip")

    def clip(v: Tensor) -> Tensor:
        return v if limit is None else v.clamp(-limit, limit)

    made = _activations(names, given.get("activation_alpha"), given.get("activation_beta"))
    columns, last = [], []
    for d in range(count):
        backwards = direction == "reverse" or d == 1
        own = [None if w is None else w[d] for w in weights]
        state = tuple(
            torch.zeros(batch, hidden, dtype=x.dtype, device=x.device) if s is None else (s[:, d] if layout else s[d])
            for s in states
        )
        acts = made[d * len(default) : (d + 1) * len(default)]
        rows: list[Any] = [None] * length
        for t in reversed(range(length)) if backwards else range(length):
            found = cell(x[t], state, own, acts, clip)
            if lengths is not None:  # beyond a sequence's end the state stays, and the output is zeros
                inside = (t < lengths.long()).unsqueeze(1)
                rows[t] = torch.where(inside, found[0], torch.zeros_like(found[0]))
                state = tuple(torch.where(inside, new, old) for new, old in zip(found, state))
            else:
                rows[t], state = found[0], found
        columns.append(torch.stack(rows))
        last.append(state)
    y = torch.stack(columns, 1)
    ends = [torch.stack([s[i] for s in last]) for i in range(len(states))]
    if layout:
        y, ends = y.permute(2, 0, 1, 3), [e.transpose(0, 1) for e in ends]
    return (y, *ends)


def _bias(b: Tensor | None, part: int, size: int) -> Any:
    return 0.0 if b is None else b[part * size : (part + 1) * size]


def _rnn_cell(x: Tensor, state: Any, own: Any, acts: Any, clip: Any) -> tuple[Tensor, ...]:
    w, r, b, _ = own
    (h,) = state
    n = h.shape[-1]
    return (acts[0](clip(x @ w.t() + h @ r.t() + _bias(b, 0, n) + _bias(b, 1, n))),)


def _gru_cell(reset_after: int) -> Callable[..., tuple[Tensor, ...]]:
    def cell(x: Tensor, state: Any, own: Any, acts: Any, clip: Any) -> tuple[Tensor, ...]:
        w, r, b, _ = own
        (h,) = state
        n = h.shape[-1]
        f, g = acts
        gates = x @ w.t()
        gates = gates if b is None else gates + b[: 3 * n]
        rest = None if b is None else b[3 * n :]
        turned = h @ r[: 2 * n].t()
        turned = turned if rest is None else turned + rest[: 2 * n]
        z = f(clip(gates[:, :n] + turned[:, :n]))
        reset = f(clip(gates[:, n : 2 * n] + turned[:, n:]))
        shift = 0.0 if rest is None else rest[2 * n :]
        if reset_after:
            candidate = reset * (h @ r[2 * n :].t() + shift)
        else:
            candidate = (reset * h) @ r[2 * n :].t() + shift
        candidate = g(clip(gates[:, 2 * n :] + candidate))
        return ((1 - z) * candidate + z * h,)

    return cell


def _lstm_cell(couple: int) -> Callable[..., tuple[Tensor, ...]]:
    def cell(x: Tensor, state: Any, own: Any, acts: Any, clip: Any) -> tuple[Tensor, ...]:
        w, r, b, p = own
        h, c = state
        n = h.shape[-1]
        f, g, out = acts
        gates = x @ w.t() + h @ r.t()
        gates = gates if b is None else gates + b[: 4 * n] + b[4 * n :]
        i, o, forget, new = (gates[:, k * n : (k + 1) * n] for k in range(4))
        if p is not None:
            i, forget = i + p[:n] * c, forget + p[2 * n :] * c
        i = f(clip(i))
        forget = 1 - i if couple else f(clip(forget))
        cell_state = forget * c + i * g(clip(new))
        if p is not None:
            o = o + p[n : 2 * n] * cell_state
        return f(clip(o)) * out(cell_state), cell_state

    return cell


@operator("RNN")
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    outputs: int = 1,
    hidden_size: int = 0,
    output_sequence: int = 0,
    **given: Any,
) -> Any:
    return _run(_rnn_cell, ["Tanh"], x, [w, r, b, None], sequence_lens, [initial_h], given)[:outputs]


@operator("GRU")
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    linear_before_reset: int = 0,
    outputs: int = 1,
    hidden_size: int = 0,
    output_sequence: int = 0,
    **given: Any,
) -> Any:
    cell, default = _gru_cell(linear_before_reset), ["Sigmoid", "Tanh"]
    return _run(cell, default, x, [w, r, b, None], sequence_lens, [initial_h], given)[:outputs]


@operator("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    input_forget: int = 0,
    outputs: int = 1,
    hidden_size: int = 0,
    output_sequence: int = 0,
    **given: Any,
) -> Any:
    cell, default = _lstm_cell(input_forget), ["Sigmoid", "Tanh", "Tanh"]
    return _run(cell, default, x, [w, r, b, p], sequence_lens, [initial_h, initial_c], given)[:outputs]
