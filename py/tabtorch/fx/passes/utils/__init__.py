"""`torch.fx.passes.utils`: what passes are made with."""

from tabtorch.fx.passes.utils.common import HolderModule, compare_graphs, lift_subgraph_as_module

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]
