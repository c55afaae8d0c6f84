"""What a script shows other than text, by Jupyter's protocol: the forms of a value by MIME type go to the page.

`tabdisplay.publish` is the one way there; an element with an id can be changed later, from wherever.
"""

import base64
import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import traceback

import tabcontrols

looked_at = False  # whether somebody sits before the page; else there is a terminal, or nobody
_emit = _flush = None

#: MIME type -> the method that gives it, as in IPython
_METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
}


def start(emit, flush, interactive):
    """Connect the page; values, figures and notebooks' own names are as in a notebook from here on."""
    global _emit, _flush, looked_at
    _emit, _flush, looked_at = emit, flush, interactive
    # where the real IPython is installed it is found before
    last = os.path.join(os.path.dirname(__file__), "last")
    sys.path.append(last)
    sys.meta_path.insert(0, _TextBars())
    os.environ.setdefault("MPLBACKEND", "module://tabplot")
    builtins.display = display
    builtins.get_ipython = _get_ipython
    sys.displayhook = displayhook
    tabcontrols.start(lambda *args: emit("control", *args))


def _get_ipython():
    """What notebooks call without an import."""
    from IPython import get_ipython

    return get_ipython()


def publish(bundle, metadata=None, ident=None, mode="new"):
    """Show the forms in `bundle` (MIME type -> str or bytes), the richest that the page knows.

    metadata: MIME type -> dict; of an image `alt`, and `width` and `height` in CSS pixels.
    mode: "new" places it below what is there; "update" changes all that have the id `ident`; "put" does that, or places it.
    """
    if not looked_at or (ident is None and bundle.keys() <= {"text/plain"}):
        print(bundle.get("text/plain", ""))
        return
    _flush()
    _emit("display", bundle, metadata or {}, ident, mode)


def control(kind, about, first):
    """A control below what was printed: what tabtorch.display has of it. first: its numbers."""
    _flush()
    return tabcontrols.Link(kind, about, first)


def clear_output(wait=False):
    """Take away what was shown; with `wait`, once something else is shown."""
    _flush()
    if looked_at:
        _emit("clear", wait)


def _method(value, name):
    """Bound, if the type has it: what answers to every name (a mock, a proxy) has it not."""
    found = getattr(type(value), name, None)
    return None if found is None or isinstance(value, type) else found.__get__(value)


def _asked(method, *args, **kwargs):
    """What a method of the value says; an error of its own is shown, and the value in another form."""
    try:
        found = method(*args, **kwargs)
    except NotImplementedError:
        found = None
    except Exception:
        traceback.print_exc()
        found = None
    return found if isinstance(found, tuple) and len(found) == 2 else (found, None)


def _content(mime, data):
    """As the page takes it: bytes for images, which some give as base64, else text."""
    if mime.startswith("image/") and not mime.endswith("+xml") and isinstance(data, str):
        return base64.b64decode(data)
    if isinstance(data, (str, bytes)):
        return data
    return json.dumps(data, indent=2, default=str)


def forms(value, include=None, exclude=None):
    """The forms of `value` other than text, MIME type -> str or bytes, and their metadata."""
    found, metadata = {}, {}
    if figure := _figure(value):
        return figure
    for mime, name in _METHODS.items():
        if (method := _method(value, name)) is not None:
            data, about = _asked(method)
            found[mime] = data
            if about:
                metadata[mime] = about
    if (method := _method(value, "_repr_mimebundle_")) is not None:
        data, about = _asked(method, include=include, exclude=exclude)
        found.update(data or {})
        metadata.update(about or {})
    wanted = {
        mime: _content(mime, data)
        for mime, data in found.items()
        if data is not None and (not include or mime in include) and mime not in (exclude or ())
    }
    return wanted, metadata


def _figure(value):
    """Of a figure of matplotlib, which has no method of that kind."""
    if type(value).__module__ != "matplotlib.figure" or not hasattr(value, "savefig"):
        return None
    import tabplot

    return tabplot.forms(value)


def _new_id():
    return os.urandom(16).hex()


def _text(value):
    return {"text/plain": repr(value)}


def _show(value, include, exclude, metadata, ident, mode):
    shows = _method(value, "_ipython_display_")
    if shows is not None and ident is None:
        shows()
        return
    bundle, about = forms(value, include, exclude)
    publish(_text(value) | bundle, about | (metadata or {}), ident, mode)


def display(
    *objs, include=None, exclude=None, metadata=None, transient=None, display_id=None, raw=False, clear=False, **kwargs
):
    """Show values in their richest form: see IPython.display.display. With `display_id` (True for a new one) a handle."""
    if clear:
        clear_output(wait=True)
    ident = _new_id() if display_id is True else display_id
    mode = "update" if kwargs.pop("update", False) else "new"
    for each in objs:
        if raw:
            publish(each, metadata, ident, mode)
        else:
            _show(each, include, exclude, metadata, ident, mode)
    return None if ident is None else DisplayHandle(ident)


def update_display(obj, *, display_id, **kwargs):
    """Show `obj` in place of what has that id."""
    display(obj, display_id=display_id, update=True, **kwargs)


class DisplayHandle:
    """Of something shown with an id: it can be changed where it is."""

    def __init__(self, display_id=None):
        self.display_id = display_id or _new_id()

    def __repr__(self):
        return f"<DisplayHandle display_id={self.display_id}>"

    def display(self, obj, **kwargs):
        display(obj, display_id=self.display_id, **kwargs)

    def update(self, obj, **kwargs):
        update_display(obj, display_id=self.display_id, **kwargs)


def displayhook(value):
    """The value of an expression at the prompt, or of a cell's last line. `_` is it from now on, `__` the one before."""
    if value is None:
        return
    builtins.__ = vars(builtins).get("_")
    shows = _method(value, "_ipython_display_")
    bundle, metadata = ({}, {}) if shows is not None else forms(value)
    if shows is None and not bundle:
        sys.__displayhook__(value)
        return
    builtins._ = value
    if shows is not None:
        shows()
    else:
        publish(_text(value) | bundle, metadata)


def finish():
    """The end of a script or a cell: charts are brought up to date, and figures shown that were not. Event files are written."""
    records = sys.modules.get("tabtorch.utils.tensorboard._records")
    if records is not None:
        records.finish()
    charts = sys.modules.get("tabtorch.display.charts")
    if charts is not None:
        charts.finish()
    if "matplotlib.pyplot" in sys.modules:
        import tabplot

        tabplot.show()


def begin():
    """A script, a cell or a line of the prompt begins: its controls are its own."""
    controls = sys.modules.get("tabtorch.display.controls")
    if controls is not None:
        controls.forget()


def fresh():
    """A script begins: charts of the one before are not gone on with."""
    charts = sys.modules.get("tabtorch.display.charts")
    if charts is not None:
        charts.forget()


class _TextBars(importlib.abc.MetaPathFinder):
    """`tqdm.notebook` needs Jupyter's widgets. Without them its names are those of the bars in text."""

    def find_spec(self, name, path=None, target=None):
        if name != "tqdm.notebook" or importlib.util.find_spec("ipywidgets") is not None:
            return None
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from tqdm import std

        module.tqdm = module.tqdm_notebook = std.tqdm
        module.trange = module.tnrange = std.trange
        module.__all__ = ["tqdm", "tqdm_notebook", "trange", "tnrange"]
