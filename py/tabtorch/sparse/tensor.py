"""What a sparse tensor is: a `torch.Tensor` whose memory is index and value tensors, and whose dense state refuses to be read.

Dense tensors pay nothing for it: no operation asks whether an operand is sparse. One that takes a sparse tensor for a dense
one comes to its storage's node, to its strides or to the hash of its Meta, and each of these raises `Refused`. Where a call
fails anyway (`registry.overridden`, the slow ways of `ops/machinery/dispatch.py`) that is led to `dispatch` here, which has the
operation of that name over indices and values, or PyTorch's error.

On the tape a sparse tensor is an edge like any other. `values_of` records the way from it to its values, `made` the way from
values to a new one; all between is operations of dense tensors, with their own gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabtorch import _lazy
from tabtorch.autograd.grad_mode import STATE
from tabtorch.autograd.tape import needs_record, record
from tabtorch.base import dtypes
from tabtorch.base.errors import Refused
from tabtorch.core.layout import sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from tabtorch.core.storage import Storage
from tabtorch.core.tensor import Tensor, disabled_torch_function
from tabtorch.core.tensor_base import TensorBase, inside
from tabtorch.engine.view import Meta, Size
from tabtorch.ops.machinery import registry

COO, CSR, CSC, BSR, BSC = sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc
BLOCKED = (BSR, BSC)
#: those whose compressed dimension is that of rows
BY_ROW = (CSR, BSR)
#: layout -> (what PyTorch calls it in messages, in the name of a backend)
WORDS = {
    COO: ("Sparse", "SparseCPU"),
    CSR: ("SparseCsr", "SparseCsrCPU"),
    CSC: ("SparseCsc", "SparseCsrCPU"),
    BSR: ("SparseBsr", "SparseCsrCPU"),
    BSC: ("SparseBsc", "SparseCsrCPU"),
    strided: ("Strided", "CPU"),
}


def _refuse(*_: Any) -> Any:
    raise Refused


class SparseMeta(Meta):
    """Shape, dtype and device; what a view has besides is refused, and so is the hash, by which operations are looked up."""

    __slots__ = ("layout",)
    strides = contiguous = offset = property(_refuse)
    __hash__ = _refuse

    def __init__(self, shape: Any, dtype: Any, device: Any, layout: Any) -> None:
        self.shape, self.dtype, self.device, self.layout = Size(shape), dtype, device, layout
        self.ndim, self.numel = len(self.shape), self.shape.numel()
        self.flat = self.whole = self.symbolic = False
        self.mark, self.structure = 0, None

    def view(self, *_: Any) -> Any:
        """Refused."""
        raise Refused

    def marked(self, mark: int) -> Meta:
        """Refused."""
        raise Refused

    def __repr__(self) -> str:
        return f"SparseMeta({tuple(self.shape)}, {self.dtype.name}, {self.layout!r})"


class SparseStorage(Storage):
    """The tensors that a sparse one consists of, none of them on the tape: (indices, values), or (compressed indices, plain
    indices, values). What shares it (`detach`, `data`) shares later writes."""

    __slots__ = ("coalesced", "parts")
    node = property(_refuse)

    def __init__(self, parts: tuple[Tensor, ...], coalesced: bool) -> None:
        self.parts, self.coalesced = parts, coalesced
        self.version, self.views = 0, None

    out = nbytes = property(_refuse)

    def refuse(self) -> None:
        """Refused."""
        raise Refused

    def untracked(self) -> SparseStorage:
        return SparseStorage(self.parts, self.coalesced)


class SparseTensor(Tensor):
    """A tensor of another layout than strided. Made by `torch.sparse_coo_tensor`, `Tensor.to_sparse` and their kin."""

    __torch_function__ = staticmethod(disabled_torch_function)
    _tab_storage: SparseStorage
    _tab_meta: SparseMeta

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _lazy.constructors.legacy_constructor(Tensor, *args, **kwargs)

    @property
    def layout(self) -> Any:
        """`torch.sparse_coo`, `sparse_csr`, …"""
        return self._tab_meta.layout

    @property
    def is_sparse(self) -> bool:  # type: ignore[override]
        """Whether its layout is `torch.sparse_coo`."""
        return self._tab_meta.layout is COO

    @property
    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        """Whether its layout is `torch.sparse_csr`."""
        return self._tab_meta.layout is CSR

    @property
    def data(self) -> Tensor:
        """The same parts, cut from the tape."""
        return alias(self, self._tab_storage.untracked())

    @data.setter
    def data(self, value: Any) -> None:
        if not is_sparse(value):
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type."
            )
        self._tab_storage, self._tab_meta = value._tab_storage.untracked(), value._tab_meta

    def detach(self) -> Tensor:
        """The same parts, cut from the tape."""
        return alias(self, self._tab_storage)

    _tab_shallow = detach

    def stride(self, dim: int | None = None) -> Any:
        """0 of each dimension; RuntimeError for a compressed layout."""
        if self.layout is not COO:
            raise RuntimeError("Sparse CSR tensors do not have strides")
        return (0,) * self.ndim if dim is None else 0

    def storage_offset(self) -> int:
        """0."""
        return 0

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """False; RuntimeError for a compressed layout."""
        if self.layout is not COO:
            raise RuntimeError("Tensors of type SparseCsrTensorImpl do not have is_contiguous")
        return False

    def data_ptr(self) -> int:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def untyped_storage(self) -> Any:
        raise NotImplementedError("Cannot access storage of " + self._impl())

    storage = _typed_storage = share_memory_ = untyped_storage

    def _impl(self) -> str:
        return "SparseTensorImpl" if self.layout is COO else "SparseCsrTensorImpl"

    @property
    def nbytes(self) -> int:
        raise RuntimeError(
            "nbytes is not defined for sparse tensors.  If you want the size of the constituent tensors, add the nbytes of "
            "the indices and values.  If you want the size of the  equivalent dense tensor, multiply numel() by element_size()"
        )

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError(f"can't convert {WORDS[self.layout][0]} layout tensor to numpy. Use Tensor.to_dense() first.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def __dlpack__(self, **kw: Any) -> Any:
        raise BufferError("Can't export tensors with layout other than torch.strided")

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        return _lazy.sparse_printing.shown(self)

    def __format__(self, format_spec: str) -> str:
        return object.__format__(self, format_spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        known = memo.get(id(self))
        if known is not None:
            return known
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  If "
                "you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, see "
                "https://github.com/pytorch/pytorch/pull/103001"
            )
        import copy

        s = self._tab_storage
        new = memo[id(self)] = alias(self, SparseStorage(tuple([p.clone() for p in s.parts]), s.coalesced))
        new._tab_requires_grad = self._tab_requires_grad
        for name, value in self.__dict__.items():
            inside(new)[name] = copy.deepcopy(value, memo)
        if self._grad is not None:
            new._grad = copy.deepcopy(self._grad, memo)
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        return rebuilt(self)

    @property
    def T(self) -> Tensor:
        """Its dimensions reversed."""
        return run("permute", self, tuple(range(self.ndim - 1, -1, -1)))

    @property  # type: ignore[misc]
    def real(self) -> Tensor:
        """The real parts."""
        return run("_real", self)

    @property  # type: ignore[misc]
    def imag(self) -> Tensor:
        """The imaginary parts."""
        return run("_imag", self)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Tensor:
        return run("_getitem", self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("Cannot assign to a sparse tensor")


SparseTensor.__name__ = SparseTensor.__qualname__ = "Tensor"
SparseTensor.__module__ = "torch"


def rebuilt(t: Any) -> tuple[Any, tuple[Any, ...]]:
    """How a pickle makes a sparse tensor again: PyTorch's form. Of `requires_grad` it keeps nothing, as there."""
    s, size = t._tab_storage, tuple(t.shape)
    args: tuple[Any, ...] = (*s.parts, size, s.coalesced) if t.layout is COO else (*s.parts, size)
    return _lazy._utils._rebuild_sparse_tensor, (t.layout, args)


