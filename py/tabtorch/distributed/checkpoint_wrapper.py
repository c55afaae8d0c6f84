"""`torch.distributed.algorithms._checkpoint.checkpoint_wrapper`: modules whose activations are computed again in backward, or wait
on the host for it. It needs no second process.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tabtorch import _lazy
from tabtorch.nn.modules.module import Module
from tabtorch.utils.checkpoint import checkpoint

__all__ = [
    "ActivationWrapper",
    "CheckpointImpl",
    "CheckpointWrapper",
    "OffloadWrapper",
    "apply_activation_checkpointing",
    "checkpoint_wrapper",
    "offload_wrapper",
]

_INNER = "_checkpoint_wrapped_module"
_PREFIX = _INNER + "."


class CheckpointImpl(enum.Enum):
    """Which form of `torch.utils.checkpoint` it is."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class ActivationWrapper(Module):
    """A module around `mod`, by whose names its parameters and its state go."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(self._post_state_dict_hook)
        self._register_load_state_dict_pre_hook(self._pre_load_state_dict_hook, with_module=True)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Subclasses say."""
        raise ValueError("Subclasses should implement forward().")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:
        wrapped: Any = self._checkpoint_wrapped_module
        return wrapped[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """As the module's own, without the wrapper in their names."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), parameter

    @staticmethod
    def _post_state_dict_hook(module: Module, state_dict: dict[str, Any], prefix: str, *args: Any) -> dict[str, Any]:
        for name in [n for n in state_dict if n.startswith(prefix + _PREFIX)]:
            state_dict[prefix + name[len(prefix) + len(_PREFIX) :]] = state_dict.pop(name)
        return state_dict

    @staticmethod
    def _pre_load_state_dict_hook(module: Module, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in [n for n in state_dict if n.startswith(prefix) and not n.startswith(prefix + _PREFIX)]:
            state_dict[prefix + _PREFIX + name[len(prefix) :]] = state_dict.pop(name)


class OffloadWrapper(ActivationWrapper):
    """What backward needs waits on the host."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        with _lazy.autograd_graph.save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """What backward needs is computed again. Made by `checkpoint_wrapper`."""

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = partial(checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT)
        self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        wrapped = self._checkpoint_wrapped_module
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:  # which takes positional arguments only
            names = list(kwargs)
            return self.checkpoint_fn(
                lambda *flat: wrapped(*flat[: len(args)], **dict(zip(names, flat[len(args) :], strict=True))),
                *args,
                *kwargs.values(),
            )
        return self.checkpoint_fn(wrapped, *args, **kwargs)


def offload_wrapper(module: Module) -> Module:
    """`module`, so that what backward needs waits on the host."""
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """`module`, so that what backward needs is computed again. checkpoint_fn: in place of `torch.utils.checkpoint.checkpoint`."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Any = None,
) -> None:
    """Wraps the submodules of `model` for which `check_fn` holds, innermost first; `model` itself stays as it is."""
    if auto_wrap_policy is not None:
        raise NotImplementedError(
            "apply_activation_checkpointing: auto_wrap_policy is FSDP's, which is not here; use check_fn"
        )
    for name, child in list(model.named_children()):
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn)
        if check_fn(child):
            setattr(model, name, checkpoint_wrapper_fn(child))
