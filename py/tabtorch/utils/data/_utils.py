"""``torch.utils.data._utils``: where other packages look for the functions that collate and pin, and for ``get_worker_info``."""

from tabtorch.utils.data import _collate as collate
from tabtorch.utils.data import _pin_memory as pin_memory
from tabtorch.utils.data import _worker as worker

__all__ = ["collate", "pin_memory", "worker"]
