"""`torch.compile(model, backend="webgpu")` of real PyTorch.

Dynamo gives the graph of a function, AOTAutograd makes a forward and a backward of it that are functional and of ATen's
operations, and each of those becomes one function over our tensors (lower.py) that is compiled into one kept plan (compiler.py).
The model and its inputs may be on "webgpu", or on the CPU (edges.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd

from tabtorch.backend.dynamo import compiler, control_flow

#: what `torch.compile(mode=)` may be. All mean the same: a kept plan is always replayed as a whole
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def _check(mode: Any, options: Any) -> None:
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    for name in options or ():
        raise RuntimeError(f"Unexpected optimization option {name}, known options are []")


def webgpu(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, mode: Any = None, options: Any = None
) -> Callable[..., Any]:
    """The backend "webgpu" of `torch.compile`: a callable for a graph of Dynamo's.

    mode: one of `MODES`. options: none are known. RuntimeError for others; NotImplementedError, with the ATen name and the line
    of the script, for an operation that is neither ours nor made of others.
    """
    _check(mode, options)
    made = aot_autograd(
        fw_compiler=compiler.forward,
        bw_compiler=compiler.backward,
        inference_compiler=compiler.inference,
        partition_fn=compiler.partition,
        decompositions=compiler.decompositions(),
        keep_inference_input_mutations=True,
    )
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # no kernels of the CPU in a graph: of an LSTM, the steps
    try:
        return made(control_flow.inline(gm), example_inputs)
    finally:
        torch._C._set_mkldnn_enabled(before)


def register() -> None:
    """Gives Dynamo the backend, unless it has found the entry point, whose function it registers itself after this import; and
    keeps it from tracing the engine, which runs as Python under each operation on "webgpu"."""
    torch._dynamo.trace_rules.add("tabtorch")
    if "webgpu" not in torch._dynamo.backends.registry._BACKENDS:
        torch._dynamo.register_backend(webgpu, name="webgpu")


register()
