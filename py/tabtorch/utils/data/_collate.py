"""Samples to batches. NumPy is recognized where it is there, and not needed."""

import copy
import re
import sys
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence

import tabtorch as torch
from tabtorch.ops.machinery.integer_bounds import known

np_str_obj_array_pattern = re.compile(r"[SaUO]")  # dtypes that cannot become tensors


def _bad(kind):
    return TypeError(
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {kind}"
    )


def _rebuilt_mapping(data, values):
    """A mapping like ``data`` with other values; a dict, where its type cannot be made so."""
    try:
        if isinstance(data, MutableMapping):
            clone = copy.copy(data)
            clone.update(values)
            return clone
        return type(data)(values)
    except TypeError:
        return values


def _rebuilt_sequence(data, values):
    """A sequence like ``data`` with other values; a list, where its type cannot be made so."""
    try:
        if isinstance(data, MutableSequence):
            clone = copy.copy(data)
            for i, value in enumerate(values):
                clone[i] = value
            return clone
        return type(data)(values)
    except TypeError:
        return values


def default_convert(data):
    """NumPy arrays and scalars in ``data`` to tensors; the structure is kept."""
    kind = type(data)
    if isinstance(data, torch.Tensor):
        return data
    if kind.__module__ == "numpy" and kind.__name__ not in ("str_", "string_"):
        if kind.__name__ == "ndarray" and np_str_obj_array_pattern.search(data.dtype.str) is not None:
            return data
        return torch.as_tensor(data)
    if isinstance(data, Mapping):
        return _rebuilt_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return kind(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _rebuilt_sequence(data, [default_convert(d) for d in data])
    return data


def _small(batch):
    """Integers that the host still has, such as labels, as one upload. None for anything else."""
    first = batch[0]._tab_meta
    values = []
    for t in batch:
        # a subclass says itself what stacking gives
        plain = type(t) is torch.Tensor and t._tab_meta is first and first.whole
        host = known(t._tab_storage.node, first) if plain else None
        if host is None:
            return None
        values += host
    if len(values) > 4096:
        return None
    return torch.tensor(values, dtype=first.dtype, device=first.device.public).reshape(len(batch), *first.shape)


# ---- what becomes of samples of one type; projects call these from functions of their own


def collate_tensor_fn(batch, *, collate_fn_map=None):
    """Tensors, stacked."""
    together = _small(batch)
    return torch.stack(batch, 0) if together is None else together


def collate_numpy_array_fn(batch, *, collate_fn_map=None):
    """NumPy arrays of numbers, as one tensor."""
    elem, numpy = batch[0], sys.modules["numpy"]
    if np_str_obj_array_pattern.search(elem.dtype.str) is not None:
        raise _bad(elem.dtype)
    if all(b.shape == elem.shape and b.dtype == elem.dtype for b in batch):
        return torch.from_numpy(numpy.stack(batch))  # one upload
    return torch.stack([torch.as_tensor(b) for b in batch], 0)


def collate_numpy_scalar_fn(batch, *, collate_fn_map=None):
    """NumPy's numbers, as a tensor of their type."""
    return torch.as_tensor(sys.modules["numpy"].asarray(batch))


def collate_float_fn(batch, *, collate_fn_map=None):
    """Floats, as a tensor of float64."""
    return torch.tensor(batch, dtype=torch.float64)


def collate_int_fn(batch, *, collate_fn_map=None):
    """Ints, as a tensor."""
    return torch.tensor(batch)


def collate_str_fn(batch, *, collate_fn_map=None):
    """Texts and bytes stay as they are."""
    return batch


#: type -> ``f(batch, *, collate_fn_map)``: what a project adds to the types that ``default_collate`` knows
default_collate_fn_map: dict = {}


def default_collate(batch):
    """A list of samples to one batch: tensors are stacked on a new first dimension, numbers become tensors.

    Mappings, tuples and lists are gone into. TypeError: a type that cannot be batched.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch, *, collate_fn_map=None):
    """``default_collate``, with functions of one's own for some types: ``default_collate_fn_map`` says how they are called."""
    elem = batch[0]
    for kind, fn in (collate_fn_map or {}).items():
        if isinstance(elem, kind):
            return fn(batch, collate_fn_map=collate_fn_map)
    if isinstance(elem, torch.Tensor):
        return collate_tensor_fn(batch)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(elem, numpy.ndarray):
            return collate_numpy_array_fn(batch)
        if isinstance(elem, (numpy.bool_, numpy.number, numpy.object_)):
            return collate_numpy_scalar_fn(batch)
    if isinstance(elem, float):
        return collate_float_fn(batch)
    if isinstance(elem, int):
        return collate_int_fn(batch)
    if isinstance(elem, (str, bytes)):
        return collate_str_fn(batch)
    if isinstance(elem, Mapping):
        return _rebuilt_mapping(
            elem, {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in elem}
        )
    if isinstance(elem, tuple) and hasattr(elem, "_fields"):
        return type(elem)(*(collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch, strict=True)))
    if isinstance(elem, Sequence):
        if any(len(other) != len(elem) for other in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch, strict=True)]
        return columns if isinstance(elem, tuple) else _rebuilt_sequence(elem, columns)
    raise _bad(type(elem))
