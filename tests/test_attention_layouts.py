"""The result of the dot product lies where PyTorch's does: as the queries do where its kernel takes them, else row by row. So that
`y.transpose(1, 2).view(...)`, which joins heads again, is a view in the same programs."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import to_tab

SIZES = [(4, 4, 3, 6, 8), (2, 3, 20, 30, 8), (1, 4, 1, 9, 16)]


def lying(x: Any, device: str, grad: bool = False) -> Any:
    """The same on the device, with the same strides."""
    own = tabtorch.empty_strided(x.shape, x.stride(), device=device).copy_(to_tab(x, device))
    return own.requires_grad_(grad)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_every_order_of_dimensions(sizes: tuple[int, ...], grad: bool, device: str) -> None:
    batch, heads, rows, keys, width = sizes
    for order in permutations(range(4)):
        back = [order.index(d) for d in range(4)]
        shapes = [(batch, heads, n, width) for n in (rows, keys, keys)]
        q, k, v = (torch.randn([s[d] for d in order]).permute(back) for s in shapes)
        own = [lying(x, device, grad) for x in (q, k, v)]
        expected = torch.nn.functional.scaled_dot_product_attention(q.requires_grad_(grad), k, v, is_causal=True)
        found = tabtorch.nn.functional.scaled_dot_product_attention(*own, is_causal=True)
        assert found.stride() == expected.stride(), (order, q.stride())
        torch.testing.assert_close(torch.from_numpy(found.detach().cpu().numpy()), expected.detach())


CASES: dict[str, tuple[dict[str, Any], int]] = {
    "mask": ({"attn_mask": torch.randn(5, 7)}, 3),
    "mask of heads": ({"attn_mask": torch.randn(2, 3, 5, 7)}, 3),
    "mask without batches": ({"attn_mask": torch.randn(3, 5, 7)}, 3),
    "heads in groups": ({"enable_gqa": True}, 6),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_kernel_takes(case: str, device: str) -> None:
    more, heads = CASES[case]
    q, k, v = (torch.randn(2, n, h, 8).transpose(1, 2) for n, h in ((5, heads), (7, 3), (7, 3)))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, **more)
    masks = {n: to_tab(x, device) if isinstance(x, torch.Tensor) else x for n, x in more.items()}
    found = tabtorch.nn.functional.scaled_dot_product_attention(*(lying(x, device) for x in (q, k, v)), **masks)
    assert found.stride() == expected.stride()
    torch.testing.assert_close(torch.from_numpy(found.cpu().numpy()), expected)


def test_gradients_pass_and_heads_are_joined_by_a_view(device: str) -> None:
    theirs = torch.randn(2, 5, 3 * 24, requires_grad=True)
    ours = to_tab(theirs.detach(), device).requires_grad_()
    joined = []
    for lib, x in ((torch, theirs), (tabtorch, ours)):
        q, k, v = (t.view(2, 5, 3, 8).transpose(1, 2) for t in x.split(24, dim=2))
        y = lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        joined.append(y.transpose(1, 2).view(2, 5, 24))
        (joined[-1] ** 2).sum().backward()
    assert type(y.grad_fn).__name__ == "ScaledDotProductFlashAttentionForCpuBackward0"
    torch.testing.assert_close(torch.from_numpy(joined[1].detach().cpu().numpy()), joined[0].detach())
    torch.testing.assert_close(torch.from_numpy(ours.grad.cpu().numpy()), theirs.grad)
