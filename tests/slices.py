"""What is too long for every run is done a slice at a time, another with each commit: `make everything` does the whole.

TABTORCH_SLICE=7 asks for a certain one, TABTORCH_SLICE=all for all of them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: of a file, or of its tests whose name holds a word: one of so many is run. The rest is in other commits' slices; the
#: operators are also in `make conformance-check`, modules, programs and recurrent layers on the other device, projects and demos
#: in each other's browser, what grows in each other's programs too
SLICES: tuple[tuple[str, str, int], ...] = (
    ("tests/test_aten.py", "[webgpu-", 12),
    ("tests/test_aten.py", "[cpu-", 3),
    ("tests/test_attention_kernels.py", "", 3),
    ("tests/test_flex_kernels.py", "", 4),
    ("tests/test_backend_compile.py", "[cpu-", 2),
    ("tests/test_backend_compile.py", "[webgpu-", 3),
    ("tests/test_backend_eager.py", "test_case[webgpu", 4),
    ("tests/test_backend_projects.py", "[cpu-", 14),
    ("tests/test_backend_projects.py", "[webgpu-", 27),
    ("tests/test_export_load.py", "-cpu]", 8),
    ("tests/test_export_load.py", "-webgpu]", 20),
    ("tests/test_export_save.py", "test_equal", 2),
    ("tests/test_export_higher_order.py", "test_equal", 4),
    ("tests/test_export_transformers.py", "", 6),
    ("tests/test_fuzz_backend.py", "", 3),
    ("tests/test_fuzz_scripted.py", "test_programs", 6),
    ("tests/test_conformance.py", "webgpu", 8),
    ("tests/test_conformance.py", "-cpu", 4),
    ("tests/test_demo.py", "every_epoch", 2),
    ("tests/test_elementwise.py", "webgpu", 6),
    ("tests/test_modules_db.py", "webgpu", 6),
    ("tests/test_gguf_models.py", "are_transformers[", 4),
    ("tests/test_gguf_templates.py", "harm", 3),
    ("tests/test_onnx.py", "own_cases[", 2),
    ("tests/test_onnx.py", "own_cases_on_webgpu", 20),
    ("tests/test_out_dtypes.py", "webgpu", 4),
    ("tests/test_programs.py", "webgpu", 2),
    ("tests/test_nn_recurrent.py", "webgpu-", 3),
    ("tests/test_scan_kernels.py", "", 3),
    ("tests/test_sort_kernels.py", "", 3),
    ("tests/test_soak.py", "grows_on", 3),
    ("tests/test_plan_projects.py", "", 3),
    ("tests/test_projects.py", "webgpu", 5),
    ("tests/test_projects.py", "cpu", 5),
    ("tests/browser/test_projects.py", "", 4),
    ("tests/browser/test_demos.py", "chromium", 6),
    ("tests/browser/test_demos.py", "firefox", 8),
    ("tests/test_cli.py", "firefox", 3),
    ("tests/test_cli.py", "TestRun", 2),
    ("tests/test_cli_run.py", "", 2),
)

#: of the files below a folder, those of their tests whose name holds a word: one file of so many is run, whole, since its
#: tests share a page. The rest is in other commits' slices, and in the other browser's
FOLDERS: tuple[tuple[str, str, int], ...] = (("tests/browser/", "chromium", 6), ("tests/browser/", "firefox", 8))


@functools.cache
def number() -> int:
    """The number that chooses the slices: `TABTORCH_SLICE`, else from the commit, else 0."""
    chosen = os.environ.get("TABTORCH_SLICE", "")
    if chosen:
        return 0 if chosen == "all" else int(chosen)
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):  # no repository, or no git
        return 0
    return int(commit[:7], 16)


def whole() -> bool:
    """Whether all slices were asked for."""
    return os.environ.get("TABTORCH_SLICE") == "all"


def slice_of(n: int, of: str = "") -> int:
    """Which of `n` slices is due, 0 … n - 1. of: what is sliced, so that not all things turn together."""
    return (number() + int(hashlib.sha256(of.encode()).hexdigest()[:6], 16)) % n


def part(items: Sequence[Any], n: int, of: str = "") -> list[Any]:
    """Every n-th of `items`, from the one that is due; n slices together are all of them."""
    return list(items) if whole() else list(items[slice_of(n, of) :: n])


def sliced(names: Sequence[str]) -> tuple[set[int], list[str]]:
    """Of the tests of these names (node ids), the places of those that are not due, and what to say of it."""
    places: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for i, name in enumerate(names):
        file, _, test = name.partition("::")
        found = next((s for s in SLICES if s[0] == file and s[1] in test), None)
        if found:
            places[found].append(i)
    out: set[int] = set()
    said = []
    for (file, word, n), at in places.items():
        kept = part(at, n, file + word)
        if len(at) < 2 or len(kept) == len(at):  # one test that somebody asked for by name
            continue
        out |= set(at) - set(kept)
        said.append(
            f"{len(kept)} of {len(at)} tests of {file}{f' ({word})' if word else ''}: slice {number() % n} of {n}"
        )
    for folder, word, n in FOLDERS:
        at_files = defaultdict(list)
        for i, name in enumerate(names):
            file, _, test = name.partition("::")
            if file.startswith(folder) and word in test and not any(s[0] == file for s in SLICES):
                at_files[file].append(i)
        kept_files = part(sorted(at_files), n, folder + word)
        if len(at_files) < n or len(kept_files) == len(at_files):  # files that somebody asked for by name
            continue
        out |= {i for file, places_in in at_files.items() if file not in kept_files for i in places_in}
        said.append(f"{len(kept_files)} of {len(at_files)} files of {folder} ({word}): slice {number() % n} of {n}")
    return out, said
