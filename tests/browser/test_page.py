"""The page: editor, output, prompt, Stop, sharing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from browser.pages import WANTED, Editor

FAILING = """import torch


def first(x):
    return second(x)


def second(x):
    return x @ torch.ones(5, 2)


first(torch.ones(2, 3))
"""


def test_it_says_what_it_runs_on(editor: Editor) -> None:
    assert re.match(r"webgpu · \w+", editor.device)
    assert editor.page.locator("#loading").is_hidden()
    assert editor.page.locator("#demos a").count() >= 5


def test_run(editor: Editor) -> None:
    code = """import torch
x = torch.arange(6.0).reshape(2, 3)
print(x * 2)
print(__name__, x.device.type)
"""
    expected = "tensor([[ 0.,  2.,  4.],\n        [ 6.,  8., 10.]], device='webgpu:0')\n__main__ webgpu\n"
    assert re.sub(r", device='\w+(:0)?'", "", editor.run(code)) == re.sub(r", device='\w+(:0)?'", "", expected)
    assert editor.state.startswith("Done in")


@pytest.mark.parametrize("keys", ["Shift+Enter", "Control+Enter"])
def test_keys_run(editor: Editor, keys: str) -> None:
    assert editor.run("print(6 * 7)", keys=keys) == "42\n"
    assert editor.code == "print(6 * 7)"


def test_a_traceback_shows_the_readers_frames(editor: Editor) -> None:
    output = editor.run(FAILING)
    assert output.startswith("Traceback (most recent call last):\n")
    assert re.findall(r"line (\d+), in (\S+)", output) == [("12", "<module>"), ("5", "first"), ("9", "second")]
    assert "    return x @ torch.ones(5, 2)\n" in output
    assert output.endswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 5x2)\n")
    assert editor.state.startswith("Ended with status 1")
    assert editor.page.locator(".failed-line").inner_text().strip() == "return x @ torch.ones(5, 2)"
    assert editor.run("print('on it goes')") == "on it goes\n"


def test_a_syntax_error(editor: Editor) -> None:
    output = editor.run("x = 1\ny = = 2\n")
    assert "line 2" in output and output.endswith("SyntaxError: invalid syntax\n")
    assert editor.page.locator(".failed-line").inner_text() == "y = = 2"


def test_run_starts_afresh_and_the_prompt_shares_it(editor: Editor) -> None:
    editor.run("import torch\nx = torch.ones(3)\n")
    assert "tensor([1., 1., 1.]" in editor.enter("x")
    assert editor.enter("y = x.sum().item()", "y + 1").endswith("4.0\n")
    assert "NameError: name 'x' is not defined" in editor.run("print(x)")


def test_prompt(editor: Editor) -> None:
    editor.run("z = 5\n")
    assert editor.enter("for i in range(3):", "print(i * z)", "").endswith("\n0\n5\n10\n")
    assert "ZeroDivisionError" in editor.enter("1 / 0")
    assert editor.enter("_hidden = 1; z").endswith("\n5\n")
    prompt = editor.page.locator("#repl")
    prompt.press("ArrowUp")
    assert prompt.input_value() == "_hidden = 1; z"
    prompt.press("ArrowUp")
    assert prompt.input_value() == "1 / 0"
    prompt.press("Escape")
    editor.enter("import torch")
    prompt.click()
    editor.page.keyboard.insert_text("torch.nn.functional.cross_entr")
    prompt.press("Tab")
    editor.page.wait_for_function("document.getElementById('repl').value.includes('cross_entropy')")
    prompt.press("Escape")


def test_output_streams_with_colours_and_redraws(editor: Editor) -> None:
    editor.start("""import asyncio
print("\\x1b[31mred\\x1b[0m <b>plain</b>")
for i in range(4):
    print(f"\\rstep {i}", end="", flush=True)
await asyncio.sleep(2)
print("\\nend")
""")
    editor.page.wait_for_function("document.getElementById('output').textContent.includes('step 3')", timeout=5000)
    assert editor.state == "Running"
    editor.wait()
    assert editor.output == "red <b>plain</b>\nstep 3\nend\n"
    assert editor.page.locator("#output .ansi-red-fg").inner_text() == "red"


def test_stop_keeps_the_variables_of_a_script_that_waits(editor: Editor) -> None:
    editor.start("""import torch
kept = torch.ones(2)
x = torch.rand(64, device="cuda")
print("begun", x.sum().item() > 0)
while True:
    x = x * 0.5 + 0.25
    x.sum().item()
""")
    editor.page.wait_for_function("document.getElementById('output').textContent.includes('begun True')", timeout=30000)
    editor.stop()
    assert "KeyboardInterrupt" in editor.output
    assert "variables are gone" not in editor.output
    assert "tensor([1., 1.]" in editor.enter("kept")


@pytest.mark.parametrize("last", ["__del__", "callback"])
def test_an_interrupt_that_meets_a_destructor_is_not_lost(editor: Editor, last: str) -> None:
    output = editor.run(f"""import signal, weakref
class Thing:
    pass
def interrupted(_):
    signal.raise_signal(signal.SIGINT)
thing = Thing()
if {last!r} == "__del__":
    Thing.__del__ = interrupted
else:
    reference = weakref.ref(thing, interrupted)
del thing
while True:
    pass
""")
    assert output.endswith("KeyboardInterrupt\n")
    assert "line 13" in output or "line 12" in output


def test_stop_waits_for_a_script_that_cleans_up(editor: Editor) -> None:
    editor.start("""import asyncio
try:
    print("begun")
    await asyncio.sleep(60)
finally:
    await asyncio.sleep(2)
    kept = "cleaned up"
