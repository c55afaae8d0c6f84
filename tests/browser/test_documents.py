"""Scripts with names: nothing that was typed is lost, and the address shows what is open."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.pages import Editor
from tabtorch.cli.site import find_site

LINK = "#code=KyjKzCvRUE8rys9VSFTIyczLVtfkAgA"  # print('from a link')
NAMES = "[...document.querySelectorAll('#documents a')].map((link) => link.firstChild.textContent)"
CURRENT = "[...document.querySelectorAll('#documents [aria-current]')].map((link) => link.firstChild.textContent)"
#: one that knows nothing of the page's channel writes into its storage
WRITE_UNHEARD = """(text) => new Promise((done, fail) => {
  const request = indexedDB.open("tabtorch.documents");
  request.onerror = fail;
  request.onsuccess = () => {
    const store = request.result.transaction("documents", "readwrite").objectStore("documents");
    const id = location.hash.replace("#doc=", "");
    store.get(id).onsuccess = ({ target }) => {
      const document = { ...target.result, text, revision: target.result.revision + 1, writer: "another" };
      store.put(document).onsuccess = () => { request.result.close(); done(); };
    };
  };
})"""
#: versions of the open script, whose texts are their ages in minutes
FILL_HISTORY = """(count) => new Promise((done, fail) => {
  const request = indexedDB.open("tabtorch.documents");
  request.onerror = fail;
  request.onsuccess = () => {
    const transaction = request.result.transaction("versions", "readwrite");
    const document = location.hash.replace("#doc=", "");
    for (let age = 1; age <= count; age++) {
      transaction.objectStore("versions").put({ document, time: Date.now() - age * 60_000, text: `${age}` });
    }
    transaction.oncomplete = () => { request.result.close(); done(); };
  };
})"""
DROP = """([name, text]) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([text], name));
  const event = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
  document.querySelector(".cm-content").dispatchEvent(event);
}"""

#: not every browser that is driven tells of its downloads
CATCH_DOWNLOAD = """() => {
  HTMLAnchorElement.prototype.click = async function () {
    const reply = await fetch(this.href);
    window.downloaded = [this.download, await reply.text()];
  };
}"""


class Tab(Editor):
    """The page, as far as scripts go: Python is not loaded."""

    def load(self, rest: str = "") -> None:
        if self.page.url != "about:blank":
            self.page.goto("about:blank")
        self.page.goto(self.address + rest)
        self.opened()

    def reload(self) -> None:
        self.page.reload()
        self.opened()

    def opened(self) -> None:
        self.page.wait_for_selector("#file:not(:empty)")

    def menu(self, action: str) -> None:
        self.page.click("#menu")
        self.page.click(f"#actions [data-act={action}]")

    def look_back(self) -> list[str]:
        """What is in the history, the newest first."""
        self.menu("history")
        self.page.wait_for_selector("#versions[open]")
        texts = []
        for index in range(self.page.locator("#versions option").count()):
            self.page.select_option("#version", index=index)
            texts.append(self.page.locator("#versions textarea").input_value())
        return texts

    def rename(self, name: str) -> None:
        self.menu("rename")
        self.page.fill("#new-name", name)
        self.page.press("#new-name", "Enter")

    def type(self, text: str) -> None:
        """At the beginning."""
        self.page.locator(".cm-content").focus()
        self.page.keyboard.press("ControlOrMeta+Home")
        self.page.keyboard.insert_text(text)

    def until(self, condition: str, argument: Any = None) -> None:
        self.page.wait_for_function(condition, arg=argument)

    def until_code(self, code: str) -> None:
        self.until("code => document.querySelector('.cm-content').cmTile.view.state.doc.toString() === code", code)

    @property
    def name(self) -> str:
        return str(self.page.locator("#file").inner_text())

    @property
    def names(self) -> list[str]:
        return list(self.page.evaluate(NAMES))

    @property
    def hash(self) -> str:
        return str(self.page.evaluate("location.hash"))

    @property
    def notice(self) -> str:
        return str(self.page.locator("#notice span").inner_text())


@pytest.fixture
def context(running: Any) -> Iterator[Any]:
    """A reader who was never here, in a browser that does not fetch Python."""
    context = running.new_context(viewport={"width": 1280, "height": 800})
    context.route(re.compile(r"/(pyodide|wheel|data)/"), lambda route: route.abort())
    yield context
    context.close()


@pytest.fixture
def tab(context: Any, address: str) -> Tab:
    tab = Tab(context.new_page(), address)
    tab.load()
    return tab


def another(tab: Tab, rest: str) -> Tab:
    other = Tab(tab.page.context.new_page(), tab.address)
    other.load(rest)
    return other


def test_an_edited_demo_is_a_script_of_its_own(tab: Tab) -> None:
    """It has the demo's name and address, a reload keeps it, Reset brings the demo back, and Undo the edit."""
    demo = tab.code
    assert (tab.hash, tab.names) == ("#demo=01-digits", [])
    tab.type("# mine\n")
    tab.reload()
    assert tab.code == "# mine\n" + demo
    assert (tab.name, tab.hash, tab.names) == ("01-digits.py", "#demo=01-digits", ["01-digits.py"])
    tab.page.click("#demos a[data-demo='02-tensors']")
    tab.until("document.getElementById('file').textContent === '02-tensors.py'")
    assert "multiplication table" in tab.code and tab.names == ["01-digits.py"]
    tab.page.click("#demos a[data-demo='01-digits']")
    tab.until_code("# mine\n" + demo)
    tab.menu("reset")
    tab.until_code(demo)
    assert tab.names == []
    tab.page.click("#notice button:text('Undo')")
    tab.until_code("# mine\n" + demo)
    tab.reload()
    assert tab.code == "# mine\n" + demo


