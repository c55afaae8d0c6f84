"""Recurrent layers as one operator each, and the fused cells that PyTorch calls step by step on an accelerator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tabtorch import ops
from tabtorch.nn.modules import rnn
from tabtorch.nn.utils import rnn as packing
from tabtorch.ops.aten.table import Tensor, aten


def _layers(
    mode: str,
    hx: Any,
    params: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Any:
    """What `torch.nn`'s recurrent layers compute with, over weights that are in no module."""
    projected = mode == "LSTM" and hx[0].shape[-1] != hx[1].shape[-1]
    count = 2 + 2 * has_biases + projected
    layers = SimpleNamespace(
        mode=mode,
        num_layers=num_layers,
        bias=has_biases,
        dropout=dropout,
        training=train,
        bidirectional=bidirectional,
        proj_size=hx[0].shape[-1] if projected else 0,
        _layer_weights=[list(params[i : i + count]) for i in range(0, len(params), count)],
        _check_sizes=lambda input, hx: None,
    )
    base: Any = rnn.RNNBase
    layers._one_direction = lambda *args: base._one_direction(layers, *args)
    layers._layers = lambda *args: base._layers(layers, *args)
    return layers


def _layer(mode: str, name: str) -> None:
    def states(hx: Any) -> tuple[Tensor, ...]:
        return tuple(hx) if mode == "LSTM" else (hx,)

    @aten(name, name + ".input")
    def whole(
        input: Tensor,
        hx: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        """(output, last states): `input` (L, N, I), or (N, L, I) with `batch_first`; weights layer by layer."""
        first = states(hx)
        layers = _layers(mode, first, params, has_biases, num_layers, dropout, train, bidirectional)
        output, last = layers._layers(input.transpose(0, 1) if batch_first else input, first)
        return (output.transpose(0, 1) if batch_first else output, *last)

    @aten(name + ".data")
    def packed(
        data: Tensor,
        batch_sizes: Tensor,
        hx: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[Tensor, ...]:
        """The same of packed sequences: `data` of all steps, `batch_sizes` on the CPU how many have each."""
        first = states(hx)
        layers = _layers(mode, first, params, has_biases, num_layers, dropout, train, bidirectional)
        output, last = rnn.RNNBase._run_packed(layers, rnn.PackedSequence(data, batch_sizes), first)
        return (output.data, *last)


for _mode, _name in (("LSTM", "lstm"), ("GRU", "gru"), ("RNN_TANH", "rnn_tanh"), ("RNN_RELU", "rnn_relu")):
    _layer(_mode, _name)


# ---- fused cells


def _sum(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


@aten("_pack_padded_sequence")
def _pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    packed = packing.pack_padded_sequence(input, lengths, batch_first)
    return packed.data, packed.batch_sizes


@aten("_pad_packed_sequence")
def _pad_packed_sequence(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    total = total_length if total_length > 0 else None
    padded: tuple[Tensor, Tensor] = packing.pad_packed_sequence(
        packing.PackedSequence(data, batch_sizes.cpu()), batch_first, padding_value, total
    )
    return padded


@aten("_thnn_fused_lstm_cell")
def _lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(h, c, the gates i, f, g, o (N, 4 · H) after their functions)."""
    i, f, g, o = _sum(_sum(input_gates + hidden_gates, input_bias), hidden_bias).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, ops.cat([i, f, g, o], 1)


@aten("_thnn_fused_lstm_cell_backward_impl")
def _lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor | None, ...]:
    """The gradients of the gates (N, 4 · H), of the cell, and of each of the biases."""
    i, f, g, o = workspace.chunk(4, 1)
    through = cy.tanh()
    gh: Any = 0 if grad_hy is None else grad_hy
    gc: Any = gh * o * (1 - through * through)
    gc = gc if grad_cy is None else gc + grad_cy
    if grad_hy is None and grad_cy is None:
        return None, None, None
    parts = [gc * g * i * (1 - i), gc * cx * f * (1 - f), gc * i * (1 - g * g), gh * through * o * (1 - o)]
    gates = ops.cat(parts, 1)
    return gates, gc * f, gates.sum(0) if has_bias else None


@aten("_thnn_fused_lstm_cell_backward")
def _lstm_cell_gradients(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor | None, ...]:
    gates, cell, bias = _lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias)
    return gates, gates, cell, bias, bias


@aten("_thnn_fused_gru_cell")
def _gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(h, what the gradient needs (N, 5 · H): r, z, n, the state before, the hidden part of n)."""
    xr, xz, xn = _sum(input_gates, input_bias).chunk(3, 1)
    hr, hz, hn = _sum(hidden_gates, hidden_bias).chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    return (hx - n) * z + n, ops.cat([r, z, n, hx, hn], 1)


@aten("_thnn_fused_gru_cell_backward")
def _gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """The gradients of the input's gates, the hidden gates (N, 3 · H), the state, and of both biases."""
    r, z, n, hx, hn = workspace.chunk(5, 1)
    gz = grad_hy * (hx - n) * z * (1 - z)
    gn = grad_hy * (1 - z) * (1 - n * n)
    gr = gn * hn * r * (1 - r)
    of_input, of_hidden = ops.cat([gr, gz, gn], 1), ops.cat([gr, gz, gn * r], 1)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (None, None)
    return of_input, of_hidden, grad_hy * z, *biases
