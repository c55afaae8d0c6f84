"""How many kernels a GPU gets, and how many bytes it stores, for a training step of real PyTorch on device="webgpu", beside
tabtorch's own compiled step of the same model. In a process of its own, which backend_counts.py is."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sidebyside import DEVICES

HERE = Path(__file__).resolve().parent


@functools.cache
def counts() -> dict[str, dict[str, Any]]:
    """By the way of running it."""
    env = {**os.environ, "PYTHONPATH": str(HERE.parent / "py")}
    env.pop("TABTORCH_DEVICE", None)
    command = [sys.executable, str(HERE / "backend_counts.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


pytestmark = pytest.mark.skipif("webgpu" not in DEVICES, reason="webgpu was not asked for")


def test_a_compiled_model_has_no_more_kernels_than_ours() -> None:
    """The forward, the loss, the backward and the optimizer: one plan each."""
    own, found = counts()["own"], counts()["compiled"]
    assert found["kernels"] <= 1.05 * own["kernels"], found["labels"]
    assert found["plans"] <= 4


def test_a_compiled_model_stores_little_more_than_ours() -> None:
    """Parameters, gradients and what is saved stand in buffers of their own from one plan to the next. 1.14 times ours for a larger
    GPT (backend_counts.py --large)."""
    assert counts()["compiled"]["bytes"] <= 1.25 * counts()["own"]["bytes"]


@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_attention_is_one_kernel_forward_and_two_backward(way: str) -> None:
    labels = counts()[way]["labels"]
    for name in ("attention", "attention_query", "attention_key"):
        assert sum(name in label.split("+") for label in labels) == 2, labels  # a block each


@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_the_optimizer_is_one_kernel(way: str) -> None:
    """Besides those that pack gradients, as many at once as a kernel may bind."""
    labels = counts()[way]["labels"]
    assert sum("lerp" in label for label in labels) == 1, labels
    assert sum("pack" in label for label in labels) == sum("pack" in label for label in counts()["own"]["labels"])


def test_an_eager_step_is_fused_like_a_compiled_one() -> None:
    assert counts()["eager"]["kernels"] <= 1.15 * counts()["own"]["kernels"], counts()["eager"]["labels"]
