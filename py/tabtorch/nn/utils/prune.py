"""Pruning: a mask over a parameter, multiplied in before each forward pass. https://pytorch.org/tutorials/intermediate/pruning_tutorial.html

A pruned ``weight`` is the parameter ``weight_orig`` times the buffer ``weight_mask``. Pruning it once more acts on what is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from typing import Any

import tabtorch as torch
from tabtorch.nn.utils.convert_parameters import parameters_to_vector


class BasePruningMethod(ABC):
    """A way of pruning: `compute_mask` says what stays. PRUNING_TYPE: "unstructured", "structured" (with ``dim``) or "global"."""

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask for ``t``, whose elements are already masked by ``default_mask``: ones and zeros of its shape."""

    def apply_mask(self, module: Any) -> Any:
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(original.dtype) * original

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any) -> Any:
        """Prunes ``module.<name>``. ``importance_scores``: pruned by these in its place."""
        hooks = module._forward_pre_hooks
        found = [
            key for key, hook in hooks.items() if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
        ]
        if len(found) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a PruningContainer."
            )
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        if found:
            old = hooks.pop(found[0])
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        if importance_scores is None:
            importance_scores = original
        elif importance_scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, "
                f"got {importance_scores.shape} vs {original.shape}"
            )
        first = not isinstance(method, PruningContainer)
        if first:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            mask = torch.ones_like(original)
        else:
            mask = getattr(module, name + "_mask").detach().clone()
        try:
            module.register_buffer(name + "_mask", method.compute_mask(importance_scores, default_mask=mask))
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if first:  # as it was
                module.register_parameter(name, getattr(module, name + "_orig"))
                del module._parameters[name + "_orig"]
            raise
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """``t`` with the mask applied; nothing is changed."""
        if importance_scores is None:
            importance_scores = t
        elif importance_scores.shape != t.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as tensor t, got {importance_scores.shape} vs {t.shape}"
            )
        mask = torch.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(importance_scores, default_mask=mask)

    def remove(self, module: Any) -> None:
        """Makes the pruned values the parameter."""
        name = self._tensor_name
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = weight.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several methods, one after the other, on one tensor."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to "
                f"PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The last method's, over what the others have left."""
        method = self._pruning_methods[-1]
        left: Any
        if method.PRUNING_TYPE == "unstructured":
            left = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError(
                    'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.'
                )
            n = t.dim()
            dim = method.dim + n if method.dim < 0 else method.dim
            if dim < 0:
                raise IndexError(f"Index is out of bounds for tensor with dimensions {n}")
            left = _along(n, dim, default_mask.sum(dim=[d for d in range(n) if d != dim]) != 0)
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.dim()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = default_mask.to(t.dtype)
        mask[left] = method.compute_mask(t[left], default_mask=default_mask[left]).to(mask.dtype)
        return mask


def _along(n: int, dim: int, index: Any) -> tuple[Any, ...]:
    """An index of n dimensions that selects in one."""
    return tuple(index if d == dim % n else slice(None) for d in range(n))


def _channels(t: Any, dim: int, index: Any, default_mask: Any) -> Any:
    mask = torch.zeros_like(t)
    mask[_along(t.dim(), dim, index)] = 1
    return mask * default_mask.to(mask.dtype)


class Identity(BasePruningMethod):
    """Prunes nothing, and makes ``_orig`` and ``_mask``."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> Any:  # type: ignore[override]
        return super().apply(module, name)


class _Amount(BasePruningMethod):
    """Prunes ``amount``: a share in [0, 1], or how many."""

    def __init__(self, amount: Any) -> None:
        if not isinstance(amount, Real):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        whole = isinstance(amount, Integral)
        if (whole and amount < 0) or (not whole and not 0.0 <= float(amount) <= 1.0):
            raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")
        self.amount: Any = amount

    def _count(self, size: int) -> int:
        n = int(self.amount) if isinstance(self.amount, Integral) else round(self.amount * size)
        if n > size:
            raise ValueError(f"amount={n} should be smaller than the number of parameters to prune={size}")
        return n

    def _channel_count(self, t: Any, dim: int) -> int:
        if t.dim() <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. "
                f"Found tensor of shape {t.shape} with {t.dim()} dims"
            )
        if dim >= t.dim():
            raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")
        return self._count(t.shape[dim])


class RandomUnstructured(_Amount):
    """Prunes elements at random."""

    PRUNING_TYPE = "unstructured"

    def _scores(self, t: Any) -> tuple[Any, bool]:
        return torch.rand_like(t), True

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        n = self._count(t.nelement())
        mask = default_mask.clone(memory_format=torch.contiguous_format)
        if n:
            scores, largest = self._scores(t)
            mask.view(-1)[torch.topk(scores.view(-1), k=n, largest=largest).indices] = 0
        return mask

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount)


class L1Unstructured(RandomUnstructured):
    """Prunes the elements of least magnitude."""

    def _scores(self, t: Any) -> tuple[Any, bool]:
        return torch.abs(t), False

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:  # type: ignore[override]
        return super(RandomUnstructured, cls).apply(module, name, amount=amount, importance_scores=importance_scores)


class RandomStructured(_Amount):
    """Prunes channels along ``dim`` at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        n = self._channel_count(t, self.dim)
        if not n:
            return default_mask
        prob = torch.rand(t.shape[self.dim])
        return _channels(t, self.dim, (prob > torch.kthvalue(prob, k=n).values).to(t.device), default_mask)

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, dim: int = -1) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Amount):
    """Prunes the channels along ``dim`` of least Ln norm."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.n = n
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        n = self._channel_count(t, self.dim)
        if not n:
            return default_mask
        others = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        kept = torch.topk(torch.norm(t, p=self.n, dim=others), k=t.shape[self.dim] - n, largest=True)
        return _channels(t, self.dim, kept.indices, default_mask)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
    ) -> Any:
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes where ``mask`` is zero."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Any) -> Any:  # type: ignore[override]
        return super().apply(module, name, mask=mask)


def identity(module: Any, name: str) -> Any:
    """Adds ``_orig`` and ``_mask``, and prunes nothing."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prunes ``amount`` elements of ``module.<name>`` at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:
    """Prunes the ``amount`` elements of least magnitude."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prunes ``amount`` channels along ``dim`` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None) -> Any:
    """Prunes the ``amount`` channels along ``dim`` of least Ln norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Any) -> Any:
    """Prunes where ``mask`` is zero."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any) -> None:
    """Prunes ``parameters``, an iterable of (module, name), as if they were one tensor."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    importance_scores = {} if importance_scores is None else importance_scores
    if not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    parameters = list(parameters)
    scores = parameters_to_vector(importance_scores.get((m, name), getattr(m, name)) for m, name in parameters)
    mask = parameters_to_vector(getattr(m, name + "_mask", torch.ones_like(getattr(m, name))) for m, name in parameters)
    container = PruningContainer()
    method = pruning_method(**kwargs)
    container._tensor_name = method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
            f"Found method {pruning_method} of type {method.PRUNING_TYPE}"
        )
    container.add_pruning_method(method)
    masks = container.compute_mask(scores, mask).split([getattr(m, name).numel() for m, name in parameters])
    for (module, name), each in zip(parameters, masks):
        custom_from_mask(module, name, mask=each.view_as(getattr(module, name)))


def remove(module: Any, name: str) -> Any:
    """Makes the pruned values the parameter, for good."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Any) -> bool:
    """Whether it or a module in it is pruned."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())
