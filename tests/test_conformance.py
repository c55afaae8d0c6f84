"""A slice of the conformance run (`make conformance`): every operator of PyTorch's table, a few samples of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torch.testing._internal.common_optimizers import optim_db

from conformance import checks, left_out, modules
from conformance.checks import Answer

ROOT = Path(__file__).parents[1]


def _expect(a: Answer) -> None:
    if a.failed:
        reason = left_out.reason(a)
        assert reason, "\n".join(f"{sample}\n  {why}" for sample, why in a.failures)
        pytest.skip(reason)


def _asked(check: str) -> list[str]:
    return [n for n, op in checks.operators().items() if (check, "float32") in checks.asked(op, "cpu")]


@pytest.mark.parametrize("name", _asked("forward"))
def test_forward(name: str, device: str) -> None:
    _expect(checks.answer(name, device, "forward", "float32", limit=2))


@pytest.mark.parametrize("name", _asked("gradient"))
def test_gradient(name: str, device: str) -> None:
    _expect(checks.answer(name, device, "gradient", "float32", limit=1))


def test_page() -> None:
    """The page has every operator, and names a reason for each that does not pass."""
    page = (ROOT / "COMPATIBILITY.md").read_text(encoding="utf-8").replace("\\_", "_")
    table = page[page.index("## Every operator") :]
    rows = re.findall(r"^\| (?:\[([^\]]+)\]\([^)]*\)|([^|]+?)) \|(.*)\|$", table, re.MULTILINE)
    found = {a or b: cells for a, b, cells in rows if (a or b) not in ("operator", "---")}
    assert set(found) == {n for n, op in checks.operators().items() if checks.asked(op, "cpu")}
    why = page[page.index("## What does not pass") : page.index("## Outliers")]
    for name, cells in found.items():
        if "/" in "|".join(cells.split("|")[:7]):
            assert re.search(rf"[| ]{re.escape(name)}[,| ]", why), f"{name} does not pass whole, and no reason is given"


def test_page_of_modules_and_optimizers() -> None:
    """They have every one of PyTorch's tables, and pass as far as the page's words say."""
    page = (ROOT / "COMPATIBILITY.md").read_text(encoding="utf-8")
    tables = page[page.index("## Modules") : page.index("## Every operator")]
    found = set(re.findall(r"^\| \[([^\]]+)\]", tables, re.MULTILINE))
    assert found == {*modules.infos(), *(x.name for x in optim_db)}


def test_a_wrong_result_fails(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """The harness sees a wrong value, a wrong gradient, a missing error and a missing function."""
    import tabtorch

    sin = tabtorch.sin
    monkeypatch.setattr(tabtorch, "sin", lambda x, **kw: sin(x, **kw) + 1e-4 * x)
    for check in ("forward", "gradient", "reference"):
        assert checks.answer("sin", device, check, "float32", limit=1).failed
    monkeypatch.setattr(tabtorch, "cat", lambda tensors, dim=0, **kw: tensors[0])
    assert checks.answer("cat", device, "errors", "float32").failed
    monkeypatch.setattr(tabtorch, "cos", None)
    assert checks.answer("cos", device, "forward", "float32").failed
