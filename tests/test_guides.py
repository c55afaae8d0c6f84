"""The guides: every example does what its page says, on both devices, and on PyTorch where it is not of tabtorch alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import guides
from conformance.docstrings import same
from sidebyside import DEVICES

EXAMPLES = list(guides.examples())
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)]+)\)")


@pytest.fixture(scope="module", params=["real", "backend", "cpu", "webgpu"])
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str | None]:
    """What each example printed, in a process of its own; None for those that are not for this library."""
    library: str = request.param
    if library not in ("real", "backend", *DEVICES):
        pytest.skip(f"{library} was not asked for")
    file = tmp_path_factory.mktemp("guides") / "said.json"
    environment = {**os.environ, "PYTHONPATH": str(guides.ROOT / "py"), "TORCHDYNAMO_DISABLE": "1"}
    if library == "backend":
        environment |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TABTORCH_DEVICE": "cpu"}
    if library != "real":
        del environment[
            "TORCHDYNAMO_DISABLE"
        ]  # PyTorch's compiler wants a C++ compiler; ours is what the page is about
    command = [sys.executable, str(Path(guides.__file__)), library, str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answers: list[str | None] = json.loads(file.read_text())
    return answers


def test_each_example_does_what_its_page_says(said: list[str | None]) -> None:
    wrong = []
    for example, printed in zip(EXAMPLES, said):
        if printed is None:
            continue
        failed = "Traceback" in printed
        raised = bool(re.search(r"^[\w.]+(Error|Unsupported): ", printed, re.M))
        as_told = example.printed is None or same(example.printed.strip(), printed.strip())
        if failed or not as_told or raised is not ("raises" in example.about):
            wrong.append(f"docs/{example.page}:{example.line}\n{printed}")
    ran = [example for example, printed in zip(EXAMPLES, said) if printed is not None]
    assert len(ran) > (5 if "pytorch" in ran[0].about else 15)
    assert not wrong, "\n".join(wrong)


def test_what_is_said_of_an_example_has_a_meaning() -> None:
    for example in EXAMPLES:
        assert example.about <= {"continued", "raises", "elsewhere", "gpu", "ours", "pytorch"}, (
            example.page,
            example.line,
        )
    text = "".join((guides.ROOT / "docs" / name).read_text() for name in {e.page for e in EXAMPLES} - {"README.md"})
    assert text.count("```python") == sum(e.page != "README.md" for e in EXAMPLES)


def anchors(file: Path) -> set[str]:
    """What links within the repository may lead to, as GitHub makes it of headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", file.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("file", sorted((guides.ROOT / "docs").glob("*.md")), ids=lambda file: file.stem)
def test_links_lead_somewhere(file: Path) -> None:
    for link in LINK.findall(file.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        there = (file.parent / path).resolve() if path else file
        assert there.exists(), link
        assert not anchor or anchor in anchors(there), link
