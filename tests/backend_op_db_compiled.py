"""op_db through `torch.compile(backend="webgpu")` of real PyTorch: each entry as a compiled function, against the CPU's eager result.

    python tests/backend_op_db_compiled.py [PATTERN ...] [the options of backend_op_db.py]

Forward results and gradients, as backend_op_db.py compares them. What Dynamo and AOTAutograd themselves refuse, as
`torch.compile(backend="aot_eager")` on the CPU shows, is said to be "theirs".
"""

from __future__ import annotations

import sys
from typing import Any

import backend_op_db


class CompiledEntry:
    """An entry of op_db that is compiled where it is called with tensors on "webgpu"."""

    inplace_variant = None
    supports_out = False

    def __init__(self, op: Any) -> None:
        self.entry = op

    def __getattr__(self, name: str) -> Any:
        return getattr(self.entry, name)

    def __call__(self, *args: Any, **kw: Any) -> Any:
        import torch

        leaves = backend_op_db._flat((args, kw))
        here = any(
            v.device.type == "webgpu" if isinstance(v, torch.Tensor) else v == torch.device("webgpu") for v in leaves
        )
        return self._compiled("webgpu", args, kw) if here else self.entry(*args, **kw)

    def _compiled(self, backend: str, args: Any, kw: Any) -> Any:
        import torch

        torch._dynamo.reset()
        op = self.entry.op
        try:
            return torch.compile(lambda *args, **kw: op(*args, **kw), backend=backend)(*args, **kw)
        except Exception as error:
            if backend == "webgpu" and self._refused(args, kw):
                raise RuntimeError(f"theirs: {str(error).splitlines()[0]}") from None
            raise

    def _refused(self, args: Any, kw: Any) -> bool:
        """Whether PyTorch's own backend on the CPU fails, too."""
        import torch
        from torch.utils._pytree import tree_map

        def home(v: Any) -> Any:
            if isinstance(v, torch.Tensor):
                return v.detach().cpu().requires_grad_(v.requires_grad)
            return torch.device("cpu") if isinstance(v, torch.device) else v

        try:
            self._compiled("aot_eager", *tree_map(home, (args, kw)))
        except Exception:
            return True
        return False


def work() -> None:
    """`backend_op_db.work` with compiled entries."""
    import tabtorch.backend.dynamo  # noqa: F401

    every = backend_op_db.entries
    backend_op_db.entries = lambda dtype: [CompiledEntry(op) for op in every(dtype)]  # type: ignore[assignment]
    backend_op_db.work()


def main() -> int:
    """The command."""
    backend_op_db.__file__ = __file__  # what the workers run
    return backend_op_db.main()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work()
    else:
        sys.exit(main())