def test_scripts_are_made_renamed_copied_and_deleted(tab: Tab) -> None:
    tab.page.click("#new")
    tab.page.keyboard.insert_text("print('own')")
    tab.rename("my net")
    assert (tab.name, tab.names, tab.page.title()) == ("my net.py", ["my net.py"], "my net.py · tabtorch")
    tab.menu("duplicate")
    assert (tab.name, tab.code, tab.names) == ("my net-2.py", "print('own')", ["my net.py", "my net-2.py"])
    tab.type("# copy\n")
    tab.page.click("#documents a >> nth=0")
    tab.until_code("print('own')")
    assert tab.page.evaluate(CURRENT) == ["my net.py"]
    tab.menu("remove")
    tab.until(f"{NAMES}.length === 1")
    assert (tab.name, tab.code, tab.notice) == ("my net-2.py", "# copy\nprint('own')", "my net.py is deleted.")
    tab.page.click("#notice button:text('Undo')")
    tab.until(f"{NAMES}.length === 2")
    assert tab.code == "print('own')"
    tab.reload()
    assert (tab.name, tab.names) == ("my net.py", ["my net.py", "my net-2.py"])
    tab.menu("remove")
    tab.until(f"{NAMES}.length === 1")
    tab.reload()
    assert tab.names == ["my net-2.py"]


def test_a_name_has_to_be_a_files_and_free(tab: Tab) -> None:
    tab.page.click("#new")
    for bad in ("01-digits", "a/b", "..", ""):
        tab.rename(bad)
        assert tab.page.locator("#rename:open, #rename[open]").count() == 1
        assert tab.page.evaluate("!document.getElementById('new-name').validity.valid")
        tab.page.keyboard.press("Escape")
    assert tab.name == "script.py"


def test_a_renamed_demo_is_the_readers_own(tab: Tab) -> None:
    demo = tab.code
    tab.type("# mine\n")
    tab.rename("better.py")
    tab.until("document.getElementById('file').textContent === 'better.py'")
    assert tab.code == "# mine\n" + demo and tab.hash.startswith("#doc=")
    tab.page.click("#demos a[data-demo='01-digits']")
    tab.until_code(demo)
    assert tab.names == ["better.py"]


def test_what_is_undone_is_of_one_script(tab: Tab) -> None:
    tab.page.click("#new")
    tab.page.keyboard.insert_text("one")
    tab.page.click("#new")
    tab.page.keyboard.insert_text("two")
    for _ in range(3):
        tab.page.keyboard.press("ControlOrMeta+z")
    assert tab.code == ""
    tab.page.keyboard.press("ControlOrMeta+Shift+z")
    assert tab.code == "two"
    tab.page.click("#documents a >> nth=0")
    tab.until_code("one")
    tab.page.locator(".cm-content").focus()
    tab.page.keyboard.press("ControlOrMeta+z")
    assert tab.code == ""


def test_a_link_that_came_is_a_script(tab: Tab) -> None:
    """The same link is the same script, with what was edited in it."""
    tab.type("# mine\n")
    tab.load(LINK)
    came = tab.code
    assert tab.names == ["01-digits.py", "shared.py"] and tab.hash == LINK and "Read it" in tab.notice
    tab.type("# read\n")
    assert tab.hash.startswith("#doc=link-")
    tab.reload()
    assert tab.code == "# read\n" + came
    tab.load(LINK)
    assert tab.code == "# read\n" + came and "edited here" in tab.notice
    assert tab.names == ["01-digits.py", "shared.py"]


