"""AOTAutograd's graphs -> kept plans: one for the forward, one for the backward."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy

from tabtorch.autograd import grad_mode
from tabtorch.backend.dynamo.edges import (
    apart,
    laid_out,
    to_any_size,
    to_device,
    to_host,
    to_webgpu,
    whole_on_host,
    write_back,
)
from tabtorch.backend.dynamo.lower import Program, known
from tabtorch.backend.dynamo.nodes import is_token, order_of
from tabtorch.backend.tensors import NAME, THEIRS, place, wrap_parts
from tabtorch.compiled.driver import Compiled
from tabtorch.core.tensor import Tensor

#: under PyTorch's own loggers, as those have the handlers that TORCH_LOGS asks for
output_code = torch._logging.getArtifactLogger("torch._dynamo.backends.webgpu", "output_code")


Arguments = list[Any]


class _Known(set[Any]):
    """What `Compiled` has warned of. Not of a line that reads a value, as some operations do that compute on the host: it is PyTorch's."""

    def __contains__(self, what: object) -> bool:
        return isinstance(what, tuple) or super().__contains__(what)


class CompiledGraph:
    """One graph, as AOTAutograd calls it: with a list of arguments, which it may empty."""

    def __init__(
        self, gm: torch.fx.GraphModule, keep: Sequence[int], saved_from: int | None, sharing: int | None = None
    ) -> None:
        """keep: which arguments are parameters or buffers. saved_from: the outputs from there on go to the backward alone.
        sharing: how many outputs, the first, may share memory; None is all."""
        self._boxed_call = True  # of the instance: what wraps it copies these
        program = self.program = Program(gm, sharing, saved_from)
        program.space["device"] = place()
        self.keep = frozenset(keep)
        self.varying = program.varying
        self.compiled: Callable[..., list[Any]] = program.function
        if not program.reads:
            self.compiled = Compiled(program.function, dynamic=self.varying)
            self.compiled.warned = _Known()
        self.inputs = program.inputs
        self.unbound = program.unbound
        self.constants = program.constants
        self.draws = list(map(self._draw, program.drawn))
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
        for i in self.program.strided:
            whole_on_host(taken[i])
        ours = [to_device(taken[i], i in self.keep) for i in self.inputs]
        constants = [to_device(t, True) for t in self.constants]
        drawn = [to_device(draw(taken), False) for draw in self.draws]
        numbers = [taken[i] for i in self.unbound]
        with grad_mode.no_grad():
            values = self.compiled(*(self._any_size(ours) if self.varying else ours), *constants, *drawn, *numbers)
            computed = values[len(self.program.results) :]
            values = _each_apart(values[: len(self.program.results)], [*ours, *constants, *drawn])
            del drawn
            back = [(taken[i], ours[k]) for i, k in self.written if taken[i].device.type != NAME]
            del ours
            hosts = iter(to_host([value for _, value in back] + [values[r.index] for r in self.for_host]))
            for t, value in back:
                write_back(t, value, next(hosts))
            saved = iter(wrap_parts([values[r.index] for r in self.made.values() if r.saved]))
            made = [
                next(saved) if r.saved else r.tensor(values[r.index], next(hosts) if r.host else None)
                for r in self.made.values()
            ]
            del values, saved
        taken += computed
        return [output(taken, made) for output in self.outputs]

    def _any_size(self, ours: list[Tensor]) -> list[Tensor]:
        program, orders = self.program, self.program.orders
        fixed = program.strided.union(program.written)
        return [to_any_size(x, orders.get(i), i in fixed) for i, x in zip(self.inputs, ours, strict=True)]

    def _output(
        self, o: Any, base: torch.fx.Node | None, saved: bool
    ) -> Callable[[Arguments, list[torch.Tensor]], Any]:
        """(arguments, tensors of `made`) -> one output of the graph. base: in whose memory it lies."""
        if not isinstance(o, torch.fx.Node) or is_token(o):
            return lambda taken, made: None if isinstance(o, torch.fx.Node) else o
        if o.op == "placeholder":
            position = self.program.placeholders.index(o)
            return lambda taken, made: taken[position]
        val = o.meta.get("val")
        if o in self.program.computed:
            position = len(self.program.placeholders) + self.program.computed.index(o)
            return lambda taken, made: taken[position]
        if not isinstance(val, torch.Tensor):
            number = self._number(val)
            return lambda taken, made: number(taken)
        node = o if base is None else base
        if node.op == "placeholder":
            position = self.program.placeholders.index(node)
        else:
            host = not saved and val.device.type != NAME
            if (node, host) not in self.made:
                self.made[node, host] = Result(self.program, node, host, saved)
            k = list(self.made).index((node, host))
            if base is None:
                return lambda taken, made: made[k]
        sizes, strides = (list(map(self._number, s)) for s in (val.shape, val.stride()))
        base_val = node.meta["val"]
        # a view of another type: all of the memory is seen so, and it is a part of that
        dtype = val.dtype if base_val.dtype is not val.dtype else None
        begins = base_val.storage_offset() * base_val.element_size() // val.element_size()
        offset = self._number(val.storage_offset() - begins)

        def view(taken: Arguments, made: list[torch.Tensor]) -> torch.Tensor:
            whole: torch.Tensor = taken[position] if node.op == "placeholder" else made[k]
            if dtype is not None:
                whole = whole.as_strided((whole.numel(),), (1,)).view(dtype)
            begin = whole.storage_offset() + offset(taken)
            return whole.as_strided([n(taken) for n in sizes], [n(taken) for n in strides], begin)

        return view

    def _draw(self, n: torch.fx.Node) -> Callable[[Arguments], torch.Tensor]:
        """(arguments) -> what a node draws, on the CPU: the numbers that an eager call would draw there, and on "webgpu"."""

        def given(v: Any) -> Callable[[Arguments], Any]:
            if isinstance(v, (list, tuple)):
                each = list(map(given, v))
                return lambda taken: [f(taken) for f in each]
            val = v.meta["val"] if isinstance(v, torch.fx.Node) else v
            if not isinstance(val, torch.Tensor):
                return self._number(val)
            sizes, strides = given(val.shape), given(val.stride())
            return lambda taken: torch.empty_strided(sizes(taken), strides(taken), dtype=val.dtype, device="cpu")

        op: Any = n.target
        named = {k: v for k, v in n.kwargs.items() if k not in ("device", "layout", "pin_memory")}
        if any(a.name == "device" for a in op._schema.arguments):
            named["device"] = torch.device("cpu")
        args, keywords = given(n.args), {k: given(v) for k, v in named.items()}
        return lambda taken: op(*args(taken), **{k: f(taken) for k, f in keywords.items()})

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
        if unknown := [str(s) for s in expr.free_symbols if str(s) not in sources]:
            raise NotImplementedError(
                f"torch.compile(backend='webgpu'): a result with the number {expr}, where {', '.join(unknown)} is of no input"
            )
        places = [(s, *sources[str(s)]) for s in expr.free_symbols]
        if expr.is_Symbol:
            ((_, i, d),) = places
            return lambda taken: taken[i] if d is None else taken[i].shape[d]
        kind = number.node.pytype
        return lambda taken: kind(expr.subs({s: taken[i] if d is None else taken[i].shape[d] for s, i, d in places}))


