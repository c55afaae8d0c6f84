"""Where a picture or a chart goes: the page, a notebook, or a terminal, which shows text."""

from __future__ import annotations

import atexit
import base64
import html
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tabtorch import _lazy


def page() -> Any:
    """The page's module, where somebody looks at the page."""
    found = sys.modules.get("tabdisplay")
    return found if found is not None and found.looked_at else None


def notebook() -> Any:
    """The shell of Jupyter, where the script runs in one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


_given: set[str] = set()  # to a notebook


def put(bundle: dict[str, Any], metadata: dict[str, dict[str, Any]], ident: str | None) -> bool:
    """Show a MIME bundle in place of what has the id, or below what is there. Whether there is somewhere to show it."""
    if (there := page()) is not None:
        there.publish(bundle, metadata, ident, "new" if ident is None else "put")
    elif (shell := notebook()) is not None:
        from IPython.display import publish_display_data

        if ident is None:
            publish_display_data(bundle)
            return True
        ident += f":{shell.execution_count}"  # a cell that is run again begins with nothing
        publish_display_data(bundle, transient={"display_id": ident}, update=ident in _given)
        _given.add(ident)
    else:
        return False
    return True


_told: set[Callable[[], None]] = set()  # of the end


def at_end(work: Callable[[], None]) -> None:
    """Do this at the end of the script, and of each cell of a notebook. The page tells of the end by itself."""
    if work in _told or page() is not None:
        return
    _told.add(work)
    shell = notebook()
    if shell is not None:
        shell.events.register("post_run_cell", lambda *_: work())
    else:
        atexit.register(work)


def image_html(png: bytes, alt: str, title: str | None, width: int) -> str:
    """For notebooks: their own way with images knows no alt text and blurs pixels."""
    source = "data:image/png;base64," + base64.b64encode(png).decode()
    caption = f"<figcaption>{html.escape(title)}</figcaption>" if title else ""
    style = "image-rendering: pixelated; max-width: 100%"
    image = f'<img src="{source}" alt="{html.escape(alt)}" width="{width}" style="{style}">'
    return f'<figure style="margin: 0">{caption}{image}</figure>'


# -- the value


def library(value: Any) -> Any:
    """The torch that computes with `value`: its own, else the one that the script has imported."""
    real = sys.modules.get("torch")
    return _lazy.torch if real is None or isinstance(value, _lazy.torch.Tensor) else real


def is_tensor(value: Any) -> bool:
    return isinstance(value, library(value).Tensor)


def as_tensor(value: Any, who: str) -> Any:
    """`value` (a tensor of either library, an array, nested lists, a list of tensors) as a tensor without a gradient."""
    torch = library(value)
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, Sequence) and value and all(is_tensor(each) for each in value):
        return library(value[0]).stack([each.detach() for each in value])
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(value).__name__
        raise TypeError(f"{who} takes a tensor, an array or nested lists of numbers, not {kind}: {error}") from None


def from_bytes(data: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
    """A tensor on the default device."""
    torch = library(None)
    found = torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype)).reshape(shape)
    return found.to(torch.get_default_device())


def to_bytes(t: Any) -> bytes:
    """The bytes of a tensor of uint8, row by row. Waits for the device."""
    if isinstance(t, _lazy.torch.Tensor):
        return _lazy.to_host.to_bytes(t)
    return bytes(t.flatten().tolist())
