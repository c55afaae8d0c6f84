"""The working folder: files of the reader's own, put there, written by scripts, kept across reloads, downloaded."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from browser.pages import Editor

DROP = """([name, text]) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([text], name));
  const event = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
  document.querySelector(".cm-content").dispatchEvent(event);
}"""
#: not every browser that is driven tells of its downloads
CATCH_DOWNLOAD = """() => {
  window.downloaded = undefined;
  HTMLAnchorElement.prototype.click = async function () {
    const bytes = new Uint8Array(await (await fetch(this.href)).arrayBuffer());
    window.downloaded = [this.download, Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")];
  };
}"""
ROWS = "[...document.querySelectorAll('#folder li')].map((row) => row.dataset.path)"


class Folder:
    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.page = editor.page

    @property
    def names(self) -> list[str]:
        return list(self.page.evaluate(ROWS))

    def await_names(self, *names: str) -> None:
        self.page.wait_for_function(f"(wanted) => JSON.stringify({ROWS}) === wanted", arg=_json(names), timeout=30_000)

    def press(self, action: str, name: str) -> None:
        self.page.get_by_role("button", name=f"{action}: {name}", exact=True).click()

    def row(self, name: str) -> str:
        return str(self.page.locator(f"#folder li[data-path='{name}']").inner_text())

    def download(self, path: str) -> bytes:
        self.page.evaluate(CATCH_DOWNLOAD)
        self.press("Download", path)
        self.page.wait_for_function("window.downloaded")
        name, content = self.page.evaluate("window.downloaded")
        assert name == path.rpartition("/")[2]
        return bytes.fromhex(content)


def _json(names: tuple[str, ...]) -> str:
    return "[" + ",".join(f'"{name}"' for name in names) + "]"


@pytest.fixture
def folder(editor: Editor) -> Iterator[Folder]:
    """The panel, open; nothing is left in the folder."""
    if editor.page.locator("#folder").is_hidden():
        editor.page.click("#files")
    yield Folder(editor)
    editor.run(
        "import os, shutil\nfor x in os.listdir():\n    os.remove(x) if os.path.isfile(x) else shutil.rmtree(x)\n"
    )
    if editor.page.locator("#folder").is_visible():
        editor.page.click("#files")


def test_files_come_stay_and_go(folder: Folder) -> None:
    editor, page = folder.editor, folder.page
    before = editor.code
    page.evaluate(DROP, ["numbers.csv", "1,2\n3,4\n"])
    folder.await_names("numbers.csv")  # neither the demos' data nor the script is listed
    assert editor.code == before
    assert "8 B" in folder.row("numbers.csv")
    weights = {"w": torch.arange(6.0).reshape(2, 3), "step": 7}
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    page.set_input_files("#folder input", {"name": "in.pt", "mimeType": "", "buffer": buffer.getvalue()})
    folder.await_names("in.pt", "numbers.csv")
    output = editor.run("""import os, torch
print(open("numbers.csv").read().split())
state = torch.load("in.pt")
print(state["w"].sum().item(), state["step"])
os.makedirs("runs/first")
torch.save({"w": state["w"] * 2}, "runs/first/out.pt")
""")
    assert output == "['1,2', '3,4']\n15.0 7\n"
    folder.await_names("in.pt", "numbers.csv", "runs/first/out.pt")
    written = torch.load(io.BytesIO(folder.download("runs/first/out.pt")), map_location="cpu")
    assert torch.equal(written["w"], weights["w"] * 2)

    folder.press("Delete", "numbers.csv")
    folder.await_names("in.pt", "runs/first/out.pt")
    editor.load()  # and with it, another Python
    assert page.locator("#folder").is_hidden()
    page.click("#files")
    folder.await_names("in.pt", "runs/first/out.pt")
    assert editor.enter("__import__('torch').load('runs/first/out.pt')['w'].sum().item()").endswith("30.0\n")
    folder.press("Delete", "in.pt")
    folder.await_names("runs/first/out.pt")
    page.get_by_role("button", name="Undo").click()
    folder.await_names("in.pt", "runs/first/out.pt")
    assert editor.enter("len(open('in.pt', 'rb').read())").endswith(f"\n{len(buffer.getvalue())}\n")


def test_what_is_replaced_comes_back(folder: Folder) -> None:
    editor, page = folder.editor, folder.page
    editor.run("open('notes.txt', 'w').write('the old')\n")
    folder.await_names("notes.txt")
    page.evaluate(DROP, ["notes.txt", "the newer"])
    page.wait_for_function("document.getElementById('notice').textContent.includes('notes.txt was replaced')")
    assert editor.enter("open('notes.txt').read()").endswith("'the newer'\n")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_function("document.querySelector('#folder small').textContent.startsWith('7 B')")
    assert folder.download("notes.txt") == b"the old"
    folder.press("Copy path", "notes.txt")
    page.wait_for_function("document.getElementById('notice').textContent.includes('/home/pyodide/notes.txt')")


def test_what_a_script_writes_is_there_while_it_waits(folder: Folder) -> None:
    editor, page = folder.editor, folder.page
    editor.start("""import time
open("log.txt", "w").write("begun")
time.sleep(60)
""")
    folder.await_names("log.txt")
    assert folder.download("log.txt") == b"begun"
    page.evaluate(DROP, ["late.txt", "put there meanwhile"])
    folder.await_names("late.txt", "log.txt")
    editor.stop()
    assert editor.enter("open('late.txt').read()").endswith("'put there meanwhile'\n")


def test_full_storage_is_said(running: Any, address: str, name: str) -> None:
    if name != "chromium":
        pytest.skip("only Chromium's protocol can set the storage that a page has")
    page = running.new_page()
    protocol = page.context.new_cdp_session(page)
    # before the page asks for the first time: what it was told is kept for half a minute
    origin = re.sub(r"(https?://[^/]+)/.*", r"\1", address)
    protocol.send("Storage.overrideQuotaForOrigin", {"origin": origin, "quotaSize": 40 << 20})
    editor = Editor(page, address)
    editor.load()
    page.click("#files")
    folder = Folder(editor)
    editor.enter("import os; open('big.bin', 'wb').write(os.urandom(48 << 20)); open('small.txt', 'w').write('x')")
    page.wait_for_selector("#folder li[data-path='big.bin'].unkept")
    assert "storage is full" in folder.row("big.bin")
    assert "full" not in folder.row("small.txt")
    page.close()
