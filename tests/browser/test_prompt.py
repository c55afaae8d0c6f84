"""The prompt: completion from the running interpreter, lines that start with % ? or !, history search."""

from __future__ import annotations

import re
from typing import Any

import pytest

from browser.pages import Editor

SETUP = """import torch, torch.nn as nn

class Mine:
    asked = 0

    @property
    def costly(self):
        Mine.asked += 1
        return "text"

    def __getattr__(self, name):
        Mine.asked += 1
        raise AttributeError(name)

    def method(self, alpha, *, beta=2):
        "Does it."

class Derived(Mine):
    def own(self): ...

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3)

mine, net, x = Derived(), Net(), torch.ones(3)
table = {"alpha": 1, "beta": [1, 2]}
torch.manual_seed(0)
state = torch.get_rng_state().sum().item()
"""


class Prompt:
    def __init__(self, page: Any) -> None:
        self.page = page
        self.field = page.locator("#repl")

    def type(self, text: str) -> None:
        self.field.click()
        self.field.fill("")
        self.page.keyboard.insert_text(text)

    def offered(self) -> list[str]:
        """What the open list holds, without what is said about it."""
        self.page.wait_for_selector(".choices:not([hidden]) li")
        texts: list[str] = self.page.locator(".choices li").evaluate_all("all => all.map(e => e.firstChild.data)")
        return texts

    def offers(self, text: str) -> list[str]:
        self.type(text)
        self.field.press("Tab")
        offered = self.offered()
        self.field.press("Escape")
        self.page.wait_for_selector(".choices", state="hidden")
        assert self.field.input_value().startswith(text), "Escape has closed the list, and no more"
        return offered

    def completes(self, text: str) -> str:
        """What Tab makes of it where there is one way."""
        self.type(text)
        self.field.press("Tab")
        self.page.wait_for_function("text => document.getElementById('repl').value !== text", arg=text)
        return str(self.field.input_value())


@pytest.fixture
def prompt(editor: Editor) -> Prompt:
    if "mine" not in editor.page.evaluate("window.testing ?? ''"):
        editor.run(SETUP)
        editor.page.evaluate("window.testing = 'mine'")
    return Prompt(editor.page)


def test_attributes_of_what_is_there_and_of_what_would_be(prompt: Prompt, editor: Editor) -> None:
    for expression in (
        "x",
        "torch.randn(3)",
        "(x + 1)",
        "x.T",
        "x[0]",
        "torch.exp(x).reshape(3)",
    ):
        assert {"sum", "sub"} <= {*prompt.offers(f"{expression}.su")}, expression
    assert prompt.completes("torch.randn(3).reshape_") == "torch.randn(3).reshape_as"
    assert prompt.completes("print(net.first.in_f") == "print(net.first.in_features"
    assert prompt.completes("torch.nn.functional.CROSS_E") == "torch.nn.functional.cross_entropy"
    assert prompt.completes("table['beta'].appe") == "table['beta'].append"
    assert "True" in editor.enter("torch.get_rng_state().sum().item() == state"), "a random number was drawn"


def test_nobodys_code_is_run(prompt: Prompt, editor: Editor) -> None:
    offered = prompt.offers("mine.")
    assert offered[:4] == ["own", "asked", "costly", "method"], "its class's own come first"
    assert offered[4:] and all(name.startswith("_") for name in offered[4:]), "private ones come last"
    prompt.type("mine.costly.up")
    prompt.field.press("Tab")
    assert editor.enter("Mine.asked").endswith("\n0\n")


def test_a_list_that_can_be_walked(prompt: Prompt, editor: Editor) -> None:
    prompt.type("x.")
    prompt.field.press("Tab")
    assert len(prompt.offered()) > 50
    rows = editor.page.locator(".choices li")
    box, row = editor.page.locator(".choices ul").bounding_box(), rows.first.bounding_box()
    assert 10 < box["height"] / row["height"] < 13
    assert rows.first.get_attribute("aria-selected") == "true"
    prompt.field.press("ArrowDown")
    chosen = editor.page.locator(".choices li[aria-selected]")
    assert chosen.get_attribute("id") == prompt.field.get_attribute("aria-activedescendant")
    assert chosen.evaluate("e => e.firstChild.data") == prompt.offered()[1]
    editor.page.keyboard.insert_text("cums")
    editor.page.wait_for_function("document.querySelectorAll('.choices li').length < 5")
    assert prompt.offered() == ["cumsum", "cumsum_"]
    assert "dim" in rows.first.inner_text()
    assert "sum" in editor.page.locator(".choices p").inner_text().lower()
    prompt.field.press("Enter")
    assert prompt.field.input_value() == "x.cumsum"
    assert editor.page.locator(".choices").is_hidden()


