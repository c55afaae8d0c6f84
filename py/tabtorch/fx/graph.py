"""`torch.fx.graph`: a list of nodes, how it is changed, and its code."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import tabtorch
from tabtorch.fx import _pytree as fx_pytree
from tabtorch.fx._code import (
    CodeGen,
    PythonCode,
    TransformCodeFunc,
    _BoxedCodeGen,
    _format_target,
    _parse_stack_trace,
    _PyTreeCodeGen,
    _PyTreeInfo,
    inplace_methods,
    magic_methods,
    reflectable_magic_methods,
)
from tabtorch.fx._graph_parts import (
    _custom_builtins,
    _FindNodesLookupTable,
    _InsertPoint,
    _is_magic,
    _Namespace,
    _node_list,
    _register_custom_builtin,
    _snake_case,
)
from tabtorch.fx._lint import lint
from tabtorch.fx._names import is_ours as _is_from_torch
from tabtorch.fx._names import public
from tabtorch.fx.immutable_collections import immutable_dict
from tabtorch.fx.node import Argument, Node, Target, _get_qualified_name, _type_repr, map_arg
from tabtorch.ops.aten import Packet
from tabtorch.utils import _pytree as pytree

if TYPE_CHECKING:
    from tabtorch.fx._symbolic_trace import Tracer

__all__ = [
    "Argument",
    "CodeGen",
    "Graph",
    "PythonCode",
    "_BoxedCodeGen",
    "_InsertPoint",
    "_Namespace",
    "_PyTreeCodeGen",
    "_PyTreeInfo",
    "_format_target",
    "_get_qualified_name",
    "_is_from_torch",
    "_parse_stack_trace",
    "_type_repr",
    "inplace_methods",
    "magic_methods",
    "reflectable_magic_methods",
]

log = logging.getLogger(__name__)

_legal_ops = dict.fromkeys(("call_function", "call_method", "get_attr", "call_module", "placeholder", "output"))
_register_custom_builtin("inf", "from math import inf", math.inf)
_register_custom_builtin("nan", "from math import nan", math.nan)
_register_custom_builtin("NoneType", "NoneType = type(None)", type(None))
_register_custom_builtin("torch", "import torch", sys.modules["tabtorch"])
_register_custom_builtin("device", "from torch import device", tabtorch.device)
_register_custom_builtin("fx_pytree", "import torch.fx._pytree as fx_pytree", fx_pytree)
_register_custom_builtin("pytree", "import torch.utils._pytree as pytree", pytree)


class Graph:
    """A function as a list of nodes: inputs, calls and the output."""

    _owning_module: Any

    def __init__(
        self,
        owning_module: Any = None,
        tracer_cls: type[Tracer] | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._unordered = False
        self._find_nodes_lookup_table = _FindNodesLookupTable()
        self._root = Node(self, "", "root", "", (), {})
        self._used_names: dict[str, int] = {}
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = _Namespace()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}

    @property
    def owning_module(self) -> Any:
        """The GraphModule whose graph it is."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _node_list:
        """All nodes, in order. `reversed(graph.nodes)` goes backwards."""
        return _node_list(self)

    def _number(self) -> None:
        for i, n in enumerate(self.nodes):
            n.__dict__["_order"] = i + 1
        self._unordered = False

    def output_node(self) -> Node:
        """The node that returns."""
        node = next(iter(reversed(self.nodes)))
        assert node.op == "output", f"Expected output node, got op={node.op}"
        return node

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """Nodes that do this, in order if `sort`."""
        found = self._find_nodes_lookup_table.find_nodes(op=op, target=target)
        return sorted(found) if sort else found

    # ---- copies

    def graph_copy(self, g: Graph, val_map: dict[Node, Any], return_output_node: bool = False) -> Any:
        """Copies the nodes of `g` here, but the output; what its output would give. val_map: nodes of `g` -> ours."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], lambda n: val_map[n])
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: Any = None) -> Graph:
        g = Graph(tracer_cls=self._tracer_cls)
        found = g.graph_copy(self, val_map=memo if memo else {}, return_output_node=True)
        g._codegen = copy.deepcopy(self._codegen)
        if found is not None:
            value, old = found
            new = g.output(value, type_expr=getattr(old, "type", None))
            new.meta = copy.copy(old.meta)
        return g

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """A copy of a node of another graph. arg_transform: node there -> node here."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    # ---- new nodes

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A new node, where nodes go at present (the end, unless in `inserting_before` or `inserting_after`)."""
        assert not args or isinstance(args, tuple), f"args must be a tuple, got {type(args)}"
        assert not kwargs or isinstance(kwargs, dict), f"kwargs must be a dict, got {type(kwargs)}"
        name = self._graph_namespace.create_name(name if name is not None else self._target_to_str(target), None)
        n = Node(self, name, op, target, args or (), kwargs or immutable_dict(), type_expr)
        for hook in getattr(self.owning_module, "_create_node_hooks", None) or ():
            hook(n)
        self._graph_namespace.associate_name_with_obj(name, n)
        self._insert(n)
        self._find_nodes_lookup_table.insert(n)
        self._len += 1
        return n

    def _target_to_str(self, target: Any) -> str:
        if callable(target):
            ours = None if isinstance(target, Packet) else public(target)
            op = ours.rpartition(".")[2] if ours else target.__name__
        else:
            op = target[2:-2] if _is_magic(target) else target
        return _snake_case(op)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = inspect.Signature.empty) -> Node:
        """An input."""
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, buffer or module of the owning module. A warning where it has none of that name."""

        def exists() -> bool:
            path, _, name = qualified_name.rpartition(".")
            try:
                owner = self.owning_module.get_submodule(path)
            except AttributeError:
                warnings.warn(f"Failed to fetch module {path}!", stacklevel=4)
                return False
            found = getattr(owner, name, None)
            return isinstance(found, (tabtorch.nn.Module, tabtorch.nn.Parameter)) or name in owner._buffers

        if self.owning_module is not None and not exists():
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! Call "
                "GraphModule.add_submodule to add the necessary submodule, GraphModule.add_parameter to add the necessary "
                "Parameter, or nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of the submodule at a path."""
        if self.owning_module is not None and self.owning_module.get_submodule(module_name) is None:
            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the owning GraphModule! Call "
                "GraphModule.add_submodule to add the necessary submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of a method of `args[0]`."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """What the function gives."""
        return self.create_node(op="output", target="output", args=(result,), type_expr=type_expr)

    # ---- changes

    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders, of the arguments of a call."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What a call gives, of the value of the output node."""
        return self._codegen.process_outputs(out)

    def erase_node(self, to_erase: Node) -> None:
        """Takes a node away. RuntimeError if something uses it."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {to_erase.users}!"
            )
        if to_erase.graph != self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self.owning_module, "_erase_node_hooks", None) or ():
            hook(to_erase)
        self._find_nodes_lookup_table.remove(to_erase)
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        to_erase._update_args_kwargs(map_arg(to_erase._args, lambda n: None), map_arg(to_erase._kwargs, lambda n: None))

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """`with graph.inserting_before(n):` new nodes go before `n`, or at the beginning."""
        if n is None:
            return self.inserting_after(self._root)
        assert n.graph == self, "Node to insert before is not in graph."
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """`with graph.inserting_after(n):` new nodes go after `n`, or at the end."""
        if n is None:
            return self.inserting_before(self._root)
        assert n.graph == self, "Node to insert after is not in graph."
        return _InsertPoint(self, n.append)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erases what nothing uses and does nothing else; whether there was any."""
        self.lint()
        stays = is_impure_node or Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not stays(node):
                self.erase_node(node)
                changed = True
        if self.owning_module is not None:
            module_class: Any = importlib.import_module("tabtorch.fx.graph_module").GraphModule
            used = {n.target for n in self.find_nodes(op="get_attr", sort=False)}
            for name, child in self.owning_module.named_children():
                if name in used and isinstance(child, module_class):
                    changed |= child.graph.eliminate_dead_code()
                    child.recompile()
        return changed

    def _clear_nodes(self) -> None:
        for node in reversed(self.nodes):
            node.meta.clear()
            self.erase_node(node)

    # ---- code

    def set_codegen(self, codegen: CodeGen) -> None:
        """From now on the code is written by this."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]) -> Any:
        """Has the lines of the code changed by a function: `make_transformer(the present one)`. Leaving the result undoes it."""
        old = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(old)

        @contextlib.contextmanager
        def undo() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = old

        return undo()

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        """The code of a function that does what this says. root_module: the name of the module in it, "self" for a method."""
        namespace = _Namespace()
        before = [(node, node._repr_fn) for node in self.nodes]
        for node, _ in before:
            node.__dict__["_repr_fn"] = lambda n: namespace.create_name(n.name, n)
        try:
            return self._codegen._gen_python_code(
                self.nodes, root_module, namespace, builtins=_custom_builtins, verbose=verbose,
                include_stride=include_stride, include_device=include_device, colored=colored,
                expanded_def=expanded_def, additional_meta=additional_meta,
            )  # fmt: skip
        finally:
            for node, fn in before:
                node.__dict__["_repr_fn"] = fn

    def __str__(self) -> str:
        names: list[str] = []
        lines = [node.format_node(names) for node in self.nodes]
        return "\n    ".join([f"graph({', '.join(names)}):", *[line for line in lines if line]])

    def print_tabular(self) -> None:
        """Prints the nodes as a table; needs the package `tabulate`."""
        try:
            from tabulate import tabulate  # type: ignore[import-untyped]
        except ImportError:
            print(
                "`print_tabular` relies on the library `tabulate`, which could not be found on this machine. Run `pip install "
                "tabulate` to install the library."
            )
            raise
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        print(tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))

    def lint(self) -> None:
        """RuntimeError where the graph is not well formed: see `_lint`."""
        lint(self)
