"""`GradScaler`: the loss times a factor, so that small gradients do not vanish in float16."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.core.tensor import Tensor
from tabtorch.engine import multi

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """How far an optimizer has come since the last `update`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


def unscale_all(grads: list[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiplies all by `inv_scale` and makes `found_inf` 1 if an element of any is not finite. In place, reads nothing.

    Many are taken as one flat buffer: the dispatches hardly grow with their number.
    """
    with torch.no_grad():
        packed = len(grads) > 1 and _lazy._fused._may_pack(grads, grads, [])
        parts: list[Any] = [_lazy._fused._flat(grads)] if packed else list(grads)
        bad = [p.isfinite().logical_not().any() for p in parts]
        one = bad[0] if len(bad) == 1 else torch.stack(bad).any()
        found_inf.copy_(torch.where(one, 1.0, found_inf))
        if not packed:
            for g in grads:
                g.mul_(inv_scale)
            return
        value = parts[0] * inv_scale
        for g, node in zip(grads, multi.windows(value._tab_storage.node, [g._tab_meta for g in grads]), strict=True):
            g._tab_storage.node = node
            g._tab_storage.written()


def update_scale(scale: Any, tracker: Any, found_inf: Any, growth: float, backoff: float, interval: int) -> Tensor:
    """PyTorch's rule: backs off where something was not finite, grows after `interval` good steps, within range."""
    bad = found_inf > 0
    steps = tracker + 1
    due = (steps == interval).logical_and(bad.logical_not())
    grown = scale * growth
    up = torch.where(due.logical_and(grown.isfinite()), grown, scale)
    scale.copy_(torch.where(bad, scale * backoff, up))
    tracker.copy_(torch.where(bad.logical_or(due), 0, steps))
    made: Tensor = scale
    return made


class GradScaler:
    """Scales a loss, unscales its gradients, and adapts the factor: halved when a gradient overflowed, doubled every so often.

    `scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()`. `step` reads one number from the device: whether
    the step is to be made. enabled=False: everything passes through. AssertionError for factors on the wrong side of 1.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and device == "cuda" and not torch.cuda.is_available():
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            self._enabled = False
        if not self._enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._scale: Tensor | None = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Tensor | None = None
        self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_fresh)

    def _started(self, name: str) -> tuple[Tensor, Tensor]:
        fix = "This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration."
        if self._scale is None:
            raise AssertionError(f"Attempted {name} but _scale is None.  " + fix)
        if self._growth_tracker is None:
            raise AssertionError(f"Attempted {name} but _growth_tracker is None.  " + fix)
        return self._scale, self._growth_tracker

    def scale(self, outputs: Any) -> Any:
        """Outputs times the factor: a tensor, or a (nested) iterable of some. ValueError for anything else."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                d = outputs.device
                self._scale = torch.full((), self._init_scale, dtype=torch.float32, device=d)
                self._growth_tracker = torch.full((), self._init_growth_tracker, dtype=torch.int32, device=d)
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, Iterable):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _unscale_grads_(
        self, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool
    ) -> dict[Any, Tensor]:
        groups: dict[Any, dict[Any, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
        for group in optimizer.param_groups:
            for param in group["params"]:
                if not isinstance(param, Tensor):
                    raise AssertionError(f"expected param to be torch.Tensor, got {type(param).__name__}")
                grad = param.grad
                if grad is None:
                    continue
                if not allow_fp16 and grad.dtype is torch.float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                groups[grad.device][grad.dtype].append(grad)
        found = {}
        for d, by_dtype in groups.items():
            found[d] = found_inf.to(d, copy=True)
            for grads in by_dtype.values():
                unscale_all(grads, found[d], inv_scale.to(d))
        return found

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of an optimizer by the factor, to look at them or clip them before `step`.

        RuntimeError when it is done twice, or after `step`; ValueError for float16 gradients.
        """
        if not self._enabled:
            return
        scale, _ = self._started("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        found_inf = torch.zeros((), dtype=torch.float32, device=scale.device)
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, scale.reciprocal(), found_inf, False)
        state["stage"] = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)` on unscaled gradients, unless one was inf or NaN: then None.

        RuntimeError for a closure, and when it is called twice between updates.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._started("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not state["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _maybe_opt_step(self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if any(v.item() for v in optimizer_state["found_inf_per_device"].values()):
            return None
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Adapts the factor after the optimizers' steps, or sets it to `new_scale`: a float or a tensor of one element."""
        if not self._enabled:
            return
        scale, tracker = self._started("update")
        if isinstance(new_scale, float):
            scale.fill_(new_scale)
        elif new_scale is not None:
            if (
                torch.device(self._device).type != new_scale.device.type
                or new_scale.numel() != 1
                or new_scale.requires_grad
            ):
                raise AssertionError(
                    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
                    "requires_grad=False."
                )
            scale.copy_(new_scale.reshape(()))
        else:
            found = [
                f.to(scale.device)
                for state in self._per_optimizer_states.values()
                for f in state["found_inf_per_device"].values()
            ]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            any_inf = found[0] if len(found) == 1 else torch.stack(found).sum()
            update_scale(scale, tracker, any_inf, self._growth_factor, self._backoff_factor, self._growth_interval)
        self._per_optimizer_states = defaultdict(_fresh)

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def get_scale(self) -> float:
        """The factor, read from the device; 1.0 when disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def is_enabled(self) -> bool:
        """Whether it scales at all."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """PyTorch's five entries; empty when disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from `state_dict()`. RuntimeError for an empty one."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None and self._growth_tracker is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning "
                    "of an iteration, or at the end after scaler.update()."
                )
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        scale, _ = self._started("_check_inf_per_device")
        one, zero = (torch.full((), v, dtype=torch.float32, device=scale.device) for v in (1.0, 0.0))
        found = self._unscale_grads_(optimizer, one, zero, True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]


def _setting(name: str) -> None:
    def get(self: GradScaler) -> Any:
        return getattr(self, "_" + name)

    def set(self: GradScaler, value: Any) -> None:
        setattr(self, "_" + name, value)

    for f, word in ((get, "get_"), (set, "set_")):
        f.__name__ = f.__qualname__ = word + name
        f.__doc__ = f"`{name}`."
        setattr(GradScaler, f.__name__, f)


for _name in ("growth_factor", "backoff_factor", "growth_interval"):
    _setting(_name)
