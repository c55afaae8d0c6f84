"""`torch.sparse.as_sparse_gradcheck`: gradcheck of functions of sparse tensors."""

from __future__ import annotations

from typing import Any

from tabtorch.sparse.convert import parts, to_dense
from tabtorch.sparse.tensor import is_sparse, made


def wrapped(gradcheck: Any) -> Any:
    """`gradcheck` that takes sparse inputs and outputs."""

    def with_sparse(func: Any, inputs: Any, **kwargs: Any) -> Any:
        """As `torch.autograd.gradcheck`; with `masked=False`, elements that are not stored are differentiated as well."""
        masked = kwargs.pop("masked", False)
        many = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
        given: list[Any] = []
        rebuild: list[Any] = []
        for x in many:
            if not is_sparse(x) or not x.requires_grad:
                given.append(x)
                rebuild.append(None)
                continue
            x = x.detach()
            given.append((parts(x)[-1] if masked else to_dense(x)).clone().requires_grad_())
            rebuild.append(x)

        def dense(*args: Any) -> Any:
            whole = []
            for a, x in zip(args, rebuild, strict=True):
                if x is None:
                    whole.append(a)
                elif masked:
                    s = x._tab_storage
                    whole.append(made("SparseGradcheck", x.layout, s.parts[:-1], a, x.shape, s.coalesced))
                else:
                    whole.append(a.to_sparse(layout=x.layout) if x.layout.name != "sparse_coo" else a.to_sparse())
            r = func(*whole)
            several = isinstance(r, (list, tuple))
            out = tuple([to_dense(t) if is_sparse(t) else t for t in (r if several else (r,))])
            return out if several else out[0]

        return gradcheck(dense, tuple(given), **kwargs)

    return with_sparse
