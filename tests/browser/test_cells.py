"""Cells: `# %%` lines in a script, run one by one in one namespace, each with its own output."""

from __future__ import annotations

from typing import Any

import pytest

from browser.pages import Editor
from browser.test_accessible import findings

SCRIPT = '''"""Three cells, and what comes before them."""
import torch

# %% First
x = torch.arange(3)
text = """
# %% no cell: this is a string
"""
print("one")
x * 2

# %%
def fails(n):
    return x[n]

x = x + 10
x.sum().item();

# %% [markdown]
# Some *words*

# %% Last
print(x.tolist())
fails(7)
'''


class Cells:
    """The cells in the editor."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.page = editor.page

    def press(self, index: int, act: str = "run") -> None:
        self.page.locator(f".cell-bar[data-index='{index}'] [data-act={act}]").click()

    def run(self, index: int, act: str = "run") -> None:
        """Press a button of a cell, and wait for the end of what it runs."""
        runs = self.numbers()
        self.press(index, act)
        self.settle(runs)

    def settle(self, before: list[str]) -> None:
        self.page.wait_for_function(
            """before => {
              const all = [...document.querySelectorAll(".cell-status")];
              const numbers = all.map((each) => each.textContent.split(" ")[0]);
              return String(numbers) !== String(before) && !all.some((e) => /waiting|running/.test(e.dataset.progress));
            }""",
            arg=before,
            timeout=60_000,
        )
        self.editor.wait()

    def numbers(self) -> list[str]:
        """Of the runs that the cells show."""
        return [status.split(" ")[0] for status in self.statuses()]

    def statuses(self) -> list[str]:
        texts: list[str] = self.page.locator(".cell-status").all_text_contents()
        return texts

    def outputs(self) -> list[str]:
        """What is shown below cells that have run."""
        self.page.evaluate("() => new Promise((done) => setTimeout(done, 120))")
        texts: list[str] = self.page.locator(".cell-output").all_text_contents()
        return texts

    def cursor(self, line: int) -> None:
        """Put the cursor at the start of this line."""
        self.page.locator(".cm-content").evaluate(
            """(e, line) => {
              const { view } = e.cmTile;
              view.dispatch({ selection: { anchor: view.state.doc.line(line).from } });
              view.focus();
            }""",
            line,
        )

    def line(self) -> int:
        """The line of the cursor."""
        number: int = self.page.locator(".cm-content").evaluate(
            "e => { const { state } = e.cmTile.view; return state.doc.lineAt(state.selection.main.head).number; }"
        )
        return number


@pytest.fixture
def cells(editor: Editor) -> Any:
    yield Cells(editor)
    editor.write("")  # the other tests have scripts without cells


def test_run_all_and_one_by_one(cells: Cells) -> None:
    editor, page = cells.editor, cells.page
    editor.write(SCRIPT)
    assert page.locator("#run").inner_text().split() == ["▶", "Run", "all"]
    assert page.locator(".cell-bar").evaluate_all("all => all.map(e => e.ariaLabel)") == [
        "cell 1",
        "cell 2: First",
        "cell 3",
        "cell 4",
        "cell 5: Last",
    ]
    page.click("#run")
    cells.settle([])
    assert cells.outputs()[:3] == ["", "one\ntensor([0, 2, 4])\n", ""], "the last value is shown, with no ; after it"
    last = cells.outputs()[3]
    assert last.startswith("[10, 11, 12]\nTraceback") and "IndexError" in last
    name = page.locator("#file").inner_text()
    assert f'File "{name} [4]", line 24' in last and f'File "{name} [3]", line 14, in fails\n    return x[n]' in last
    assert page.locator(".failed-line").inner_text() == "    return x[n]"
    assert cells.numbers() == ["[1]", "[2]", "[3]", "[4]"] and "failed" in cells.statuses()[3]
    assert editor.state.startswith("Ended with status 1")

    cells.run(2)  # x is what the run left, and grows
    cells.run(4)
    assert cells.outputs()[3].startswith("[20, 21, 22]\n")
    assert cells.numbers() == ["[1]", "[2]", "[5]", "[6]"]
    assert findings(page) == {}
    assert editor.enter("x").endswith("\ntensor([20, 21, 22])\n"), "the prompt has the same namespace"
    cells.run(2, "above")
    assert cells.numbers() == ["[7]", "[8]", "[5]", "[6]"]
    page.click("#run")  # all again, from a clean start
    cells.settle(["[7]", "[8]", "[5]", "[6]"])
    assert cells.outputs()[3].startswith("[10, 11, 12]\n")


def test_outputs_stay_with_their_cells(cells: Cells) -> None:
    editor, page = cells.editor, cells.page
    editor.write("# %% A\nprint('a')\n# %% B\ndef f():\n    return 1 / 0\nprint('b')\n# %% C\nf()\n")
    page.click("#run")
    cells.settle([])
    cells.cursor(2)
    page.keyboard.press("Home")
    page.keyboard.insert_text("# another line\n")
    assert [text.split("\n")[0] for text in cells.outputs()] == ["a", "b", "Traceback (most recent call last):"]
    assert ["changed since" in status for status in cells.statuses()] == [True, False, False]
    assert page.locator(".failed-line").count() == 0, "what failed is marked until the text changes"
    cells.run(2)
    assert "line 5, in f\n    return 1 / 0" in cells.outputs()[2], "f as it was when it ran"
    assert page.locator(".failed-line").inner_text() == "    return 1 / 0", "where that is by now"
    cells.run(0)
    assert ["changed since" in status for status in cells.statuses()] == [False, False, False]
    cells.cursor(1)
    for _ in range(3):
        page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Delete")
    assert [text.split("\n")[0] for text in cells.outputs()] == ["b", "Traceback (most recent call last):"]
    page.click("#clear")
    assert page.locator(".cell-output, .cell-status").count() == 0


def test_keys(cells: Cells) -> None:
    editor, page = cells.editor, cells.page
    editor.write("# %% A\na = 1\nprint('a')\n# %% B\nprint('b', a)\n# %% C\nfor _ in range(100): print('c', a)\n")
    cells.cursor(2)
    # three at once: they wait for each other
    for _ in range(3):
        page.keyboard.press("Shift+Enter")
    page.wait_for_function("document.querySelectorAll('.cell-status[data-progress=done]').length === 3")
    editor.wait()
    assert [text.split("\n")[0] for text in cells.outputs()] == ["a", "b 1", "c 1"]
    assert cells.line() == 7
    page.keyboard.press("Alt+PageUp")
    assert cells.line() == 5
    before = cells.numbers()
    page.keyboard.press("ControlOrMeta+Enter")
    cells.settle(before)
    after = cells.numbers()
    assert cells.line() == 5 and [a == b for a, b in zip(after, before)] == [True, False, True]
    page.keyboard.press("ControlOrMeta+Shift+Enter")
    cells.settle(after)
    before = cells.numbers()
    assert [a == b for a, b in zip(after, before)] == [False, True, True]
    page.keyboard.press("Alt+Enter")
    page.keyboard.insert_text("new = 2")
    cells.settle(before)
    assert "print('b', a)\n\n# %%\nnew = 2\n# %% C" in editor.code
    # Escape, then Tab: the buttons of this cell, then its output, and no other cell's buttons
    page.keyboard.press("Escape")  # the list of completions, if one is on its way
    page.keyboard.press("Escape")
    names = []
    for _ in range(3):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.ariaLabel"))
    assert "Run cell 3" in names
    scrolls = page.locator(".cell-output").last.evaluate("e => e.scrollHeight > e.clientHeight && e.tabIndex === 0")
    assert scrolls, "what is long is scrolled in its place"


def test_stop_input_and_the_pane(cells: Cells) -> None:
    editor, page = cells.editor, cells.page
    editor.write(
        "# %%\nkept = 1\nprint('on')\nwhile True: pass\n# %%\nprint('never')\n# %%\nprint(input('name? ') + '!')\n"
    )
    page.click("#run")
    page.locator(".cell-output", has_text="on").wait_for()  # before, there would be nothing to interrupt
    cells.press(1)
    editor.stop()
    assert "KeyboardInterrupt" in cells.outputs()[0] and "never" not in "".join(cells.outputs())
    assert editor.enter("kept").endswith("\n1\n")
    cells.press(2)
    page.locator(".cell-output .ask").fill("Ada")
    page.keyboard.press("Enter")
    page.wait_for_selector(".cell-status[data-progress=done]")
    assert cells.outputs()[-1] == "name? Ada\nAda!\n"
    page.click("#below")
    cells.run(1)
    assert editor.output.endswith("] # %%\nnever\n") and "never" not in "".join(cells.outputs())
    page.click("#below")


def test_without_cells_all_is_as_before(cells: Cells) -> None:
    editor, page = cells.editor, cells.page
    output = editor.run("'not shown'\nprint('#  %%not')\n", keys="Shift+Enter")
    assert output == "#  %%not\n" and page.locator(".cell-bar").count() == 0
    assert page.locator("#run").inner_text().split() == ["▶", "Run"]
    assert page.locator("#below").is_hidden()