def is_sparse(x: Any) -> bool:
    """Whether it is a tensor of a sparse layout."""
    return isinstance(x, SparseTensor)


def new(layout: Any, parts: Any, shape: Any, coalesced: bool | None = None) -> Any:
    """A sparse tensor over these tensors, as they are, with no history. Nothing is checked.

    coalesced: None: as far as one can tell without looking, which of fewer than two elements one can.
    """
    values = parts[-1]
    if coalesced is None:
        coalesced = layout is COO and parts[0].shape[1] < 2
    t: Any = object.__new__(SparseTensor)
    t._tab_storage = SparseStorage(tuple([p.detach() for p in parts]), coalesced)
    t._tab_meta = SparseMeta(shape, values._tab_meta.dtype, values._tab_meta.device, layout)
    if STATE.inference:
        t._tab_inference = True
    return t


def alias(t: Any, storage: SparseStorage) -> Any:
    """Another tensor over a storage, with no history."""
    r: Any = object.__new__(SparseTensor)
    r._tab_storage, r._tab_meta = storage, t._tab_meta
    if t._tab_inference:
        r._tab_inference = True
    return r


def made(name: str, layout: Any, indices: Any, values: Tensor, shape: Any, coalesced: bool | None = None) -> Any:
    """A sparse tensor of index tensors and of values, whose history becomes its own, under the name of the operation."""
    t = new(layout, (*indices, values), shape, coalesced)
    if needs_record(values):
        own = t.detach()
        record(name + "Backward0", (values,), t, lambda g: _lazy.sparse_convert.values_at(g, own))
    return t


def like(name: str, x: Any, values: Tensor, coalesced: bool | None = None) -> Any:
    """A sparse tensor with the indices of `x`."""
    s = x._tab_storage
    shape = x.shape
    return made(name, x.layout, s.parts[:-1], values, shape, s.coalesced if coalesced is None else coalesced)


