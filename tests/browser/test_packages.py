"""Packages: those that the site serves, and those that are fetched after one question. A small index stands in for PyPI."""

from __future__ import annotations

import hashlib
import http.server
import importlib.metadata
import io
import json
import threading
import zipfile
from collections.abc import Iterator

import pytest

from browser.pages import Editor


def wheel(name: str, version: str, files: dict[str, bytes], needs: str = "") -> bytes:
    """A wheel of pure Python."""
    info = f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return packed.getvalue()


def einops() -> bytes:
    """The wheel of what is installed here."""
    found = importlib.metadata.distribution("einops")
    modules = [path for path in found.files or [] if path.suffix == ".py"]
    return wheel("einops", found.version, {str(path): path.read_binary() for path in modules})


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    """A package index, as micropip wants its address."""
    wheels = {
        "einops": einops(),
        "onlyhere": wheel("onlyhere", "1.0", {"onlyhere.py": b"WHERE = 'here'\n"}, "Requires-Dist: torch>=2.0\n"),
    }

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").split("/")[0]
            found = wheels.get(name)
            data = found or b""
            if found and not self.path.endswith(".whl"):
                file = {
                    "filename": f"{name}-1.0-py3-none-any.whl",
                    "url": f"http://{self.headers['Host']}/{name}/{name}-1.0-py3-none-any.whl",
                    "hashes": {"sha256": hashlib.sha256(found).hexdigest()},
                }
                data = json.dumps({"name": name, "files": [file], "meta": {"api-version": "1.0"}}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{{package_name}}/"
        server.shutdown()


def test_what_the_site_serves_comes_from_nowhere_else(editor: Editor) -> None:
    elsewhere = []
    site = editor.address

    def refuse(route: object) -> None:
        elsewhere.append(route.request.url)  # type: ignore[attr-defined]
        route.abort()  # type: ignore[attr-defined]

    editor.page.context.route(lambda url: not url.startswith((site, "blob:", "data:")), refuse)
    output = editor.run("from tqdm import tqdm\nimport micropip\nprint(sum(tqdm(range(4))), micropip.__name__)\n")
    editor.page.context.unroute_all()
    assert "6 micropip" in output and "100%" in output and "4/4" in output
    assert elsewhere == []


def test_what_few_programs_use_is_fetched_when_it_is_imported(editor: Editor) -> None:
    """torch.fx and sparse tensors are in the second wheel, which the page fetches once, from the site."""
    asked: list[str] = []
    editor.page.context.on("request", lambda request: asked.append(request.url))
    editor.page.click("#restart")
    editor.wait()
    assert "[0.0, 2.0]" in editor.run("import torch\nprint(torch.arange(2.0).mul(2).tolist())\n")
    assert not [url for url in asked if "tabtorch_extras" in url]
    script = "import torch\nfrom torch import fx\nprint(fx.symbolic_trace(torch.nn.ReLU()).code)\n"
    output = editor.run(script + "print(torch.eye(2).to_sparse().values().sum().item())\n")
    assert "torch.nn.functional.relu(input_1, inplace = False)" in output and "2.0" in output
    assert len([url for url in asked if "tabtorch_extras" in url]) == 1


def test_a_missing_package_is_asked_for_once(editor: Editor, index: str) -> None:
    page = editor.page
    page.evaluate("localStorage.removeItem('tabtorch.packages')")
    script = "import einops, torch\nprint(einops.rearrange(torch.arange(6), '(a b) -> b a', a=2).shape)\n"
    editor.run("import micropip")  # it is there for the prompt now
    editor.enter(f"micropip.set_index_urls('{index}')")
    output = editor.run(script)
    assert "ModuleNotFoundError: No module named 'einops'" in output and "%pip install einops" in output
    page.get_by_role("button", name="Install einops from PyPI").click()
    page.wait_for_function("document.getElementById('output').textContent.includes('torch.Size([3, 2])')")
    editor.wait()
    assert page.locator(".question").count() == 0

    page.click("#restart")  # what is remembered is installed by itself, and that is said
    editor.wait()
    editor.enter("import micropip", f"micropip.set_index_urls('{index}')")
    editor.start(script)
    page.wait_for_function("document.getElementById('output').textContent.includes('torch.Size([3, 2])')")
    editor.wait()
    assert "Fetched einops-1.0-py3-none-any from 127.0.0.1" in editor.output and "installed einops" in editor.output
    page.evaluate("localStorage.removeItem('tabtorch.packages')")


def test_pip_at_the_prompt(editor: Editor, index: str) -> None:
    page = editor.page
    editor.enter("import micropip", f"micropip.set_index_urls('{index}')")
    assert "installed onlyhere" in editor.enter("%pip install onlyhere")  # it needs torch: this one
    assert editor.enter("import onlyhere; onlyhere.WHERE").endswith("'here'\n")
    output = editor.enter("%pip install nosuchthing")
    assert "nosuchthing could not be installed" in output and "`%pip install THAT_NAME`" in output
    page.evaluate("document.querySelectorAll('.question').forEach((each) => each.remove())")
    editor.enter("import nosuchmodule")  # at the prompt it is offered, too
    assert page.get_by_role("button", name="Install nosuchmodule from PyPI").is_visible()
