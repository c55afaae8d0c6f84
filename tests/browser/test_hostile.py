"""What comes from strangers: a link, what a script prints, how much of it, and what it calls its files."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import pytest

from browser.pages import Editor, run_script
from tabtorch.cli.run import Script

MARKUP = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script><b>bold</b>'

#: marks of terminals that a page, or a careless one, would act on: links, titles, the clipboard, unfinished sequences
TERMINAL = [
    "\x1b]8;;javascript:window.hacked=3\x07click\x1b]8;;\x07",
    '\x1b]8;;https://example.com/"onmouseover="window.hacked=4\x07over\x1b]8;;\x07',
    "\x1b]0;title\x07\x1b]52;c;aGk=\x07\x1b[2J\x1b[999999999A\x1b[38;2;1;2;3",
    "\x1b[<b onclick=x>m\x1b[38;5;<i>m" + MARKUP + "\x1b[0m\x1bPq#0\x1b\\",
    "\x1b[31m" * 5000 + "red\x1b[0m",
]


def link(data: bytes) -> str:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(data) + packer.flush()
    return "#code=" + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def untouched(page: Any) -> None:
    """No script has run, and the output is spans, pictures and nothing else."""
    assert page.evaluate("window.hacked") is None
    assert (
        page.evaluate("[...document.querySelectorAll('#output :not(span, canvas, a)')].map((e) => e.outerHTML)") == []
    )
    assert (
        page.evaluate("[...document.querySelectorAll('#output a')].filter((a) => !/^https?:/.test(a.href)).length") == 0
    )


def test_links(editor: Editor) -> None:
    page = editor.page
    editor.load(link(f"x = '''{MARKUP}'''\n".encode()))
    assert MARKUP in editor.code and page.evaluate("window.hacked") is None
    assert not editor.output.strip()  # nothing runs by itself
    for bad in (link(bytes(1 << 28)), "#code=%00<script>", "#code=" + "A" * 4000, link(b"\xff\xfe")):
        page.evaluate("document.getElementById('notice').textContent = ''")
        page.evaluate("(hash) => { location.hash = hash; }", bad)
        page.wait_for_function("document.getElementById('notice').textContent.includes('damaged')")
        assert len(editor.code) < 1 << 20 and page.evaluate("window.hacked") is None


def test_output(editor: Editor) -> None:
    text = editor.run(f"for text in {[MARKUP, *TERMINAL]!r}:\n    print(text)\nraise ValueError({MARKUP!r})")
    assert "<script>window.hacked=2</script>" in text and "red" in text and "ValueError" in text
    untouched(editor.page)
    editor.enter(f"print({MARKUP!r})")
    untouched(editor.page)


def test_floods(editor: Editor) -> None:
    """What is kept is bounded: of many lines the last, of a line without an end the beginning."""
    lines = "for i in range(200_000): print(i, 'x' * 100)\n"
    endless = "import sys\nfor i in range(20_000): sys.stdout.write('y' * 1000)\nsys.stdout.write('\\nend\\n')\n"
    text = editor.run(lines, seconds=120)
    assert "199999 xxx" in text and len(text) < 6_000_000
    text = editor.run(endless, seconds=120)
    assert text.rstrip().endswith("end") and len(text) < 6_000_000
    untouched(editor.page)
    assert "42" in editor.run("print(6 * 7)")


def test_output_of_a_run_is_whole_and_in_order(runner: Any) -> None:
    source = "import sys\nfor i in range(20_000): print(i)\nprint('between', file=sys.stderr)\nprint('end')\n"
    done = run_script(runner, source)
    assert done.status == 0 and done.stderr == "between\n"
    assert done.stdout == "".join(f"{i}\n" for i in range(20_000)) + "end\n"


def test_names_of_files(runner: Any, tmp_path: Path) -> None:
    """What a script leaves outside the working folder does not come back, and what does come back is written only into it."""
    source = (
        "import os\n"
        "for name in ['../../up', '/work2', '/work/../side', 'a\\\\..\\\\b', 'C:\\\\x', '~', 'sub/ok', '-rf', '\\n']:\n"
        "    os.makedirs(os.path.dirname(name) or '.', exist_ok=True)\n"
        "    open(name, 'w').write('x')\n"
        "os.symlink('/etc/passwd', 'link')\nos.symlink('..', 'loop')\n"
    )
    done = run_script(runner, source)
    assert done.status == 0, done.stderr
    script = Script("", "/work/x.py", [], None, mount=tmp_path / "in")
    (tmp_path / "in").mkdir()
    for name, data in done.files.items():
        script.save(name, data)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]
    assert (tmp_path / "in" / "sub" / "ok").read_text() == "x"
    for name in ("../up", "/etc/hacked", "..", "", "in\0side", "sub/../../up"):
        with pytest.raises(RuntimeError, match="outside the mounted folder"):
            script.save(name, b"x")
    (tmp_path / "in" / "out").symlink_to(tmp_path)
    with pytest.raises(RuntimeError, match="outside the mounted folder"):
        script.save("out/hacked", b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_links_in_a_mounted_folder(tmp_path: Path) -> None:
    """A link that leads out of the folder does not come along."""
    (tmp_path / "secret").write_text("s")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "main.py").write_text("")
    (folder / "data").write_text("d")
    (folder / "inside").symlink_to("data")
    (folder / "leak").symlink_to("../secret")
    (folder / "up").symlink_to("..")
    for script in (
        Script.load(str(folder / "main.py"), [], mount=str(folder)),
        Script.load(str(folder / "main.py"), []),
    ):
        assert sorted(script.files) == ["/work/data", "/work/inside", "/work/main.py"]
