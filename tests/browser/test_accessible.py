"""Both pages for everyone: axe has nothing to say of them, and nothing is wider than a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.pages import Editor

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
CHECK = """async (part) => {
  const { violations } = await axe.run(part);
  return violations.map(({ id, nodes }) => [id, ...nodes.map((node) => node.html.slice(0, 200))]);
}"""
SIZES = {"desktop": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}


def findings(page: Any, part: str = "html") -> dict[str, Any]:
    """What axe finds in a part of the page, and how much wider than the window the page is, on each size in light and dark."""
    if page.evaluate("!window.axe"):
        page.evaluate(AXE.read_text())  # a script in the page is not allowed there
    found = {}
    for size, viewport in SIZES.items():
        page.set_viewport_size(viewport)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # colours change at once
            found[f"{size}, {scheme}"] = page.evaluate(CHECK, part)
        found[f"{size}, too wide"] = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    page.set_viewport_size(SIZES["desktop"])
    page.emulate_media(color_scheme=None, reduced_motion=None)
    return {where: what for where, what in found.items() if what}


@pytest.fixture
def compatibility(running: Any, address: str) -> Iterator[Any]:
    page = running.new_page()
    page.goto(f"{address}compatibility.html")
    page.wait_for_selector("#count:not(:empty)")
    yield page
    page.close()


def test_the_page(editor: Editor) -> None:
    page = editor.page
    editor.run("open('a.txt', 'w')\nfor i in range(100):\n    print(i, 'x' * 200)\n1 / 0\n")
    page.click("#files")
    page.wait_for_selector("#folder li")
    assert findings(page) == {}
    page.get_by_role("button", name="Delete: a.txt").click()
    page.click("#files")
    page.click("#menu")
    page.click("#actions [data-act=history]")
    page.wait_for_selector("#versions[open]")
    assert findings(page) == {}
    page.keyboard.press("Escape")
    page.locator(".cm-content").focus()
    page.keyboard.press("ControlOrMeta+f")
    assert findings(page) == {}
    page.keyboard.press("Escape")


def test_the_inspector(editor: Editor) -> None:
    page = editor.page
    editor.write("import torch\nw = torch.ones(3, 3, requires_grad=True)\nloss = (w @ w).sum()\nprint(loss.item())\n")
    page.click("#inspect")
    page.get_by_role("tab", name="Profile").click()
    page.get_by_role("button", name="Run with profile").click()
    page.wait_for_selector(".kernels", timeout=90_000)
    page.locator(".kernels tbody button").first.click()
    assert findings(page) == {}
    page.get_by_role("tab", name="Autograd").click()
    page.get_by_role("button", name="Draw").click()
    page.wait_for_selector(".graph svg", timeout=30_000)
    for tab in ("Autograd", "Live", "Device"):
        page.get_by_role("tab", name=tab).click()
        assert findings(page, "#inspector") == {}, tab
    page.click("#inspect")


def test_the_compatibility_page(compatibility: Any) -> None:
    # axe takes ten seconds for a thousand rows, which are all alike
    compatibility.evaluate("document.querySelectorAll('tbody tr:nth-child(n + 40)').forEach((row) => row.remove())")
    assert findings(compatibility) == {}


def test_its_search_knows_the_names_that_code_has(compatibility: Any) -> None:
    everything = compatibility.locator("#count").inner_text()
    for written, found in {
        "F.relu": "nn.functional.relu",
        "torch.nn.functional.relu(": "nn.functional.relu",
        "LSTM": "nn.LSTM",
        "torch.nn.LSTM": "nn.LSTM",
        "Adam": "Adam",
        "torch.optim.AdamW": "AdamW",
        "Tensor.add_": "add",
        "linalg.norm": "linalg.norm",
    }.items():
        compatibility.fill("#name", written)
        shown = compatibility.locator("tbody tr:visible td:first-child").all_inner_texts()
        assert found in shown and len(shown) < 40, written
    compatibility.fill("#name", "no such thing")
    assert compatibility.locator("tbody tr:visible").count() == 0
    compatibility.fill("#name", "")
    assert compatibility.locator("#count").inner_text() == everything
