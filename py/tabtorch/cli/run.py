"""`tabtorch run`: a script in a headless tab, or in Pyodide in Node, as if it ran here."""

from __future__ import annotations

import base64
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tabtorch.cli.bare import Output, Until, opened
from tabtorch.cli.browsers import Missing
from tabtorch.cli.node import in_node
from tabtorch.cli.shown import shown
from tabtorch.cli.site import find_site, stale
from tabtorch.cli.status import Status

__all__ = ["BESIDE", "TIMED_OUT", "Script", "print_output", "run", "run_once", "runner"]

TIMED_OUT = 124
WORK = "/work"  # the working directory in there
BESIDE = "/script"  # where a script goes that is outside the mounted folder
LARGEST_MOUNT = 1 << 30
LARGEST_FOLDER = 1 << 25  # of the files beside a script that come along unasked
MOST_FILES = 2000

Once = Callable[["Script", Until], int]  # runs a script; its exit status, or what the second gave


def _walk(folder: Path) -> Iterator[Path]:
    """The files below `folder`, without what no script reads (repositories, caches, environments) and links that lead out."""
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in ("__pycache__", "node_modules")
            and not os.path.exists(os.path.join(here, name, "pyvenv.cfg"))
        )
        for name in sorted(names):
            path = Path(here, name)
            if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
                continue  # the script is to see this folder, and a link that came with it may point anywhere
            if path.is_file():
                yield path


@dataclass
class Script:
    """What to run, and the files it finds there. `files`: path in the tab -> file here.

    mount: the folder here that is `work`, the working directory in there. reports: the script calls
    `js.tabtorchReport(text)`, and the output function gets each text as of a stream "report"; in Node it then gets
    standard output and standard error too.
    """

    source: str
    filename: str
    argv: list[str]
    device: str | None
    files: dict[str, Path] = field(default_factory=dict)
    mount: Path | None = None
    work: str = WORK
    reports: bool = False

    @classmethod
    def load(cls, file: str, argv: list[str], device: str | None = None, mount: str | None = None) -> Script:
        """Read `file`; `-` is standard input, which stands for a file in the present folder.

        Its folder comes along, unless it is large; `mount` does, whole. Raises OSError, Missing.
        """
        path = Path("<stdin>" if file == "-" else file).resolve()
        source = sys.stdin.read() if file == "-" else path.read_text(encoding="utf-8")
        if mount is None:
            script = cls(source, f"{WORK}/{path.name}", argv, device)
            script._bring(path, WORK)
            return script
        folder = Path(mount).resolve()
        if not folder.is_dir():
            raise NotADirectoryError(f"--mount: {mount} is not a folder")
        inside = path.is_relative_to(folder)
        filename = f"{WORK}/{path.relative_to(folder).as_posix()}" if inside else f"{BESIDE}/{path.name}"
        script = cls(source, filename, argv, device)
        script.bring_whole(folder)
        if not inside:
            script._bring(path, BESIDE)
        return script

    def bring_whole(self, folder: Path) -> None:
        """`folder` is the working directory. Raises Missing if that is too much."""
        self.mount = folder
        size = 0
        for each in _walk(folder):
            size += each.stat().st_size
            if size > LARGEST_MOUNT:
                raise Missing(f"{folder} holds more than {LARGEST_MOUNT >> 30} GiB, too much for a tab")
            self.files[f"{self.work}/{each.relative_to(folder).as_posix()}"] = each

    def _bring(self, path: Path, there: str) -> None:
        """As with `python FILE`, modules and data beside the script are there; of a large folder, only modules."""
        folder, size, found = path.parent, 0, {}
        for each in _walk(folder):
            size += each.stat().st_size
            found[f"{there}/{each.relative_to(folder).as_posix()}"] = each
            if size > LARGEST_FOLDER or len(found) > MOST_FILES:
                found = {f"{there}/{each.name}": each for each in {*folder.glob("*.py"), path} if each.is_file()}
                break
        self.files |= found

    def request(self) -> dict[str, Any]:
        """What the bare page is asked for. The script is among the files: one from standard input lies nowhere else."""
        files = {name: path.read_bytes() for name, path in self.files.items()}
        files[self.filename] = self.source.encode()
        return {
            "source": self.source,
            "filename": self.filename,
            "argv": self.argv,
            "device": self.device,
            "work": self.work,
            "env": {name: value for name, value in os.environ.items() if name.startswith("TABTORCH_")},
            "files": [[name, base64.b64encode(data).decode()] for name, data in files.items()],
        }

    def node_spec(self) -> dict[str, Any]:
        """What run-node.mjs is asked for. A mounted folder is opened as it is, and needs no copies."""
        mounted = f"{self.work}/" if self.mount else "\0"
        return {
            "source": self.source,
            "filename": self.filename,
            "argv": self.argv,
            "device": self.device,
            "files": [[name, str(path)] for name, path in self.files.items() if not name.startswith(mounted)],
            "mount": str(self.mount) if self.mount else None,
            "work": self.work,
        }

    def take_back(self, reply: dict[str, Any], output: Output) -> int:
        """Write what the script wrote; its exit status, or 2 if something could not be written."""
        refused = False
        for name, data in reply["files"]:
            try:
                self.save(name, base64.b64decode(data))
            except (RuntimeError, OSError) as error:  # the others are the user's work
                output("stderr", f"tabtorch: {error}\n")
                refused = True
        return int(reply["status"]) or 2 * refused

    def stamps(self) -> dict[str, tuple[int, int]]:
        """When the script and what it finds there were written. Of a mounted folder only modules: the script writes."""
        found = {}
        for name, path in self.files.items():
            if self.mount is None or name == self.filename or name.endswith(".py"):
                state = path.stat()
                found[name] = (state.st_mtime_ns, state.st_size)
        return found

    def save(self, name: str, data: bytes) -> None:
        """Write a file that came back from the tab into the mounted folder. RuntimeError for one that points outside."""
        if self.mount is None:
            return
        try:
            path = (self.mount / name).resolve()
        except (ValueError, OSError):  # a NUL, a link in a circle
            path = None
        if path is None or path == self.mount or not path.is_relative_to(self.mount):
            raise RuntimeError(f"{name!r} is outside the mounted folder, and was not written")
        if path.is_file() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def print_output(stream: str, text: str) -> None:
    to = sys.stderr if stream == "stderr" else sys.stdout
    to.write(text)
    to.flush()


