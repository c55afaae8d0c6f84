"""Fixtures of the whole suite. Comparing with real PyTorch is in sidebyside.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tabtorch
from sidebyside import DEVICES


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """ "cpu", then "webgpu": the default device while the test runs."""
    name: str = request.param
    with tabtorch.device(name):
        yield name


@pytest.fixture
def webgpu() -> Iterator[None]:
    """The default device is the GPU while the test runs."""
    if "webgpu" not in DEVICES:
        pytest.skip("webgpu was not asked for")
    with tabtorch.device("webgpu"):
        yield
