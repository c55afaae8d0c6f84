"""``torch.utils.data._utils``: where other packages look for the functions that collate, and for ``get_worker_info``."""

from . import _collate as collate
from . import _worker as worker

__all__ = ["collate", "worker"]
