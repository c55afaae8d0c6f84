"""What `ExportedProgram.module()` gives: a module with the parameters and buffers of the model, under their names, that runs the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tabtorch.autograd import grad_mode
from tabtorch.base import device as devices
from tabtorch.core.tensor import Tensor
from tabtorch.export.fields import bad
from tabtorch.export.graphs import Graph
from tabtorch.export.input_checks import InputChecks
from tabtorch.export.operators import Finder
from tabtorch.export.running import Runner
from tabtorch.export.signature import ConstantArgument, ExportGraphSignature, InputKind, OutputKind
from tabtorch.export.treespecs import dressed, reordered, same
from tabtorch.nn.modules.module import Module
from tabtorch.utils._pytree import TreeSpec, tree_flatten


class GraphModule(Module):
    """A program as a module. Gradients, `to`, `state_dict`, `torch.compile` are those of any module; what of it was trained or
    evaluated when it was exported stays so: `train()` and `eval()` are a NotImplementedError, as in PyTorch.

    Tensors of the program that are neither parameters nor buffers (constants) move with it, and are not listed.
    """

    def __init__(
        self,
        graph: Graph,
        signature: ExportGraphSignature,
        state: Mapping[str, Tensor],
        constants: Mapping[str, Any],
        specs: tuple[TreeSpec, TreeSpec],
        checks: InputChecks | None,
    ) -> None:
        super().__init__()
        find = Finder(graph)
        runner = Runner(graph, find)
        if find.missing:
            vmap = any(name.startswith("torch._functorch.") for name in find.missing)
            raise NotImplementedError(
                f"tabtorch has no operator {', '.join(sorted(find.missing))}, which the program calls"
                + ("; ep.run_decompositions() in PyTorch, before it is saved, takes them away" if vmap else "")
            )
        object.__setattr__(self, "graph", graph)
        object.__setattr__(self, "meta", {})
        self._in_spec, self._out_spec = specs
        self._checks = checks
        self._runner = runner
        self._constants: dict[str, Any] = {}
        self._takes: list[Callable[[list[Any]], Any]] = []
        self._gives: list[tuple[OutputKind, Any, Any]] = []
        self._first: Callable[[], Tensor] | None = None
        self.validate_inputs = True
        users = 0
        names: dict[str, int] = {}
        for spec in signature.input_specs:
            if spec.kind is InputKind.USER_INPUT:
                names[spec.arg.name] = users
                self._takes.append(_leaf(users))
                users += 1
            elif spec.kind is InputKind.TOKEN:
                self._takes.append(lambda leaves: None)
            else:
                self._takes.append(self._held(spec.kind, str(spec.target), spec.persistent, state, constants))
        if users != self._in_spec.num_leaves:
            raise bad(f"the program takes {users} inputs, but its signature says {self._in_spec.num_leaves}")
        given = 0
        for out in signature.output_specs:
            target: Any = None
            if out.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
                target = self._place(str(out.target), state)
            elif out.kind is OutputKind.USER_INPUT_MUTATION:
                if out.target not in names:
                    raise bad(f"the input {out.target!r} that is written to is not there")
                target = names[out.target]
            elif out.kind in (OutputKind.GRADIENT_TO_PARAMETER, OutputKind.GRADIENT_TO_USER_INPUT):
                raise NotImplementedError("programs with their own backward are not run here: export the forward alone")
            elif out.kind is not OutputKind.TOKEN:
                given += 1
            constant = out.arg.value if isinstance(out.arg, ConstantArgument) else None
            self._gives.append((out.kind, target, constant))
        if given != self._out_spec.num_leaves or len(self._gives) != len(graph.outputs):
            raise bad(f"the program has {given} results, but its signature says {self._out_spec.num_leaves}")

    # ---- its tensors

    def _held(
        self,
        kind: InputKind,
        target: str,
        persistent: bool | None,
        state: Mapping[str, Tensor],
        constants: Mapping[str, Any],
    ) -> Callable[[list[Any]], Any]:
        """Enters a tensor under its name; how it is found when the program runs."""
        found = state.get(target, constants.get(target))
        if not isinstance(found, Tensor):
            raise bad(f"the tensor {target!r} is not in the archive")
        if kind is InputKind.CONSTANT_TENSOR:
            self._constants[target] = found
            held = self._constants
            self._note(lambda: held[target])
            return lambda leaves: held[target]
        where, name = self._owner(target)
        if kind is InputKind.PARAMETER:
            where.register_parameter(name, found)
            own: Any = where._parameters
        elif kind is InputKind.BUFFER:
            where.register_buffer(name, found, persistent=persistent is not False)
            own = where._buffers
        else:
            raise NotImplementedError(f"the program has the object {target!r}, which is no tensor")
        self._note(lambda: own[name])
        return lambda leaves: own[name]

    def _note(self, find: Callable[[], Tensor]) -> None:
        if self._first is None:
            self._first = find

    def _owner(self, target: str) -> tuple[Module, str]:
        """The module that has what is called so, which is made where it is not there, and the name there."""
        where: Module = self
        *path, name = target.split(".")
        if len(path) > 200 or not all(path) or not name:
            raise bad(f"{target!r} is no name of a tensor")
        for part in path:
            inner = where._modules.get(part)
            if inner is None:
                if hasattr(where, part):
                    raise bad(f"{target!r} cannot be the name of a tensor")
                inner = Module()
                where.add_module(part, inner)
            where = inner
        if name in where._parameters or name in where._buffers:
            raise bad(f"the tensor {target!r} is there twice")
        return where, name

    def _place(self, target: str, state: Mapping[str, Tensor]) -> Callable[[], Tensor]:
        *path, name = target.split(".")
        where: Module | None = self
        for part in path:
            where = None if where is None else where._modules.get(part)
        if where is None or (name not in where._buffers and name not in where._parameters):
            raise bad(f"{target!r}, which is written to, is not there")
        own: Any = where._buffers if name in where._buffers else where._parameters
        return lambda: own[name]

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        for name, t in self._constants.items():
            with grad_mode.no_grad():
                self._constants[name] = fn(t).to(t.dtype)
        return self

    # ---- calling it

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        leaves, received = tree_flatten(dressed((args, reordered(kwargs, self._in_spec)), self._in_spec))
        if not same(received, self._in_spec):
            raise ValueError(
                f"Trying to flatten user inputs with exported input tree spec: \n{self._in_spec}\nbut actually got inputs with "
                f"tree spec of: \n{received}.\nPlease check that the inputs have the same number and type of args and kwargs as "
                "the ones you used when tracing."
            )
        return leaves

    def _device(self, leaves: Sequence[Any]) -> Any:
        if self._first is not None:
            return self._first().device
        found = next((x.device for x in leaves if isinstance(x, Tensor)), None)
        return devices.default_device().public if found is None else found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        leaves = self._leaves(args, kwargs)
        if self._checks is not None and self.validate_inputs:
            self._checks(leaves)
        results = self._runner.run(self._device(leaves), [take(leaves) for take in self._takes])
        given = []
        for (kind, target, constant), value in zip(self._gives, results, strict=True):
            if target is not None:
                with grad_mode.no_grad():
                    (leaves[target] if kind is OutputKind.USER_INPUT_MUTATION else target()).copy_(value)
            elif kind is not OutputKind.TOKEN:
                given.append(value if constant is None else constant)
        return self._out_spec.unflatten(given)

    def train(self, mode: bool = True) -> Any:
        raise NotImplementedError("Calling train() is not supported yet.")

    def eval(self) -> Any:
        raise NotImplementedError("Calling eval() is not supported yet.")

    @property
    def code(self) -> str:
        """The graph as text."""
        return self.graph.text()

    def print_readable(self, print_output: bool = True, **kwargs: Any) -> str:
        found = f"class GraphModule(torch.nn.Module):\n{self.graph.text('    ')}"
        if print_output:
            print(found)
        return found


def _leaf(i: int) -> Callable[[list[Any]], Any]:
    return lambda leaves: leaves[i]
