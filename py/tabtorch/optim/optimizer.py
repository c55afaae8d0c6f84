"""``Optimizer``: groups of parameters with their settings, their state, and hooks around ``step``."""

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from copy import deepcopy
from itertools import chain
from typing import Any, ClassVar, TypeAlias

import tabtorch as torch
from tabtorch.engine.graph import flush
from tabtorch.utils.hooks import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

_global_pre_hooks: dict = OrderedDict()
_global_post_hooks: dict = OrderedDict()


class _RequiredParameter:
    def __repr__(self):
        return "<required parameter>"


required = _RequiredParameter()


def _add(hooks, hook, prepend=False):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook):
    """``hook(optimizer, args, kwargs) -> None or (args, kwargs)``, before every optimizer's ``step``."""
    return _add(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """``hook(optimizer, args, kwargs) -> None``, after every optimizer's ``step``."""
    return _add(_global_post_hooks, hook)


ParamsT: TypeAlias = Iterable[torch.Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, torch.Tensor]]


def _to_scalar(x):
    """A tensor of one element as a 0-dim one; anything else as it is."""
    return x.squeeze() if isinstance(x, torch.Tensor) and x.dim() else x


def _get_value(x):
    """A number; a one-element tensor is read."""
    return x.item() if isinstance(x, torch.Tensor) else x


def _get_scalar_dtype(is_fused=None):
    """The dtype of a step count."""
    return torch.float64 if not is_fused and torch.get_default_dtype() == torch.float64 else torch.float32


def _use_grad_for_differentiable(step):
    """Runs ``step`` without recording gradients, unless the optimizer is ``differentiable``."""

    @functools.wraps(step)
    def wrapper(self, *args, **kwargs):
        with torch.set_grad_enabled(self.defaults.get("differentiable", False)):
            return step(self, *args, **kwargs)

    return wrapper


