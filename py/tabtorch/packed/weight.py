"""`Packed`: a weight that stays packed on the device, and is read as the numbers that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from tabtorch.base import dtypes
from tabtorch.core.reinterpreted import retyped
from tabtorch.core.tensor import Tensor
from tabtorch.core.tensor_base import inside
from tabtorch.engine.graph import inst
from tabtorch.engine.view import Meta, Size, contiguous_meta
from tabtorch.nn.parameter import Parameter
from tabtorch.packed.formats import FORMATS
from tabtorch.packed.schemes import SEPARATE, checking, require
from tabtorch.packed.storage import BLOCKS, SEPARATED, PackedStorage, Unpack

#: the types that a weight may show its values in
SHOWN = (dtypes.float32, dtypes.float16, dtypes.bfloat16)


class Scheme(NamedTuple):
    """How weights are packed. `check(parts, shape, options)` raises ValueError where these parts are not such a weight."""

    name: str
    unpack: Unpack
    check: Callable[[Sequence[Tensor], tuple[int, ...], tuple[Any, ...]], None]
    halves: bool = False  # its parts are bytes, which are seen as half-precision numbers as well


def _check_blocks(name: str) -> Callable[..., None]:
    f = FORMATS[name]

    def check(parts: Sequence[Tensor], shape: tuple[int, ...], options: tuple[Any, ...]) -> None:
        require(not options, f"{name} has no options")
        row = shape[-1] if shape else 0
        require(row > 0 and row % f.weights == 0, f"rows of {row} weights are not of {name}'s blocks of {f.weights}")
        step = row // f.weights * f.nbytes
        total = 0
        for part in parts:
            m = part._tab_meta
            require(m.dtype is dtypes.uint8 and m.ndim == 1, f"the bytes of {name} must be a vector of torch.uint8")
            require(m.numel > 0 and m.numel % step == 0, f"a part of {m.numel} bytes is not of rows of {step} bytes")
            total += m.numel
        want = prod(shape[:-1]) * step
        require(total == want, f"{list(shape)} weights of {name} are {want} bytes, but there are {total}")

    return check


#: every way to pack, by name
SCHEMES = {name: Scheme(name, op, _check_blocks(name), halves=True) for name, op in BLOCKS.items()}
SCHEMES |= {s.name: Scheme(s.name, SEPARATED[s.name], checking(s)) for s in SEPARATE.values()}


class Packed(Parameter):  # type: ignore[metaclass]
    """A weight that is kept packed. Operations read it as a tensor of `shape` and `dtype`, unpacking in their own kernels.

    parts: its bytes as a tensor of uint8, or several tensors: what is too large for one buffer, cut between rows, or what the
    scheme consists of. scheme: a name of `tabtorch.packed.SCHEMES`, such as "Q4_K". dtype: what operations get: float32,
    float16, or bfloat16. options: numbers of the scheme. ValueError where the parts are not such a weight.

    It requires no gradient and is never written to; gradients flow through it to the other operand. `to` moves the packed
    bytes, or has them shown in another type; a state dict, a pickle, and `copy.deepcopy` have them too.
    """

    _parts: tuple[Tensor, ...]
    _scheme: str
    _options: tuple[Any, ...]

    def __new__(
        cls,
        parts: Tensor | Sequence[Tensor],
        scheme: str,
        shape: Sequence[int],
        *,
        dtype: Any = dtypes.float32,
        options: Sequence[Any] = (),
    ) -> Packed:
        self: Packed = object.__new__(cls)
        given = (parts,) if isinstance(parts, Tensor) else tuple(parts)
        if scheme not in SCHEMES:
            raise ValueError(f"there is no packing {scheme!r}; there are {', '.join(SCHEMES)}")
        sizes = tuple(shape)
        for n in sizes:
            require(type(n) is int and n >= 0, f"a shape is of whole numbers, and not {list(sizes)}")
        require(bool(given) and all(isinstance(p, Tensor) for p in given), "the parts must be tensors")
        require(dtype in SHOWN, f"a packed weight is shown as torch.float32, float16 or bfloat16, and not as {dtype}")
        # views as they are: the kernels address whole storages
        self._adopt(tuple([_whole(p) for p in given]), scheme, Size(sizes), dtype, tuple(options))
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """All is done in `__new__`."""

    def _adopt(
        self, parts: tuple[Tensor, ...], scheme: str, shape: tuple[int, ...], dtype: Any, options: tuple[Any, ...]
    ) -> None:
        s = SCHEMES[scheme]
        s.check(parts, shape, options)
        seen: list[Meta] = [p._tab_meta for p in parts]
        sources = [p._tab_storage for p in parts]
        if s.halves:
            halves = [contiguous_meta((m.numel // 2 * 2,), m.dtype, m.device) for m in seen]
            seen += [retyped(m, dtypes.float16) for m in halves]
            sources += sources
        shown = contiguous_meta(shape, dtype, seen[0].device)
        i = inst(s.unpack, tuple(seen), shown, (), options or None, "f32")
        self._tab_storage = PackedStorage(i, tuple(sources), scheme)
        self._tab_meta = shown
        inside(self).update(_parts=parts, _scheme=scheme, _options=options)

    def _like(self, parts: tuple[Tensor, ...], dtype: Any) -> Packed:
        other: Packed = object.__new__(type(self))
        other._adopt(parts, self._scheme, self._tab_meta.shape, dtype, self._options)
        return other

    # ---- what it is

    @property
    def scheme(self) -> str:
        """The name of how it is packed."""
        return self._scheme

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The tensors that it is packed in."""
        return self._parts

    @property
    def packed_nbytes(self) -> int:
        """Bytes that it takes on its device."""
        return sum(p._tab_meta.numel * p._tab_meta.dtype.itemsize for p in self._parts)

    def dequantize(self) -> Tensor:
        """Its values as a tensor of its own, (*shape)."""
        return Tensor._wrap(self._tab_storage.node, self._tab_meta)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        return (
            f"Packed({self._scheme}, size={tuple(self.shape)}, dtype={self.dtype}, device='{self.device}', "
            f"{self.packed_nbytes} bytes)"
        )

    # ---- copies of it

    def detach(self) -> Packed:
        """The same bytes as another object."""
        return self._like(self._parts, self._tab_meta.dtype)

    def clone(self, *, memory_format: Any = None) -> Packed:
        """The same, with bytes of its own."""
        return self._like(tuple([p.clone() for p in self._parts]), self._tab_meta.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Packed:
        if id(self) not in memo:
            memo[id(self)] = self.clone()
        return memo[id(self)]

    def __reduce_ex__(self, proto: Any) -> Any:
        return rebuild, (self._parts, self._scheme, tuple(self.shape), self._tab_meta.dtype, self._options)

    @property  # type: ignore[override]
    def data(self) -> Packed:
        """The same bytes as another object."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, Packed):
            self._tab_storage.written()  # which it refuses
        self._adopt(value._parts, value._scheme, value._tab_meta.shape, value._tab_meta.dtype, value._options)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """As `Tensor.to`: packed on that device, shown in that type. In another type than those of `SHOWN` it is unpacked."""
        plain = self._parts[0].reshape(-1)[:0].to(self._tab_meta.dtype).to(*args, **kwargs)
        device, dtype = plain._tab_meta.device, plain._tab_meta.dtype
        if dtype not in SHOWN:
            return self.dequantize().to(*args, **kwargs)
        same = device is self._tab_meta.device
        if same and dtype is self._tab_meta.dtype and not kwargs.get("copy"):
            return self
        parts = self._parts if same else tuple([p.to(device) for p in self._parts])
        return self._like(parts, dtype)

    def cpu(self, memory_format: Any = None) -> Any:
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        return self.to("cuda" if device is None else device)

    def float(self, memory_format: Any = None) -> Any:
        return self.to(dtypes.float32)

    def half(self, memory_format: Any = None) -> Any:
        return self.to(dtypes.float16)

    def bfloat16(self, memory_format: Any = None) -> Any:
        return self.to(dtypes.bfloat16)

    # ---- what it refuses

    def requires_grad_(self, requires_grad: bool = True) -> Packed:
        """RuntimeError where a gradient is asked for."""
        if requires_grad:
            raise RuntimeError(
                f"a weight that is packed as {self._scheme} takes no gradient: train other parameters beside it (LoRA), or "
                "`weight.dequantize()`"
            )
        return self

    def copy_(self, src: Any, non_blocking: bool = False) -> Packed:
        """Takes over the bytes of a weight that is packed in the same way. RuntimeError for any other."""
        alike = isinstance(src, Packed) and (src._scheme, src._options, src._tab_meta.shape, len(src._parts)) == (
            self._scheme,
            self._options,
            self._tab_meta.shape,
            len(self._parts),
        )
        if not alike:
            self._tab_storage.written()
        for own, other in zip(self._parts, src._parts):
            own.copy_(other)
        return self


def _whole(part: Tensor) -> Tensor:
    """The part as a tensor that is all of its storage."""
    out = part._tab_storage.node.inst.out
    m = part._tab_meta
    if m.contiguous and not m.offset and out.numel == m.numel and out.dtype is m.dtype:
        return part.detach()
    return part.detach().clone().contiguous()


def rebuild(parts: Any, scheme: str, shape: Any, dtype: Any, options: Any) -> Packed:
    """A packed weight from what a pickle has of it."""
    return Packed(parts, scheme, shape, dtype=dtype, options=options)
