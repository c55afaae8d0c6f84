"""Between tensors and the host: `item`, `tolist`, `numpy`, pickling and deep copies."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

from tabtorch import _lazy
from tabtorch.base import dtypes
from tabtorch.base.thread_state import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.core.tensor_base import inside
from tabtorch.engine import graph
from tabtorch.engine.symbols import concrete
from tabtorch.engine.view import CONJ, NEG
from tabtorch.ops.machinery.integer_bounds import Facts
from tabtorch.ops.machinery.registry import register


def _source(t: Tensor) -> tuple[graph.Node, int, int]:
    """The node, and offset and length in bytes, of the elements row by row."""
    m = t._tab_meta
    size = m.dtype.itemsize
    if not m.contiguous or m.mark or t._tab_storage.node.inst.out.dtype is not m.dtype:
        t = _lazy.convert.converted(t.detach(), m.shape, m.dtype)
        return t._tab_storage.node, 0, m.numel * size
    return t._tab_storage.node, m.offset * size, m.numel * size


def memory_of(t: Tensor) -> tuple[graph.Buffer, int, tuple[int, ...]]:
    """Where the elements lie, without a copy if that can be: the buffer, and offset and strides in elements."""
    m = t._tab_meta
    if m.mark or t._tab_storage.node.inst.out.dtype is not m.dtype:
        t = _lazy.convert.converted(t.detach(), m.shape, m.dtype)
        m = t._tab_meta
    if STATE.held is not None:
        STATE.held.read()
    graph.bridge()  # first: if the last one has died, this is where its buffers are found to be gone
    b = graph.buffer_of(t._tab_storage.node)
    if not b.id:
        raise graph.lost()
    return b, m.offset, m.strides


def to_bytes(t: Tensor) -> bytes:
    """The elements row by row, little endian. Waits for the device."""
    node, offset, nbytes = _source(t)
    return graph.read(node, offset, nbytes)


async def to_bytes_async(t: Tensor) -> bytes:
    """As `to_bytes`, without blocking."""
    node, offset, nbytes = _source(t)
    b = graph.buffer_of(node)
    if nbytes and graph.read_checked is not None:
        await _lazy.asserts.raise_found_async()
    if not nbytes:
        return b""
    return await _lazy.bridge.get_bridge().read_async(b.id, b.device, concrete(offset), concrete(nbytes))


def decode(data: bytes, d: dtypes.dtype) -> list[Any]:
    """Bytes -> Python numbers."""
    if d.is_complex:
        code: Any = d.format
        flat: list[Any] = memoryview(data).cast(code).tolist()
        return [complex(re, im) for re, im in zip(flat[::2], flat[1::2], strict=True)]
    if d is dtypes.float16:
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    if d is dtypes.bfloat16:  # the upper half of a float32
        wide = bytearray(2 * len(data))
        wide[2::4] = data[::2]
        wide[3::4] = data[1::2]
        return memoryview(wide).cast("f").tolist()
    plain: Any = d.format
    return memoryview(data).cast(plain).tolist()


#: a value of at most so many bytes is read as a whole and kept, so that a loop over its elements waits once
_KEPT_BYTES = 4096


#: arithmetic on known integers that is done on the host; others differ from PyTorch's in Python (`//`, `%`)
_INTEGER: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "rsub": lambda a, b: b - a,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
}


def _known(node: graph.Node, depth: int = 4) -> Any:
    """The elements of a value, if the host can tell them without the device, else None.

    It can for what was uploaded or read before, and for one integer computed from those and not sent yet: the
    `data[i : i + block_size] for i in ix` of many a training loop then waits for `ix` alone.
    """
    host = getattr(node, "host", None)
    if type(host) is Facts:
        host = None
    if host is not None or node.buf is not None or depth == 0:
        return host
    i = node.inst
    f = _INTEGER.get(i.op.name)
    if f is None or i.out.numel != 1 or i.out.dtype is not dtypes.int64 or not i.op.elementwise:
        return None
    operands = []
    srcs = node.srcs
    if len(srcs) != len(i.ins):  # another thread has sent it
        return None
    for source, m in zip(srcs, i.ins, strict=True):
        values = _known(source, depth - 1) if m.dtype is dtypes.int64 and not m.mark else None
        if values is None:
            return None
        operands.append(values[m.offset])
    operands += node.scalars
    if len(operands) != f.__code__.co_argcount or not all(type(v) is int for v in operands):
        return None
    node.host = host = [(f(*operands) + 2**63) % 2**64 - 2**63]
    return host


def _flat(t: Tensor) -> list[Any]:
    """The elements row by row, as Python numbers. Waits for the device unless they are known: nodes never change."""
    m = t._tab_meta
    node = t._tab_storage.node
    out = node.inst.out
    if not m.contiguous or m.mark or out.dtype is not m.dtype:
        return decode(to_bytes(t), m.dtype)
    if STATE.held is not None:
        STATE.held.read()
    host = _known(node)
    if host is None:
        nbytes = out.numel * out.dtype.itemsize
        if nbytes > _KEPT_BYTES:
            return decode(to_bytes(t), m.dtype)
        host = node.host = decode(graph.read(node, 0, nbytes), m.dtype)
    flat = list(host[m.offset : m.offset + m.numel])
    return [v != 0 for v in flat] if m.dtype.category == 0 else flat


def _nest(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    for k in range(len(shape) - 1, 0, -1):
        n = shape[k]
        flat = [flat[i : i + n] for i in range(0, len(flat), n)] if n else [[] for _ in range(prod(shape[:k]))]
    return flat


@register("item", method=True, torch=False)
def item(self: Tensor) -> Any:
    """The one element as a Python number. Waits for the device. RuntimeError for another number of elements."""
    n = self._tab_meta.numel
    if n != 1:
        raise RuntimeError(f"a Tensor with {n} elements cannot be converted to Scalar")
    if self.is_meta:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")
    return _flat(self)[0]


@register("tolist", method=True, torch=False)
def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers (a number for a 0-dimensional tensor). Waits for the device."""
    return _nest(_flat(self), self._tab_meta.shape)


