"""torch.special's Bessel functions and polynomials, and torch.signal.windows, beside PyTorch: edges, errors, wide ranges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.signal

import tabtorch
from gradients import check

BESSEL = [
    "airy_ai", "spherical_bessel_j0",
    *(f"{kind}{n}" for n in "01" for kind in ("bessel_j", "bessel_y", "modified_bessel_i", "modified_bessel_k",
                                               "scaled_modified_bessel_k")),
]  # fmt: skip
POLYNOMIALS = [
    *(f"{s}chebyshev_polynomial_{kind}" for s in ("", "shifted_") for kind in "tuvw"),
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
]  # fmt: skip
EDGES = [0.0, -0.0, 1, -1, 0.5, 2, 5, 8, -2.09, 2.09, 8.4, 104, 1e-6, -1e-6, 1e-30, 1e30, np.inf, -np.inf, np.nan]


def _compare(name: str, device: str, dtype: str, *args: np.ndarray) -> None:
    want = getattr(torch.special, name)(*map(torch.tensor, args)).numpy()
    got = getattr(tabtorch.special, name)(*(tabtorch.tensor(a, device=device) for a in args)).cpu().numpy()
    tol = {"rtol": 1.3e-6, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-7, "atol": 1e-7}
    np.testing.assert_allclose(got, want, **tol)


def _dtypes(device: str) -> list[str]:
    return ["float32", "float64"] if device == "cpu" else ["float32"]


@pytest.mark.parametrize("name", BESSEL)
def test_bessel(name: str, device: str) -> None:
    x = np.concatenate([np.linspace(-20, 20, 1001), np.linspace(-80, 80, 301), EDGES])
    for dtype in _dtypes(device):
        _compare(name, device, dtype, x.astype(dtype))


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name: str, device: str) -> None:
    """All degrees up to the cut-offs and some beyond, degrees that are none, overflow."""
    for dtype in _dtypes(device):
        x = np.array([-8.0, -1.5, -1, -0.7, -0.1, 0, 0.3, 0.5, 0.95, 1, 1.25, 3], dtype)
        n = np.array([-3, -0.5, 0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 2.9, np.nan, np.inf, -np.inf, 1e20], dtype)
        _compare(name, device, dtype, x[:, None], n)
        _compare(name, device, dtype, np.array([40.0, -40.0, 1e30], dtype)[:, None], np.array([100, 200, 300], dtype))
        if name.startswith("hermite"):
            _compare(name, device, dtype, np.array([0.0], dtype), np.array([127, 129, 511, 513], dtype))


FORMS = """
m.special.chebyshev_polynomial_t(m.tensor([.2, .3]), 4)
m.special.hermite_polynomial_he(.5, m.tensor([1, 2, 3]))
m.special.legendre_polynomial_p(m.tensor([1, 2]), m.tensor([[2], [3]]))
m.special.laguerre_polynomial_l(m.tensor([1, 2], dtype=m.int8), 3)
m.special.chebyshev_polynomial_t(m.ones(2).half(), 2)
m.special.bessel_j0(m.ones(2).bfloat16())
m.special.airy_ai(m.tensor([True, False]))
m.special.airy_ai(m.tensor([1j]))
m.special.bessel_y1(m.tensor([3, 4]), out=m.empty(2))
m.special.bessel_j1(m.ones(2, requires_grad=True)).requires_grad
m.special.modified_bessel_k0(m.ones(0, 3))
m.special.ndtri(m.tensor([.5, .25])).signbit()
m.signal.windows.hann(7), m.signal.windows.hann(7, sym=False), m.signal.windows.hann(1), m.signal.windows.hann(0)
m.signal.windows.kaiser(6, beta=3., sym=False), m.signal.windows.kaiser(5, beta=0), m.signal.windows.kaiser(1)
m.signal.windows.exponential(5, center=1.5, tau=3., sym=False), m.signal.windows.exponential(1)
m.signal.windows.gaussian(6, std=.7), m.signal.windows.gaussian(2, sym=False), m.signal.windows.cosine(3)
m.signal.windows.general_cosine(5, a=[.4, .3, .2, .1]), m.signal.windows.nuttall(6, sym=False)
m.signal.windows.bartlett(5), m.signal.windows.bartlett(2), m.signal.windows.blackman(4), m.signal.windows.hamming(3)
m.signal.windows.general_hamming(4, alpha=.7), m.signal.windows.hann(4, requires_grad=True).requires_grad
m.signal.windows.hann(-1)
m.signal.windows.hann(3, dtype=m.int64)
m.signal.windows.cosine(3, dtype=m.float16)
m.signal.windows.exponential(3, tau=0)
m.signal.windows.exponential(3, center=1)
m.signal.windows.gaussian(3, std=-1)
m.signal.windows.kaiser(3, beta=-1)
m.signal.windows.general_cosine(3, a=1)
m.signal.windows.general_cosine(3, a=[])
m.signal.windows.hann(3, True)
""".strip().split("\n")


@pytest.mark.parametrize("expression", FORMS)
def test_forms(expression: str, device: str) -> None:
    check(expression, {}, device, tol=1e-5, twice=False, named=False)
