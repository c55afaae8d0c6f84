"""`torch.utils.model_zoo`: the older name of `torch.hub.load_state_dict_from_url`."""

from typing import Any

from tabtorch import hub
from tabtorch.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name: str) -> Any:
    if name != "tqdm":  # which others import from here
        raise AttributeError(f"module 'torch.utils.model_zoo' has no attribute '{name}'")
    return hub.tqdm
