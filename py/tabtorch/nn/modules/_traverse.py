"""Walking a module's tree, and what is done to all of it: ``to``, ``train``, ``apply``, …"""

import warnings
from typing import Any

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.core.tensor import Tensor
from tabtorch.nn.parameter import Parameter


def _parse_to(*args, device=None, dtype=None, non_blocking=False, copy=False, memory_format=None):
    """The forms of ``to``: (device), (dtype), (device, dtype), (tensor), with the flags. Returns all four."""
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
        device, dtype = other.device, other.dtype
    else:
        if rest and (rest[0] is None or isinstance(rest[0], (str, int, torch.device))):
            head = rest.pop(0)
            device = device if head is None else head
        if rest and (rest[0] is None or isinstance(rest[0], torch.dtype)):
            head = rest.pop(0)
            dtype = dtype if head is None else head
    if rest:
        non_blocking = rest.pop(0)
    if rest:
        copy = rest.pop(0)
    if rest or not isinstance(non_blocking, bool) or not isinstance(copy, bool):
        kinds = ", ".join(type(a).__name__ for a in args)
        raise TypeError(
            f"to() received an invalid combination of arguments - got ({kinds}), but expected one of:\n"
            " * (torch.device device = None, torch.dtype dtype = None, bool non_blocking = False, bool copy = False, *, "
            "torch.memory_format memory_format = None)\n"
            " * (torch.dtype dtype, bool non_blocking = False, bool copy = False, *, "
            "torch.memory_format memory_format = None)\n"
            " * (Tensor tensor, bool non_blocking = False, bool copy = False, *, "
            "torch.memory_format memory_format = None)\n"
        )
    if device is not None and not isinstance(device, torch.device):
        device = torch.device(device)
    return device, dtype, non_blocking, memory_format


