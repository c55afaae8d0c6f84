"""Both pages for everyone: axe has nothing to say of them, and nothing is wider than a phone."""

from __future__ import annotations

import re
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


CELLS = """# %% a long line, and many
import torch
print("x" * 5000)
for i in range(100):
    print(i)
# %% an error
1 / 0
"""


def test_the_page(editor: Editor) -> None:
    page = editor.page
    editor.run("open('a.txt', 'w')\nfor i in range(100):\n    print(i, 'x' * 200)\n1 / 0\n")
    page.click("#files")
    page.wait_for_selector("#folder li")
    page.click("#share")
    page.wait_for_selector("#shared:not([hidden])")
    assert findings(page) == {}
    page.click("#shared-close")
    page.get_by_role("button", name="Delete: a.txt").click()
    page.click("#files")
    page.click("#menu")
    page.click("#actions [data-act=history]")
    page.wait_for_selector("#versions[open]")
    assert findings(page) == {}
    page.keyboard.press("Escape")
    editor.run(CELLS)
    page.locator(".cm-content").focus()
    page.keyboard.press("ControlOrMeta+f")
    page.keyboard.press("Escape")
    page.keyboard.press("ControlOrMeta+End")
    page.keyboard.type("torch.rand")
    page.wait_for_selector(".cm-tooltip-autocomplete li")
    page.keyboard.press("ControlOrMeta+f")
    assert findings(page) == {}
    page.keyboard.press("Escape")


SHOWS = """import tabtorch
open("a file with a name that is longer than a phone is wide, as some are.txt", "w").close()
tabtorch.plot("loss", [3.0, 2.0, 1.0])
tabtorch.show([[0.0, 1.0], [1.0, 0.0]], title="a picture")
tabtorch.slider("speed", 0, 10)
tabtorch.button("again")
tabtorch.pad("digit")
tabtorch.canvas(8, 8).draw([[1.0] * 8] * 8)
"""


def test_what_opens_and_what_is_shown(editor: Editor) -> None:
    page = editor.page
    editor.write("# %% what is shown when the other is deleted\nx = 1  # a comment\n")
    page.keyboard.press("ControlOrMeta+Home")  # the line with the cursor has a colour of its own
    assert findings(page) == {}, "a marked line"
    page.click("#new")
    editor.run(SHOWS)
    page.wait_for_selector(".chart canvas")
    page.wait_for_selector(".control.canvas canvas")
    page.click("#files")
    page.wait_for_selector("#folder li")
    page.click("#share")
    for form in ("frame", "tag"):
        page.select_option("#shared-form", form)
        assert findings(page) == {}, form
    page.click("#shared-close")
    page.get_by_role("button", name=re.compile("^Delete: a file")).click()
    page.wait_for_selector("#notice:not([hidden])")
    page.click("#menu")
    assert findings(page) == {}, "the menu, and a notice"
    page.click("#actions [data-act=rename]")
    assert findings(page) == {}, "a name is asked for"
    page.keyboard.press("Escape")
    page.click("#files")
    page.click("#gallery-open")
    page.wait_for_function("document.querySelector('#gallery img').complete")
    assert findings(page) == {}, "the gallery"
    page.keyboard.press("Escape")
    page.click("#menu")
    page.click("#actions [data-act=remove]")
    assert findings(page) == {}, "a script is deleted, which can be undone"
    page.click("#notice [aria-label=Close]")


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
        assert findings(page) == {}, tab
    page.click("#inspect")


def test_pages_that_show_nothing(running: Any, address: str) -> None:
    page = running.new_page()
    for name in ("run", "cells"):
        page.goto(f"{address}{name}.html")
        assert findings(page) == {}, name
    page.close()