def test_sharing_does_not_hold_on_to_the_text(tab: Tab) -> None:
    tab.page.click("#new")
    tab.page.keyboard.insert_text("x = 1\n")
    tab.page.click("#share")
    tab.until("document.getElementById('link').value")
    assert tab.hash.startswith("#doc=")
    tab.type("y = 2\n")
    tab.reload()
    assert tab.code == "y = 2\nx = 1\n"


def test_a_link_is_short_for_code_and_warns_where_it_is_not(tab: Tab) -> None:
    tab.page.click("#demos a[data-demo='04-gpt']")
    tab.until("document.getElementById('file').textContent === '04-gpt.py'")
    tab.page.click("#share")
    tab.until("document.getElementById('link').value")
    assert len(tab.page.locator("#link").input_value()) < len(tab.code) * 0.75
    assert tab.page.locator("#notice").is_hidden()
    tab.page.click("#new")
    tab.page.keyboard.insert_text(repr(random.Random(0).randbytes(9000)))
    tab.page.click("#share")
    tab.page.wait_for_selector("#notice:not([hidden])")
    length = len(tab.page.locator("#link").input_value())
    assert length > 8000 and f"The link has {length:,} characters" in tab.notice and "Download .py" in tab.notice


def test_what_older_pages_kept_is_taken_over(context: Any, address: str) -> None:
    tab = Tab(context.new_page(), address)
    tab.page.goto(f"{address}icon.svg")
    old = json.dumps({"fileName": "main.py", "text": "print('old')"})
    tab.page.evaluate("text => localStorage.setItem('tabtorch.script', text)", old)
    tab.load()
    assert (tab.name, tab.code) == ("main.py", "print('old')")
    tab.reload()
    assert tab.names == ["main.py"] and tab.page.evaluate("localStorage.getItem('tabtorch.script')") is None


def test_an_address_of_nothing(tab: Tab) -> None:
    tab.load("#doc=never")
    assert "not kept" in tab.notice and tab.hash == "#demo=01-digits"


def test_a_page_that_closes_before_it_has_written(tab: Tab) -> None:
    """The storage never answers again: what was typed since is there after the reload all the same."""
    tab.page.click("#new")
    tab.page.keyboard.insert_text("kept")
    tab.until("indexedDB.databases().then((all) => all.length)")
    tab.page.evaluate("() => { IDBDatabase.prototype.transaction = () => { throw new Error('too late'); }; }")
    tab.type("too late? ")
    tab.reload()
    assert tab.code == "too late? kept"


def test_a_browser_that_keeps_nothing_says_so(context: Any, address: str) -> None:
    context.add_init_script("IDBFactory.prototype.open = () => { throw new Error('no room'); }")
    tab = Tab(context.new_page(), address)
    tab.load()
    tab.page.click("#new")
    tab.page.keyboard.insert_text("for now")
    tab.page.click("#demos a >> nth=1")
    tab.until("document.getElementById('file').textContent === '02-tensors.py'")
    tab.page.click("#documents a >> nth=0")
    tab.until_code("for now")
    tab.load()
    assert "keeps no scripts here (Error: no room)" in tab.notice


def test_history(tab: Tab) -> None:
    """A run makes a version; one that is restored can be undone, and what it replaced is a version too."""
    tab.page.click("#new")
    tab.page.keyboard.insert_text("first")
    tab.page.click("#run")
    tab.write("second")
    assert tab.look_back() == ["first"]
    tab.page.keyboard.press("Escape")
    assert tab.code == "second"
    tab.look_back()
    tab.page.click("#versions button[value=restore]")
    tab.until_code("first")
    tab.page.keyboard.press("ControlOrMeta+z")
    tab.until_code("second")
    assert tab.look_back() == ["second", "first"]
    tab.reload()
    assert tab.look_back() == ["second", "first"]


def test_history_keeps_what_stood_before_a_pause(context: Any, address: str) -> None:
    context.clock.install()
    tab = Tab(context.new_page(), address)
    tab.load()
    tab.page.click("#new")
    for text in ("a", "b", "c"):
        tab.page.keyboard.insert_text(text)
        tab.until("() => new Promise((done) => requestAnimationFrame(() => done(true)))")
    context.clock.fast_forward(120_000)
    tab.page.keyboard.insert_text("d")
    assert tab.look_back() == ["abc"]


def test_history_is_thinned(tab: Tab) -> None:
    """Of a thousand versions, one a minute, many of the last hour stay, few of the day before, and the newest."""
    tab.page.click("#new")
    tab.page.keyboard.insert_text("now")
    tab.page.evaluate(FILL_HISTORY, 1000)
    tab.page.click("#run")
    newest, *older = tab.look_back()
    ages = [int(text) for text in older]
    assert newest == "now" and ages == sorted(ages) and ages[0] <= 1
    assert ages[-1] > 800 and len(ages) < 60 and sum(age <= 60 for age in ages) > 15


