"""How a sparse tensor prints: its parts, as PyTorch shows them."""

from __future__ import annotations

from typing import Any

from tabtorch.core import printing
from tabtorch.sparse.convert import parts
from tabtorch.sparse.tensor import BY_ROW, COO


def shown(t: Any) -> str:
    """`repr(t)`."""
    mark = getattr(t, "_is_param", False)
    prefix = "tensor("
    names = ("indices", "values")
    if t.layout is not COO:
        names = (
            *(("crow_indices", "col_indices") if t.layout in BY_ROW else ("ccol_indices", "row_indices")),
            "values",
        )  # type: ignore[assignment]
    p = parts(t)
    v = p[-1].detach()
    pieces = []
    for name, part in zip(names, p):
        head = f"{name}=tensor("
        body = "[]" if not part.numel() else printing._tensor_str(part, len(prefix) + len(head))
        text = head + body
        if not part.numel():
            text += f", size={tuple(part.shape)}"
        pieces.append(text + ")")
    nnz = p[-1].shape[0] if t.layout is COO else p[1].shape[-1]
    suffixes = [f"size={tuple(t.shape)}", f"nnz={nnz}"]
    device = printing._device_suffix(v)
    if device:
        suffixes.insert(0, device)
    name = str(t.dtype)
    default = str(printing._default_dtype())
    wide = "torch.complex128" if default == "torch.float64" else "torch.complex64"
    if name not in (default, wide, "torch.int64", "torch.bool"):
        suffixes.append(f"dtype={name}")
    suffixes.append(f"layout={t.layout!r}")
    grad = printing._grad_suffix(t)
    if grad:
        suffixes.append(grad)
    between = ",\n" + " " * len(prefix)
    body = prefix + between.join(pieces)
    text, forced = body, t.layout is COO
    last = len(body) - body.rfind("\n") + 1
    for suffix in suffixes:
        fits = not forced and last + len(suffix) + 2 <= printing.PRINT_OPTS.linewidth
        text += ", " + suffix if fits else between + suffix
        last = last + len(suffix) + 2 if fits else len(prefix) + len(suffix)
        forced = False
    text += ")"
    return "Parameter containing:\n" + text if mark else text
