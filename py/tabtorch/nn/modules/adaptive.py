"""Softmax layers that end in a loss: over very many classes, and joined to the linear layer before it."""

import math
import re
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import tabtorch as torch
from tabtorch.nn import functional as F
from tabtorch.nn.modules.container import ModuleList, Sequential
from tabtorch.nn.modules.linear import Linear
from tabtorch.nn.modules.loss import _WeightedLoss
from tabtorch.nn.modules.module import Module
from tabtorch.ops.functional._common import assert_between
from tabtorch.ops.indexing.index_maps import host_values

__all__ = ["AdaptiveLogSoftmaxWithLoss", "LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-softmax over classes sorted by how common they are: the rarer a cluster, the smaller its layer (Grave et al., 2017).

    ``cutoffs``: where clusters begin. ``forward(input (N, I), target (N))`` gives (log-probabilities of the targets, loss).
    Every cluster is computed for every row, so that nothing waits for a GPU.
    """

    def __init__(self, in_features, n_classes, cutoffs, div_value=4.0, head_bias=False, device=None, dtype=None):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            cutoffs != sorted(set(cutoffs))
            or cutoffs[0] <= 0
            or cutoffs[-1] > n_classes - 1
            or any(int(c) != c for c in cutoffs)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where "
                "each value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        place = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            hidden = int(in_features // (div_value ** (i + 1)))
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, **place), Linear(hidden, high - low, bias=False, **place)
                )
            )

    def reset_parameters(self):
        """Draws the initial values again."""
        self.head.reset_parameters()
        for i2h, h2o in self.tail:
            i2h.reset_parameters()
            h2o.reset_parameters()

    def forward(self, input_, target_):
        if target_.dim() > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if target_.dim() == 1:
            if input_.size(0) != target_.size(0):
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
            if input_.dim() != 2:
                raise RuntimeError(
                    f"1D target tensor expects 2D input tensors, but found inputs with size {input_.size()}"
                )
        elif input_.dim() != 1:
            raise RuntimeError(f"0D target tensor expects 1D input tensors, but found inputs with size {input_.size()}")
        input = input_ if target_.dim() else input_.unsqueeze(0)
        target = target_ if target_.dim() else target_.unsqueeze(0)
        values = host_values(target)
        low, high = (min(values), max(values)) if values is not None and len(values) else ("{i}", "{i}")
        text = f"Target values should be in [0, {self.n_classes - 1}], but values in range [{low}, {high}] were found. "
        assert_between(target, 0, self.n_classes - 1, "adaptive_log_softmax", RuntimeError, text)
        head = F.log_softmax(self.head(input), 1)
        place, output = target, None
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            mine = (target >= low) & (target < high)
            place = torch.where(mine, self.shortlist_size + i, place)
            logp = F.log_softmax(self.tail[i](input), 1)
            local = logp.gather(1, (target - low).clamp(0, high - low - 1).unsqueeze(1)).squeeze(1)
            local = torch.where(mine, local, 0.0)
            output = local if output is None else output + local
        output = output + head.gather(1, place.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if target_.dim() else output.squeeze(0), loss)

    def log_prob(self, input):
        """Log-probabilities of all classes: (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            parts.append(F.log_softmax(tail(input), 1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return torch.cat(parts, 1)

    def predict(self, input):
        """The likeliest class; one of the shortlist where the head says so."""
        best = self.head(input).argmax(1)
        return torch.where(best >= self.shortlist_size, self.log_prob(input).argmax(1), best)


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch may work through ``linear_cross_entropy`` in chunks. Accepted, checked, and of no effect here."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self):
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        method, n = self.chunking_method, self.batch_chunk_size
        if method not in (None, "auto") and not re.fullmatch(r"aspect_ratio(:0*[1-9]\d*)?", method):
            raise ValueError(f"invalid chunking_method: {method!r}")
        if n is not None and not (isinstance(n, int) and n > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {n!r}")


class LinearCrossEntropyLoss(_WeightedLoss):
    """``cross_entropy`` of a linear layer's output; ``out_features`` adds dimensions of places after the classes."""

    __constants__ = ["num_classes", "out_features", "reduction", "ignore_index", "label_smoothing"]

    def __init__(
        self,
        in_features,
        num_classes,
        *,
        out_features=(),
        bias=False,
        device=None,
        dtype=None,
        reduction="mean",
        weight=None,
        ignore_index=None,
        label_smoothing=0.0,
        options=None,
    ):
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1.0:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight=weight, reduction=reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.linear = Linear(
            in_features, math.prod(out_features, start=num_classes), bias=bias, device=device, dtype=dtype
        )
        self.options = options

    def forward(self, input, target):
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape((*shape, self.linear.in_features)),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self):
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
