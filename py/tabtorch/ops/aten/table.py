"""The one table of adapters: ATen name, or name.overload, to function. A family of them is a module; `load` imports them all."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tabtorch import autograd
from tabtorch.autograd import grad_mode
from tabtorch.core import tensor

#: a tensor. Its operators are made when they are first used, so what they give a type checker does not know
Tensor: TypeAlias = Any
#: name, or name.overload -> function. An overload's own entry goes before its name's
ADAPTERS: dict[str, Callable[..., Any]] = {}
#: the modules that fill it. None is named as an operator is: `torch.ops.aten.NAME` is the operator
FAMILIES = tuple(
    "activation_gradients arithmetic attentions convolving distances_and_counts draws embeddings loss_functions matrix_factors "
    "movement normalizing pools recurrences resampling tensor_lists transformer_layers".split()
)


def load() -> dict[str, Callable[..., Any]]:
    """The whole table."""
    for family in FAMILIES:
        importlib.import_module("tabtorch.ops.aten." + family)
    return ADAPTERS


def aten(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function under these names: "view", "add.Scalar"."""

    def keep(f: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            ADAPTERS[name] = f
        return f

    return keep


def grads_of(
    f: Callable[..., Any], inputs: Sequence[Any], grads: Any, wanted: Sequence[bool] | None = None
) -> tuple[Tensor | None, ...]:
    """The gradients of `f(*inputs)` with respect to those inputs that are there and wanted, by our own tape; None for the others.

    grads: that of the result, or a sequence for several results; None among them for one that has no gradient.
    """
    wanted = (
        [x is not None for x in inputs]
        if wanted is None
        else [w and x is not None for x, w in zip(inputs, wanted, strict=True)]
    )
    if not any(wanted):
        return (None,) * len(inputs)
    given = [t for t in (*inputs, *(grads if isinstance(grads, (list, tuple)) else [grads])) if t is not None]
    again = grad_mode.is_grad_enabled() and any(
        t.requires_grad for t in given
    )  # they are to be differentiated themselves
    with grad_mode.enable_grad():
        leaves = [
            x if not w else x.view_as(x) if again and x.requires_grad else x.detach().requires_grad_()
            for x, w in zip(inputs, wanted, strict=True)
        ]
        out = f(*leaves)
        outs, gs = ([out], [grads]) if isinstance(out, tensor.Tensor) else (list(out), list(grads))
        used = [(o, g) for o, g in zip(outs, gs, strict=True) if g is not None and o.requires_grad]
        live = [x for x, w in zip(leaves, wanted, strict=True) if w]
        found = iter(
            autograd.grad([o for o, _ in used], live, [g for _, g in used], create_graph=again, allow_unused=True)
        )
    return tuple(next(found) if w else None for w in wanted)


def grad_of(f: Callable[..., Tensor], x: Tensor, grad: Tensor) -> Tensor:
    """The gradient of `f(x)` with respect to x; zeros where none comes to it."""
    (found,) = grads_of(f, (x,), grad)
    return x.new_zeros(x.shape) if found is None else found
