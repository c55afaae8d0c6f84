"""The figures for people: a table, and BENCHMARKS.md."""

from __future__ import annotations

import math
from typing import Any

from bench.rivals import NAMES

#: results of the two sides may differ by so much of the largest number compared: sums in another order
_TOLERANCE = 1e-2


def line(side: str, row: dict[str, Any]) -> str:
    """One measurement, as it comes."""
    if "failed" in row:
        return f"{side:16}{row['name']:44} {row['failed']}"
    gpu = "" if row["gpu"] is None else f"{row['gpu']:10.3f} on the GPU"
    return f"{side:16}{row['name']:44}{row['done']:10.3f} ms{gpu}"


def differs(row: dict[str, Any], other: str = "native") -> bool | None:
    """Whether the two sides come to other numbers; None where that cannot be said."""
    sides = [row.get(side, {}).get("numbers") for side in ("tabtorch", other)]
    if None in sides or len(sides[0]) != len(sides[1]):
        return None
    size = max((abs(v) for v in sides[1]), default=0.0)
    return any(not math.isclose(a, b, rel_tol=0, abs_tol=_TOLERANCE * size + 1e-6) for a, b in zip(*sides))


def wrong(found: dict[str, Any]) -> bool:
    """Whether a row failed, or came to other numbers."""
    return any("failed" in row.get("tabtorch", {"failed": ""}) or bool(differs(row)) for row in found["rows"].values())


def _adapter(about: dict[str, Any]) -> str:
    adapter = about.get("adapter") or {}
    words = [adapter[k] for k in ("vendor", "architecture", "device", "description") if adapter.get(k)]
    return " ".join(dict.fromkeys(words)) or "none"


def _rate(row: dict[str, Any], unit: str) -> str:
    if "work" not in row:
        return ""
    ms = row["gpu"] or row["done"]
    return f"{row['work'] / ms / 1e9:.3g} {unit}"


HEAD = (
    "step",
    "done",
    "called",
    "GPU",
    "native",
    "native GPU",
    "ratio",
    "rate",
    "dispatches",
    "submits",
    "new buffers",
    "first",
    "peak MB",
    "notes",
)


#: where the columns of other libraries are
_BESIDE = HEAD.index("ratio") + 1


def rivals(found: dict[str, Any]) -> list[str]:
    """The other libraries that have figures: each has a column, of its milliseconds until done."""
    return [side for side in NAMES if any("done" in row.get(side, {}) for row in found["rows"].values())]


def head(others: list[str]) -> tuple[str, ...]:
    return (*HEAD[:_BESIDE], *others, *HEAD[_BESIDE:])


def _beside(row: dict[str, Any], side: str) -> str:
    """The cell of another library: of wrong numbers no time is told."""
    found = row.get(side, {})
    if "done" not in found:
        return "failed" if "failed" in found else ""
    return "other numbers" if differs(row, side) else f"{found['done']:.3f}"


def cells(name: str, row: dict[str, Any], others: list[str]) -> tuple[str, ...]:
    """A row of the table; times in milliseconds. ratio: to native PyTorch, until done, or on the GPU where both know."""
    from bench.rows import ROWS

    ours, theirs = row.get("tabtorch", {}), row.get("native", {})
    if "done" not in ours:
        return (name, ours.get("failed", "not run"), *[""] * (len(head(others)) - 2))
    number = lambda x: "" if x is None else f"{x:.3f}"  # noqa: E731
    counts = ours["counts"]
    ratio = ours["done"] / theirs["done"] if "done" in theirs else None
    beside = [_beside(row, side) for side in others]
    return (
        name,
        number(ours["done"]),
        number(ours["called"]),
        number(ours["gpu"]),
        number(theirs.get("done")),
        number(theirs.get("gpu")),
        "" if ratio is None else f"{ratio:.2f}",
        *beside,
        _rate(ours, ROWS[name].unit) if name in ROWS else "",
        *(f"{counts.get(k, 0):.0f}" for k in ("dispatches", "submits", "buffersCreated")),
        "" if ours.get("first") is None else f"{ours['first']:.0f}",
        "" if ours.get("peak") is None else f"{ours['peak'] / 1e6:.0f}",
        "other numbers" if differs(row) else "",
    )


def heading(found: dict[str, Any]) -> str:
    """Where and with what."""
    parts = [f"{found['host']}, {found['machine']}, {found['time']}"]
    if found.get("commit"):
        parts.append(f"commit {found['commit']}")
    for side, about in found["sides"].items():
        parts.append(
            f"{side} {about['version']} on {about['device']} ({_adapter(about)})"
            + (f", Python {about['python']}" if about.get("python") else "")
            + (f", {about['platform']}" if about.get("platform") else "")
        )
    return "; ".join(parts) + ("; small sizes" if found["small"] else "")


def table(found: dict[str, Any]) -> str:
    """For a terminal. Times in milliseconds a step: until done, until Python went on, on the GPU by timestamps."""
    others = rivals(found)
    rows = [head(others), *(cells(name, row, others) for name, row in found["rows"].items())]
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    text = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip()
        for r in rows
    ]
    return "\n".join([heading(found), "", *text])


def document(found: dict[str, Any]) -> str:
    """BENCHMARKS.md."""
    others = rivals(found)
    lines = [
        "# What tensor programs cost",
        "",
        "Made by `python -m bench` (`make bench-gpu`). Milliseconds a step, medians of five rounds, after half a second of the",
        "same work or more, until rounds take the same: *done*, until the GPU is done; *called*, until Python went on; *GPU*, by",
        "timestamps around each kernel, which is a pass of its own then: that adds some 10 µs to each.",
        "Native PyTorch runs on the same card in the same hour, with TF32 off. *ratio*: done to native's done, less is better.",
        "*first*: the first step, with what it compiles, as far as a row before has not; *peak MB*: bytes on the device, the",
        "most so far.",
        *(
            [
                f"{', '.join(f'*{o}*' for o in others)}: done, in the same browser, from the same inputs; nothing where a library",
                "has no such step.",
            ]
            if others
            else []
        ),
        "",
        heading(found),
        "",
        "| " + " | ".join(head(others)) + " |",
        "|---" + "|---:" * (len(head(others)) - 1) + "|",
        *("| " + " | ".join(cells(name, row, others)) + " |" for name, row in found["rows"].items()),
        "",
    ]
    return "\n".join(lines)