def test_arguments_keys_and_modules(prompt: Prompt) -> None:
    assert prompt.offers("nn.Linear(2, ")[:3] == ["in_features=", "out_features=", "bias="]
    assert "bias=" not in prompt.offers("nn.Linear(2, bias=True, ")
    assert prompt.completes("mine.method(1, be") == "mine.method(1, beta="
    assert prompt.offers("table[") == ["'alpha']", "'beta']"]
    assert prompt.completes('table["a') == 'table["alpha"]'
    assert {"tokenize", "torch"} <= {*prompt.offers("import to")}
    assert prompt.completes("from torch.nn import LayerN") == "from torch.nn import LayerNorm"
    assert prompt.completes("from xml.dom.minid") == "from xml.dom.minidom"  # which no page has as it starts
    assert prompt.completes("%timei") == "%timeit"


def test_history_search(prompt: Prompt, editor: Editor) -> None:
    editor.enter("first_found = 1")
    editor.enter("second_found = 2")
    editor.enter("other = 3")
    prompt.type("")
    prompt.field.press("Control+r")
    editor.page.keyboard.insert_text("_found")
    editor.page.wait_for_function("document.querySelectorAll('.choices li').length === 2")
    assert prompt.offered() == ["second_found = 2", "first_found = 1"]
    prompt.field.press("Control+r")
    prompt.field.press("Enter")
    assert prompt.field.input_value() == "first_found = 1"


def test_lines_of_notebooks(prompt: Prompt, editor: Editor) -> None:
    assert editor.enter("6 * 7", "_ + 1").endswith("\n43\n")
    assert editor.enter("_, __").endswith("\n(43, 42)\n")
    told = editor.enter("torch.cumsum?")
    assert "torch.cumsum(input, dim" in told and len(told.splitlines()) > 2
    assert "table: dict" in editor.enter("?table")
    assert "is not found" in editor.enter("nothing_like_it?")
    assert "def own(self)" in editor.enter("Derived.own??")
    assert "Wall time: " in editor.enter("%time x.sum()") and "tensor(3." in editor.output
    assert " runs)" in editor.enter("%timeit x + 1")
    who = editor.enter("%who").splitlines()[-1].split()
    assert {"mine", "net", "x", "Net"} <= {*who} and "torch" not in who
    assert "there is no shell" in editor.enter("!ls -l")
    assert "there are %matplotlib, %pip" in editor.enter("%nonsense")
    assert editor.enter("rest = 7 % x.numel()", "rest").endswith("\n1\n")


def test_packages_that_cannot_be_had(prompt: Prompt, editor: Editor) -> None:
    """Nothing is reached from here: the page says what could not be installed, and what to type."""
    nowhere = re.compile(r"https://([\w.]*pypi\.org|cdn\.jsdelivr\.net)/.*")
    editor.page.context.route(nowhere, lambda route: route.abort())
    try:
        for line in ("%pip install funcy", "!pip install funcy"):
            said = editor.enter(line)
            assert "UsageError: funcy could not be installed: " in said and "type `%pip install THAT_NAME`" in said
        said = editor.enter("%pip install toolz")
        assert "UsageError: toolz could not be installed: it is in Pyodide's distribution, which" in said
        assert "installed toolz" not in said
        assert "UsageError: %pip install NAME" in editor.enter("%pip freeze")
    finally:
        editor.page.context.unroute(nowhere)


def test_in_a_script(editor: Editor) -> None:
    editor.page.evaluate("window.testing = ''")
    said = editor.run("import torch\nx = 1\nimport einops_of_nobody\n")
    assert "type `%pip install einops_of_nobody` at the prompt" in said
    assert 'await micropip.install("einops_of_nobody")' in said
    assert editor.page.locator(".failed-line").inner_text() == "import einops_of_nobody"
    said = editor.run("x = 1\n!ls\nprint('never')\n")
    assert "there is no shell" in said and "SyntaxError" not in said and "never\n" not in said
    assert editor.page.locator(".failed-line").inner_text() == "!ls"
    said = editor.run("x = [1]\n%time x.append(2)\nx?\nprint(len(x))\n")
    assert said.startswith("Wall time") and said.endswith("2\n") and "x: list" in said
    assert "line 3" in editor.run("%who\nx = 1\ny = = 2\n"), "other errors are where they are"
