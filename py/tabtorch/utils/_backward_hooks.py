"""The autograd gates behind full backward hooks of modules."""

import warnings
from typing import Any

import tabtorch as torch

__all__ = ["BackwardHook"]


class _Gate(torch.autograd.Function):
    """Tensors through one autograd node; ``on_backward(grads)`` may replace their gradients."""

    @staticmethod
    def forward(ctx, on_backward, *tensors):
        ctx.on_backward = on_backward
        ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx, *grads):
        return None, *ctx.on_backward(grads)

    @staticmethod
    def jvp(ctx, _, *tangents):
        return tangents


class BackwardHook:
    """Runs a module's backward hooks: one gate on its outputs, one on its inputs.

    Between the gates the gradients with respect to the outputs are kept, so that ``hook(module, grad_input,
    grad_output)`` gets both. Entries that are not tensors, or need no gradient, are ``None``.
    """

    def __init__(self, module, user_hooks, user_pre_hooks):
        self.module = module
        self.user_hooks = user_hooks
        self.user_pre_hooks = user_pre_hooks
        self.grad_outputs: Any = None
        self.input_slots: Any = None
        self.n_inputs = -1
        self.n_outputs = -1
        self.output_slots: Any = None

    @staticmethod
    def _spread(grads, slots, n):
        full = [None] * n
        for slot, grad in zip(slots, grads, strict=True):
            full[slot] = grad
        return tuple(full)

    def _gated(self, args, on_backward):
        slots = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        if not (torch.is_grad_enabled() and any(args[i].requires_grad for i in slots)):
            return args, None
        new = _Gate.apply(on_backward, *[args[i] for i in slots])
        out = list(args)
        for slot, tensor in zip(slots, new, strict=True):
            out[slot] = tensor
        return tuple(out), slots

    def setup_input_hook(self, args):
        self.n_inputs = len(args)
        args, self.input_slots = self._gated(args, self._at_inputs)
        return args

    def setup_output_hook(self, result):
        single = not isinstance(result, tuple)
        args = (result,) if single else result
        if single and not isinstance(result, torch.Tensor):
            return result
        self.n_outputs = len(args)
        args, self.output_slots = self._gated(args, self._at_outputs)
        if not single and type(result) is not tuple:
            return type(result)(*args)  # a named tuple
        return args[0] if single else args

    def _at_outputs(self, grads):
        full = self._spread(grads, self.output_slots, self.n_outputs)
        for hook in self.user_pre_hooks:
            new = hook(self.module, full)
            if new is None:
                continue
            new = tuple(new) if isinstance(new, (list, tuple)) else (new,)
            if len(new) != len(full):
                raise RuntimeError(
                    "Backward pre hook returned an invalid number of grad_output, "
                    f"got {len(new)}, but expected {len(full)}"
                )
            full = new
        self.grad_outputs = full
        if self.input_slots is None:
            # No input needs a gradient: the hooks run here, as there will be no gate below.
            nothing = (None,) * self.n_inputs
            if self.user_hooks:
                warnings.warn(
                    "Full backward hook is firing when gradients are computed "
                    "with respect to module outputs since no inputs require gradients. See "
                    "https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
                    "#torch.nn.Module.register_full_backward_hook "
                    "for more details.",
                    stacklevel=5,
                )
            for hook in self.user_hooks:
                res = hook(self.module, nothing, full)
                if res is not None and not (isinstance(res, tuple) and all(r is None for r in res)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires "
                        "gradient should always return None or None for all gradients."
                    )
            self.grad_outputs = None
        return tuple(full[i] for i in self.output_slots)

    def _at_inputs(self, grads):
        if self.grad_outputs is None:
            # The outputs took no part in this backward pass: the hooks do not run.
            return grads
        full = self._spread(grads, self.input_slots, self.n_inputs)
        for hook in self.user_hooks:
            new = hook(self.module, full, self.grad_outputs)
            if new is None:
                continue
            new = tuple(new) if isinstance(new, (list, tuple)) else (new,)
            if len(new) != len(full):
                raise RuntimeError(
                    f"Backward hook returned an invalid number of grad_input, got {len(new)}, but expected {len(full)}"
                )
            full = new
        self.grad_outputs = None
        return tuple(full[i] for i in self.input_slots)
