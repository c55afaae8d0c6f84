"""What of the tables is not right on the device, and why. Whatever else fails is a fault."""

from __future__ import annotations

from .workers import Answer

_WIDE = "asks for float64 or complex128, which webgpu lacks"
#: entry -> why, on either device
_EVERYWHERE = {
    "chalf": "there is no complex32",
    "complex": "there is no complex32; an `out=` of another type is written to, where PyTorch refuses it",
    "view_as_complex": "there is no complex32",
    "aminmax": "an `out=` of another type is written to, where PyTorch refuses it",
    "multinomial": "an `out=` of another type is written to, where PyTorch refuses it",
    "hash_tensor": "there is no uint64",
    "sparse.mm.reduce": "there are no sparse tensors",
    "matrix_exp": "sums in another order: farther than 1e-3 of a result near nought",
    "fft.ihfftn": "PyTorch's own form with `out=` copies the wrong way where there is one dimension",
}
#: on webgpu only
_ON_WEBGPU = dict.fromkeys(
    "double cdouble float_power linalg.matrix_rank linalg.matrix_rank.hermitian log_softmax.with_dtype "
    "nn.functional.softmin.with_dtype softmax.with_dtype".split(),
    _WIDE,
)


def reason(x: Answer) -> str:
    """Why an answer may be wrong, or ""."""
    if x.table != "operators":
        return ""
    return _EVERYWHERE.get(x.name) or (_ON_WEBGPU.get(x.name, "") if x.device == "webgpu" else "")
