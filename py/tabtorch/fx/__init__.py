"""`torch.fx`: modules and functions as graphs of calls, which are changed, and run as modules again.

What is called is called with Proxies: a trace sees what is done with them, and no value.
"""

from __future__ import annotations

import importlib
from typing import Any

from tabtorch.fx import immutable_collections
from tabtorch.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from tabtorch.fx.graph import CodeGen, Graph
from tabtorch.fx.graph_module import GraphModule
from tabtorch.fx.interpreter import Interpreter, Transformer
from tabtorch.fx.node import Node, has_side_effect, map_arg
from tabtorch.fx.proxy import Proxy
from tabtorch.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH",
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "ProxyableClassMeta",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "immutable_collections",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]

#: modules that PyTorch has loaded when torch.fx is, and that are loaded here when they are asked for
_MODULES = "annotate config experimental operator_schemas passes tensor_type traceback".split()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'torch.fx' has no attribute '{name}'")
