"""`torch.fx.interpreter`: a graph run node by node, and made anew so."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tabtorch.fx import traceback as fx_traceback
from tabtorch.fx._compatibility import compatibility
from tabtorch.fx._lazy_graph_module import _make_graph_module
from tabtorch.fx._symbolic_trace import Tracer
from tabtorch.fx.graph import Graph
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.node import Node, map_aggregate, map_arg
from tabtorch.fx.proxy import Proxy, watching
from tabtorch.nn.modules.module import Module

__all__ = ["Interpreter", "Transformer"]


@compatibility(is_backward_compatible=True)
class Interpreter:
    """Runs a graph. Subclasses override what a kind of node does."""

    def __init__(self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(self.module.named_modules())
        self.graph: Graph = graph if graph is not None else self.module.graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for node in reversed(self.graph.nodes):
                for used in node._input_nodes:
                    if used not in seen:
                        seen.add(used)
                        self.user_to_last_uses.setdefault(node, []).append(used)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """What the graph gives for these arguments. initial_env: values of nodes that are not computed."""
        self.env = initial_env if initial_env is not None else {}
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter: Iterator[Any] = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as e:
                if self.extra_traceback:
                    said = f"While executing {node.format_node()}"
                    said = f"{e.args[0]}\n\n{said}" if e.args else said
                    said += f"\nOriginal traceback:\n{node.stack_trace}"
                    said += (
                        "\nUse tlparse to see full graph. "
                        "(https://github.com/pytorch/tlparse?tab=readme-ov-file#tlparse-parse-structured-pt2-logs)"
                    )
                    e.args = (said, *e.args[1:])
                    if isinstance(e, KeyError):
                        raise RuntimeError(*e.args) from e
                raise
            for gone in self.user_to_last_uses.get(node, ()):
                del self.env[gone]
            if node.op == "output":
                value = self.env[node]
                return self.graph.process_outputs(value) if enable_io_processing else value
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run`, of a list of arguments that is emptied."""
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        if len(args_list) != len(inputs):
            what = "extra arguments" if len(args_list) > len(inputs) else "missing arguments"
            raise RuntimeError(
                f"Interpreter.boxed_run expected {len(inputs)} arguments for placeholders but received {len(args_list)} ({what})"
            )
        env = dict(zip(inputs, args_list))
        args_list.clear()
        return self.run(initial_env=env)

    @contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        with fx_traceback.set_current_meta(node, f"Interpreter_{type(self).__name__}"):
            yield

    def run_node(self, n: Node) -> Any:
        """The value of a node."""
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The next argument. RuntimeError if there is none, and no default."""
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration as e:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from e

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The attribute at a path."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a function."""
        assert not isinstance(target, str)
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of a method of `args[0]`."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of the submodule at a path."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What the graph gives."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """The attribute at a path of the module. RuntimeError if it has none."""
        found = self.module
        atoms = target.split(".")
        for i, atom in enumerate(atoms):
            if not hasattr(found, atom):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(atoms[: i + 1])}")
            found = getattr(found, atom)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        """The values of a node's arguments."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """`args` with values in the places of Nodes. RuntimeError for one that has none yet."""

        def load(arg: Node) -> Any:
            if arg not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {arg}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[arg]

        return map_arg(args, load)


@compatibility(is_backward_compatible=True)
class Transformer(Interpreter):
    """Makes another graph: what its methods do with Proxies is what that has in a node's place."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)

        class TransformerTracer(Tracer):
            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph = graph
                self.tensor_attrs = {}

            def is_leaf_module(self, _: Module, __: str) -> bool:
                return True

        self.tracer = TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An input of the new graph."""
        default = args[0] if args else inspect.Signature.empty
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The same attribute."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of the same module."""
        submod = self.fetch_attr(target)
        return self.tracer.call_module(submod, submod.forward, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A call of the same function."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module made anew."""
        watch = watching()
        with fx_traceback.preserve_node_meta():
            result = super().run(enable_io_processing=False)
        del watch
        if result is not None:
            new = self.new_graph.output(map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a))
            new.meta.update(self.graph.output_node().meta)
        return _make_graph_module(self.module, self.new_graph)