""")
    editor.page.wait_for_function("document.getElementById('output').textContent.includes('begun')", timeout=30000)
    editor.stop()
    assert "KeyboardInterrupt" in editor.output
    assert "cleaned up" in editor.enter("kept")


@pytest.mark.parametrize("wait", ["asyncio.run(asyncio.sleep(60))", "await asyncio.sleep(60)", "time.sleep(60)"])
def test_stop_ends_a_sleep(editor: Editor, wait: str) -> None:
    editor.start(f"import asyncio, time\nkept = 2\nprint('begun')\n{wait}\n")
    editor.page.wait_for_function("document.getElementById('output').textContent.includes('begun')", timeout=30000)
    editor.stop()
    assert "line 4" in editor.output
    assert editor.output.endswith("KeyboardInterrupt\n")
    assert editor.enter("kept").endswith("\n2\n")


def test_stop_ends_a_script_that_does_not_answer(editor: Editor) -> None:
    slider = "import tabtorch\nslider = tabtorch.slider('Speed', 0, 1)\n"
    loop = "while True:\n    try:\n        while True:\n            pass\n    except KeyboardInterrupt:\n        pass\n"
    editor.start(slider + loop)
    editor.page.get_by_role("slider", name="Speed", disabled=False).wait_for()
    editor.stop()
    assert "its variables are gone" in editor.output
    assert editor.page.get_by_role("slider", name="Speed").is_disabled()  # nobody reads it any more
    assert editor.run("print('again')") == "again\n"


def test_restart(editor: Editor) -> None:
    editor.run("kept = 1")
    editor.page.click("#restart")
    editor.wait()
    assert "NameError" in editor.enter("kept")


def test_an_import_that_cannot_be_fetched_says_so(editor: Editor) -> None:
    editor.page.context.route("https://cdn.jsdelivr.net/**", lambda route: route.abort())
    output = editor.run("try:\n    import snowballstemmer\nexcept ImportError:\n    print('no matter')\nimport toolz\n")
    editor.page.context.unroute("https://cdn.jsdelivr.net/**")
    assert "no matter\nTraceback" in output
    assert "toolz is fetched when a script imports it, and that failed: https://cdn.jsdelivr.net" in output


def test_the_script_is_kept(editor: Editor) -> None:
    editor.write("print('kept')")
    editor.load()
    assert editor.code == "print('kept')"


def test_a_damaged_link(editor: Editor) -> None:
    editor.page.evaluate("location.hash = '#code=%%%'")
    editor.page.wait_for_selector("#notice:not([hidden])")
    assert "damaged" in editor.page.locator("#notice").inner_text()


def test_a_share_link_opens_in_the_other_browser(playwright: Any, editor: Editor, name: str) -> None:
    """Made in one browser, opened in the other: the same code, and it waits."""
    from tabtorch.cli import browsers

    code = "# déjà vu: 中文 ✓\nprint('shared')\n" + "x = 1\n" * 50
    editor.write(code)
    editor.page.click("#share")
    editor.page.wait_for_function("document.getElementById('link').value")
    link = editor.page.locator("#link").input_value()
    assert link.startswith(f"{editor.address}#code=") and len(link) < len(editor.address) + 200
    # the same for other people's pages
    editor.page.select_option("#shared-form", "frame")
    frame = '<iframe src="' + link.replace("#code", "embed.html#code")
    editor.page.wait_for_function("(start) => document.getElementById('link').value.startsWith(start)", arg=frame)
    editor.write("print('<&\"')")
    editor.page.select_option("#shared-form", "tag")
    editor.page.wait_for_function("document.getElementById('link').value.includes('&lt;&amp;')")
    file = f"{editor.address}tabtorch-cell.js"
    assert f'src="{file}"' in editor.page.locator("#link").input_value()
    editor.page.click("#shared-close")
    other = next(each for each in browsers.NAMES if each != name)
    lack = browsers.missing(other) or ("" if other in WANTED else f"{other} was not asked for")
    if lack:
        pytest.skip(lack)
    with browsers.launch(playwright, other) as browser:
        there = Editor(browser.new_page(), editor.address)
        there.load(link.removeprefix(editor.address))
        assert there.code == code
        assert there.output == "" and there.state == "Ready"
        assert "Read it, then press Run" in there.page.locator("#notice").inner_text()
        assert there.run() == "shared\n"


def test_a_phone(running: Any, address: str) -> None:
    page = running.new_page(viewport={"width": 390, "height": 844})
    phone = Editor(page, address)
    phone.load("#demo=02-tensors")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert "multiplication table" in phone.code
    assert phone.run("print('on a phone')") == "on a phone\n"
    assert page.locator("#run").bounding_box()["height"] >= 30
    page.close()


def test_everything_can_be_reached_by_keyboard(editor: Editor) -> None:
    editor.page.evaluate("document.activeElement?.blur(); document.querySelector('h1').scrollIntoView()")
    editor.page.locator("#demos a").last.focus()
    reached = []
    for _ in range(14):
        editor.page.keyboard.press("Tab")
        focused = editor.page.evaluate(
            "document.activeElement.id || (document.activeElement.matches('.cm-content') ? 'editor' : '')"
        )
        if focused == "editor":
            editor.page.keyboard.press("Escape")  # then Tab leaves the editor
        reached.append(focused)
    first = dict.fromkeys(reached)  # in Firefox the browser's own buttons do not always come after the last
    assert [each for each in first if each in ("run", "restart", "share", "editor", "clear", "repl")] == [
        "run",
        "restart",
        "share",
        "editor",
        "clear",
        "repl",
    ]