def test_two_tabs_see_each_other(tab: Tab) -> None:
    tab.page.click("#new")
    tab.page.keyboard.insert_text("one")
    other = another(tab, tab.hash)
    assert other.code == "one"
    other.type("two ")
    tab.until_code("two one")
    tab.page.keyboard.press("ControlOrMeta+z")
    other.until_code("two ")  # each undoes what was typed in it
    other.rename("theirs")
    tab.until("document.getElementById('file').textContent === 'theirs.py'")
    other.menu("remove")
    tab.until("document.getElementById('notice').textContent.includes('deleted in another tab')")
    tab.page.click("#notice button:text('Bring it back')")
    assert (tab.name, tab.code) == ("theirs.py", "two ")
    other.until(f"{NAMES}.includes('theirs.py')")


@pytest.mark.parametrize(("button", "kept", "lost"), [("Take", "theirs", "mine one"), ("Keep", "mine one", "theirs")])
def test_two_tabs_that_both_wrote(tab: Tab, button: str, kept: str, lost: str) -> None:
    tab.page.click("#new")
    tab.page.keyboard.insert_text("one")
    tab.until("() => new Promise((done) => setTimeout(() => done(true)))")
    tab.page.evaluate(WRITE_UNHEARD, "theirs")
    tab.type("mine ")
    tab.until("document.getElementById('notice').textContent.includes('in another tab too')")
    tab.page.click(f"#notice button:text('{button}')")
    tab.until_code(kept)
    assert lost in tab.look_back()
    tab.reload()
    assert tab.code == kept


def test_files_come_and_go(tab: Tab, tmp_path: Path) -> None:
    tab.page.evaluate(DROP, ["dropped.py", "print('dropped')"])
    tab.until_code("print('dropped')")
    assert tab.name == "dropped.py"
    tab.page.evaluate(DROP, ["picture.png", "no script"])
    tab.until("document.getElementById('notice').textContent.includes('picture.png: Python did not answer')")
    assert tab.code == "print('dropped')" and tab.names == ["dropped.py"]
    (tmp_path / "disk.py").write_text("print('é')", encoding="utf-8")
    tab.page.set_input_files("#chosen", tmp_path / "disk.py")
    tab.until_code("print('é')")
    tab.page.evaluate(CATCH_DOWNLOAD)
    tab.menu("download")
    tab.until("window.downloaded")
    assert tab.page.evaluate("downloaded") == ["disk.py", "print('é')"]


def test_a_script_runs_under_its_name(editor: Editor) -> None:
    tab = Tab(editor.page, editor.address)
    tab.page.click("#new")
    tab.rename("named")
    output = editor.run("print(__file__)\n1 / 0\n")
    assert output.startswith("named.py\n") or output.splitlines()[0].endswith("/named.py")
    assert 'File "named.py", line 2' in output
    assert editor.page.locator(".cm-lintRange-error").inner_text() == "1 / 0"
    tab.type("#")
    assert editor.page.locator(".cm-lintRange-error").count() == 0
    tab.menu("remove")
    tab.page.click("#new")


def test_comforts_of_the_editor(tab: Tab) -> None:
    """Find and replace, comments, folding, and a way out that is said."""
    page = tab.page
    page.click("#new")
    tab.write("def f():\n    return 1\n\nf()\n")
    assert page.locator("#keys").is_visible() and "Tab leaves the editor" in page.locator("#keys").inner_text()
    page.keyboard.press("ControlOrMeta+f")
    page.locator(".cm-search [name=search]").press_sequentially("f(")
    page.locator(".cm-search input[name=replace]").press_sequentially("g(")
    page.click(".cm-search [name=replaceAll]")
    tab.until_code("def g():\n    return 1\n\ng()\n")
    page.keyboard.press("Escape")
    tab.type("")
    page.keyboard.press("ControlOrMeta+/")
    assert tab.code.startswith("# def g()")
    page.keyboard.press("ControlOrMeta+/")
    page.click(".cm-foldGutter [title='Fold line']")
    assert page.locator(".cm-foldPlaceholder").count() == 1 and tab.code.startswith("def g()")


def test_from_the_disk_it_says_what_it_wants(running: Any) -> None:
    page = running.new_page()
    page.goto((find_site() / "index.html").as_uri())
    page.wait_for_selector("h1:text('wants a web server')")
    assert "tabtorch serve" in page.locator("p").inner_text()
    page.close()
