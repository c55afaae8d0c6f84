"""The von Mises distribution."""

from __future__ import annotations

import math
from typing import Any

import tabtorch as torch
from tabtorch.core.tensor import Tensor
from tabtorch.distributions import constraints
from tabtorch.distributions.distribution import Distribution
from tabtorch.distributions.utils import lazy_property

#: Abramowitz & Stegun, 9.8.1 to 9.8.4: of (x / 3.75)^2 for the order, then of 3.75 / x; highest power first
_SMALL = (
    (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0),
    (0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5),
)
_LARGE = (
    (0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319, 0.01328592, 0.39894228),
    (-0.00420059, 0.01787654, -0.02895312, 0.02282967, -0.01031555, 0.00163801, -0.00362018, -0.03988024, 0.39894228),
)


def _polynomial(y: Any, coefficients: tuple[float, ...]) -> Any:
    result: Any = coefficients[0]
    for c in coefficients[1:]:
        result = c + y * result
    return result


def _log_modified_bessel_fn(x: Any, order: int = 0) -> Any:
    """log I0(x) or log I1(x), for x > 0."""
    small = _polynomial((x / 3.75).square(), _SMALL[order])
    if order == 1:
        small = x.abs() * small
    large = x - 0.5 * x.log() + _polynomial(3.75 / x, _LARGE[order]).log()
    return torch.where(x < 3.75, small.log(), large)


class VonMises(Distribution):
    """Angles in radians about `loc`, the more narrowly the larger `concentration` is."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    _fields = "loc concentration"

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._begin(validate_args, loc=loc, concentration=concentration)

    def log_prob(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        normalizer = math.log(2 * math.pi) + _log_modified_bessel_fn(self.concentration, order=0)
        return self.concentration * torch.cos(value - self.loc) - normalizer

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Drawn in float64, so on cpu, wherever the parameters are: Best & Fisher (1979)."""
        with torch.no_grad():
            loc, kappa = (t.to("cpu", torch.float64) for t in (self.loc, self.concentration))
            tau = 1 + (1 + 4 * kappa**2).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
            r = torch.where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho**2) / (2 * rho))
            shape = self._extended_shape(sample_shape)
            x = torch.zeros(shape, dtype=torch.float64, device="cpu")
            done = torch.zeros(shape, dtype=torch.bool, device="cpu")
            while not done.all():
                u1, u2, u3 = torch.rand((3, *shape), dtype=torch.float64, device="cpu").unbind()
                z = torch.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = kappa * (r - f)
                accept = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
                x = torch.where(accept, (u3 - 0.5).sign() * f.acos(), x)
                done = done | accept
            x = (x + math.pi + loc) % (2 * math.pi) - math.pi
            return x.to(self.loc.dtype).to(self.loc.device)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The circular variance."""
        logs = [_log_modified_bessel_fn(self.concentration, order) for order in (1, 0)]
        return 1 - (logs[0] - logs[1]).exp()
