"""Decompositions of matrices with what PyTorch's gradients need of them, and Fourier fft."""

from __future__ import annotations

from typing import Any

from tabtorch import _lazy, fft, ops
from tabtorch.ops.aten.table import ADAPTERS, Tensor, aten
from tabtorch.ops.fourier import stft


def _lu(A: Tensor) -> tuple[Tensor, Tensor]:
    """(LU, pivots) of the matrix, or of its transpose where it is real and row-major: so PyTorch's gradients take them to be."""
    A = A.mT if A.is_contiguous() and not A.is_complex() else A
    lu, pivots, _ = ops.linalg_lu_factor_ex(A)
    return lu, pivots


@aten("_linalg_det")
def _linalg_det(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (ops.linalg_det(A), *_lu(A))


@aten("_linalg_slogdet")
def _linalg_slogdet(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    sign, logarithm = ops.linalg_slogdet(A)
    return (sign, logarithm, *_lu(A))


@aten("_linalg_solve_ex")
def _linalg_solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Tensor, ...]:
    """(X, LU, pivots, info)."""
    result, info = ops.linalg_solve_ex(A, B, left=left, check_errors=check_errors)
    lu, pivots, _ = ops.linalg_lu_factor_ex(A)
    return result, lu, pivots, info


@aten("_linalg_svd")
def _linalg_svd(
    A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, Vh); U and Vh are empty without `compute_uv`."""
    if compute_uv:
        u, s, vh = ops.linalg_svd(A, full_matrices)
        return u, s, vh
    return A.new_empty((0,)), ops.linalg_svdvals(A), A.new_empty((0,))


@aten("_linalg_eigh")
def _linalg_eigh(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    if compute_v:
        values, vectors = ops.linalg_eigh(A, UPLO)
        return values, vectors
    return ops.linalg_eigvalsh(A, UPLO), A.new_empty((0,))


@aten("_linalg_eigvals")
def _linalg_eigvals(self: Tensor) -> Tensor:
    return ops.linalg_eigvals(self)


@aten("_linalg_check_errors")
def _linalg_check_errors(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    """Raises what `api_name` raises for an `info` that is not 0; reads it."""
    _lazy.host_kernels.check_info(api_name, info)


@aten("_cholesky_solve_helper")
def _cholesky_solve_helper(self: Tensor, A: Tensor, upper: bool) -> Tensor:
    return ops.cholesky_solve(self, A, upper)


# ---- Fourier transforms

#: ATen's numbers of normalizations, 0 none, 1 by the root of the size, 2 by the size, as `norm` of a forward transform, and of
#: an inverse one
_FORWARD = ("backward", "ortho", "forward")
_INVERSE = ("forward", "ortho", "backward")


@aten("_fft_c2c")
def _fft_c2c(self: Tensor, dim: Any, normalization: int, forward: bool) -> Tensor:
    if not dim:
        return self.clone()
    f = fft.fftn if forward else fft.ifftn
    return f(self, dim=list(dim), norm=(_FORWARD if forward else _INVERSE)[normalization])


@aten("_fft_r2c")
def _fft_r2c(self: Tensor, dim: Any, normalization: int, onesided: bool) -> Tensor:
    """Of a real tensor; onesided: the last of `dim` is halved."""
    f = fft.rfftn if onesided else fft.fftn
    return f(self, dim=list(dim), norm=_FORWARD[normalization])


@aten("_fft_c2r")
def _fft_c2r(self: Tensor, dim: Any, normalization: int, last_dim_size: int) -> Tensor:
    """To a real tensor, whose last of `dim` has this size."""
    sizes = [self.shape[d] for d in dim[:-1]] + [last_dim_size]
    return fft.irfftn(self, s=sizes, dim=list(dim), norm=_INVERSE[normalization])


@aten("stft")
def _stft(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Windows that are not centred; `stft.center` has the arguments of `torch.stft`."""
    rest = (False, "reflect", normalized, onesided, return_complex, align_to_window)
    return stft.stft(self, n_fft, hop_length, win_length, window, *rest)


ADAPTERS["stft.center"] = stft.stft
