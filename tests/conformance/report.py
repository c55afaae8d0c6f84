"""COMPATIBILITY.md from the answers. Never edited by hand: `make conformance` writes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch

from . import checks, left_out
from .checks import Answer

DEVICES = ("webgpu", "cpu")
_DOCS = "https://docs.pytorch.org/docs/stable/"

#: column, and which answers it is made of
_COLUMNS: tuple[tuple[str, tuple[tuple[str, bool | None], ...]], ...] = (
    ("forward", (("forward", True),)),
    ("gradient", (("gradient", None),)),
    ("2nd gradient", (("gradgrad", None),)),
    ("dtypes", (("forward", False),)),
    ("forms", (("variants", None),)),
    ("hard inputs", (("reference", None),)),
    ("layouts", (("layouts", None),)),
    ("errors", (("errors", None),)),
)


def link(name: str) -> str:
    """The address of an operator in PyTorch's documentation, or nothing: internal names have no page."""
    if name.startswith("special."):
        return f"{_DOCS}special.html#torch.{name}"
    if name.startswith("masked."):
        return f"{_DOCS}masked.html"
    plain = name.split(".")[-1]
    if plain.startswith("_") or name.startswith(("torch.", "jiterator", "native_")):
        return ""
    home: Any = torch
    for part in name.split(".")[:-1]:
        home = getattr(home, part, None)
    if hasattr(home, plain) and not (home is torch and not callable(getattr(torch, plain))):
        return f"{_DOCS}generated/torch.{name}.html"
    for method in (plain, plain + "_"):
        if hasattr(torch.Tensor, method):
            return f"{_DOCS}generated/torch.Tensor.{method}.html"
    return ""


def escaped(name: str) -> str:
    """A name as Markdown: two underscores would make it bold."""
    return name.replace("__", r"\_\_")


def first_dtype(name: str, device: str) -> str:
    """The dtype that an operator's first forward answer is in: float32 where it takes that."""
    pairs = checks.asked(checks.operators()[name], device)
    return pairs[0][1] if pairs else ""


def _chosen(answers: Iterable[Answer], parts: tuple[tuple[str, bool | None], ...]) -> list[Answer]:
    found = []
    for a in answers:
        for check, first in parts:
            if a.check == check and (first is None or (a.dtype == first_dtype(a.op, a.device)) == first):
                found.append(a)
    return found


def _cell(answers: list[Answer], dtypes: bool) -> str:
    asked = [a for a in answers if a.passed + a.failed]
    if not asked:
        return "–"
    if dtypes:
        good = sum(a.ok for a in asked)
        return "✓" if good == len(asked) else f"{good}/{len(asked)}"
    passed, total = sum(a.passed for a in asked), sum(a.passed + a.failed for a in asked)
    return "✓" if passed == total else f"{passed}/{total}"


def _score(answers: list[Answer]) -> str:
    asked = [a for a in answers if a.passed + a.failed]
    return f"{sum(a.ok for a in asked)} of {len(asked)}"


def _head(answers: list[Answer], adapter: str, most: int) -> list[str]:
    by_device = {d: [a for a in answers if a.device == d] for d in DEVICES}

    def row(title: str, pick: Any) -> str:
        return f"| {title} | " + " | ".join(_score([a for a in by_device[d] if pick(a)]) for d in DEVICES) + " |"

    samples = sum(a.passed for a in answers)
    total = samples + sum(a.failed for a in answers)
    return [
        "# Compatibility with PyTorch",
        "",
        f"PyTorch {torch.__version__.split('+')[0]} describes its operators in a table of its own, `op_db`, with samples "
        "of their inputs, their dtypes, gradients, bad inputs and tolerances. Each is put here to real PyTorch and to "
        f"tabtorch in the same process, on both devices{f', at most {most} samples a question' if most else ''}; {samples:,} of "
        f"{total:,} comparisons agree.",
        "",
        f"`make conformance` makes this page; nobody edits it. This one was made with webgpu on {adapter}. An operator counts "
        "where every sample of it passes.",
        "",
        "| operators that pass whole | webgpu | cpu |",
        "|---|---|---|",
        row("float32, forward", lambda a: a.check == "forward" and a.dtype == "float32"),
        row("float32, gradient", lambda a: a.check == "gradient" and a.dtype == "float32"),
        row("float32, second gradient", lambda a: a.check == "gradgrad" and a.dtype == "float32"),
        row("complex64, gradient", lambda a: a.check == "gradient" and a.dtype == "complex64"),
        row("complex64, second gradient", lambda a: a.check == "gradgrad" and a.dtype == "complex64"),
        row("other dtypes (operator, dtype), forward", lambda a: a.check == "forward" and a.dtype != "float32"),
        row("method, in-place, `out=`, aliases", lambda a: a.check == "variants"),
        row("hard inputs: nan, inf, -0.0, extremes, empty, 0-d, non-contiguous", lambda a: a.check == "reference"),
        row("inputs laid out otherwise: permuted, channels last, with gaps", lambda a: a.check == "layouts"),
        row("bad inputs: exception and message", lambda a: a.check == "errors"),
        "",
    ]


