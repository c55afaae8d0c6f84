"""``torch.nn.functional``: layers as functions. They are in ``tabtorch.ops``, a file a family, which is loaded when one is asked for."""

import importlib
from types import FunctionType as _Function

from tabtorch.base.lazy_namespace import homes as _homes
from tabtorch.base.lazy_namespace import whole as _whole
from tabtorch.nn._missing import missing_function
from tabtorch.ops.machinery.registry import guard

#: name -> its module
_WHERE = {
    **_homes("tabtorch.ops.functional"),
    **dict.fromkeys(("_canonical_mask", "_none_or_dtype"), "tabtorch.ops.functional.attention"),
    "pad": "tabtorch.ops.shaping.pad",
    **{f"conv{kind}{n}d": "tabtorch.ops.sliding.conv" for kind in ("", "_transpose") for n in (1, 2, 3)},
    **{
        f"{kind}{n}d": "tabtorch.ops.sliding.pool"
        for kind in ("adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "max_pool", "max_unpool")
        for n in (1, 2, 3)
    },
}
#: names of PyTorch for functions that have another one too
_SAME = {"native_channel_shuffle": "channel_shuffle", "_threshold": "threshold"}
# what most often gets something that is no tensor says so as PyTorch does, and lets its arguments override it
_GUARDED = frozenset(
    (
        "linear conv1d conv2d max_pool2d pad embedding layer_norm one_hot cosine_similarity scaled_dot_product_attention "
        "nll_loss cross_entropy"
    ).split()
)
#: the functions that have been asked for: each is made once, whatever becomes of the module's names
_made = {}
_missing = missing_function("torch.nn.functional", "scaled_grouped_mm scaled_mm")
_whole(__name__, [*_WHERE, *_SAME])


def __getattr__(name):
    name, shown = _SAME.get(name, name), name
    home = _WHERE.get(name)
    if home is None:
        return importlib.import_module("tabtorch.nn.grad") if name == "grad" else _missing(name)
    if name not in _made:
        found = getattr(importlib.import_module(home), name)
        if name in _GUARDED:
            found = guard(name, found, words=False)
        # a function says where PyTorch has it: pickles and messages name that place
        if isinstance(found, _Function) and found.__module__.startswith(("torch", "tabtorch.ops.functional.")):
            found.__module__ = __name__
        _made.setdefault(name, found)
    return globals().setdefault(shown, _made[name])
