"""`torch.export.ExportedProgram`: a program, its signature, its tensors, and the module that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from tabtorch.core.tensor import Tensor
from tabtorch.export.archive import Contents
from tabtorch.export.fields import bad, field, items, table, text
from tabtorch.export.graphs import Graph, read_graph
from tabtorch.export.input_checks import InputChecks, ValueRanges, meta_of, paths_of, read_guards, read_ranges
from tabtorch.export.modules import GraphModule
from tabtorch.export.signature import (
    ExportGraphSignature,
    InputKind,
    ModuleCallEntry,
    ModuleCallSignature,
    argument,
    read_signature,
)
from tabtorch.export.treespecs import is_call, loads, table_of_names
from tabtorch.nn.parameter import Parameter
from tabtorch.utils._pytree import TreeSpec


class CallSpec:
    """How inputs and results are nested."""

    def __init__(self, in_spec: TreeSpec | None, out_spec: TreeSpec | None) -> None:
        self.in_spec = in_spec
        self.out_spec = out_spec


class ExportedProgram:
    """A program of `torch.export`: from `torch.export.load`, or `torch.export.export`.

    It is called through its `module()`. `graph` is what it does, `graph_signature` what goes in and out, `state_dict` its parameters and
    persistent buffers, `constants` its other tensors, `range_constraints` the sizes that it takes.
    """

    def __init__(
        self,
        graph: Graph,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Tensor],
        constants: dict[str, Tensor],
        range_constraints: dict[str, ValueRanges],
        module_call_graph: list[ModuleCallEntry],
        *,
        guards: list[Any] | None = None,
        dialect: str = "TRAINING",
        named_tuples: dict[str, list[str]] | None = None,
        example_inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
    ) -> None:
        self._graph = graph
        self._graph_signature = graph_signature
        self._state_dict = state_dict
        self._constants = constants
        self._range_constraints = range_constraints
        self._module_call_graph = module_call_graph
        self._guards = guards or []
        self.dialect = dialect
        self._named_tuples = named_tuples or {}
        self.example_inputs = example_inputs
        for spec in graph_signature.input_specs:
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                found = state_dict.get(str(spec.target), constants.get(str(spec.target)))
                if found is None:
                    raise bad(f"the tensor {spec.target!r} is not in the archive")
                if spec.kind is InputKind.PARAMETER and not isinstance(found, Parameter):
                    raise bad(f"{spec.target!r} is no parameter in the archive")

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def graph_module(self) -> Any:
        """The graph, printable; what runs it is `module()`."""
        return self._graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Tensor]:
        return self._state_dict

    @property
    def constants(self) -> dict[str, Tensor]:
        return self._constants

    @property
    def tensor_constants(self) -> dict[str, Tensor]:
        return self._constants

    @property
    def range_constraints(self) -> dict[str, ValueRanges]:
        return self._range_constraints

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        return self._module_call_graph

    @property
    def call_spec(self) -> CallSpec:
        call = self._module_call_graph[0].signature
        return CallSpec(None, None) if call is None else CallSpec(call.in_spec, call.out_spec)

    def parameters(self) -> Iterator[Parameter]:
        for _, p in self.named_parameters():
            yield p

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        for name in self._graph_signature.parameters:
            yield name, self._state_dict[name]

    def buffers(self) -> Iterator[Tensor]:
        for _, b in self.named_buffers():
            yield b

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        lost = set(self._graph_signature.non_persistent_buffers)
        for name in self._graph_signature.buffers:
            yield name, (self._constants if name in lost and name in self._constants else self._state_dict)[name]

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def run_decompositions(self, decomp_table: Any = None) -> NoReturn:
        raise NotImplementedError(
            "run_decompositions: tabtorch runs programs of both dialects as they are; decompose the program in PyTorch before saving it"
        )

    def module(self, check_guards: bool = True) -> GraphModule:
        """A module that runs the program; it has these very parameters and buffers. check_guards: whether it checks sizes of inputs.

        NotImplementedError with the names of operators that tabtorch does not have."""
        call = self._module_call_graph[0].signature
        assert call is not None
        mine = [
            x
            for spec, x in zip(self._graph_signature.input_specs, self._graph.inputs, strict=True)
            if spec.kind is InputKind.USER_INPUT
        ]
        checks = None
        if check_guards:
            paths, sources = paths_of(call.in_spec, call.forward_arg_names)
            metas = [meta_of(x, self._graph.metas) for x in mine]
            if len(metas) != len(paths):
                raise bad(f"the program takes {len(metas)} inputs, but its signature says {len(paths)}")
            checks = InputChecks(metas, paths, self._range_constraints, self._guards, sources)
        return GraphModule(
            self._graph, self._graph_signature, self._state_dict, self._constants, (call.in_spec, call.out_spec), checks
        )

    def __str__(self) -> str:
        body = f"class GraphModule(torch.nn.Module):\n{self._graph.text('    ')}".replace("\n", "\n    ")
        signature = str(self._graph_signature).replace("\n", "\n    ")
        return f"ExportedProgram:\n    {body}\nGraph signature: {signature}\nRange constraints: {self._range_constraints}\n"

    __repr__ = __str__


# ---- from an archive


def _call_signature(x: Any, named: Mapping[str, list[str]]) -> ModuleCallSignature:
    names = table(x).get("forward_arg_names")
    return ModuleCallSignature(
        [argument(a) for a in items(field(x, "inputs"))],
        [argument(a) for a in items(field(x, "outputs"))],
        loads(text(field(x, "in_spec")), named),
        loads(text(field(x, "out_spec")), named),
        None if names is None else [text(n) for n in items(names)],
    )


def of_contents(contents: Contents) -> ExportedProgram:
    """The program of an archive. SerializeError for one that is not consistent."""
    program = contents.program
    body = field(program, "graph_module")
    graph = read_graph(field(body, "graph"))
    signature = read_signature(field(body, "signature"))
    if len(signature.input_specs) != len(graph.inputs) or len(signature.output_specs) != len(graph.outputs):
        raise bad("the signature is not that of the graph")
    named = table_of_names(table(body).get("treespec_namedtuple_fields", {}))
    calls = []
    for entry in items(field(body, "module_call_graph")):
        held = table(entry).get("signature")
        calls.append(ModuleCallEntry(text(field(entry, "fqn")), None if held is None else _call_signature(held, named)))
    if not calls or calls[0].signature is None or not is_call(calls[0].signature.in_spec):
        raise bad("nothing says how its inputs are nested")
    verifiers = table(program).get("verifiers") or ["TRAINING"]
    return ExportedProgram(
        graph,
        signature,
        contents.state,
        contents.constants,
        read_ranges(field(program, "range_constraints")),
        calls,
        guards=read_guards(table(program).get("guards_code", [])),
        dialect=text(items(verifiers)[0]),
        named_tuples=named,
    )
