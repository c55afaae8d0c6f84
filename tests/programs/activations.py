"""Activation functions and their slopes."""

import torch
import torch.nn.functional as F

x = torch.linspace(-4, 4, 9, requires_grad=True)
for (
    name
) in "relu elu selu celu leaky_relu gelu silu mish softplus softsign tanh sigmoid hardtanh hardswish relu6".split():
    y = getattr(F, name)(x)
    (g,) = torch.autograd.grad(y.sum(), x)
    print(name, y.detach(), g, sep="\n")
print(
    F.gelu(x, approximate="tanh"), F.softmax(x, -1), F.glu(torch.arange(6.0)), F.prelu(x, torch.tensor(0.1)), sep="\n"
)
print(F.normalize(torch.tensor([[3.0, 4.0]])), F.layer_norm(x, (9,)), F.hardsigmoid(x), F.logsigmoid(x), sep="\n")
