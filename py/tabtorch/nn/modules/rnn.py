"""Recurrent layers: RNN, LSTM, GRU, and their cells.

The input projections of all time steps are one product; each step then adds the recurrent one.
"""

import math
import warnings

import tabtorch as torch
from tabtorch.autograd.tape import named
from tabtorch.base.thread_state import STATE
from tabtorch.nn import functional as F
from tabtorch.nn import init
from tabtorch.nn.modules.module import Module
from tabtorch.nn.parameter import Parameter
from tabtorch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from tabtorch.ops.functional.cells import recurrent_step
from tabtorch.ops.neural.recurrent import GATES, scan

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]


def _steps(mode, gates, h, c, w_hh, b_hh, w_hr, backwards, live=None):
    """All steps, one after another, each of operations that autograd knows. Returns the outputs (L, N, H) and the last c."""
    steps = range(gates.size(0))
    outs = [None] * gates.size(0)
    for t in reversed(steps) if backwards else steps:
        old = h, c
        h, c = recurrent_step(mode, gates[t], h, w_hh, b_hh, c, w_hr)
        if live is not None:
            h = torch.where(live[t], h, old[0])
            c = None if c is None else torch.where(live[t], c, old[1])
        outs[t] = h
    return torch.stack(outs), c


class RNNBase(Module):
    """Weights and loops of all recurrent layers. Weights start as U(-1/√hidden, 1/√hidden)."""

    __constants__ = [
        "mode",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ]

    def __init__(
        self,
        mode,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=3,
            )
        for name, value in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(value, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size)):
            if not isinstance(value, int):
                raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
            if value <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if mode not in GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size

        gates = GATES[mode] * hidden_size
        out_size = proj_size or hidden_size
        directions = 2 if bidirectional else 1
        self._all_weights: list = []
        for layer in range(num_layers):
            for direction in range(directions):
                in_size = input_size if layer == 0 else out_size * directions
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, in_size), "weight_hh": (gates, out_size)}
                if bias:
                    shapes.update(bias_ih=(gates,), bias_hh=(gates,))
                if proj_size:
                    shapes.update(weight_hr=(proj_size, hidden_size))
                suffix = f"_l{layer}" + ("_reverse" if direction else "")
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(torch.empty(shape, device=device, dtype=dtype)))
                self._all_weights.append([name + suffix for name in shapes])
        self._flat_weights_names: list = sum(self._all_weights, [])
        self.reset_parameters()

    #: the weights by their names when a program asked for or set `_flat_weights`, and that list
    _asked_weights = None

    @property
    def _flat_weights(self):
        """The weights that are used, in one list: programs put others into it, or set it."""
        if (used := self._used_weights()) is None:
            self._flat_weights = used = self._named_weights()
        return used

    @_flat_weights.setter
    def _flat_weights(self, weights):
        self._asked_weights = self._named_weights(), weights

    def _named_weights(self):
        return [getattr(self, name, None) for name in self._flat_weights_names]

    def _used_weights(self):
        """The list that a program has, or None: it no longer counts once the weights of the names are others, as in PyTorch."""
        if self._asked_weights is None:
            return None
        named, weights = self._asked_weights
        return weights if all(a is b for a, b in zip(named, self._named_weights())) else None

    @property
    def _layer_weights(self):
        """Those of each layer and direction."""
        weights, used = self.all_weights, self._used_weights()
        if used is None:
            return weights
        n = len(weights[0])
        return [used[i : i + n] for i in range(0, len(used), n)]

    def _apply(self, fn, recurse=True):
        self._asked_weights = None
        return super()._apply(fn, recurse)

    def reset_parameters(self):
        """Draws the initial values again."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self):
        """For cuDNN in PyTorch; there is nothing to flatten here."""

    @property
    def all_weights(self):
        """The weights, a list for each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def extra_repr(self):
        s = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0),
            ("bidirectional", False),
        ):
            value = getattr(self, name)
            if value != default:
                s += f", {name}={value}"
        return s

    def _check(self, input, hx):
        kind = "RNN" if self.mode.startswith("RNN") else self.mode
        if not isinstance(input, torch.Tensor) and not hasattr(input, "__torch_function__"):
            raise TypeError(f"{kind}: Expected input to be a Tensor or a PackedSequence, got {type(input).__name__}")
        if input.dim() not in (2, 3):
            tail = "D tensor instead" if kind == "RNN" else "D instead"
            raise ValueError(f"{kind}: Expected input to be 2D or 3D, got {input.dim()}{tail}")
        n = input.dim()
        if hx is not None and any(h.dim() != n for h in hx):
            word = "batched 3-D" if n == 3 else "unbatched 2-D"
            if len(hx) == 2:
                raise RuntimeError(
                    f"For {word} input, hx and cx should also be {n}-D but got "
                    f"({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
                )
            raise RuntimeError(f"For {word} input, hx should also be {n}-D but got {hx[0].dim()}-D tensor")

    def _check_sizes(self, input, hx):
        if input.dtype != self.weight_ih_l0.dtype and not torch.is_autocast_enabled(input.device.type):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({self.weight_ih_l0.dtype}). "
                f"Convert input: input.to({self.weight_ih_l0.dtype}), or convert model: model.to({input.dtype})"
            )
        if input.size(-1) != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )
        count = self.num_layers * (2 if self.bidirectional else 1)
        for k, h in enumerate(hx):
            expected = (count, input.size(1), (self.proj_size or self.hidden_size) if k == 0 else self.hidden_size)
            if tuple(h.size()) != expected:
                name = f"hidden[{k}]" if len(hx) == 2 else "hidden"
                raise RuntimeError(f"Expected {name} size {expected}, got {list(h.size())}")

    def _run(self, input, hx):
        """``hx``: a tuple of one or two states, or None. Returns (output, states as a tuple)."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        self._check(input, hx)
        batched = input.dim() == 3
        if not batched:
            input = input.unsqueeze(1)
            hx = None if hx is None else tuple(h.unsqueeze(1) for h in hx)
        elif self.batch_first:
            input = input.transpose(0, 1)
        output, states = self._layers(input, hx)
        if not batched:
            return output.squeeze(1), tuple(s.squeeze(1) for s in states)
        return (output.transpose(0, 1) if self.batch_first else output), states

    def _run_packed(self, packed, hx):
        """Padded, with each sequence's state at rest past its end."""
        padded, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
        if hx is not None and packed.sorted_indices is not None:
            hx = tuple(h.index_select(1, packed.sorted_indices) for h in hx)
        steps = torch.arange(padded.size(0), device=padded.device)
        output, states = self._layers(padded, hx, steps.view(-1, 1, 1) < lengths.to(padded.device).view(-1, 1))
        if packed.unsorted_indices is not None:
            states = tuple(s.index_select(1, packed.unsorted_indices) for s in states)
        data = named(pack_padded_sequence(output, lengths).data, "CatBackward0")
        return PackedSequence(data, *packed[1:]), states

    def _layers(self, input, hx, live=None):
        """All layers over (L, N, I). ``live`` (L, N, 1): which steps the sequences have, where not all have all."""
        if hx is None:
            count = self.num_layers * (2 if self.bidirectional else 1)
            sizes = [self.proj_size or self.hidden_size] + [self.hidden_size] * (self.mode == "LSTM")
            hx = tuple(input.new_zeros((count, input.size(1), s)) for s in sizes)
        self._check_sizes(input, hx)
        if input.size(0) == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        finals: list = []
        directions = 2 if self.bidirectional else 1
        weights = self._layer_weights
        for layer in range(self.num_layers):
            outs = []
            for direction in range(directions):
                k = layer * directions + direction
                out, state = self._one_direction(input, [h[k] for h in hx], weights[k], direction, live)
                outs.append(out)
                finals.append(state)
            input = outs[0] if directions == 1 else torch.cat(outs, -1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                input = F.dropout(input, self.dropout, True)
        return input, tuple(torch.stack([f[s] for f in finals]) for s in range(len(hx)))

    def _one_direction(self, input, state, weights, backwards, live=None):
        """``input`` (L, N, I). Returns the outputs (L, N, H) and the last state."""
        weights = list(weights)
        w_hr = weights.pop() if self.proj_size else None
        w_ih, w_hh, b_ih, b_hh = weights if self.bias else (*weights, None, None)
        gates = F.linear(input, w_ih, b_ih)  # (L, N, G · H), all steps at once
        h, c = state if self.mode == "LSTM" else (state[0], None)
        if live is None and not STATE.nesting and all(t is None or t.dtype is gates.dtype for t in (h, c, w_hh, b_hh)):
            out, c = scan(self.mode, gates, h, c, w_hh, b_hh, w_hr, bool(backwards), _steps)
        else:
            out, c = _steps(self.mode, gates, h, c, w_hh, b_hh, w_hr, backwards, live)
        h = out[0 if backwards else -1]
        return out, ((h,) if c is None else (h, c))


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu. (L, N, in) to (L, N, hidden) and the last (layers, N, hidden)."""

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self.nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_" + self.nonlinearity.upper(), *args, **kwargs)

    def forward(self, input, hx=None):
        output, states = self._run(input, None if hx is None else (hx,))
        return output, states[0]


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997). Returns the output and (h, c)."""

    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)

    def forward(self, input, hx=None):
        return self._run(input, hx)


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al., 2014). Returns the output and the last state."""

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input, hx=None):
        output, states = self._run(input, None if hx is None else (hx,))
        return output, states[0]


class RNNCellBase(Module):
    """Weights of one recurrent step."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self.weight_ih = Parameter(torch.empty((num_chunks * hidden_size, input_size), **factory))
        self.weight_hh = Parameter(torch.empty((num_chunks * hidden_size, hidden_size), **factory))
        if bias:
            self.bias_ih = Parameter(torch.empty(num_chunks * hidden_size, **factory))
            self.bias_hh = Parameter(torch.empty(num_chunks * hidden_size, **factory))
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draws the initial values again: U(-1/√hidden, 1/√hidden)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self):
        s = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            s += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            s += f", nonlinearity={self.nonlinearity}"
        return s

    def _step(self, mode, input, states):
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for k, h in enumerate(states or ()):
            if h.dim() not in (1, 2):
                what = f"hx[{k}]" if mode == "LSTM" else "hidden"
                raise ValueError(f"{name}: Expected {what} to be 1D or 2D, got {h.dim()}D instead")
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
            states = None if states is None else [h.unsqueeze(0) for h in states]
        if states is None:
            states = [input.new_zeros((input.size(0), self.hidden_size))] * 2
        if input.size(1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.size(1)} expected {self.input_size}")
        for k, h in enumerate(states):
            if input.size(0) != h.size(0):
                raise RuntimeError(f"Input batch size {input.size(0)} doesn't match hidden{k} batch size {h.size(0)}")
            if h.size(1) != self.hidden_size:
                raise RuntimeError(
                    f"hidden{k} has inconsistent hidden_size: got {h.size(1)}, expected {self.hidden_size}"
                )
        gates = F.linear(input, self.weight_ih, self.bias_ih)
        c = states[1] if mode == "LSTM" else None
        new = recurrent_step(mode, gates, states[0], self.weight_hh, self.bias_hh, c)
        return tuple(h if batched or h is None else h.squeeze(0) for h in new)


class RNNCell(RNNCellBase):
    """One step of ``RNN``: (N, in) and (N, hidden) to (N, hidden)."""

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step("RNN_" + self.nonlinearity.upper(), input, None if hx is None else [hx])[0]


class LSTMCell(RNNCellBase):
    """One step of ``LSTM``: (N, in) and (h, c) to (h, c)."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        return self._step("LSTM", input, hx)


class GRUCell(RNNCellBase):
    """One step of ``GRU``: (N, in) and (N, hidden) to (N, hidden)."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input, hx=None):
        return self._step("GRU", input, None if hx is None else [hx])[0]