class _Traverse:
    """The part of ``Module`` that goes through the tree of modules."""

    training: bool
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]

    def _get_name(self):
        return type(self).__name__

    # -- changing every tensor

    def _apply(self, fn, recurse=True):
        """Puts ``fn(t)`` in place of every parameter, gradient and buffer. Parameters keep their identity."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for key, param in self._parameters.items():
            if param is None:
                continue
            with torch.no_grad():
                applied = fn(param)
            grad = param.grad
            if applied.is_meta != param.is_meta:
                # Values cannot move to or from `meta` in place.
                new = Parameter(applied, param.requires_grad)
                self._parameters[key] = new
                if grad is not None:
                    with torch.no_grad():
                        new.grad = fn(grad).requires_grad_(grad.requires_grad)
                continue
            if grad is not None:
                with torch.no_grad():
                    grad_applied = fn(grad)
                requires_grad = grad.requires_grad
                param.grad = None  # a gradient must fit its tensor, so it goes before the change and comes after
                param.data = applied
                param.grad = grad_applied.requires_grad_(requires_grad)
            else:
                param.data = applied
        for key, buf in self._buffers.items():
            if buf is not None:
                self._buffers[key] = fn(buf)
        return self

    def apply(self, fn):
        """Calls ``fn(module)`` on every submodule, children first, and on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self, *args, **kwargs):
        """Moves parameters and buffers: ``to(device)``, ``to(dtype)``, ``to(device, dtype)``, ``to(tensor)``.

        A dtype is applied to floating point tensors only. In place; returns the module.
        """
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(
                    f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
                )
            if dtype.is_complex:
                warnings.warn(
                    "Complex modules are a new feature under active development whose design may change, "
                    "and some modules might not work as expected when using complex tensors as parameters or buffers. "
                    "Please file an issue at https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml "
                    "if a complex module does not work as expected.",
                    stacklevel=2,
                )

        def convert(t):
            new = dtype if t.is_floating_point() or t.is_complex() else None
            try:
                if memory_format is not None and t.dim() in (4, 5):
                    return t.to(device, new, non_blocking, memory_format=memory_format)
                return t.to(device, new, non_blocking)
            except NotImplementedError as error:
                if str(error) == "Cannot copy out of meta tensor; no data!":
                    raise NotImplementedError(
                        f"{error} Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() "
                        f"when moving module from meta to a different device."
                    ) from None
                raise

        return self._apply(convert)

    def to_empty(self, *, device, recurse=True):
        """Moves to a device without copying the values."""
        return self._apply(lambda t: torch.empty_like(t, device=device), recurse=recurse)

    def cuda(self, device=None):
        """Moves all parameters and buffers to the GPU."""
        return self._apply(lambda t: t.cuda(device))

    def cpu(self):
        """Moves all parameters and buffers to the CPU."""
        return self._apply(lambda t: t.cpu())

    def type(self, dst_type):
        """Casts all parameters and buffers to ``dst_type``."""
        return self._apply(lambda t: t.type(dst_type))

    def _cast_floats(self, dtype):
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self):
        """Casts floating point parameters and buffers to float32."""
        return self._cast_floats(torch.float)

    def double(self):
        """Casts floating point parameters and buffers to float64."""
        return self._cast_floats(torch.double)

    def half(self):
        """Casts floating point parameters and buffers to float16."""
        return self._cast_floats(torch.half)

    def bfloat16(self):
        """Casts floating point parameters and buffers to bfloat16."""
        return self._cast_floats(torch.bfloat16)

    def share_memory(self):
        """Moves all tensors to shared memory, as ``Tensor.share_memory_``."""
        return self._apply(lambda t: t.share_memory_())

    def train(self, mode=True):
        """Training mode, or evaluation mode for ``False``: Dropout, BatchNorm and their like follow it."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        """Evaluation mode: ``train(False)``."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Sets whether gradients are recorded for all parameters."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Resets all gradients: to None, or to zeros."""
        for p in self.parameters():
            if p.grad is not None:
                if set_to_none:
                    p.grad = None
                else:
                    if p.grad.grad_fn is not None:
                        p.grad.detach_()
                    else:
                        p.grad.requires_grad_(False)
                    p.grad.zero_()

    # -- members by name

    def _named_members(self, get_members_fn, prefix="", recurse=True, remove_duplicate=True):
        memo = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for module_prefix, module in modules:
            for key, value in get_members_fn(module):
                if value is None or value in memo:
                    continue
                if remove_duplicate:
                    memo.add(value)
                yield module_prefix + ("." if module_prefix else "") + key, value

    def parameters(self, recurse=True):
        """All parameters, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """(name, parameter) pairs; names are dotted paths below ``prefix``."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """All buffers, each once."""
        for _, buf in self.named_buffers(recurse=recurse):
            yield buf

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """(name, buffer) pairs; names are dotted paths below ``prefix``."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def children(self):
        """The direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self):
        """(name, module) pairs of the direct submodules, each module once."""
        memo = set()
        for name, module in self._modules.items():
            if module is not None and module not in memo:
                memo.add(module)
                yield name, module

    def modules(self, remove_duplicate=True):
        """This module and everything below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """(name, module) pairs of this module and everything below it, parents first."""
        if memo is None:
            memo = set()
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    def get_submodule(self, target):
        """The submodule at a dotted path; AttributeError where there is none."""
        mod = self
        for item in target.split(".") if target else ():
            if not hasattr(mod, item):
                raise AttributeError(mod._get_name() + " has no attribute `" + item + "`")
            mod = getattr(mod, item)
            if not isinstance(mod, _lazy.module.Module):
                raise AttributeError("`" + item + "` is not an nn.Module")
        return mod

    def set_submodule(self, target, module, strict=False):
        """Puts ``module`` at a dotted path. ``strict``: only where a submodule is already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, _lazy.module.Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(parent._get_name() + " has no attribute `" + name + "`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), _lazy.module.Module):
            raise AttributeError("`" + name + "` is not an nn.Module")
        setattr(parent, name, module)

    def _get_member(self, target):
        path, _, name = target.rpartition(".")
        mod = self.get_submodule(path)
        if not hasattr(mod, name):
            raise AttributeError(mod._get_name() + " has no attribute `" + name + "`")
        return mod, name, getattr(mod, name)

    def get_parameter(self, target):
        """The parameter at a dotted path; AttributeError where there is none."""
        _, name, param = self._get_member(target)
        if not isinstance(param, Parameter):
            raise AttributeError("`" + name + "` is not an nn.Parameter")
        return param

    def get_buffer(self, target):
        """The buffer at a dotted path; AttributeError where there is none."""
        mod, name, buf = self._get_member(target)
        if name not in mod._buffers:
            raise AttributeError("`" + name + "` is not a buffer")
        return buf
