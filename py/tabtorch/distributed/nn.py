"""`torch.distributed.nn`: collectives that autograd goes through, which one process does not have. RuntimeError when called."""

from __future__ import annotations

from tabtorch.distributed import _unavailable

for (
    _name
) in "all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce reduce_scatter scatter".split():
    globals()[_name] = _unavailable(_name)