def test_the_keyboard_leaves_the_editor_and_it_says_how(editor: Editor) -> None:
    page = editor.page
    editor.write("x = 1\n")  # a cell has buttons and an output, which come next
    assert page.locator("#keys").inner_text().startswith("Esc then Tab leaves the editor")
    assert page.locator(".cm-content").get_attribute("aria-describedby") == "keys"
    page.keyboard.press("Tab")  # which indents
    assert page.evaluate("document.activeElement.className").startswith("cm-content")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert not page.evaluate("document.activeElement.closest('.cm-editor')")
    assert page.locator("#keys").is_hidden()


def test_lines_from_right_to_left(editor: Editor) -> None:
    editor.run(
        "print('abc שלום')\nprint('12: שלום abc')\nprint('\\x1b[31mمرحبا\\x1b[0m')\nprint('ש' * 500)\nprint(1)\n"
    )
    places = editor.page.evaluate("""() => {
      const scroller = document.getElementById("scroller");
      const { left, right } = document.getElementById("output").getBoundingClientRect();
      return [...document.querySelectorAll("#output [dir=rtl]")].map((line) => {
        const range = document.createRange();
        range.selectNodeContents(line);
        const text = range.getBoundingClientRect();
        return [line.textContent.trim().slice(0, 9), text.right >= right - 2, text.left >= left - 1];
      });
    }""")
    assert [text for text, *_ in places] == ["12: שלום ", "مرحبا", "ש" * 9]
    assert all(at_right and in_reach for _, at_right, in_reach in places), places
    assert editor.output == "abc שלום\n12: שלום abc\nمرحبا\n" + "ש" * 500 + "\n1\n"


SMALL = """() => [...document.querySelectorAll("button, select, input, a, label, li[role=option]")]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest("td, p, dialog") && e.type !== "checkbox")
  .map((e) => [e.textContent || e.ariaLabel || e.name, e.getBoundingClientRect()])
  .filter(([, { width, height }]) => width && (width < 43.5 || height < 43.5))
  .map(([name, { width, height }]) => `${name}: ${width} x ${height}`)"""


def test_on_a_phone_fingers_hit_and_the_output_is_seen(running: Any, address: str, name: str) -> None:
    if name == "firefox":
        pytest.skip("Playwright gives it no touch screen")
    phone = {"width": 390, "height": 420}  # what a keyboard leaves
    context = running.new_context(viewport=phone, has_touch=True, is_mobile=True, reduced_motion="reduce")
    editor = Editor(context.new_page(), address)
    page = editor.page
    editor.load()
    page.tap("#new")
    page.tap("#files")
    page.tap("#share")
    page.locator(".cm-content").focus()
    page.keyboard.press("ControlOrMeta+f")
    assert page.evaluate(SMALL) == []
    page.tap("#files")
    page.tap("#shared-close")
    editor.write("for i in range(20):\n    print(i)\nprint('the end')\n")
    page.locator(".cm-content").focus()
    page.tap("#run")
    page.locator("#output", has_text="the end").wait_for()
    editor.wait()
    places = page.evaluate("""() => {
      const { top, bottom } = document.getElementById("scroller").getBoundingClientRect();
      return [top, bottom, innerHeight];
    }""")
    assert 0 <= places[0] < 200 and not page.evaluate("document.activeElement.closest('.cm-editor')"), places
    assert page.get_by_text("Output", exact=True).is_visible()
    page.goto(f"{address}compatibility.html")
    page.wait_for_selector("#count:not(:empty)")
    assert page.evaluate(SMALL) == []
    context.close()


def test_the_compatibility_page(compatibility: Any) -> None:
    # axe takes ten seconds for a thousand rows, which are all alike
    compatibility.evaluate("document.querySelectorAll('tbody tr:nth-child(n + 40)').forEach((row) => row.remove())")
    assert findings(compatibility) == {}


def test_the_page_of_benchmarks(running: Any, address: str) -> None:
    page = running.new_page()
    page.goto(f"{address}benchmarks.html")
    assert page.locator("tbody tr").count() > 40
    assert findings(page) == {}
    page.close()


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
