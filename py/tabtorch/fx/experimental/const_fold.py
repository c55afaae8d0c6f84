"""`torch.fx.experimental.const_fold`: what depends on no input is computed once."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from tabtorch import nn
from tabtorch.core.tensor import Tensor
from tabtorch.fx._symbolic_trace import symbolic_trace
from tabtorch.fx.graph import Graph
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.node import Node, map_arg
from tabtorch.fx.passes.split_module import split_module

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


class FoldedGraphModule(GraphModule):
    """A module that computes its constants at the first call, or when `run_folding` is called."""

    def __init__(
        self,
        root: nn.Module,
        graph: Graph,
        const_subgraph: Graph | None = None,
        fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cuda",
    ) -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args)

    def run_folding(self) -> None:
        """Computes the constants, which become parameters."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        assert not self.has_folding_been_run, "Folding has already been run"
        self.has_folding_been_run = True
        found = self.const_subgraph_module()

        def parameter(x: Any) -> nn.Parameter:
            if isinstance(x, Tensor):
                return nn.Parameter(x.detach().clone(), requires_grad=x.requires_grad)
            return nn.Parameter(Tensor([x]).to(self.device_for_folded_attrs), requires_grad=False)

        made = nn.ParameterList([parameter(x) for x in found]) if isinstance(found, tuple) else parameter(found)
        setattr(self, self.fx_const_folded_attrs_name, made)


def _inline_module(gm: GraphModule, inline_mod_name: str, run_dce: bool = True) -> dict[Node, Any]:
    """Puts the nodes of a submodule where it is called; where each of its nodes is then."""
    inner = gm.get_submodule(inline_mod_name)
    assert isinstance(inner, GraphModule), f"Expected GraphModule, got {type(inner)}"
    call = next(n for n in gm.graph.nodes if n.op == "call_module" and n.target == inline_mod_name)
    where: dict[Node, Any] = {}

    def replaced(node: Node) -> Any:
        new = where[node]
        new.meta = node.meta.copy()
        return new

    given = iter(call.args)
    for node in inner.graph.nodes:
        if node.op == "placeholder":
            where[node] = call.kwargs[node.name] if node.name in call.kwargs else next(given)
        elif node.op == "output":
            outputs = map_arg(node.args[0], replaced)
            if isinstance(outputs, (list, tuple)):
                for user in [u for u in call.users if u.target is operator.getitem and isinstance(u.args[1], int)]:
                    user.replace_all_uses_with(outputs[user.args[1]])
                    gm.graph.erase_node(user)
                    where[user] = outputs[user.args[1]]
            if call.users:
                call.replace_all_uses_with(outputs)
        else:
            with gm.graph.inserting_before(call):
                where[node] = gm.graph.node_copy(node, replaced)
    gm.graph.erase_node(call)
    if run_dce:
        gm.graph.eliminate_dead_code()
    return where


def get_unique_attr_name_in_module(mod_traced: Any, name: str) -> str:
    """A name like `name` that the module has not."""
    name = re.sub("[^0-9a-zA-Z_]+", "_", name)
    name = "_" + name if name[0].isdigit() else name
    while hasattr(mod_traced, name):
        found = re.match(r"(.*)_(\d+)$", name)
        name = f"{found[1]}_{int(found[2]) + 1}" if found else name + "_1"
    return name


def _has_impure(module: GraphModule) -> bool:
    for node in module.graph.nodes:
        if node.op == "call_function" and node.is_impure():
            return True
        inner = module.get_submodule(node.target) if node.op == "call_module" else None
        if isinstance(inner, GraphModule) and _has_impure(inner):
            return True
    return False


def split_const_subgraphs(
    module: nn.Module,
    skip_folding_node_fn: Callable[[Node], bool] | None = None,
    device_for_folded_attrs: str = "cpu",
) -> FoldedGraphModule:
    """The module with all that depends on no input computed once. skip_folding_node_fn: which nodes not."""
    gm = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant: set[Node] = set()
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op != "get_attr" and not constant.issuperset(node.all_input_nodes):
            continue
        if (skip_folding_node_fn and skip_folding_node_fn(node)) or node.is_impure():
            continue
        inner = gm.get_submodule(node.target) if node.op == "call_module" else None
        if not (isinstance(inner, GraphModule) and _has_impure(inner)):
            constant.add(node)
    if all(n.op == "get_attr" for n in constant):
        return FoldedGraphModule(gm, gm.graph)
    split = split_module(gm, module, lambda n: 0 if n in constant else 1)
    const_gm: Any = split.submod_0
    rest: Any = getattr(split, "submod_1", None)
    for part in (rest, const_gm):
        for node in part.graph.nodes if part is not None else ():
            if node.op == "call_module":
                setattr(split, node.target, getattr(part, node.target))
    call = next(n for n in split.graph.nodes if n.op == "call_module" and n.target == "submod_0")
    root = GraphModule(split, const_gm.graph)
    given = iter(call.args)
    several = False
    for node in root.graph.nodes:
        if node.op == "output":
            several = isinstance(node.args[0], tuple)
        if node.op != "placeholder":
            continue
        source = next(given)
        assert source.op == "get_attr", f"Expected get_attr, got {source.op}"
        with root.graph.inserting_before(node):
            new = root.graph.get_attr(source.target)
        new.meta = node.meta.copy()
        node.replace_all_uses_with(new)
        root.graph.erase_node(node)
    name = get_unique_attr_name_in_module(gm, "_FX_CONST_FOLDED_ATTRS")
    setattr(split, name, nn.ParameterList() if several else nn.Parameter(Tensor([])))
    with split.graph.inserting_before(call):
        folded = split.graph.get_attr(name)
    folded.meta = call.meta.copy()
    call.replace_all_uses_with(folded)
    if rest is not None:
        _inline_module(split, "submod_1")
    split.graph.eliminate_dead_code()
    return FoldedGraphModule(split, split.graph, root.graph, name, device_for_folded_attrs)
