"""Pointwise mathematics at ordinary places and at the edges."""

import torch

x = torch.tensor([-2.5, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, float("inf"), float("nan")])
for name in (
    "abs neg sign exp expm1 log log2 log1p sqrt rsqrt square sin cos tan asin atan sinh cosh tanh ceil floor round trunc "
    "frac reciprocal sigmoid erf erfc lgamma isnan isinf signbit"
).split():
    print(name, getattr(torch, name)(x))
print(torch.atan2(x, torch.tensor(2.0)), torch.hypot(x, x), torch.pow(x, 2), torch.fmod(x, 2), torch.remainder(x, 2))
print(torch.lerp(torch.zeros(3), torch.ones(3), 0.3), torch.clamp(x, min=-1), torch.addcmul(x, x, x, value=2))
print(torch.logaddexp(torch.tensor(1.0), torch.tensor(2.0)), torch.floor_divide(torch.tensor(7.0), -2), x.nan_to_num())
print(
    torch.deg2rad(torch.tensor(180.0)), torch.copysign(torch.tensor(1.0), torch.tensor(-0.0)), torch.heaviside(x, x[1])
)
print(
    torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"),
    torch.cartesian_prod(torch.arange(2), torch.arange(2)),
)
print(torch.linspace(0, 1, 5), torch.logspace(0, 2, 3), torch.eye(2), torch.full((2,), 7), torch.polar(x[5:6], x[4:5]))
