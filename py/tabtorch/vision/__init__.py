"""torchvision's compiled operators, `torch.ops.torchvision.NAME`, as operations of ours: schemas, kernels and gradients.

`torch.library` defines them when somebody asks for that namespace. torchvision then adds its own fakes and formulas, which are
written over `_…_backward` operators; older ones have none, so there are formulas here.
"""

from __future__ import annotations

from tabtorch.vision import deformable, regions, suppression

#: schema -> (kernel, `setup_context` and `backward` of its gradient, if it has one)
OPERATORS = {
    **suppression.OPERATORS,
    **regions.OPERATORS,
    **deformable.OPERATORS,
    "_cuda_version() -> int": (lambda: -1, None),
}
