"""The section of COMPATIBILITY.md about other people's libraries."""

from __future__ import annotations

from pathlib import Path

from conformance import sections

from .running import DEVICES, Library, last_line


def write(page: Path, libs: list[Library], results: dict[str, dict[str, dict[str, str]]]) -> None:
    """Put the section into the page."""
    text = sections.put(page.read_text(encoding="utf-8"), sections.LIBRARIES, section(libs, results))
    page.write_text(text, encoding="utf-8")


def section(libs: list[Library], results: dict[str, dict[str, dict[str, str]]]) -> str:
    """The section as Markdown. results: of library, device and case what is wrong, "" if nothing is."""
    lines = [
        sections.LIBRARIES,
        "",
        "Unchanged releases from PyPI, with tabtorch as `torch` (`tabtorch.install()`, CPython). A case is a small program in the "
        "library's usual style (tests/libraries/cases): models forward and backward, some steps of training, what a user reads of "
        "them. It is equal if all its numbers are PyTorch's, within 1e-4 of the largest, or what the file says, at most 1e-3. "
        "`make libraries` makes this section.",
        "",
        f"| library | version | equal on {' | equal on '.join(DEVICES)} | what is different |",
        "|---|---|---|---|---|",
    ]
    for lib in libs:
        found = results[lib.name]
        counts = [f"{sum(not w for w in found[d].values())} of {len(found[d])}" for d in DEVICES]
        lines.append(f"| {lib.name} | {lib.version} | {' | '.join(counts)} | {_different(lib, found)} |")
    return "\n".join([*lines, "", ""])


def _different(lib: Library, found: dict[str, dict[str, str]]) -> str:
    said: dict[str, list[str]] = {}
    for case in lib.cases:
        for device in DEVICES:
            if wrong := found[device][case]:
                why = lib.why(case, device) or f"`{last_line(wrong).replace('|', ' ').replace('`', ' ')[:200]}`"
                said.setdefault(f"{case}: {why}", []).append(device)
    return "; ".join(
        text if len(where) == len(DEVICES) else f"{text} (on {where[0]} only)" for text, where in said.items()
    )
