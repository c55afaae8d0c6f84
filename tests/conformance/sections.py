"""Sections of COMPATIBILITY.md that commands of their own write: `make conformance` leaves them as they are."""

from __future__ import annotations

import re

#: headings of such sections, in the order in which a page has them
PYTORCH = "## Real PyTorch on device webgpu"
ONNX = "## ONNX"
LIBRARIES = "## Other people's libraries"
HEADINGS = (PYTORCH, ONNX, LIBRARIES)
#: they go before the first of these that a page has
_BEFORE = ("## Modules", "## Every operator")


def kept(page: str, heading: str) -> str:
    """The section that a page has, or ""."""
    found = _section(heading).search(page)
    return found.group() if found else ""


def put(page: str, heading: str, text: str) -> str:
    """The page with this section instead of its own."""
    if kept(page, heading):
        return _section(heading).sub(lambda _: text, page)
    later = HEADINGS[HEADINGS.index(heading) + 1 :]
    at = next((found.start() for h in (*later, *_BEFORE) if (found := _section(h).search(page))), len(page))
    return page[:at] + text + page[at:]


def put_all(page: str, old: str) -> str:
    """A new page with the sections that the old one has."""
    for heading in HEADINGS:
        if text := kept(old, heading):
            page = put(page, heading, text)
    return page


def _section(heading: str) -> re.Pattern[str]:
    return re.compile(rf"^{re.escape(heading)}$.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