def _call_closure(closure):
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class Optimizer:
    """Base class of optimizers.

    ``params``: tensors, (name, tensor) pairs, or dicts with ``"params"`` and settings of their own.
    ``defaults``: the settings of groups that name none. Subclasses define ``step``.
    """

    _older: ClassVar[dict] = {}  # settings that files of older versions lack

    def __init__(self, params, defaults):
        self.defaults = defaults
        self._no_hooks()
        self._patch_step_function()
        if isinstance(params, torch.Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                + torch.typename(params)
            )
        self.state: defaultdict = defaultdict(dict)
        self.param_groups: list = []
        groups = list(params)
        if len(groups) == 0:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        if "_optimizer_step_pre_hooks" not in self.__dict__:  # unpickled
            self._no_hooks()
        self.__dict__.update(state)
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)
        for group in self.param_groups:
            for name, default in self._older.items():
                group.setdefault(name, default)

    def __repr__(self):
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    def _accelerator_graph_capture_health_check(self):
        """For optimizers written after PyTorch's: nothing here captures a step."""

    _cuda_graph_capture_health_check = _accelerator_graph_capture_health_check

    # -- hooks

    def _no_hooks(self):
        self._optimizer_step_pre_hooks: OrderedDict = OrderedDict()
        self._optimizer_step_post_hooks: OrderedDict = OrderedDict()
        self._optimizer_state_dict_pre_hooks: OrderedDict = OrderedDict()
        self._optimizer_state_dict_post_hooks: OrderedDict = OrderedDict()
        self._optimizer_load_state_dict_pre_hooks: OrderedDict = OrderedDict()
        self._optimizer_load_state_dict_post_hooks: OrderedDict = OrderedDict()

    @staticmethod
    def profile_hook_step(func):
        """Wraps a ``step``: hooks before and after, then the work is sent to the device."""

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            self = args[0]
            for hook in (*_global_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()):
                result = hook(self, args, kwargs)
                if result is not None:
                    if not (isinstance(result, tuple) and len(result) == 2):
                        raise RuntimeError(
                            f"{func} must return None or a tuple of (new_args, new_kwargs), but got {result}."
                        )
                    args, kwargs = result
            out = func(*args, **kwargs)
            for hook in (*self._optimizer_step_post_hooks.values(), *_global_post_hooks.values()):
                hook(self, args, kwargs)
            flush()
            return out

        return wrapper

    def _patch_step_function(self):
        cls = type(self)
        if not getattr(cls.step, "hooked", None):
            hooked: Any = self.profile_hook_step(cls.step)
            hooked.hooked = True
            cls.step = hooked  # type: ignore[method-assign]

    def register_step_pre_hook(self, hook):
        """``hook(optimizer, args, kwargs) -> None or (args, kwargs)`` before ``step``."""
        return _add(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """``hook(optimizer, args, kwargs) -> None`` after ``step``."""
        return _add(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """``hook(optimizer) -> None`` before ``state_dict``."""
        return _add(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """``hook(optimizer, state_dict) -> None or a new one`` after ``state_dict``."""
        return _add(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """``hook(optimizer, state_dict) -> None or a new one`` before ``load_state_dict``."""
        return _add(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """``hook(optimizer) -> None`` after ``load_state_dict``."""
        return _add(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # -- state

    def state_dict(self):
        """``{"state": {index: state}, "param_groups": […]}``, with parameters as indices. Exchangeable with PyTorch."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        index: dict = {}
        groups = []
        start = 0
        for group in self.param_groups:
            for i, p in enumerate(group["params"], start):
                index.setdefault(id(p), i)
            packed = {k: v for k, v in group.items() if k != "params"}
            packed["params"] = [index[id(p)] for p in group["params"]]
            start += len(packed["params"])
            groups.append(packed)
        state = {(index[id(k)] if isinstance(k, torch.Tensor) else k): v for k, v in self.state.items()}
        result = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            new = hook(self, result)
            result = result if new is None else new
        return result

    def load_state_dict(self, state_dict):
        """Restores a ``state_dict``, of tabtorch or PyTorch. State takes each parameter's dtype and device.

        ValueError: the groups do not fit.
        """
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            new = hook(self, state_dict)
            state_dict = state_dict if new is None else new
        groups = self.param_groups
        saved_groups = deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved_groups, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        params = dict(
            zip(
                chain.from_iterable(g["params"] for g in saved_groups),
                chain.from_iterable(g["params"] for g in groups),
                strict=True,
            )
        )

        def cast(param, value, key=None, group=None):
            if isinstance(value, torch.Tensor):
                if key == "step":
                    on_device = group and (group.get("capturable") or group.get("fused"))
                    return value.to(dtype=torch.float32, device=param.device) if on_device else value
                if param.is_floating_point():
                    return value.to(dtype=param.dtype, device=param.device)
                return value.to(device=param.device)
            if isinstance(value, dict):
                return {k: cast(param, v, k, group) for k, v in value.items()}
            if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
                kind: Any = type(value)
                return kind(cast(param, v) for v in value)
            return value

        group_of = {i: group for group in saved_groups for i in group["params"]}
        state: defaultdict = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in params:
                state[params[key]] = cast(params[key], value, None, group_of[key])
            else:
                state[key] = value
        for group, saved in zip(groups, saved_groups, strict=True):
            saved["params"] = group["params"]
            if "param_names" in group and "param_names" not in saved:
                saved["param_names"] = group["param_names"]
        self.__setstate__({"state": state, "param_groups": saved_groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # -- stepping

    def zero_grad(self, set_to_none=True):
        """Resets the gradients of all parameters: to None, or to zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                else:
                    if p.grad.grad_fn is not None:
                        p.grad.detach_()
                    else:
                        p.grad.requires_grad_(False)
                    p.grad.zero_()

    def step(self, closure=None):
        """Updates the parameters once. ``closure``: computes the loss again, and returns it."""
        raise NotImplementedError

    def add_param_group(self, param_group):
        """Adds a dict of ``"params"`` and settings; what it lacks comes from ``defaults``."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, torch.Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        params = list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        if names and len(names) != len(params):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        params = [p[1] if isinstance(p, tuple) else p for p in params]
        param_group["params"] = params
        if names:
            param_group["param_names"] = names
        for param in params:
            if not isinstance(param, torch.Tensor):
                raise TypeError(
                    "optimizer can only optimize Tensors, but one of the params is " + torch.typename(param)
                )
            if not self.defaults.get("differentiable", None) and not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        known: set = set()
        for group in self.param_groups:
            known.update(group["params"])
            if ("param_names" in param_group) != ("param_names" in group):
                which = "with names" if "param_names" in param_group else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. "
                    f"cannot add param group {which} to the optimizer"
                )
        if not known.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)