def run(
    script: Script,
    browser: str,
    timeout: float | None = None,
    output: Output = print_output,
    status: Status | None = None,
) -> int:
    """Run `script` in "chromium", "firefox" or "node"; its exit status, or 124 after `timeout` seconds.

    output: called with "stdout" or "stderr" and a piece of text, as it comes (in Node it goes to this process's own
    streams). status: told what is being done until then. Raises Missing if there is no such browser or no site.
    """
    with runner(browser, output, status or Status(), keep=False) as once:
        return run_once(once, script, timeout, output)


def run_once(once: Once, script: Script, timeout: float | None, output: Output, until: Until = lambda: None) -> int:
    """Run `script` until it ends, `timeout` seconds are over (124), or `until` gives another status."""
    deadline = time.monotonic() + timeout if timeout else None

    def over() -> int | None:
        return TIMED_OUT if deadline and time.monotonic() >= deadline else until()

    result = once(script, over)
    if result == TIMED_OUT and deadline and time.monotonic() >= deadline:
        output("stderr", f"tabtorch: {script.filename} did not end within {timeout:g} s\n")
    return result


@contextmanager
def runner(browser: str, output: Output, status: Status, keep: bool, picture: Path | None = None) -> Iterator[Once]:
    """Something that runs scripts in `browser`, which stays open for as long as this does; with `keep`, longer.

    picture: where one of the page with the editor goes, in which they then run.
    """
    output = status.before(output)
    try:
        if browser == "node":
            yield lambda script, until: in_node(script.node_spec(), until, status, output if script.reports else None)
            return
        site = find_site()
        if stale(site):
            output("stderr", "tabtorch: the site is older than its sources: `make site`\n")
        if keep:
            from tabtorch.cli.keep import run_kept

            yield lambda script, until: script.take_back(
                run_kept(site, browser, script.request(), output, status.say, until), output
            )
            return
        with shown(site, browser, status.say, picture) if picture else opened(site, browser, status.say) as page:
            yield lambda script, until: script.take_back(page.run(script.request(), output, status.say, until), output)
    finally:
        status.clear()
