"""The first test to run: import, add, matmul, backward, on both devices, in seconds."""

from __future__ import annotations

import pytest

import tabtorch
from sidebyside import DEVICES


@pytest.mark.parametrize("device", DEVICES)
def test_tiny(device: str) -> None:
    a = tabtorch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    b = tabtorch.tensor([[1.0, 1.0], [0.0, 1.0]], device=device)
    assert (a + 1).tolist() == [[2.0, 3.0], [4.0, 5.0]]
    c = a @ b
    assert c.tolist() == [[1.0, 3.0], [3.0, 7.0]]
    (c * c).sum().backward()
    assert a.grad is not None
    assert a.grad.tolist() == [[8.0, 6.0], [20.0, 14.0]]
    with tabtorch.no_grad():
        a -= 0.5 * a.grad
    assert a.tolist() == [[-3.0, -1.0], [-7.0, -3.0]]
