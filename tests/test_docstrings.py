"""PyTorch's docstrings as a test: how examples are read and compared, and a slice of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.docstrings import Docstring, Library, judge, same, statements


def sources(text: str) -> list[str]:
    import ast

    return [ast.unparse(node) for node, _ in statements(text)]


def test_reads_examples_as_pytorch_writes_them() -> None:
    text = """
        >>> a = torch.tensor([1,
        ...                   2])
        >>> a
        tensor([1, 2])
        >>> for i in range(2):
        >>>     print(i)
        >>> class A:
        ...     x = 1

        Words.

        >>> this is no Python
        >>> a + 1  # but this is
    """
    assert sources(text) == [
        "a = torch.tensor([1, 2])",
        "a",
        "for i in range(2):\n    print(i)",
        "class A:\n    x = 1",
        "a + 1",
    ]
    assert statements(text)[1][1] == "tensor([1, 2])"


@pytest.mark.parametrize(
    ("want", "got", "equal"),
    [
        ("tensor([1., 2.])", "tensor([1.0000, 2.0000])", True),
        ("tensor([1., 2.])", "tensor([1, 2])", False),
        ("tensor([1.0000, 2.0000])", "tensor([1.0002, 2.0000])", True),
        ("tensor([1.0000, 2.0000])", "tensor([1.0100, 2.0000])", False),
        ("tensor([100, 200])", "tensor([100, 201])", False),
        ("tensor([1.], grad_fn=<MulBackward0>)", "tensor([1.], grad_fn=<AddBackward0>)", False),
        ("tensor([1.])", "tensor([1.], device='webgpu:0')", True),
        ("tensor([1.])", "tensor([1.],\n       device='webgpu:0')", True),
        ("tensor([nan, inf])", "tensor([nan, -inf])", False),
        ("tensor([-4.0000+0.j, 1.0000+2.j])", "tensor([-4.-1.7764e-16j, 1.+2.0000e+00j])", True),
        ("tensor(1.6e-07)", "tensor(2.1e-07)", True),
        ("tensor([1.6e-07, 1.6e-07])", "tensor([2.1e-07, 1.6e-07])", False),
    ],
)
def test_same_text(want: str, got: str, equal: bool) -> None:
    assert same(want, got) is equal


def test_a_slice_of_the_docstrings() -> None:
    """Some of those that are quick to run, whole."""
    wanted = ["torch.fft.rfft", "torch.linalg.vander", "torch.nn.Unflatten", "torch.scatter", "torch.signal.windows.*"]
    done = subprocess.run(
        [sys.executable, "-m", "conformance.docstrings", *wanted, "--device", "cpu"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    totals = re.search(r"^all +cpu +examples +(\d+) of +(\d+)", done.stdout, re.M)
    assert totals and int(totals[1]) == int(totals[2]) > 30, done.stdout


def test_what_pytorch_cannot_run_is_not_counted() -> None:
    doc = Docstring("torch", "torch.example", ">>> nowhere.defined\n>>> torch.ones(1).cuda()\n>>> 1 + 1\n2")
    theirs = Library()
    try:
        want = theirs.ask(doc)
    finally:
        theirs.end()
    assert [w.kind for w in want] == ["skipped", "skipped", "value"]
    assert [x.ok for x in judge(doc, "cpu", want, want)] == [True]


def test_what_rounding_decides_is_not_counted() -> None:
    """Where PyTorch says other than its docstring; a False of tabtorch alone is a failure."""
    doc = Docstring("torch", "torch.example", ">>> 1 > 2\nTrue\n>>> 1 < 2\nTrue\n>>> 1 < 2\n>>> 'True'\nFalse")
    theirs = Library()
    try:
        want = theirs.ask(doc)
    finally:
        theirs.end()
    assert [w.kind for w in want] == ["skipped", "value", "value", "value"]
    got = [want[0], want[1]._replace(kind="skipped", text="False"), *want[2:]]
    assert [x.ok for x in judge(doc, "cpu", want, got)] == [False, True, True]
