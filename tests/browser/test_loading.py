"""What the pages may load, how the site is served, and that it can be installed."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from browser.pages import Editor, run_script
from tabtorch.cli.site import find_site, serving

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


def ask(address: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(
        address, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        reply = urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        reply = error
    with reply:
        return reply.status, dict(reply.headers), reply.read()


def test_serve_compresses_and_lets_caches_keep_what_never_changes() -> None:
    site = find_site()
    hashes = json.loads((site / "manifest.json").read_text())["hash"]
    wheel = next(path for path in hashes if path.startswith("wheel/"))  # compressed already
    with serving(site, compress=True) as url:
        page = (site / "index.html").read_bytes()
        status, headers, body = ask(f"{url}/", Accept_Encoding="gzip, br")
        assert (status, headers["Content-Encoding"], gzip.decompress(body)) == (200, "gzip", page)
        assert headers["Cache-Control"] == "no-cache" and headers["Vary"] == "Accept-Encoding"
        assert headers["ETag"] == f'"{hashes["index.html"]}"'
        assert ask(f"{url}/", If_None_Match=headers["ETag"])[0] == 304
        assert ask(f"{url}/", If_None_Match='"another"')[2] == page  # and plain, for who takes no gzip
        status, headers, body = ask(f"{url}/{wheel}?{hashes[wheel]}", Accept_Encoding="gzip")
        assert "immutable" in headers["Cache-Control"] and "Content-Encoding" not in headers
        assert "immutable" not in ask(f"{url}/{wheel}?000000000000")[1]["Cache-Control"]
        script = next(path for path in hashes if path.startswith("assets/index") and path.endswith(".js"))
        assert "immutable" in ask(f"{url}/{script}")[1]["Cache-Control"]
        assert ask(f"{url}/nothing.js")[0] == 404