def tolists(tensors: list[Tensor]) -> list[list[Any]]:
    """The elements of each, row by row, as Python numbers. Waits once for all of them."""
    if STATE.held is not None:
        STATE.held.read()
    found = graph.read_many([_source(t) for t in tensors])
    return [decode(bytes(data), t._tab_meta.dtype) for data, t in zip(found, tensors, strict=True)]


@register("read", method=True, torch=False)
async def read(self: Tensor) -> Any:
    """`await t.read()`: what `tolist()` gives, without ever blocking; works in every browser."""
    return _nest(decode(await to_bytes_async(self), self._tab_meta.dtype), self._tab_meta.shape)


@register("numpy", method=True, torch=False)
def numpy(self: Tensor, *, force: bool = False) -> Any:
    """A NumPy array with a copy of the elements. RuntimeError for a tensor that requires grad, unless `force`."""
    return to_numpy(self, force)


def to_dlpack(t: Any, max_version: Any, copy: Any) -> Any:
    """The capsule that NumPy makes of a copy."""
    if t.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if t.is_conj():
        raise BufferError("Can't export tensors with the conjugate bit set")
    if copy is False:
        raise BufferError("tabtorch keeps tensors on a device of its own: __dlpack__ has to copy")
    return to_numpy(t.resolve_neg(), False).__dlpack__(**({} if max_version is None else {"max_version": max_version}))


def to_numpy(t: Tensor, force: bool) -> Any:
    """A NumPy array of the elements, its own memory."""
    if t.requires_grad and not force and STATE.enabled():
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    for name, method, mark in (("conjugate", "resolve_conj", CONJ), ("negative", "resolve_neg", NEG)):
        if t._tab_meta.mark & mark and not force:
            raise RuntimeError(
                f"Can't call numpy() on Tensor that has {name} bit set. Use tensor.{method}().numpy() instead."
            )
    if t._tab_meta.dtype is dtypes.bfloat16:
        raise TypeError("Got unsupported ScalarType BFloat16")
    try:
        import numpy
    except ImportError as e:
        raise RuntimeError("Numpy is not available") from e
    return numpy.frombuffer(bytearray(to_bytes(t)), dtype=t._tab_meta.dtype.name).reshape(tuple(t._tab_meta.shape))


def deepcopy(t: Tensor, memo: dict[int, Any]) -> Any:
    """A copy that shares storages as the original does within one `copy.deepcopy`. RuntimeError for what is no leaf."""
    import copy

    known = memo.get(id(t))
    if known is not None:
        return known
    if not t.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  If you "
            "were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, see "
            "https://github.com/pytorch/pytorch/pull/103001"
        )
    root = t._tab_storage.root
    storage = memo.get(id(root))
    if storage is None:
        storage = memo[id(root)] = _lazy.storage.Storage(root.node)  # values never change: sharing one is copying it
    new = object.__new__(type(t))
    new._tab_storage = storage
    new._tab_meta = t._tab_meta
    if t._tab_meta.mark:  # as PyTorch: such a view is copied by itself
        alone = t.detach().clone()
        new._tab_storage, new._tab_meta = alone._tab_storage, alone._tab_meta
    memo[id(t)] = new
    if t._tab_requires_grad:
        new._tab_requires_grad = True
    own = inside(new)
    for name, value in t.__dict__.items():
        own[name] = copy.deepcopy(value, memo)
    if t._grad is not None:
        new._grad = copy.deepcopy(t._grad, memo)
    return new


def reduce(t: Tensor) -> Any:
    """How pickle and `copy.copy` make a tensor again: over its storage."""
    made = _lazy.pickler.reduced(t)
    if made[0].__name__ != "_rebuild_from_type_v2" or type(t) is not Tensor:
        return made
    f, _, args, state = made[1]
    return f, args, state  # the class goes by a name that only `install()` makes true
