"""The state of a parameter with a step count."""

import tabtorch as torch


def _count(step):
    return int(step.item() if isinstance(step, torch.Tensor) else step)


def _tensor(count):
    dtype = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
    return torch.tensor(float(count), dtype=dtype, device="cpu")  # type: ignore[operator]


class ParamState(dict):
    """A parameter's state, whose ``"step"`` reads as PyTorch's 0-dim tensor and is kept as a Python int.

    So bias corrections are Python numbers, and no step reads, or adds to, a tensor.
    """

    @property
    def steps(self):
        """The count, as an int."""
        return dict.__getitem__(self, "step")

    def advance(self):
        """Counts one step; returns the new count."""
        count = dict.__getitem__(self, "step") + 1
        dict.__setitem__(self, "step", count)
        return count

    def __init__(self, values=(), **more):
        super().__init__()
        self.update(values, **more)

    def __setitem__(self, key, value):
        super().__setitem__(key, _count(value) if key == "step" else value)

    def __getitem__(self, key):
        value = super().__getitem__(key)
        return _tensor(value) if key == "step" else value

    def update(self, values=(), **more):  # type: ignore[override]
        for key, value in dict(values.items() if isinstance(values, dict) else values, **more).items():
            self[key] = value

    def get(self, key, default=None):
        return self[key] if key in self else default

    def items(self):
        return [(key, self[key]) for key in self]

    def values(self):
        return [self[key] for key in self]

    def copy(self):
        return ParamState(self)

    def __reduce__(self):
        return ParamState, (), None, None, iter(self.items())

    def __repr__(self):
        return repr(dict(self.items()))
