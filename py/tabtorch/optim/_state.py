"""The state of a parameter with a step count."""

import tabtorch as torch

#: what PyTorch keeps as 0-dim tensors and reads at each step
NUMBERS = frozenset(("step", "mu_product", "eta", "mu"))


def _number(key, value):
    value = value.item() if isinstance(value, torch.Tensor) else value
    return int(value) if key == "step" else value


class ParamState(dict):
    """A parameter's state, whose ``"step"`` (and ``mu_product``, ``eta``, ``mu``) reads as PyTorch's 0-dim tensor on
    ``device`` and is kept as a Python number.

    So bias corrections are Python numbers, and no step reads, or adds to, a tensor, unless the script wrote to one in place.
    """

    device = "cpu"

    def _take(self):
        """What was written in place to the tensors that were given out becomes the numbers."""
        for key, (tensor, version) in self.__dict__.pop("given", {}).items():
            if tensor._version != version:
                self[key] = tensor

    def number(self, key):
        """The number itself; None where there is none."""
        self._take()
        return dict.get(self, key)

    def keep(self, key, value):
        """Sets a number, or a tensor that is not to be read."""
        dict.__setitem__(self, key, value)

    def advance(self):
        """Counts one step; returns the new count."""
        self._take()
        count = dict.__getitem__(self, "step") + 1
        dict.__setitem__(self, "step", count)
        return count

    def __init__(self, values=(), **more):
        super().__init__()
        self.update(values, **more)

    def __setitem__(self, key, value):
        self.__dict__.get("given", {}).pop(key, None)
        super().__setitem__(key, _number(key, value) if key in NUMBERS else value)

    def __getitem__(self, key):
        value = super().__getitem__(key)
        if key not in NUMBERS or isinstance(value, torch.Tensor):
            return value
        given = self.__dict__.setdefault("given", {})
        if key not in given:
            wide = self.device == "cpu" and torch.get_default_dtype() == torch.float64
            dtype = torch.float64 if wide else torch.float32
            tensor = torch.tensor(float(value), dtype=dtype, device=self.device)  # type: ignore[operator]
            given[key] = tensor, tensor._version
        return given[key][0]

    def update(self, values=(), **more):  # type: ignore[override]
        # dict.items: numbers as they are, where these are a ParamState's
        if isinstance(values, ParamState):
            values._take()
        for key, value in dict(dict.items(values) if isinstance(values, dict) else values, **more).items():
            self[key] = value

    def get(self, key, default=None):
        return self[key] if key in self else default

    def items(self):
        return [(key, self[key]) for key in self]

    def values(self):
        return [self[key] for key in self]

    def copy(self):
        twin = ParamState(self)  # which takes
        twin.__dict__.update(self.__dict__)
        return twin

    def __reduce__(self):
        self._take()
        return ParamState, (), self.__dict__, None, iter(dict.items(self))

    def __repr__(self):
        return repr(dict(self.items()))
