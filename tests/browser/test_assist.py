"""The editor knows what the interpreter knows: completion, documentation of names, and nothing while that is busy."""

from __future__ import annotations

from typing import Any

import pytest

from browser.pages import Editor

SETUP = """import torch, torch.nn as nn
torch.manual_seed(0)

class Net(nn.Module):
    "Adds one.\\n\\nAnd no more."
    asked = 0

    def forward(self, x):
        Net.asked += 1
        return x + 1

    @property
    def costly(self):
        Net.asked += 1

def halve(x, *, twice: bool = False):
    "Half of it.\\n\\nOr a quarter."

net, x, lstm, table = Net(), torch.ones(2, 3), nn.LSTM(2, 3), {"alpha": 1}
state = torch.get_rng_state().sum().item()
"""
OPTIONS = ".cm-tooltip-autocomplete li"


class Assisted:
    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.page = editor.page

    def type(self, text: str) -> None:
        """Write this on a line of its own, at the end of the script."""
        if self.page.locator(OPTIONS).count():
            self.page.keyboard.press("Escape")
        self.page.locator(".cm-content").evaluate(
            """(e) => {
              const { view } = e.cmTile;
              const { length } = view.state.doc;
              view.dispatch({ changes: { from: length, insert: "\\n" }, selection: { anchor: length + 1 } });
              view.focus();
            }"""
        )
        self.page.keyboard.type(text)

    def offers(self, text: str) -> list[str]:
        self.type(text)
        word = text[len(text.rstrip("abcdefghijklmnopqrstuvwxyz_")) :]
        self.page.wait_for_function(
            """([options, word]) => {
              const labels = [...document.querySelectorAll(options + " .cm-completionLabel")].map((e) => e.textContent);
              return labels.length && labels.every((label) => label.toLowerCase().startsWith(word));
            }""",
            arg=[OPTIONS, word],
        )
        labels: list[str] = self.page.locator(f"{OPTIONS} .cm-completionLabel").all_text_contents()
        return labels

    @property
    def line(self) -> str:
        """The last line of the script."""
        return self.editor.code.split("\n")[-1]

    def told(self, name: str) -> tuple[str, str]:
        """What F1 says of the name at the end of the line."""
        self.type(name)
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("F1")
        self.page.wait_for_selector(".cm-about")
        heading: str = self.page.locator(".cm-about code").inner_text()
        text: str = self.page.locator(".cm-about p").text_content()
        return heading, text


@pytest.fixture
def assisted(editor: Editor) -> Any:
    editor.run(SETUP)
    yield Assisted(editor)
    editor.page.keyboard.press("Escape")
    editor.write("")


def test_completion(assisted: Assisted) -> None:
    page = assisted.page
    for expression in ("x", "torch.randn(3)", "net(x)", "nn.Linear(2, 3)(x)", "net(x).relu()"):
        assert {"sum", "sub"} <= {*assisted.offers(f"{expression}.su")}, expression
    assert "append" not in assisted.offers("lstm(x).c"), "a tuple"
    assert assisted.offers("net.co")[0] == "costly"
    assert assisted.offers("ha")[0] == "halve", "what is defined comes before what is built in"
    assert "twice=False" in page.locator(OPTIONS).first.inner_text()
    page.keyboard.press("Tab")
    assert assisted.line == "halve"
    assert "later_on" in assisted.offers("later_on = 1\nlat"), "a name that has not run yet"
    page.keyboard.press("Enter")
    page.keyboard.type("1")
    assert assisted.line == "1", "Enter ends the line"
    assisted.offers("x.cums")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert assisted.line == "x.cumsum"
    assisted.type("# x.su")
    assisted.editor.page.evaluate("() => new Promise((done) => setTimeout(done, 300))")
    assert page.locator(OPTIONS).count() == 0, "in a comment"
    page.keyboard.press("Escape")
    assert assisted.editor.enter("Net.asked, torch.get_rng_state().sum().item() == state").endswith("(0, True)\n")


def test_documentation(assisted: Assisted) -> None:
    page = assisted.page
    assert assisted.told("halve") == ("halve(x, *, twice=False)", "Half of it.")
    heading, text = assisted.told("x.cumsum")
    assert heading.startswith("cumsum(dim") and "sum" in text
    assert assisted.told("x")[0].startswith("x: Tensor [2, 3] torch.float32 on ")
    assert assisted.told("net") == ("net: Net", "Adds one.")
    assert assisted.told("table")[0] == "table: dict of 1"
    assert assisted.told("nn.Linear")[0].startswith("class Linear(in_features, out_features")
    page.keyboard.press("Escape")
    assert page.locator(".cm-about").count() == 0
    page.locator(".cm-line", has_text="def halve").locator("span", has_text="halve").first.hover()
    page.wait_for_selector(".cm-about")
    assert page.locator(".cm-about code").inner_text() == "halve(x, *, twice=False)"
    assert assisted.editor.enter("Net.asked").endswith("\n0\n")


def test_while_python_is_busy(assisted: Assisted) -> None:
    """What is offered then is what the script says; the editor waits for nothing."""
    assisted.editor.start("zebra_count = 1\nwhile True: pass\n")
    assert assisted.offers("zebra_") == ["zebra_count"]
    assert "while" in assisted.offers("whi")
    assisted.page.keyboard.press("Escape")
    assert assisted.page.locator(OPTIONS).count() == 0 and assisted.editor.state == "Running", "it closed the list only"
    assisted.editor.stop()
