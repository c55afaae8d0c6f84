"""What the pages may load, and that they can be installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from browser.pages import Editor, run_script

WATCH = """window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`));"""
INLINE = """() => {
  const script = document.createElement("script");
  script.textContent = "window.ran = true";
  document.head.append(script);
  return window.ran;
}"""


@pytest.fixture
def page(running: Any) -> Iterator[Any]:
    """A tab that counts what its policy forbids."""
    page = running.new_page()
    page.add_init_script(WATCH)
    yield page
    page.close()


def violations(page: Any) -> list[str]:
    return list(page.evaluate("violations"))


def test_no_page_does_what_its_policy_forbids(page: Any, address: str) -> None:
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    editor = Editor(page, address)
    editor.load()
    editor.run(
        "import tabpage\nprint('\\x1b[38;2;9;9;9mcoloured\\x1b[0m')\ntabpage.show_image(bytes(4), 1, 1)\n1 / 0\n"
    )
    page.locator(".cm-content").focus()
    page.keyboard.press("ControlOrMeta+f")
    assert violations(page) == [] and errors == []
    page.goto(f"{address}compatibility.html")
    page.fill("#name", "relu")
    assert violations(page) == [] and errors == []
    assert page.evaluate(INLINE) is None and violations(page) == ["script-src-elem inline"]


def test_python_in_the_page_may_do_its_work(page: Any, address: str) -> None:
    page.goto(f"{address}run.html")
    page.wait_for_function("'tabtorchRun' in window")
    code = "import torch\nfrom pyodide.code import run_js\nprint(torch.arange(3).sum().item(), run_js('1 + 1'))\n"
    done = run_script(page, code, thread="main", device="cpu")
    assert done.stdout == "3 2\n", done.stderr
    assert violations(page) == []


def test_it_can_be_installed(page: Any, address: str, name: str) -> None:
    page.goto(f"{address}compatibility.html")
    found = json.loads(page.evaluate("fetch('./app.webmanifest').then((reply) => reply.text())"))
    for icon in found["icons"]:
        size = page.evaluate(
            "async (path) => { const image = new Image(); image.src = path; await image.decode(); return image.width; }",
            icon["src"],
        )
        assert icon["sizes"] in ("any", f"{size}x{size}")
    if name == "chromium":  # which says what is missing
        page.goto(address)
        errors = page.context.new_cdp_session(page).send("Page.getInstallabilityErrors")["installabilityErrors"]
        assert [each["errorId"] for each in errors if each["errorId"] != "in-incognito"] == []
