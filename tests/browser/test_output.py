"""What a script prints, however much: the page answers, what is dropped is said, and memory is bounded."""

from __future__ import annotations

import re

import pytest

from browser.pages import Editor

# The longest time between two turns of the page's own, from now until it is asked.
WATCH = """() => {
  window.longest = 0;
  let last = performance.now();
  window.watch = setInterval(() => {
    const now = performance.now();
    window.longest = Math.max(window.longest, now - last);
    last = now;
  }, 5);
}"""
LONGEST = "() => { clearInterval(window.watch); return window.longest; }"
SLOW = 16  # what a machine, with others at work on it, may be slower than the one for which the figures are; a page that froze took minutes


def dropped(output: str) -> int:
    """How many lines the output says it lacks."""
    found = re.match(r"… ([\d,]+) lines? dropped\n", output)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.parametrize(("begins", "place"), [("", "#output"), ("# %% a cell\n", ".cell-output pre")])
def test_an_endless_print(editor: Editor, begins: str, place: str) -> None:
    """The page answers all the time, keeps so many lines, and Stop works."""
    page = editor.page
    page.evaluate(WATCH)
    editor.start(f"{begins}x = 1\ni = 0\nwhile True:\n    print('line', i)\n    i += 1\n")
    page.wait_for_function("place => document.querySelector(place)?.textContent.startsWith('… ')", arg=place)
    page.wait_for_timeout(2000)
    editor.stop()
    assert page.evaluate(LONGEST) < 250 * SLOW
    page.wait_for_timeout(120)  # drawn once a frame
    output = str(page.locator(place).evaluate("e => e.textContent"))
    lines = re.findall(r"^line (\d+)$", output, re.M)
    assert 4000 < len(lines) <= 5000
    numbers = [int(line) for line in lines]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), "lines are missing among those that are shown"
    assert abs(dropped(output) - numbers[0]) <= 1
    assert output.endswith("KeyboardInterrupt\n")
    assert editor.state.startswith("Ended with status 130")
    assert editor.enter("x, i > 5000").endswith("(1, True)\n")


def test_100_000_lines(editor: Editor) -> None:
    editor.page.evaluate(WATCH)
    output = editor.run("for i in range(100_000):\n    print(f'{i:06d}')\n")
    assert editor.page.evaluate(LONGEST) < 250 * SLOW
    seconds = re.match(r"Done in ([\d.]+) s", editor.state)
    assert seconds and float(seconds[1]) < 5 * SLOW
    lines = output.splitlines()
    assert lines[-1] == "099999" and lines[1] == f"{100_001 - len(lines):06d}"
    assert dropped(output) == 100_001 - len(lines)
    assert editor.run("print('one')") == "one\n"


def test_100_000_lines_of_a_cell(editor: Editor) -> None:
    editor.page.evaluate(WATCH)
    editor.run("# %% many\nfor i in range(100_000):\n    print(f'{i:06d}')\n# %% another\nprint('one')\n")
    assert editor.page.evaluate(LONGEST) < 250 * SLOW
    many, another = editor.page.evaluate(
        "[...document.querySelectorAll('.cell-output pre')].map((log) => log.textContent)"
    )
    lines = many.splitlines()
    assert 4000 < len(lines) <= 5001 and lines[-1] == "099999" and another == "one\n"
    assert dropped(many) == 100_001 - len(lines)


def test_one_line_of_5_mb(editor: Editor) -> None:
    editor.page.evaluate(WATCH)
    output = editor.run("print('begin' + 'x' * 5_000_000)\nprint('after')\n")
    assert editor.page.evaluate(LONGEST) < 250 * SLOW
    assert re.fullmatch(r"beginx{99995} … 4,900,005 characters dropped\nafter\n", output)


def test_what_comes_before_a_long_computation_is_shown(editor: Editor) -> None:
    """Nothing waits for Python to yield."""
    editor.start("for i in range(300):\n    print(i)\nwhile True:\n    pass\n")
    editor.page.wait_for_function("document.getElementById('output').textContent.endsWith('\\n299\\n')")
    editor.stop()


def test_streams_keep_their_order(editor: Editor) -> None:
    code = "import sys\nfor i in range(2000):\n    print(i, file=(sys.stdout, sys.stderr)[i % 2])\n"
    assert editor.run(code) == "".join(f"{i}\n" for i in range(2000))


def asked(editor: Editor, line: str) -> None:
    """Answer where a script asks."""
    field = editor.page.locator("#output .ask")
    field.fill(line)
    field.press("Enter")


def test_input_is_a_field(editor: Editor) -> None:
    editor.start("import sys\nname = input('Name: ')\nprint('Hello,', name)\nprint([*sys.stdin])\n")
    asked(editor, "Ada ✓")
    asked(editor, "more")
    editor.page.locator("#output .ask").press("Control+d")
    editor.wait()
    assert editor.output == "Name: Ada ✓\nHello, Ada ✓\nmore\n\n['more\\n']\n"
    assert editor.page.locator("#output .ask").count() == 0


def test_exit_is_said_and_input_works_afterwards(editor: Editor) -> None:
    assert (
        editor.run("print('first')\nexit(3)\nprint('never')\n") == "first\nPython was asked to exit, with status 3.\n"
    )
    assert editor.state.startswith("Ended with status 3")
    assert editor.run("quit()\n").endswith("with status 0.\n")
    editor.start("print(input() * 2)\n")
    asked(editor, "ab")
    editor.wait()
    assert editor.output == "ab\nabab\n"
