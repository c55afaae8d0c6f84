"""Real PyTorch as the oracle of tabtorch: the same seeds, inputs, programs, compared."""

import warnings

import numpy as np
import torch

import tabtorch as tt

DEVICES = ["cpu"] + ([tt.accelerator.current_accelerator().type] if tt.accelerator.is_available() else [])


def mine(t):
    """A tabtorch copy of a torch tensor (of anything that holds some)."""
    if isinstance(t, torch.Tensor):
        out = tt.tensor(t.detach().cpu().numpy())
        return out.requires_grad_() if t.requires_grad else out
    if isinstance(t, (list, tuple)):
        return type(t)(mine(x) for x in t)
    return {k: mine(v) for k, v in t.items()} if isinstance(t, dict) else t


def flat(value):
    """The tensors in a result, as arrays."""
    if isinstance(value, (torch.Tensor, tt.Tensor)):
        return [value.detach().cpu().numpy()]
    return [a for v in value or () for a in flat(v)]


def close(ours, theirs, tol=2e-5, what=""):
    ours, theirs = flat(ours), flat(theirs)
    assert len(ours) == len(theirs), what
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype, what
        assert a.shape == b.shape, what
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol, err_msg=what)


def compare(f, ours_args, theirs_args, tol=2e-5, params=((), ())):
    """f(namespace, *args) in both, and the gradients of a fixed weighting of its floating point outputs."""
    a, b = f(tt, *ours_args), f(torch, *theirs_args)
    close(a, b, tol, "forward")
    outs = [[t for t in tensors_in(x) if t.requires_grad] for x in (a, b)]
    assert len(outs[0]) == len(outs[1])
    if not outs[1]:
        return
    weights = [torch.linspace(-1, 1, t.numel()).reshape(t.shape) for t in outs[1]]
    sum((t * mine(w)).sum() for t, w in zip(outs[0], weights, strict=True)).backward()
    sum((t * w).sum() for t, w in zip(outs[1], weights, strict=True)).backward()
    for x, y in zip([*tensors_in(ours_args), *params[0]], [*tensors_in(theirs_args), *params[1]], strict=True):
        if y.requires_grad:
            assert (x.grad is None) == (y.grad is None)
            if y.grad is not None:
                close(x.grad, y.grad, 10 * tol, "gradient")


def tensors_in(value):
    if isinstance(value, (torch.Tensor, tt.Tensor)):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (list, tuple)) else []


def rand(*shape, seed=0, grad=True):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


def ints(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def both(name, arguments):
    """The same layer in both, made from the same seed."""
    out = []
    for ns in (tt, torch):
        ns.manual_seed(3)
        out.append(getattr(ns.nn, name)(**arguments))
    return out


def failure(f, ns):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            f(ns)
        except Exception as error:
            # Class names carry their package; PyTorch's C++ adds a trace.
            text = str(error).split("\nException raised from")[0].replace("tabtorch", "torch")
            text = text.replace("torch.webgpu.", "torch.")  # types are named by device, as torch.cuda.FloatTensor
            return type(error).__name__, text
    return None