def values_of(x: Any) -> Tensor:
    """The values of a sparse tensor, on the tape."""
    s = x._tab_storage
    v: Tensor = s.parts[-1].detach()
    if needs_record(x):
        own = x.detach()

        def backward(g: Any) -> Any:
            """The gradient has the same indices. What stands for one element several times has its part of it each time."""
            if x.layout is COO and not s.coalesced:
                count = _lazy.sparse_convert.occurrences(own)
                g = g / count.reshape(-1, *[1] * (g.ndim - 1))
            return like("SparseCooTensorWithDimsAndTensors", own, g)

        record("ValuesBackward0", (x,), v, backward)
    return v


def renewed(x: Any, value: Any) -> Any:
    """Writes a sparse tensor to another: its parts are those of `value`. An in-place operation's last step."""
    if x._tab_requires_grad and STATE.grad and x.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    s, v = x._tab_storage, value._tab_storage
    values = v.parts[-1]
    if values._tab_meta.dtype is not x._tab_meta.dtype:
        have, got = x._tab_meta.dtype, values._tab_meta.dtype
        if got.category > have.category:
            raise RuntimeError(
                f"result type {dtypes.CXX_NAMES[got.name]} can't be cast to the desired output type {dtypes.CXX_NAMES[have.name]}"
            )
        values = values.to(have)
    s.parts, s.coalesced = (*v.parts[:-1], values), v.coalesced
    s.version += 1
    x._tab_meta = SparseMeta(value.shape, x._tab_meta.dtype, x._tab_meta.device, x.layout)
    if value._tab_requires_grad:
        x._tab_requires_grad, x._tab_grad_fn = True, value._tab_grad_fn
    return x


# ---- operations by name

#: name -> the operation where an operand is sparse
OPS: dict[str, Callable[..., Any]] = {}


def op(*names: str) -> Callable[..., Any]:
    """Registers an operation for sparse operands; its arguments are those of `torch.NAME`."""

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        for n in names or (f.__name__,):
            OPS[n] = f
        return f

    return decorate


def run(name: str, *args: Any, **kwargs: Any) -> Any:
    """The operation of that name."""
    return dispatch(name, args, kwargs)


def _given(args: Any, kwargs: dict[str, Any]) -> Any:
    """The sparse tensors among arguments, in their order."""
    for a in (*args, *kwargs.values()):
        for b in a if type(a) in (list, tuple) else (a,):
            if is_sparse(b):
                yield b


def refused(name: str, x: Any) -> Exception:
    """What PyTorch says of an operation that has no kernel for a layout."""
    row = registry.ROW_NAMES.get(name)
    if x.layout is not COO and row is not None and row[0].operands == 1:
        return RuntimeError(f"unsupported tensor layout: {WORDS[x.layout][0]}")
    return NotImplementedError(
        f"Could not run 'aten::{name}' with arguments from the '{WORDS[x.layout][1]}' backend. This could be because the "
        "operator doesn't exist for this backend, or was omitted during the selective/custom build process."
    )


def canonical(name: str) -> str:
    """The name of an operation that has several."""
    row = registry.ROW_NAMES.get(name)
    return name if row is None else row[0].name + ("_" if row[1] else "")


def dispatch(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operation `name` with sparse operands. NotImplementedError, as PyTorch's, where there is none."""
    if name in ("binary", "composite", "op", "operator"):  # an operator, whose method has taken it already
        return NotImplemented
    kwargs = dict(kwargs)
    for old, given in (("axis", "dim"), ("keepdims", "keepdim"), ("x1", "input"), ("x2", "other"), ("self", "input")):
        if old in kwargs:
            kwargs[given] = kwargs.pop(old)
    if not args and "input" in kwargs:
        args = (kwargs.pop("input"),)
    f = OPS.get(name) or OPS.get(canonical(name))
    out = kwargs.pop("out", None)
    if f is not None:
        r = f(*args, **kwargs)
        return r if out is None or r is NotImplemented else written(out, r)
    base = canonical(name).removesuffix("_")
    if name.endswith("_") and base in OPS and is_sparse(args[0]):
        return renewed(args[0], OPS[base](*args, **kwargs))
    raise refused(canonical(name), next(_given((*args, out), kwargs)))


def written(out: Any, r: Any) -> Any:
    """A result in `out=`."""
    if is_sparse(out) and is_sparse(r):
        return renewed(out, r)
    if is_sparse(out) or is_sparse(r):
        raise refused("copy_", out if is_sparse(out) else r)
    if out.shape != r.shape:
        out.resize_(r.shape)
    return out.copy_(r)


Refused.dispatch = staticmethod(dispatch)


def methods(names: Any) -> None:
    """Makes operations methods of the class. Dense ones of the same name are never come to."""
    for n in names:
        if n not in SparseTensor.__dict__ and n[0] != "_" or n[:2] == "__" or hasattr(TensorBase, n) or n in _PRIVATE:
            setattr(SparseTensor, n, _method(n))


_PRIVATE = ("_nnz", "_indices", "_values", "_coalesced_", "_dimI", "_dimV")


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return dispatch(name, (self, *args), kwargs)

    method.__name__ = method.__qualname__ = name
    return method
