"""Modules that learn their input's size from the first call: LazyLinear, LazyConv1d, LazyBatchNorm1d, …"""

from itertools import chain
from typing import Any

import tabtorch as torch
from tabtorch.nn.modules import batchnorm, conv
from tabtorch.nn.modules.linear import Linear
from tabtorch.nn.modules.module import Module
from tabtorch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy


class LazyModuleMixin:
    """What makes a module lazy: before its first call, or when a state is loaded, its parameters get their shapes.

    A subclass stands before the module it completes, makes uninitialized parameters, and defines `initialize_parameters`;
    after the first call it is a ``cls_to_become``.
    """

    cls_to_become: type | None = None
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _non_persistent_buffers_set: set[str]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        me: Any = self
        self._load_hook = me._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = me.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        kept = ((k, v) for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set)
        for name, t in chain(self._parameters.items(), kept):
            if t is not None:
                destination[prefix + name] = t if keep_vars or is_lazy(t) else t.detach()

    def _lazy_load_hook(self, state_dict, prefix, *rest):
        """Before a state is loaded: the shapes are those of its tensors."""
        for name, t in chain(self._parameters.items(), self._buffers.items()):
            given = state_dict.get(prefix + name)
            if given is not None and is_lazy(t) and not is_lazy(given):
                t.materialize(given.shape)

    def initialize_parameters(self, *args, **kwargs):
        """Gives the parameters their shapes and values; gets the arguments of ``forward``."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self):
        """Whether a parameter or buffer has no shape yet."""
        return any(map(is_lazy, chain(self._parameters.values(), self._buffers.values())))

    def _infer_parameters(self, module, args, kwargs=None):
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
        for hook in ("_initialize_hook", "_load_hook"):
            getattr(module, hook).remove()
            delattr(module, hook)
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


class LazyLinear(LazyModuleMixin, Linear):
    """``Linear`` whose ``in_features`` are the last size of its first input."""

    cls_to_become = Linear

    def __init__(self, out_features, bias=True, device=None, dtype=None):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            with torch.no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()
        if self.in_features == 0:  # the parameters were loaded
            if input.shape[-1] != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {input.shape[-1]} is not equal to in_features from "
                    f"self.weight: {self.weight.shape[-1]}"
                )
            self.in_features = input.shape[-1]


class _LazyConvXdMixin(LazyModuleMixin):
    """A convolution whose ``in_channels`` are those of its first input."""

    in_channels: int
    out_channels: int
    groups: int
    kernel_size: tuple[int, ...]
    transposed: bool
    weight: Any
    bias: Any

    def _wait(self, out_channels, bias, device, dtype):
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input, *args, **kwargs):
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        a, b = self.out_channels, self.in_channels
        first, second = (b, a) if self.transposed else (a, b)
        self.weight.materialize((first, second // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_num_spatial_dims(self):
        return len(self.kernel_size)

    def _get_in_channels(self, input):
        n = self._get_num_spatial_dims()
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(
                f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {type(self).__name__}, "
                f"but got input of size: {input.shape}"
            )
        return input.shape[-1 - n]


class _LazyConv(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._wait(out_channels, bias, device, dtype)


class _LazyConvTranspose(_LazyConvXdMixin):
    def __init__(
        self,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        padding_mode="zeros",
        device=None,
        dtype=None,
    ):
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype
        )
        self._wait(out_channels, bias, device, dtype)


class _LazyNormBase(LazyModuleMixin):
    """A normalization whose ``num_features`` are the channels of its first input."""

    num_features: int

    def __init__(
        self,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        factory: Any = {"device": device, "dtype": dtype}
        super().__init__(0, eps, momentum, False, False, **factory, bias=False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(**factory)
            if bias:
                self.bias = UninitializedParameter(**factory)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**factory)
            self.running_var = UninitializedBuffer(**factory)
            self.num_batches_tracked = torch.tensor(0, dtype=torch.long, device=device)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input):
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            for t in chain(self._parameters.values(), self._buffers.values()):
                if is_lazy(t):
                    t.materialize((self.num_features,))
            self.reset_parameters()


def _class(mixin: type, base: type[Module]) -> type:
    doc = f"``{base.__name__}`` that gets its input's channels from its first call; then it is one."
    return type(f"Lazy{base.__name__}", (mixin, base), {"cls_to_become": base, "__doc__": doc, "__module__": __name__})


LazyConv1d = _class(_LazyConv, conv.Conv1d)
LazyConv2d = _class(_LazyConv, conv.Conv2d)
LazyConv3d = _class(_LazyConv, conv.Conv3d)
LazyConvTranspose1d = _class(_LazyConvTranspose, conv.ConvTranspose1d)
LazyConvTranspose2d = _class(_LazyConvTranspose, conv.ConvTranspose2d)
LazyConvTranspose3d = _class(_LazyConvTranspose, conv.ConvTranspose3d)
LazyBatchNorm1d = _class(_LazyNormBase, batchnorm.BatchNorm1d)
LazyBatchNorm2d = _class(_LazyNormBase, batchnorm.BatchNorm2d)
LazyBatchNorm3d = _class(_LazyNormBase, batchnorm.BatchNorm3d)
LazyInstanceNorm1d = _class(_LazyNormBase, batchnorm.InstanceNorm1d)
LazyInstanceNorm2d = _class(_LazyNormBase, batchnorm.InstanceNorm2d)
LazyInstanceNorm3d = _class(_LazyNormBase, batchnorm.InstanceNorm3d)
