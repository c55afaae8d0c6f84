"""The examples of docs/*.md and README.md, read as web/guides.ts reads them, and run: python guides.py real|cpu|webgpu|backend FILE.

A block of Python is an example. Words after `python`: `continued` goes on from the example before, `raises` ends in an error,
`elsewhere` belongs into another program and is not run here, `gpu` wants one, `ours` is of tabtorch alone,
`pytorch` of real PyTorch with tabtorch's device (backend). A block of `text` right below is what it prints, and for an error the
last line of the traceback. FILE gets a JSON list of what each printed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(
    r"^```python(?P<about>[ \w]*)\n(?P<code>.*?)^```$(?:\n\n^```text\n(?P<printed>.*?)^```$)?", re.M | re.S
)


class Example(NamedTuple):
    """One block of Python: where it is, what is said of it, and what it prints, if the page says that."""

    page: str
    line: int
    about: frozenset[str]
    code: str
    printed: str | None

    def runs(self, library: str) -> bool:
        """Whether it is for this library and device."""
        if "pytorch" in self.about or library == "backend":
            return library == "backend" and "pytorch" in self.about
        left_out = {"real": {"elsewhere", "ours"}, "cpu": {"elsewhere", "gpu"}, "webgpu": {"elsewhere"}}[library]
        if library == "real" and ("gpu" in self.about or "tabtorch" in self.code):
            return False
        return not self.about & left_out


def examples() -> Iterator[Example]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        for found in FENCE.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            about = frozenset(found["about"].split())
            yield Example(path.name, line, about, found["code"], found["printed"])


def run(example: Example, names: dict[str, Any]) -> str:
    """What it prints, with the last line of its error, if it raises."""
    output = io.StringIO()
    code = compile(example.code, f"{example.page}:{example.line}", "exec")
    with contextlib.redirect_stdout(output), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(code, names)
        except Exception as error:
            words = "".join(traceback.format_exception_only(error))
            print(words if "raises" in example.about else traceback.format_exc(), end="")
    return output.getvalue()


def main(library: str, file: str) -> None:
    if library == "backend":
        import tabtorch.backend
        import tabtorch.backend.dynamo  # where it is not installed, no entry point leads there
    elif library != "real":
        os.environ["TABTORCH_DEVICE"] = library
        import tabtorch

        tabtorch.install()
    names: dict[str, Any] = {}
    said: list[str | None] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for example in examples():
            if "continued" not in example.about:
                names = {"__name__": "__main__"}
            said.append(run(example, names) if example.runs(library) else None)
    Path(file).write_text(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
