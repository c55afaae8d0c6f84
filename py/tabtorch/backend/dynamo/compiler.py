"""AOTAutograd's graphs -> kept plans: one for the forward, one for the backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._functorch.partitioners import min_cut_rematerialization_partition

from tabtorch.autograd import grad_mode
from tabtorch.backend.dynamo.edges import laid_out, strides_like, to_device, to_host, to_webgpu, write_back
from tabtorch.backend.dynamo.lower import Program, known
from tabtorch.backend.tensors import NAME, THEIRS, place
from tabtorch.compiled.driver import Compiled

#: under PyTorch's own loggers, as those have the handlers that TORCH_LOGS asks for
output_code = torch._logging.getArtifactLogger("torch._dynamo.backends.webgpu", "output_code")


class CompiledGraph:
    """One graph, as AOTAutograd calls it: with a list of arguments, which it may empty."""

    def __init__(self, gm: torch.fx.GraphModule, keep: Sequence[int], saved_from: int) -> None:
        """keep: which arguments are parameters or buffers. saved_from: the outputs from there on go to the backward alone."""
        self._boxed_call = True  # of the instance: what wraps it copies these
        program = self.program = Program(gm)
        program.space["device"] = place()
        self.keep = frozenset(keep)
        varying = any(isinstance(s, torch.SymInt) for i in program.inputs for s in program.placeholders[i].meta["val"].shape)
        self.compiled = Compiled(program.function, dynamic=varying)
        self.inputs = program.inputs
        self.unbound = program.unbound
        self.constants = [to_device(t, False) for t in program.constants]
        self.written = [(i, program.inputs.index(i)) for i in dict.fromkeys(program.written)]
        self.outputs = [Output(program, k, k >= saved_from) for k in range(len(program.outputs))]
        output_code.debug("Output code for webgpu:\n%s", program.text)

    def __call__(self, args: list[Any]) -> list[Any]:
        taken = list(args)
        args.clear()
        ours = [to_device(taken[i], i in self.keep) for i in self.inputs]
        numbers = [taken[i] for i in self.unbound]
        with grad_mode.no_grad():
            results = self.compiled(*ours, *self.constants, *numbers)
            back = [(taken[i], ours[k]) for i, k in self.written if taken[i].device.type != NAME]
            del ours
            wanted = [results[output.result] for output in self.outputs if output.result >= 0 and output.host]
            hosts = iter(to_host([value for _, value in back] + wanted))
            for t, value in back:
                write_back(t, value, next(hosts))
            return [output(taken, results, hosts) for output in self.outputs]


class Output:
    """One output of a graph: an argument, a number, or one of the function's results.

    result: which of them; -1 for none. host: whether it is for the CPU.
    """

    result = -1
    host = False

    def __init__(self, program: Program, k: int, saved: bool) -> None:
        """saved: whether it is for the backward alone, and so stays on the device."""
        o = self.node = program.outputs[k]
        if not isinstance(o, torch.fx.Node):
            self.give: Callable[[list[Any]], Any] = lambda taken: o
        elif o.op == "placeholder":
            position = program.placeholders.index(o)
            self.give = lambda taken: taken[position]
        elif isinstance(val := o.meta.get("val"), torch.Tensor):
            self.result = program.results.index(k)
            self.order = strides_like(val)
            self.dtype = val.dtype
            self.host = not saved and val.device.type != NAME
        else:
            self.give = _number(program, val)

    def __call__(self, taken: list[Any], results: list[Any], hosts: Iterator[torch.Tensor]) -> Any:
        """taken: arguments. hosts: results that are for the CPU, from this one on."""
        if self.result < 0:
            return self.give(taken)
        x = results[self.result]
        if THEIRS[x.dtype] is not self.dtype:
            raise RuntimeError(f"torch.compile(backend='webgpu'): {self.node.name} is of type {x.dtype}, not {self.dtype}")
        return laid_out(next(hosts), self.order) if self.host else to_webgpu(x, self.order)


def _number(program: Program, val: Any) -> Callable[[list[Any]], int]:
    """An output that is a number: an expression of sizes, which the arguments have."""
    expr = val.node.expr
    sources: dict[str, Any] = {}
    for i, n in enumerate(program.placeholders):
        v = n.meta.get("val")
        if isinstance(v, torch.SymInt):
            sources.setdefault(str(v.node.expr), (i, None))
        elif isinstance(v, torch.Tensor):
            for d, s in enumerate(v.shape):
                if isinstance(s, torch.SymInt):
                    sources.setdefault(str(s.node.expr), (i, d))
    places = [(s, sources[str(s)]) for s in expr.free_symbols]

    def give(taken: list[Any]) -> int:
        values = {s: taken[i] if d is None else taken[i].shape[d] for s, (i, d) in places}
        return int(expr.subs(values))

    return give


def _context() -> Any:
    found = torch._guards.TracingContext.try_get()
    return None if found is None else found.fw_metadata


def forward(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> CompiledGraph:
    """The forward of a training step."""
    metadata = _context()
    keep = metadata.static_input_indices if metadata is not None else ()
    saved_from = metadata.num_forward if metadata is not None else len(list(gm.graph.nodes))
    return CompiledGraph(gm, keep, saved_from)


def inference(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> CompiledGraph:
    """A graph that nothing is differentiated of."""
    metadata = _context()
    return CompiledGraph(gm, metadata.static_input_indices if metadata is not None else (), len(list(gm.graph.nodes)))


def backward(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> CompiledGraph:
    """The backward of a training step."""
    return CompiledGraph(gm, (), len(list(gm.graph.nodes)))


def partition(joint: torch.fx.GraphModule, inputs: Any, **kw: Any) -> Any:
    """Forward and backward of a graph of both. What is cheap is computed again rather than kept."""
    return min_cut_rematerialization_partition(joint, inputs, **kw)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own formulas, for the operators that there is no function for."""
    return {op: f for op, f in torch._decomp.decomposition_table.items() if not known(op)}
