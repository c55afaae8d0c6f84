"""The section of COMPATIBILITY.md on real PyTorch, from answers. Never edited by hand: `python -m backend_db --page` writes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from conformance import sections

from . import left_out
from .workers import CHECKS, Answer

_TABLES = (
    ("operators", "operators of `op_db`"),
    ("compiled", "operators of `op_db`, compiled"),
    ("modules", "modules of `module_db`"),
    ("optimizers", "optimizers of `optim_db`"),
)


def section(answers: Iterable[Answer]) -> str:
    """The section, as Markdown."""
    every = list(answers)
    lines = [
        sections.PYTORCH,
        "",
        'The same tables where PyTorch itself is installed, and its tensors are on its `device="webgpu"` (`tabtorch.backend`): '
        "each entry on the device against PyTorch's CPU, with its first samples. `python -m backend_db` (in tests) asks them, "
        "and `--page` makes this section. A cell: ✓ all entries pass, n/m passed of asked, – not asked; under webgpu lie the GPU's "
        "kernels (webgpu) or the same as JavaScript (cpu). *out= otherwise*: of other sizes, layouts and types, with PyTorch's "
        "warnings and errors. *layouts*: inputs that are strided, transposed, expanded. *errors*: PyTorch's bad inputs, by the type "
        "of the exception; *messages*: by its words.",
        "",
    ]
    for table, title in _TABLES:
        checks = CHECKS[table]
        mine = [x for x in every if x.table == table]
        if not mine:
            continue
        groups: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        for x in mine:
            groups[x.dtype, x.device].append(x)
        lines += [f"| {title} | on | " + " | ".join(checks) + " |", "|---" * (len(checks) + 2) + "|"]
        for (dtype, device), found in groups.items():
            cells = " | ".join(_cell(found, check) for check in checks)
            lines.append(f"| {dtype} | {device} | {cells} |")
        lines.append("")
    lines += [f"Processes that ended in between: {sum(x.crashed for x in every)}. What does not pass:", ""]
    return "\n".join([*lines, *_wrong(every), "", ""])


def _cell(answers: list[Answer], check: str) -> str:
    asked = [x.checks[check] for x in answers if check in x.checks]
    right = sum(not why for why in asked)
    return "–" if not asked else f"✓ ({right})" if right == len(asked) else f"{right}/{len(asked)}"


def _wrong(every: list[Answer]) -> list[str]:
    found: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for x in every:
        if x.wrong:
            why = left_out.reason(x) or "; ".join(sorted(" ".join(w.split())[:160] for w in x.wrong.values()))
            found[x.name, why].append(x)
    lines = ["| entry | where | why |", "|---|---|---|"]
    for (name, why), mine in sorted(found.items()):
        where = (
            sorted({x.device for x in mine})
            + sorted({x.dtype for x in mine})
            + sorted({c for x in mine for c in x.wrong})
        )
        lines.append(f"| {_plain(name)} | {', '.join(where)} | {_plain(why)} |")
    return lines


def _plain(text: str) -> str:
    """As Markdown's cells have it."""
    return text.replace("|", "\\|").replace("__", r"\_\_").replace("<", "&lt;")
