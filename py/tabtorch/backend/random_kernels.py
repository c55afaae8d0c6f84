"""Random numbers on the device, and the states of their streams.

Tensors are filled by PyTorch's generator for the CPU, in its memory, and uploaded: so a seed gives the numbers that it gives
on the CPU, `generator=` takes a `torch.Generator()`, and `torch.get_rng_state()` has the state. Where a draw depends on values
of the device (`poisson`, `multinomial`, `rrelu`), it waits for them. Dropout takes its mask of the device's own generator on a
GPU, Philox, as on CUDA: seeded by `torch.manual_seed`, and its state is that of `torch.webgpu.get_rng_state()`.
`torch.Generator("webgpu")` is not there: PyTorch lets no device written in Python make generators.
"""

from __future__ import annotations

from typing import Any

import torch

from tabtorch import _lazy
from tabtorch.backend.kernels import special
from tabtorch.backend.tensors import NAME, place, unwrap, upload, wrap

aten = torch.ops.aten


def _drawn(op: Any) -> Any:
    def draw(t: torch.Tensor, *args: Any, generator: Any = None, **kw: Any) -> torch.Tensor:
        args = tuple(a.cpu() if isinstance(a, torch.Tensor) else a for a in args)
        host = torch.empty(t.shape, dtype=t.dtype, device="cpu")
        op(host, *args, generator=generator, **kw)
        unwrap(t).copy_(upload(host))
        return t

    return draw


for _name in (
    *("uniform_.", "normal_.", "random_.", "random_.from", "random_.to", "bernoulli_.float", "bernoulli_.Tensor"),
    *("exponential_.", "geometric_.", "cauchy_.", "log_normal_."),
):
    _name, _, _overload = _name.partition(".")
    special(f"{_name}.{_overload}" if _overload else _name)(
        _drawn(getattr(getattr(aten, _name), _overload or "default"))
    )


def _drawn_from(op: Any) -> Any:
    """Draws whose distribution is told by tensors."""

    def draw(*args: Any, **kw: Any) -> Any:
        host = [a.cpu() if isinstance(a, torch.Tensor) else a for a in args]
        r = op(*host, **kw)
        return r.to(NAME)

    return draw


for _name in ("poisson", "binomial", "_standard_gamma", "_sample_dirichlet", "multinomial", "bernoulli"):
    special(_name)(_drawn_from(getattr(aten, _name).default))
for _overload in ("Tensor_float", "float_Tensor", "Tensor_Tensor"):
    special(f"normal.{_overload}")(_drawn_from(getattr(aten.normal, _overload)))


@special("randperm.generator_out")
def _randperm(n: int, *, generator: Any = None, out: torch.Tensor) -> torch.Tensor:
    out.resize_([n])
    out.copy_(torch.randperm(n, generator=generator, dtype=out.dtype, device="cpu"))
    return out


@special("rrelu_with_noise")
def _rrelu(
    x: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> torch.Tensor:
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2)
    host = torch.empty(x.shape, dtype=x.dtype, device="cpu")
    aten.rrelu_with_noise(x.cpu(), host, lower, upper, True, generator)
    noise.copy_(host)
    return torch.where(x <= 0, x * noise, x)


@special("rrelu_with_noise_")
def _rrelu_in_place(x: torch.Tensor, noise: torch.Tensor, *args: Any, **kw: Any) -> torch.Tensor:
    return x.copy_(_rrelu(x, noise, *args, **kw))


@special("native_dropout")
def _native_dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    if place().host:  # no GPU: the numbers are the CPU's
        kept = torch.empty(x.shape, dtype=x.dtype, device="cpu").bernoulli_(1 - p).to(torch.bool).to(NAME)
        return x * kept * (1 / (1 - p)), kept
    result, mask = _lazy.torch.native_dropout(unwrap(x), p, True)
    return wrap(result), wrap(mask)


# ---- the generator of dropout


def seed(value: int) -> None:
    """Seeds it."""
    _lazy.random.device_generator.manual_seed(value)
    _lazy.random.default_generator.manual_seed(value)  # what compiled graphs draw of, over the kernels in JavaScript


def initial_seed() -> int:
    """The seed it was last given."""
    return int(_lazy.random.device_generator.initial_seed())


def state() -> torch.Tensor:
    """Its state: 16 bytes, a seed and an offset, as that of CUDA's."""
    g = _lazy.random.device_generator
    return torch.frombuffer(
        bytearray(g.initial_seed().to_bytes(8, "little") + g.get_offset().to_bytes(8, "little")), dtype=torch.uint8
    ).clone()


def set_state(new: torch.Tensor) -> None:
    """Goes on from what `state` gave. RuntimeError for other bytes."""
    if new.dtype is not torch.uint8 or new.device.type != "cpu":
        raise TypeError("RNG state must be a torch.ByteTensor")
    data = bytes(new.tolist())
    if len(data) != 16:
        raise RuntimeError("RNG state is wrong size")
    _lazy.random.device_generator.manual_seed(int.from_bytes(data[:8], "little"))
    _lazy.random.device_generator.set_offset(int.from_bytes(data[8:], "little"))
