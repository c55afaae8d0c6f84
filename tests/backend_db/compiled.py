"""op_db through `torch.compile(backend="webgpu")`: forward and gradient of each entry, against the CPU's eager result.

What Dynamo and AOTAutograd themselves refuse, as `torch.compile(backend="aot_eager")` on the CPU shows, is said to be "theirs".
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

import tabtorch.backend.dynamo  # noqa: F401

from . import operators
from .comparing import NAME, said


class CompiledEntry:
    """An entry of op_db that is compiled where it is called with tensors on "webgpu"."""

    inplace_variant = None
    supports_out = False

    def __init__(self, op: Any) -> None:
        self.entry = op

    def __getattr__(self, name: str) -> Any:
        return getattr(self.entry, name)

    def __call__(self, *args: Any, **kw: Any) -> Any:
        there = any(
            v.device.type == NAME if isinstance(v, torch.Tensor) else v == torch.device(NAME)
            for v in tree_leaves((args, kw))
        )
        return self._compiled(NAME, args, kw) if there else self.entry(*args, **kw)

    def _compiled(self, backend: str, args: Any, kw: Any) -> Any:
        torch._dynamo.reset()
        op = self.entry.op
        try:
            return torch.compile(lambda *args, **kw: op(*args, **kw), backend=backend)(*args, **kw)
        except Exception as error:
            if backend == NAME and self._refused(args, kw):
                raise RuntimeError(f"theirs: {str(error).splitlines()[0]}") from None
            raise

    def _refused(self, args: Any, kw: Any) -> bool:
        """Whether PyTorch's own backend on the CPU fails, too."""

        def home(v: Any) -> Any:
            if isinstance(v, torch.Tensor):
                return v.detach().cpu().requires_grad_(v.requires_grad)
            return torch.device("cpu") if isinstance(v, torch.device) else v

        try:
            self._compiled("aot_eager", *tree_map(home, (args, kw)))
        except Exception:
            return True
        return False


def entries(dtype: Any) -> dict[str, Any]:
    """The entries that have a type on the CPU, by name."""
    return {name: CompiledEntry(op) for name, op in operators.entries(dtype).items()}


def answer(op: Any, samples: int, dtype: Any, found: dict[str, str]) -> None:
    """Enters check -> "" or why it failed. What follows a failure is not asked."""
    with_gradients = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    for s in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=with_gradients), samples):
        for check, passes in operators._checks(op, s, with_gradients):
            if check in ("forward", "gradient"):
                try:
                    passes()
                    found[check] = ""
                except Exception as e:
                    found[check] = said(e)
                    return
