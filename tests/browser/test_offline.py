"""The site without a network, and with a newer build on the server: a page is of one version, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from browser.pages import Editor
from tabtorch.cli.site import find_site, serving


class Host:
    """A copy of the site on a server that comes and goes at one address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = json.loads((folder / "manifest.json").read_text())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._serving: AbstractContextManager[str] | None = None

    def up(self) -> str:
        self._serving = serving(self.folder, self.port)
        return self._serving.__enter__() + "/"

    def down(self) -> None:
        if self._serving is not None:
            self._serving.__exit__(None, None, None)
        self._serving = None

    def build(self, version: str, whole: bool) -> None:
        """Another build: one page is another, and its hash says so if it is `whole`."""
        path = self.folder / "compatibility.html"
        path.write_text(path.read_text().replace("<title>", f"<title>{version} "))
        content = path.read_bytes() if whole else b"of yet another build"
        before = self.manifest["version"]
        self.manifest["hash"][path.name] = hashlib.sha256(content).hexdigest()[:12]
        self.manifest["version"] = version
        (self.folder / "manifest.json").write_text(json.dumps(self.manifest))
        worker = self.folder / "offline.js"
        worker.write_text(worker.read_text().replace(before, version))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    shutil.copytree(find_site(), tmp_path / "site")
    host = Host(tmp_path / "site")
    yield host
    host.down()


def test_once_visited_it_needs_no_network_and_is_of_one_version(running: Any, host: Host) -> None:
    context = running.new_context(viewport={"width": 1280, "height": 800})
    editor = Editor(context.new_page(), host.up())
    page = editor.page
    first = host.manifest["version"]
    editor.load()
    assert f"build {first}" in page.locator("#build").inner_text()
    page.wait_for_selector("#build[data-kept=kept]")
    assert "works offline" in page.locator("#build").inner_text()
    assert page.evaluate("caches.match('docs/files.html', { ignoreSearch: true }).then(Boolean)") is False
    page.goto(f"{editor.address}docs/")  # who reads one guide has them all
    page.wait_for_function("caches.match('../guides').then(Boolean)")
    host.down()
    page.goto(f"{editor.address}docs/files.html")
    assert page.locator(".example button:visible").count() > 2
    editor.load()
    assert editor.run("from tqdm import tqdm\nimport torch, wave\nprint(torch.ones(2).sum().item())\n") == "2.0\n"
    page.goto(f"{editor.address}compatibility.html")
    assert page.locator("#count").inner_text()

    host.build("aaaaaaaaaaaa", whole=False)  # half of it is on the server
    host.up()
    page.goto(editor.address)
    page.evaluate("navigator.serviceWorker.ready.then((all) => all.update()).catch(() => {})")
    page.wait_for_function("navigator.serviceWorker.ready.then((all) => !all.installing && !all.waiting)")
    page.reload()
    page.get_by_text(f"build {first}").wait_for()

    host.build("bbbbbbbbbbbb", whole=True)
    page.goto(editor.address)
    page.get_by_role("button", name="An update is there").wait_for()
    assert f"build {first}" in page.locator("#build").inner_text()
    page.goto(f"{editor.address}compatibility.html")
    assert "bbbb" not in page.title()
    page.goto(editor.address)
    page.get_by_role("button", name="An update is there").click()
    page.get_by_text("build bbbbbbbbbbbb").wait_for()
    page.goto(f"{editor.address}compatibility.html")
    assert "bbbbbbbbbbbb" in page.title()
    context.close()
