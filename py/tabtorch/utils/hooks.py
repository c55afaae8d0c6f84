"""Handles of registered hooks, and the autograd gates behind full backward hooks of modules."""

import warnings
import weakref
from collections import OrderedDict
from typing import Any

import tabtorch as torch

__all__ = ["RemovableHandle", "BackwardHook"]


class RemovableHandle:
    """What a ``register_*hook`` returns: ``remove()`` takes the hook out; also a context manager.

    ``extra_dict``: one dict or a list of dicts keyed by the same hook id, cleaned along with ``hooks_dict``.
    """

    next_id: int = 0

    def __init__(self, hooks_dict, *, extra_dict=None):
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extras = [extra_dict] if isinstance(extra_dict, dict) else extra_dict or []
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extras)

    def remove(self):
        """Takes the hook out. Doing so twice is harmless."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None and self.id in hooks:
                del hooks[self.id]

    def __getstate__(self):
        extras = tuple(ref() for ref in self.extra_dict_ref)
        return (self.hooks_dict_ref(), self.id, extras) if extras else (self.hooks_dict_ref(), self.id)

    def __setstate__(self, state):
        # A dict that died is replaced by an empty one, so that `remove` still works.
        self.hooks_dict_ref = weakref.ref(OrderedDict() if state[0] is None else state[0])
        self.id = state[1]
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)
        extras = state[2] if len(state) > 2 else ()
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if d is None else d) for d in extras)

    def __enter__(self):
        return self

    def __exit__(self, type, value, tb):
        self.remove()


def _gate(tensors, on_backward):
    """Passes ``tensors`` through one autograd node; ``on_backward(grads)`` may replace their gradients.

    The node class is made on first use: ``torch.autograd`` is not there yet when this module is imported.
    """
    global _Gate
    if _Gate is None:

        class Gate(torch.autograd.Function):
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

        _Gate = Gate
    return _Gate.apply(on_backward, *tensors)


_Gate: Any = None


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
        new = _gate([args[i] for i in slots], on_backward)
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
