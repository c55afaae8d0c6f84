"""AOTAutograd's graphs -> kept plans: one for the forward, one for the backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.partitioners import min_cut_rematerialization_partition

from tabtorch.autograd import grad_mode
from tabtorch.backend.dynamo.edges import apart, laid_out, strides_like, to_device, to_host, to_webgpu, write_back
from tabtorch.backend.dynamo.lower import Program, known
from tabtorch.backend.tensors import NAME, THEIRS, place
from tabtorch.compiled.driver import Compiled
from tabtorch.core.tensor import Tensor

#: under PyTorch's own loggers, as those have the handlers that TORCH_LOGS asks for
output_code = torch._logging.getArtifactLogger("torch._dynamo.backends.webgpu", "output_code")


Arguments = list[Any]


class CompiledGraph:
    """One graph, as AOTAutograd calls it: with a list of arguments, which it may empty."""

    def __init__(
        self, gm: torch.fx.GraphModule, keep: Sequence[int], saved_from: int | None, sharing: int | None = None
    ) -> None:
        """keep: which arguments are parameters or buffers. saved_from: the outputs from there on go to the backward alone.
        sharing: how many outputs, the first, may share memory; None is all."""
        self._boxed_call = True  # of the instance: what wraps it copies these
        program = self.program = Program(gm, sharing)
        program.space["device"] = place()
        self.keep = frozenset(keep)
        varying = any(
            isinstance(s, torch.SymInt) for i in program.inputs for s in program.placeholders[i].meta["val"].shape
        )
        self.compiled = Compiled(program.function, dynamic=varying)
        self.inputs = program.inputs
        self.unbound = program.unbound
        self.constants = program.constants
        self.written = [(i, program.inputs.index(i)) for i in dict.fromkeys(program.written)]
        self.made: dict[tuple[torch.fx.Node, bool], Result] = {}
        self.outputs = [
            self._output(o, program.bases.get(k), saved_from is not None and k >= saved_from)
            for k, o in enumerate(program.outputs)
        ]
        self.for_host = [r for r in self.made.values() if r.host]
        output_code.debug("Output code for webgpu:\n%s", program.text)

    def __call__(self, args: Arguments) -> list[Any]:
        taken = list(args)
        args.clear()
        ours = [to_device(taken[i], i in self.keep) for i in self.inputs]
        constants = [to_device(t, True) for t in self.constants]
        numbers = [taken[i] for i in self.unbound]
        with grad_mode.no_grad():
            values = self.compiled(*ours, *constants, *numbers)
            theirs = {id(t._storage) for t in ours}
            values = [apart(x) if id(x._storage) in theirs else x for x in values]
            back = [(taken[i], ours[k]) for i, k in self.written if taken[i].device.type != NAME]
            del ours
            hosts = iter(to_host([value for _, value in back] + [values[r.index] for r in self.for_host]))
            for t, value in back:
                write_back(t, value, next(hosts))
            made = [r.tensor(values[r.index], next(hosts) if r.host else None) for r in self.made.values()]
            del values
        return [output(taken, made) for output in self.outputs]

    def _output(
        self, o: Any, base: torch.fx.Node | None, saved: bool
    ) -> Callable[[Arguments, list[torch.Tensor]], Any]:
        """(arguments, tensors of `made`) -> one output of the graph. base: in whose memory it lies."""
        if not isinstance(o, torch.fx.Node):
            return lambda taken, made: o
        if o.op == "placeholder":
            position = self.program.placeholders.index(o)
            return lambda taken, made: taken[position]
        val = o.meta.get("val")
        if not isinstance(val, torch.Tensor):
            number = self._number(val)
            return lambda taken, made: number(taken)
        node = o if base is None else base
        host = not saved and val.device.type != NAME
        if (node, host) not in self.made:
            self.made[node, host] = Result(self.program, node, host)
        k = list(self.made).index((node, host))
        if base is None:
            return lambda taken, made: made[k]
        sizes, strides = (list(map(self._number, s)) for s in (val.shape, val.stride()))
        offset = self._number(val.storage_offset())
        # a view of another type: all of the memory is seen so, and it is a part of that
        dtype = val.dtype if node.meta["val"].dtype is not val.dtype else None

        def part(taken: Arguments, made: list[torch.Tensor]) -> torch.Tensor:
            whole = made[k]
            if dtype is not None:
                whole = whole.as_strided((whole.numel(),), (1,)).view(dtype)
            return whole.as_strided([n(taken) for n in sizes], [n(taken) for n in strides], offset(taken))

        return part

    def _number(self, number: Any) -> Callable[[Arguments], Any]:
        """A number, which may be an expression of sizes that the arguments have."""
        if not isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return lambda taken: number
        expr = number.node.expr
        if not expr.free_symbols:
            constant = number.node.pytype(expr)
            return lambda taken: constant
        sources: dict[str, tuple[int, int | None]] = {}
        for i, n in enumerate(self.program.placeholders):
            v = n.meta.get("val")
            for d, s in enumerate(v.shape) if isinstance(v, torch.Tensor) else ((None, v),):
                if isinstance(s, (torch.SymInt, torch.SymFloat)):
                    sources.setdefault(str(s.node.expr), (i, d))
        places = [(s, *sources[str(s)]) for s in expr.free_symbols]
        if expr.is_Symbol:
            ((_, i, d),) = places
            return lambda taken: taken[i] if d is None else taken[i].shape[d]
        kind = number.node.pytype
        return lambda taken: kind(expr.subs({s: taken[i] if d is None else taken[i].shape[d] for s, i, d in places}))


class Result:
    """A tensor that the function makes, as PyTorch is to have it. host: whether it is for the CPU."""

    def __init__(self, program: Program, node: torch.fx.Node, host: bool) -> None:
        val = node.meta["val"]
        self.name = node.name
        self.index = program.results.index(node)
        self.order = strides_like(val)
        self.dtype = val.dtype
        self.host = host

    def tensor(self, x: Tensor, host: torch.Tensor | None) -> torch.Tensor:
        """x: the value. host: the same, downloaded."""
        if THEIRS[x.dtype] is not self.dtype:
            raise RuntimeError(f"torch.compile(backend='webgpu'): {self.name} is of type {x.dtype}, not {self.dtype}")
        return to_webgpu(x, self.order) if host is None else laid_out(host, self.order)


def _context() -> Any:
    """What AOTAutograd knows of the graph that it has compiled now."""
    found = torch._guards.TracingContext.try_get()
    if found is None or found.fw_metadata is None:
        raise RuntimeError("torch.compile(backend='webgpu'): AOTAutograd has left no metadata of the graph")
    return found.fw_metadata


def forward(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> CompiledGraph:
    """The forward of a training step."""
    metadata = _context()
    return CompiledGraph(gm, metadata.static_input_indices, metadata.num_forward, metadata.num_forward)


def inference(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> CompiledGraph:
    """A graph that nothing is differentiated of."""
    return CompiledGraph(gm, _context().static_input_indices, None)


def backward(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> CompiledGraph:
    """The backward of a training step."""
    return CompiledGraph(gm, (), None, 0)


def partition(joint: torch.fx.GraphModule, inputs: Any, **kw: Any) -> Any:
    """Forward and backward of a graph of both. What is cheap is computed again rather than kept."""
    return min_cut_rematerialization_partition(joint, inputs, **kw)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own formulas, for the operators that there is no function for."""
    return {op: f for op, f in torch._decomp.decomposition_table.items() if not known(op)}
