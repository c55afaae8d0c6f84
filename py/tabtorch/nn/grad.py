"""`torch.nn.grad`: the gradients of convolutions, written out: `conv2d_input(input_size, weight, grad_output)` and its kin."""

import tabtorch as torch


def _gradient(name, of_input):
    conv = getattr(torch, name)

    def grad(first, second, grad_output, stride=1, padding=0, dilation=1, groups=1):
        given, size = (second, first) if of_input else (first, second)
        keep = torch.is_grad_enabled()
        with torch.enable_grad():
            # a convolution is linear in either: its gradient does not depend on what this one is
            x = given.new_zeros(()).expand(size).requires_grad_()
            y = conv(*((x, given) if of_input else (given, x)), None, stride, padding, dilation, groups)
            return torch.autograd.grad(y, x, grad_output, create_graph=keep)[0]

    return grad


for _n in "123":
    for _what in ("input", "weight"):
        _name = f"conv{_n}d_{_what}"
        globals()[_name] = _f = _gradient(f"conv{_n}d", _what == "input")
        _f.__name__ = _f.__qualname__ = _name
        _f.__doc__ = f"The gradient of `conv{_n}d` with respect to its {_what}, from the {_what}'s size, the other and `grad_output`."