def _each_apart(values: list[Tensor], taken: list[Tensor]) -> list[Tensor]:
    """The values in storages of their own, also where a function has given an argument or the same twice. What PyTorch has in
    one memory is made of one value after this."""
    seen = {id(t._tab_storage) for t in taken}
    found = []
    for x in values:
        own = apart(x) if id(x._tab_storage) in seen else x
        seen.add(id(own._tab_storage))
        found.append(own)
    return found


class Result:
    """A tensor that the function makes, as PyTorch is to have it. host: whether it is for the CPU. saved: whether only the
    backward sees it, to which it is a value that lies as it likes."""

    def __init__(self, program: Program, node: torch.fx.Node, host: bool, saved: bool) -> None:
        val = node.meta["val"]
        self.name = node.name
        self.index = program.results.index(node)
        self.order = order_of(val)
        self.dtype = val.dtype
        self.host = host
        self.saved = saved

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
    """Forward and backward of a graph of both. What is cheap is computed again rather than kept. Of what a checkpoint computes
    again, draws are kept, so that no generator has to be set back."""
    for n in joint.graph.nodes:
        if n.meta.get("recompute") is not None and torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()):
            for kept in (n, *[user for user in n.users if user.target is operator.getitem]):
                kept.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return min_cut_rematerialization_partition(joint, inputs, **kw)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own formulas, for the operators that there is no function for."""
    return {op: f for op, f in torch._decomp.decomposition_table.items() if not known(op)}
