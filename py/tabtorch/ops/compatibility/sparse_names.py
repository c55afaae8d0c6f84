"""The names of sparse tensors, whose package is loaded when one is first used."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy
from tabtorch.ops.machinery.registry import register


def _of(name: str, public: bool, method: bool) -> None:
    def f(*args: Any, **kwargs: Any) -> Any:
        _lazy.sparse  # noqa: B018  # which fills the table
        return _lazy.sparse_tensor.dispatch(name, args, kwargs)

    f.__name__ = f.__qualname__ = name
    register(name, f, method=method, torch=public, doc="An operation of sparse tensors: see `tabtorch.sparse`.")


for _name in (
    "coalesce is_coalesced indices values crow_indices col_indices ccol_indices row_indices to_dense to_sparse to_sparse_coo "
    "to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc sparse_mask sparse_dim dense_dim sparse_resize_ "
    "sparse_resize_and_clear_ _nnz _indices _values _coalesced_ _dimI _dimV"
).split():
    _of(_name, False, True)
for _name in "hspmm smm sspaddmm resize_as_sparse_ _sparse_broadcast_to _sparse_csr_sum _sparse_csr_prod".split():
    _of(_name, True, _name in ("smm", "sspaddmm"))
for _name in (
    "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor"
).split():
    register(
        _name,
        lambda *args, _name=_name, **kw: getattr(_lazy.sparse_create, _name)(*args, **kw),
        doc="A new sparse tensor: see `tabtorch.sparse.create`.",
    )
