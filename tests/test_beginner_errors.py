"""The mistakes of beginners (mistakes.py): exception, whole message and warnings are those of PyTorch in the same process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

import tabtorch
from mistakes import ROWS, TWO_DEVICES, names, said

_ARITY = "a missing argument is found by Python, which has words of its own for it"
_OVERLOADS = "of the overloads in PyTorch's parser only those of the commonest functions are known here"
#: what differs, and why: (reason, whether the type of the exception is PyTorch's all the same)
DIFFERS: dict[str, tuple[str, bool]] = {
    "nn.Embedding(3, 2)(3)": ("PyTorch names the arguments of the operator within", True),
    "F.cross_entropy([1.0], [0])": ("PyTorch names the operator within", True),
    "F.max_pool2d(torch.ones(1, 1, 4, 4))": ("PyTorch names the function within", True),
    "torch.full((2,))": (_ARITY, True),
    "F.linear(a)": (_ARITY, True),
    "F.conv2d(torch.ones(1, 1, 4, 4))": (_ARITY, True),
    "torch.cat()": (_ARITY, True),
    "torch.cat(tensor=[a])": (_ARITY, True),
    "torch.linspace(0, 1)": (_ARITY, True),
    "torch.tensor()": (_ARITY, True),
    "a.unsqueeze()": (_ARITY, True),
    "torch.add(a)": (_OVERLOADS, True),
    "nn.Conv2d(1, 2, 3)(None)": (_OVERLOADS, True),
    'a.clamp_(min="a")': (_OVERLOADS, True),
    "a.to(3.5)": ("PyTorch takes it for no argument at all", False),
    '__import__("numpy").array(x)': ("PyTorch's `__array__` does not know the argument `copy`", True),
    '__import__("numpy").sum(x * 2)': ("here NumPy's argument `axis` is known", False),
    r"class Old(torch.autograd.Function): forward = lambda self, x: x * 2\nOld()(x)": ("the form of 2017", True),
    'torch.load(__import__("io").BytesIO(b""))': ("PyTorch's message is empty", True),
    'torch.load(__import__("io").BytesIO(b"this is no checkpoint"))': (
        "PyTorch's is a slip: pop from empty list",
        False,
    ),
}


@pytest.fixture(autouse=True, scope="module")
def every_time() -> Iterator[None]:
    """Warnings that come once in a process come each time."""
    torch.set_warn_always(True)
    tabtorch.set_warn_always(True)
    yield
    torch.set_warn_always(False)
    tabtorch.set_warn_always(False)


@cache
def wanted(source: str) -> dict[str, Any]:
    return said(source, torch)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("source", [source for _, source in ROWS])
def test_what_pytorch_says(source: str, device: str) -> None:
    want, got = wanted(source), said(source, tabtorch, device)
    reason, same_type = DIFFERS.get(source, ("", True))
    if reason:
        assert got != want, "it is said as PyTorch says it: take it off the list"
        assert not same_type or got["type"] == want["type"]
    else:
        assert got == want


def test_the_list_is_of_rows() -> None:
    assert DIFFERS.keys() <= {source for _, source in ROWS}
    assert len(ROWS) > 600 and len({source for _, source in ROWS}) == len(ROWS)


# ---- two devices, in the words of CUDA


@pytest.mark.usefixtures("webgpu")
@pytest.mark.parametrize(("source", "words"), TWO_DEVICES)
def test_two_devices(source: str, words: str) -> None:
    here = names(tabtorch) | {"g": tabtorch.ones(2, 3, device="webgpu"), "c": tabtorch.ones(2, 3, device="cpu")}
    with pytest.raises(RuntimeError) as caught:
        exec(source.replace("\\n", "\n"), here)
    assert str(caught.value).replace("webgpu", "cuda").replace("WEBGPU", "CUDA") == words
    assert caught.value.__cause__ is None and caught.value.__suppress_context__ or caught.value.__context__ is None


# ---- what is printed


PRINTED = """
import tabtorch; tabtorch.install()
import traceback
from mistakes import ROWS, names
import torch

own = 0
for name, source in ROWS:
    here = {**names(torch), "device": "cpu"}
    try:
        exec(compile(source.replace("\\\\n", "\\n"), "mistake.py", "exec"), here)
    except Exception as e:
        text = "".join(traceback.format_exception(e))
        if "During handling" in text or "direct cause" in text:
            own += 1
            print(source, "|", " ".join(line for line in text.splitlines() if "Error" in line))
print(own)
"""


def test_no_error_prints_another_first() -> None:
    """Not what went wrong inside, unless PyTorch chains its errors too."""
    told = {}
    for install in ("import tabtorch; tabtorch.install()\n", ""):
        text = PRINTED.replace("import tabtorch; tabtorch.install()\n", install)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", text],
            capture_output=True,
            text=True,
            cwd="tests",
            timeout=300,
            check=False,
            env={**os.environ, "PYTHONPATH": "../py:.", "TABTORCH_DEVICE": "cpu"},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        told[bool(install)] = {line.split(" | ")[0]: line for line in done.stdout.splitlines()[:-1]}
    found = [line for source, line in told[True].items() if source not in told[False]]
    assert not found, "\n".join(found)
