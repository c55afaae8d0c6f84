"""What the parts of backend_people.py share: comparing, training, and answering for the names they are given."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

import tabtorch.backend
import tabtorch.backend.dynamo  # noqa: F401

D = "webgpu"
Wrap = Callable[[Any], Any]
Case = Callable[[], None]


def near(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-4, what: str = "a result") -> None:
    """AssertionError if they differ by more than the tolerance, of the largest value if that is over 1."""
    a, b = found.detach().cpu().float(), expected.detach().cpu().float()
    assert a.shape == b.shape, f"{what}: {tuple(a.shape)} for {tuple(b.shape)}"
    off = (a - b).abs().max().item() / max(1.0, b.abs().max().item())
    assert off <= tolerance, f"{what} is off by {off:g}"


def plain(model: Any) -> Any:
    return model


def compiled(model: Any) -> Any:
    return torch.compile(model, backend="webgpu")


#: kind -> (where the model is, what is done to it)
WAYS: dict[str, tuple[str, Wrap]] = {"eager": (D, plain), "compiled": (D, compiled), "from_cpu": ("cpu", compiled)}


def import_torchvision() -> None:
    """torchvision, also where the wheel there is was made for another torch, and has none of its own operators."""
    try:
        import torchvision
    except RuntimeError:
        torch.library.define("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401


def answer(cases: dict[str, Case]) -> None:
    """`FILE --list` prints the names; `FILE NAME ...` a line of JSON for each: its name, what went wrong, seconds."""
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--list"]:
        print("\n".join(cases))
        return
    for name in sys.argv[1:] or cases:
        began = time.time()
        torch._dynamo.reset()
        try:
            cases[name]()
            wrong = ""
        except Exception:
            wrong = traceback.format_exc()
        print("\n" + json.dumps([name, wrong, time.time() - began]), flush=True)
