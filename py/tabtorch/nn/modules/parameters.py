"""Modules that hold parameters: ParameterList, ParameterDict."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.nn.modules.container import _absolute, _update
from tabtorch.nn.modules.module import Module
from tabtorch.nn.parameter import Parameter

__all__ = ["ParameterList", "ParameterDict"]


def _as_parameter(value):
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _line(key, value):
    """One line of ``repr``."""
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(str(s) for s in value.size())
    device = "" if value.device.type == "cpu" else f" ({value.device})"
    return kind, size, device


class ParameterList(Module):
    """A list whose tensors are registered as parameters; it may hold other values too."""

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return self.__class__(self[i] for i in range(len(self))[idx])
        return getattr(self, _absolute(idx, len(self)))

    def __setitem__(self, idx, param):
        setattr(self, _absolute(idx, len(self)), _as_parameter(param))

    def __len__(self):
        return self._size

    def __iter__(self):
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, parameters):
        return self.extend(parameters)

    def append(self, value):
        """Adds a value at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values):
        """Adds values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError("ParameterList.extend should be called with an iterable, but got " + type(values).__name__)
        for value in values:
            self.append(value)
        return self

    def extra_repr(self):
        lines = []
        for key, value in enumerate(self):
            line = _line(key, value)
            if not isinstance(line, str):
                kind, size, device = line
                line = f"  ({key}): {kind} containing: [{value.dtype} of size {size}{device}]"
            lines.append(line)
        return "\n".join(lines)

    def __call__(self, *args, **kwargs):
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict whose tensors are registered as parameters; it may hold other values too."""

    def __init__(self, parameters=None):
        super().__init__()
        self._keys: dict = {}
        if parameters is not None:
            self.update(parameters)

    def _key_to_attr(self, key):
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is "
                f"not a string (type is '{type(key).__name__}'). Open an issue on "
                "github if you need non-string keys."
            )
        return key

    def __getitem__(self, key):
        return getattr(self, self._key_to_attr(key))

    def __setitem__(self, key, value):
        attr = self._key_to_attr(key)
        self._keys[key] = None
        setattr(self, attr, _as_parameter(value))

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, self._key_to_attr(key))

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __reversed__(self):
        return reversed(list(self._keys))

    def __contains__(self, key):
        return key in self._keys

    def copy(self):
        """A dict with the same values."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key, default=None):
        """The value of ``key``, set to ``default`` where there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self):
        """Takes all values out."""
        for k in list(self._keys):
            del self[k]

    def pop(self, key):
        """Takes a value out, and returns it."""
        v = self[key]
        del self[key]
        return v

    def popitem(self):
        """Takes the last (key, value) out, and returns it."""
        k, _ = self._keys.popitem()
        self._keys[k] = None
        value = self[k]
        del self[k]
        return k, value

    def get(self, key, default=None):
        """The value of ``key``, or ``default``."""
        return self[key] if key in self else default

    def fromkeys(self, keys, default=None):
        """A dict with these keys, all of value ``default``."""
        return ParameterDict((k, default) for k in keys)

    def keys(self):
        """The keys."""
        return self._keys.keys()

    def items(self):
        """(key, value) pairs."""
        return ((k, self[k]) for k in self._keys)

    def values(self):
        """The values."""
        return (self[k] for k in self._keys)

    def update(self, parameters):
        """Adds or replaces values, from a mapping (sorted by key, unless ordered) or pairs."""
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            parameters = OrderedDict(sorted(parameters.items()))
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but got "
                + type(parameters).__name__
            )
        _update(self, parameters, "ParametersDict", "ParameterDict", (OrderedDict, ParameterDict))

    def extra_repr(self):
        lines = []
        for key, value in self.items():
            line = _line(key, value)
            if not isinstance(line, str):
                kind, size, device = line
                line = f"  ({key}): {kind} containing: [{torch.typename(value)} of size {size}{device}]"
            lines.append(line)
        return "\n".join(lines)

    def __call__(self, input):
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other):
        result = self.copy()
        result.update(other)
        return result

    def __ror__(self, other):
        result = other.copy()
        result.update(self)
        return result

    def __ior__(self, other):
        self.update(other)
        return self
