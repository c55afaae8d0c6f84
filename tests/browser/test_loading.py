"""What the pages may load, how the site is served, and that it can be installed."""

from __future__ import annotations

import gzip
import io
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from browser.pages import Editor, run_script
from tabtorch.cli import site as served
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
    code = "import torch, wave\nfrom pyodide.code import run_js\nprint(torch.arange(3).sum().item(), run_js('1 + 1'), wave.Error)\n"
    done = run_script(page, code, thread="main", device="cpu")
    assert done.stdout == "3 2 <class 'wave.Error'>\n", done.stderr
    assert violations(page) == []


def test_what_python_compiled_is_kept_for_the_next_visit(page: Any, address: str) -> None:
    code = "import torch\ntorch.nn.Linear(2, 3)\nfrom tabtorch import _archive\n"
    code += "print(sum(type(code) is not bytes for code in _archive._codes.values()))\n"
    kept = "caches.open('tabtorch bytecode').then((cache) => cache.keys()).then((keys) => keys.length === 1)"
    editor = Editor(page, address)
    page.goto(f"{address}run.html")
    page.evaluate("caches.delete('tabtorch bytecode')")
    editor.load()
    assert int(editor.run(code)) > 100
    page.wait_for_function(kept)
    editor.load()
    assert editor.run(code) == "0\n"
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


class Visits:
    """What a server has sent: path -> bytes of the file, and on the wire. It has not got what is in `lost`."""

    def __init__(self) -> None:
        self.sent: dict[str, tuple[int, int]] = {}
        self.lost: set[str] = set()

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        send_head, site = served._Handler.send_head, find_site()

        def watched(handler: Any) -> Any:
            path = handler.path.partition("?")[0].lstrip("/") or "index.html"
            if path in self.lost:
                return handler.send_error(404)
            body = send_head(handler)
            if isinstance(body, io.BytesIO):
                self.sent[path] = (site / path).stat().st_size, len(body.getbuffer())
            return body

        patch.setattr(served._Handler, "send_head", watched)


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Visits:
    visits = Visits()
    visits.watch(monkeypatch)
    return visits


LIBRARY = "pyodide/python_stdlib.zip"
RARE = """import importlib.util, sys
assert "xml" not in sys.modules
from xml.dom import minidom
import queue
print(minidom.parseString("<a>1</a>").documentElement.toxml(), importlib.util.find_spec("wave").origin)
queue.Queue().get_nowait()
"""


def gzipped(path: str) -> int:
    """Bytes of a file of the site, where the host has nothing but gzip, which leaves archives as they are."""
    data = (find_site() / path).read_bytes()
    return len(data) if path.endswith((".zip", ".whl", ".png", ".webp")) else len(gzip.compress(data, 6))


def test_a_first_visit_is_small_and_the_rest_of_the_library_comes_when_it_is_imported(
    running: Any, visits: Visits
) -> None:
    context = running.new_context(
        viewport={"width": 1280, "height": 800}, service_workers="block"
    )  # it fetches the rest
    with serving(find_site(), compress=True) as url:
        editor = Editor(context.new_page(), f"{url}/")
        editor.load()
        raw, wire = (sum(sizes) for sizes in zip(*visits.sent.values(), strict=True))
        zipped = sum(gzipped(path) for path in visits.sent)
        assert raw < 14_000_000 and wire < 5_000_000 and zipped < 5_700_000, (raw, wire, zipped)
        editor.page.click("#new")
        editor.run("import torch, pickle\nprint(torch.ones(2, device='cpu'))\n1 / 0\n")
        assert editor.enter("torch.ones(2).sum()").endswith("tensor(2.)\n")
        assert LIBRARY not in visits.sent
        visits.lost.add(LIBRARY)
        assert "ImportError: xml is in the part of Python's library that could not be fetched" in editor.run(RARE)
        visits.lost.clear()
        said = editor.run(RARE)
        assert said.startswith("<a>1</a> /lib/python314.zip/wave.py\n"), said
        assert "    raise Empty\n" in said  # lines of the library, too
        assert "ZipFile" in editor.run("import zipfile, queue, xml.sax, _pyio\nprint(zipfile.ZipFile, queue.Queue)\n")
    context.close()


def test_serve_compresses_and_lets_caches_keep_what_never_changes() -> None:
    site = find_site()
    hashes = json.loads((site / "manifest.json").read_text())["hash"]
    wheel = next(path for path in hashes if path.startswith("wheel/"))  # compressed already
    with serving(site, compress=True) as url:
        page = (site / "index.html").read_bytes()
        status, headers, body = ask(f"{url}/", Accept_Encoding="gzip, br")
        assert (status, headers["Content-Encoding"], body) == (200, "br", (site / "index.html.br").read_bytes())
        assert len(body) < len(page) / 3
        status, headers, body = ask(f"{url}/", Accept_Encoding="gzip, br;q=0")
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
