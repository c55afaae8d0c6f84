"""`torch.fx.passes.graph_drawer`: a graph as a picture, drawn by the package `pydot`."""

from __future__ import annotations

import hashlib
from typing import Any

from tabtorch.fx.graph_module import GraphModule, _get_attr
from tabtorch.fx.node import Node, _format_arg, _get_qualified_name
from tabtorch.fx.passes.shape_prop import TensorMetadata

try:
    import pydot  # type: ignore[import-not-found,unused-ignore]

    HAS_PYDOT = True
except ModuleNotFoundError:
    HAS_PYDOT = False
    pydot = None

__all__ = ["FxGraphDrawer"]

_COLORS = {
    "placeholder": '"AliceBlue"',
    "call_module": "LemonChiffon1",
    "get_param": "Yellow2",
    "get_attr": "LightGrey",
    "output": "PowderBlue",
}
_PALETTE = ["CadetBlue1", "Coral", "DarkOliveGreen1", "DarkSeaGreen1", "GhostWhite", "Khaki1", "LavenderBlush1",
            "LightSkyBlue", "MistyRose1", "MistyRose2", "PaleTurquoise2", "PeachPuff1", "Salmon", "Thistle1",
            "Thistle3", "Wheat1"]  # fmt: skip


class FxGraphDrawer:
    """`get_dot_graph()` is a `pydot.Dot` of a module's graph. RuntimeError where there is no pydot."""

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        if not HAS_PYDOT:
            raise RuntimeError(
                "FXGraphDrawer requires the pydot package to be installed. Please install pydot through your favorite Python package "
                "manager."
            )
        self._name = name
        self.dot_graph_shape = dot_graph_shape or "record"
        self._ignore_getattr = ignore_getattr
        self._skip_names = skip_node_names_in_args
        self._dot_graphs = {name: self._draw(graph_module, name)}
        for node in graph_module.graph.nodes:
            if node.op == "call_module":
                leaf = _get_attr(graph_module, node.target)
                if isinstance(leaf, GraphModule):
                    self._dot_graphs[f"{name}_{node.target}"] = self._draw(leaf, f"{name}_{node.target}")

    def get_dot_graph(self, submod_name: str | None = None) -> Any:
        """The picture of the graph, or of a submodule's."""
        return self._dot_graphs[self._name if submod_name is None else submod_name]

    def get_main_dot_graph(self) -> Any:
        """The picture of the graph."""
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name: str) -> Any:
        """The picture of a submodule's graph."""
        return self._dot_graphs[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self) -> dict[str, Any]:
        """All pictures, by name."""
        return self._dot_graphs

    def _style(self, node: Node) -> dict[str, str]:
        style = {
            "shape": self.dot_graph_shape,
            "fillcolor": "#CAFFE3",
            "style": '"filled,rounded"',
            "fontcolor": "#000000",
        }
        if node.op in _COLORS:
            style["fillcolor"] = _COLORS[node.op]
        else:
            # the same color for the same function
            name = _get_qualified_name(node.target) if callable(node.target) else str(node.target)
            digest = int(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()[:8], 16)
            style["fillcolor"] = _PALETTE[digest % len(_PALETTE)]
        return style

    def _label(self, module: GraphModule, node: Node) -> str:
        label = f"{{name=%{node.name}|op_code={node.op}\n"
        if node.op == "call_module":
            leaf = _get_attr(module, node.target)
            label += f"\\ntarget={type(leaf).__name__}\\n"
            names = getattr(leaf, "__constants__", [])
            label += "|".join(["", *(f"{c}: {getattr(leaf, c)}" for c in names)]) + r"\n"
        else:
            label += f"|target={node._pretty_print_target(node.target)}" + r"\n"
            if self._skip_names:
                shown = [a for a in node.args if not isinstance(a, Node)]
                label += f"|args={_escape(_format_arg(shown, 8))}" + r"\l" if shown else ""
        label += f"|num_users={len(node.users)}" + r"\n"
        meta = node.meta.get("tensor_meta")
        for m in meta if isinstance(meta, (list, tuple)) and not isinstance(meta, TensorMetadata) else [meta]:
            if isinstance(m, TensorMetadata):
                label += f"|dtype={m.dtype}\\n|shape={tuple(m.shape)}\\n|requires_grad={m.requires_grad}\\n|stride={m.stride}\\n"
        return label + "}"

    def _draw(self, module: GraphModule, name: str) -> Any:
        dot = pydot.Dot(name, rankdir="TB")
        shown = [n for n in module.graph.nodes if not (self._ignore_getattr and n.op == "get_attr")]
        for node in shown:
            dot.add_node(pydot.Node(node.name, label=self._label(module, node), **self._style(node)))
        for node in shown:
            for user in node.users:
                dot.add_edge(pydot.Edge(node.name, user.name))
        return dot


def _escape(text: str) -> str:
    return text.replace("{", r"\{").replace("}", r"\}")
