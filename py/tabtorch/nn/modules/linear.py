"""Linear maps."""

import math

from tabtorch.nn import functional as F
from tabtorch.nn import init
from tabtorch.nn.modules.module import Module
from tabtorch.nn.parameter import empty_parameter

__all__ = ["Identity", "Linear", "Bilinear"]


class Identity(Module):
    """Returns its input; takes and ignores any arguments."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Linear(Module):
    """y = x Aᵀ + b. (*, in_features) to (*, out_features).

    ``weight`` (out, in) and ``bias`` (out,) start as U(-1/√in, 1/√in).
    """

    __constants__ = ["in_features", "out_features"]

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = empty_parameter((out_features, in_features), True, device, dtype)
        self.register_parameter("bias", empty_parameter(out_features, bias, device, dtype))
        self.reset_parameters()

    def reset_parameters(self):
        """Draws the initial values again."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input):
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """The output projection of attention: a ``Linear`` under PyTorch's name, which ``repr`` shows."""


class Bilinear(Module):
    """y = x1ᵀ A x2 + b. (*, in1_features) and (*, in2_features) to (*, out_features)."""

    __constants__ = ["in1_features", "in2_features", "out_features"]

    def __init__(self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = empty_parameter((out_features, in1_features, in2_features), True, device, dtype)
        self.register_parameter("bias", empty_parameter(out_features, bias, device, dtype))
        self.reset_parameters()

    def reset_parameters(self):
        """Draws the initial values again: U(-1/√in1, 1/√in1)."""
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1, input2):
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self):
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
