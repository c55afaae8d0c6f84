"""`torch.fx.passes.param_fetch`: modules' settings as attributes of the nodes that call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import nn
from tabtorch.fx.graph_module import GraphModule

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]


def default_matching(name: str, target_version: int) -> str:
    """The same name."""
    return name


#: class -> (version, names of its settings, the name that each has on nodes)
module_fetch_book: dict[Any, tuple[int, list[str], Callable[[str, int], str]]] = {
    nn.Linear: (1, ["weight", "bias"], default_matching),
    nn.Conv2d: (
        1,
        "weight bias kernel_size stride padding dilation groups padding_mode".split(),
        default_matching,
    ),
    nn.BatchNorm2d: (2, "weight bias running_mean running_var eps".split(), default_matching),
    nn.AdaptiveAvgPool2d: (1, [], default_matching),
    nn.MaxPool2d: (1, "kernel_size stride padding dilation return_indices ceil_mode".split(), default_matching),
    nn.ReLU: (1, ["inplace"], default_matching),
}


def extract_attrs_for_lowering(mod: nn.Module) -> dict[str, Any]:
    """The settings of a module. RuntimeError for a class that is not in the table."""
    found: dict[str, Any] = {"name": f"torch.nn.{type(mod).__name__}"}
    if type(mod) not in module_fetch_book:
        raise RuntimeError(f"{found['name']} is not in the module_fetch_book yet, please add it!")
    version, names, matching = module_fetch_book[type(mod)]
    for name in names:
        found[name] = getattr(mod, matching(name, getattr(mod, "_version", None) or version))
    return found


def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Gives nodes that call modules `attrs_for_lowering`."""
    modules = dict(fx_module.named_modules())
    for node in fx_module.graph.nodes:
        if node.op == "call_module":
            if isinstance(modules[node.target], GraphModule):
                lift_lowering_attrs_to_nodes(modules[node.target])
            else:
                node.attrs_for_lowering = extract_attrs_for_lowering(modules[node.target])
