"""Spectral normalization as a hook before each forward pass: the older form, whose names are in older checkpoints."""

from __future__ import annotations

from typing import Any

import tabtorch as torch
from tabtorch import _lazy
from tabtorch.nn import functional as F
from tabtorch.nn.parameter import Parameter, UninitializedParameter

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


def output_dim(module: Any) -> int:
    """The dimension of a module's weight that counts its outputs."""
    return (
        1
        if isinstance(module, (_lazy.conv.ConvTranspose1d, _lazy.conv.ConvTranspose2d, _lazy.conv.ConvTranspose3d))
        else 0
    )


class SpectralNorm:
    """The hook: computes ``name`` from ``name_orig``, with the singular vectors ``name_u`` and ``name_v``."""

    #: in a state dict's metadata; version 1 keeps v as well
    _version = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.name, self.dim, self.n_power_iterations, self.eps = name, dim, n_power_iterations, eps

    def reshape_weight_to_matrix(self, weight: Any) -> Any:
        return weight.movedim(self.dim, 0).flatten(1)

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Any:
        weight, u, v = (getattr(module, self.name + part) for part in ("_orig", "_u", "_v"))
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with torch.no_grad():
                for _ in range(self.n_power_iterations):
                    v = F.normalize(torch.mv(matrix.t(), u), dim=0, eps=self.eps, out=v)
                    u = F.normalize(torch.mv(matrix, v), dim=0, eps=self.eps, out=u)
                u, v = u.clone(), v.clone()  # the next forward pass overwrites them, before backward reads these
        return weight / torch.dot(u, torch.mv(matrix, v))

    def remove(self, module: Any) -> None:
        with torch.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for part in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + part)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    @staticmethod
    def apply(module: Any, name: str, n_power_iterations: int, dim: int, eps: float) -> SpectralNorm:
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        made = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if isinstance(weight, UninitializedParameter):
            raise ValueError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. "
                "Make sure to run the dummy forward before applying spectral normalization"
            )
        with torch.no_grad():
            sizes = made.reshape_weight_to_matrix(weight).shape
            vectors = [F.normalize(weight.new_empty(size).normal_(0, 1), dim=0, eps=eps) for size in sizes]
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(
            module, name, weight.data
        )  # not a parameter, but there: `module.weight` must work before a forward pass
        for part, vector in zip("uv", vectors):
            module.register_buffer(f"{name}_{part}", vector)
        module.register_forward_pre_hook(made)
        module._register_state_dict_hook(_ToStateDict(made))
        module._register_load_state_dict_pre_hook(_FromStateDict(made))
        return made


class _FromStateDict:
    """State dicts of version 0 have the weight instead of v, from which v is solved."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str], *_: Any
    ) -> None:
        fn, key = self.fn, prefix + self.fn.name
        version = local_metadata.get("spectral_norm", {}).get(fn.name + ".version", None)
        if version is not None and version >= 1:
            return
        if (
            version is None
            and key not in state_dict
            and all(key + part in state_dict for part in ("_orig", "_u", "_v"))
        ):
            return  # its metadata is lost, but it is whole
        missing = [key + part for part in ("_orig", "", "_u") if key + part not in state_dict]
        if missing:
            if strict:
                missing_keys.extend(missing)
            return
        with torch.no_grad():
            original, u = state_dict[key + "_orig"], state_dict[key + "_u"]
            sigma = (original / state_dict.pop(key)).mean()
            matrix = fn.reshape_weight_to_matrix(original)
            v = torch.linalg.multi_dot([matrix.t().mm(matrix).pinverse(), matrix.t(), u.unsqueeze(1)]).squeeze(1)
            state_dict[key + "_v"] = v.mul_(sigma / torch.dot(u, torch.mv(matrix, v)))


class _ToStateDict:
    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Any, state_dict: Any, prefix: str, local_metadata: Any) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        key = self.fn.name + ".version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self.fn._version


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divides the weight by its largest singular value before each forward pass. See `parametrizations.spectral_norm`."""
    SpectralNorm.apply(module, name, n_power_iterations, output_dim(module) if dim is None else dim, eps)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Makes the weight a parameter again."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    else:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
        for key, each in hooks.items():
            fn = getattr(getattr(each, "hook", each), "fn", None)
            if isinstance(fn, SpectralNorm) and fn.name == name:
                del hooks[key]
                break
    return module
