"""ARCHITECTURE.md: the files that it names are there, its table of layers is the tests', and its numbers of places hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tabtorch
from test_layers import LAYERS

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PACKAGE = ROOT / "py" / "tabtorch"


def _files_with(word: str) -> set[str]:
    """The files of the package that have a word."""
    found = re.compile(rf"\b{word}\b")
    return {p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py") if found.search(p.read_text())}


def test_what_is_named_exists() -> None:
    patterns = {"docs/NAME.md", "web/demos/NN-name.py", "wgsl/NAME.wgsl"}
    for file, least in (("ARCHITECTURE.md", 50), ("README.md", 8), ("RELIABILITY.md", 1)):
        text = (ROOT / file).read_text()
        named = set(re.findall(r"(?<![\w/.])(?:py|js|wgsl|docs|tests|web/demos)/[\w./-]*\w", text)) - patterns
        assert len(named) >= least, file
        missing = sorted(name for name in named if not (ROOT / name).exists())
        assert not missing, (file, missing)


def test_short_names_are_in_the_folder_that_was_named_last() -> None:
    """As in "py/tabtorch/engine/wgsl.py or js.py"."""
    short = 0
    for paragraph in re.split(r"\n\s*\n|\n(?=- |\| |\d\. )", TEXT):
        folder = None
        for name in re.findall(r"(?<![\w/.])[\w/.-]+\.(?:py|ts|wgsl|mjs)\b", paragraph):
            if "/" in name:
                folder = (ROOT / name).parent
            elif folder is not None:
                short += 1
                assert (folder / name).exists(), (name, paragraph)
    assert short > 7


def test_comments_name_files_that_exist() -> None:
    """Those that are named with their folder."""
    there = [
        "/" + p.relative_to(ROOT).as_posix() for part in ("py", "js/src", "tests") for p in (ROOT / part).rglob("*.*")
    ]
    wrong = []
    for path in (
        PACKAGE / part for part in ("base", "bridge", "engine", "core", "autograd", "ops", "compiled", "func")
    ):
        for each in path.rglob("*.py"):
            for name in re.findall(r"(?<![\w/.\"'])(?!torch/)[a-z_]+/[\w/]+\.(?:py|ts)\b(?![\"'])", each.read_text()):
                if not any(p.endswith("/" + name) for p in there):
                    wrong.append((each.name, name))
    assert not wrong, wrong


def test_every_folder_is_named() -> None:
    """Those of the package that are not PyTorch's, and those of its operations."""
    import torch

    section = TEXT.partition("## Layers")[2].partition("## Words")[0]
    public = {name.partition(".")[0] for name in dir(torch)} | {"data", "_dynamo", "webgpu"}
    own = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name not in public and not p.name.startswith("_")}
    own |= {p.name for p in (PACKAGE / "ops").iterdir() if p.is_dir()} - {"__pycache__"}
    assert len(own) > 15
    missing = sorted(name for name in own if not re.search(rf"\b{name}\b", section))
    assert not missing, missing


def test_functions_are_where_it_says() -> None:
    for file, name in (
        ("engine/graph.py", "def emit("),
        ("engine/graph.py", "def flush_queue("),
        ("engine/view.py", "class Meta"),
        ("engine/steps.py", "class Dispatch"),
        ("engine/virtual.py", "class Virtual"),
        ("engine/rows.py", "def emit("),
        ("engine/fuse.py", "def _both("),
        ("engine/fuse.py", "def _may_join("),
        ("engine/instructions.py", "class Inst"),
        ("engine/kinds.py", "class Custom"),
        ("bridge/base.py", "LOCK = "),
        ("ops/functional/activation.py", "def softmax("),
        ("bridge/pyodide.py", "    def _read("),
        ("bridge/node.py", "    def read("),
    ):
        assert name in (PACKAGE / file).read_text(), (file, name)


def test_the_table_of_layers() -> None:
    section = TEXT.partition("## Layers")[2].partition("## Folders")[0]
    rows = re.findall(r"^\| (\w+) \| ", section, re.M)
    assert [row for row in rows if row != "layer"] == [name for name, _ in LAYERS]


#: where gradients that are operators of their own are, too
ATEN = ("ops/aten/activation_gradients.py", "ops/aten/loss_functions.py")
#: how it is called in an exported program, and the table of ATen's schemas, which is generated
EXPORT = {"export/lowering.py", "export/schemas_table.py"}
#: what ONNX has an operator of the same name for
ONNX = "onnx/exporting/elementwise.py"


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("erfcx", {"ops/rows/special.py", "engine/special_functions.py"}),
        (
            "hardswish",
            {
                "ops/rows/activations.py",
                "ops/functional/activation.py",
                "nn/modules/activation.py",
                ATEN[0],
                ONNX,
                *EXPORT,
            },
        ),
        ("huber_loss", {"ops/functional/loss.py", "nn/modules/loss.py", "amp/_policies.py", ATEN[1], *EXPORT}),
    ],
)
def test_places_to_touch(name: str, places: set[str]) -> None:
    assert any(hasattr(module, name) for module in (tabtorch.nn.functional, tabtorch.special))
    assert _files_with(name) == places


def test_readme_points_to_it() -> None:
    assert "ARCHITECTURE.md" in (ROOT / "README.md").read_text()