def _table(answers: list[Answer]) -> list[str]:
    by_op: dict[str, list[Answer]] = defaultdict(list)
    for a in answers:
        by_op[a.op].append(a)
    lines = [
        "## Every operator",
        "",
        "A cell: webgpu, then cpu. ✓ all pass, n/m passed of asked, – nothing to ask. The last three columns are of webgpu, "
        "a call, over the forward samples: dispatches, reads of a value by Python, shaders compiled.",
        "",
        "| operator | " + " | ".join(c for c, _ in _COLUMNS) + " | dispatches | reads | shaders |",
        "|---" * (len(_COLUMNS) + 4) + "|",
    ]
    for op in sorted(by_op, key=str.casefold):
        mine = by_op[op]
        cells = [
            " ".join(_cell(_chosen((a for a in mine if a.device == d), parts), title == "dtypes") for d in DEVICES)
            for title, parts in _COLUMNS
        ]
        url = link(checks.operators()[op].name)
        counts = _counts(mine)
        shown = [f"{counts[k]:.1f}".removesuffix(".0") if counts else "" for k in ("dispatches", "reads", "kernels")]
        lines.append(f"| {f'[{escaped(op)}]({url})' if url else escaped(op)} | " + " | ".join([*cells, *shown]) + " |")
    return [*lines, ""]


def _counts(answers: list[Answer]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for a in answers:
        if a.device == "webgpu" and a.check == "forward":
            for k, n in a.counts.items():
                total[k] += n
    calls = total.pop("calls", 0)
    return {k: n / calls for k, n in total.items()} if calls else {}


def _outliers(answers: list[Answer]) -> list[str]:
    per_op: dict[str, list[Answer]] = defaultdict(list)
    for a in answers:
        per_op[a.op].append(a)
    counts = {op: c for op, mine in per_op.items() if (c := _counts(mine))}
    many = sorted((op for op in counts if counts[op]["dispatches"] > 12), key=lambda op: -counts[op]["dispatches"])
    read = sorted(op for op in counts if counts[op]["reads"] > 0)
    many_named = ", ".join(f"{op} ({counts[op]['dispatches']:.0f})" for op in many)
    return [
        "## Outliers",
        "",
        f"More than twelve dispatches a call, on average: {many_named or 'none'}.",
        "",
        "Read a value in the middle (the shape of their result or their error depends on data, or they compute on the "
        f"host): {', '.join(read) or 'none'}.",
        "",
    ]


def _left_out(answers: list[Answer]) -> list[str]:
    lines = ["## What does not pass, and why", "", "| operators | where | reason |", "|---|---|---|"]
    for x in left_out.LIST:
        hit = [a for a in answers if a.failed and x in left_out.excuses(a)]
        ops = sorted({a.op for a in hit}, key=str.casefold)
        if ops:
            where = sorted({a.device for a in hit}) + ([] if x.checks == ("*",) else sorted({a.check for a in hit}))
            where += [] if x.dtypes == ("*",) else sorted({a.dtype for a in hit})
            lines.append(f"| {escaped(', '.join(ops))} | {', '.join(where)} | {x.reason} |")
    return [*lines, ""]


Rows = list[dict[str, Any]]


def _fraction(cell: tuple[int, int] | None) -> str:
    passed, asked = cell or (0, 0)
    return "–" if not asked else "✓" if passed == asked else f"{passed}/{asked}"


def _rows_table(rows: Rows, first: str, columns: dict[str, str], page: str) -> list[str]:
    """A table of modules or optimizers, a row each, from rows for each and device. page: the start of its documentation's."""
    by_name: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        by_name[row["name"]][row["device"]] = row
    lines = [f"| {first} | " + " | ".join(columns.values()) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in sorted(by_name, key=str.casefold):
        mine = by_name[name]
        cells = (" ".join(_fraction(mine.get(d, {}).get(k)) for d in DEVICES) for k in columns)
        lines.append(f"| [{name}]({_DOCS}generated/{page}{name}.html) | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _whole(rows: Rows, columns: Iterable[str]) -> str:
    """For each device: how many pass whole in these columns, of how many that are asked."""
    said = []
    for d in DEVICES:
        mine = [[row[k] for k in columns if k in row] for row in rows if row["device"] == d]
        asked = [cells for cells in mine if any(n for _, n in cells)]
        said.append(f"{sum(all(a == b for a, b in cells) for cells in asked)} of {len(asked)} on {d}")
    return ", ".join(said)


def _modules(rows: Rows) -> list[str]:
    columns = {"forward": "forward", "gradient": "gradient", "gradgrad": "2nd gradient", "errors": "errors"}
    columns["other"] = "initial values, state_dict, repr, copies, modes"
    return [
        "## Modules",
        "",
        "PyTorch's table `module_db`, but for the quantised ones, and the modules that draw, which it lacks: each with the "
        "samples of its constructor's arguments and its inputs, training and not. What webgpu draws with a generator of its "
        f"own is put into PyTorch's formula. Forward and gradient pass whole for {_whole(rows, ('forward', 'gradient'))}.",
        "",
        *_rows_table(rows, "module", columns, "torch."),
    ]


def _optimizers(rows: Rows) -> list[str]:
    columns = {"steps": "20 steps", "exchange": "state_dict to PyTorch and back", "errors": "errors"}
    return [
        "## Optimizers",
        "",
        "PyTorch's table `optim_db`: parameters and states after steps of every combination of options, states exchanged "
        f"midway. All of them pass for {_whole(rows, columns)}.",
        "",
        *_rows_table(rows, "optimizer", columns, "torch.optim."),
    ]


def compatibility(answers: list[Answer], adapter: str, modules: Rows, optimizers: Rows, most: int = 0) -> str:
    """The page, as Markdown. adapter: what webgpu was; modules, optimizers: `rows()` of the files of these names; most: how
    many samples a question has at most, 0 for all."""
    lines = [*_head(answers, adapter, most), *_left_out(answers), *_outliers(answers)]
    lines += [*_modules(modules), *_optimizers(optimizers), *_table(answers)]
    return "\n".join(lines).rstrip() + "\n"
