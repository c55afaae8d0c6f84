"""matplotlib's figures in the page: `plt.show()` puts them in the output. A backend by name, module://tabplot."""

import io

import tabdisplay
from matplotlib._pylab_helpers import Gcf
from matplotlib.backends.backend_agg import FigureCanvasAgg

FigureCanvas = FigureCanvasAgg
format = "png"  # or "svg", "jpeg": see IPython.display.set_matplotlib_formats

_TYPES = {"png": "image/png", "svg": "image/svg+xml", "jpeg": "image/jpeg", "jpg": "image/jpeg"}


def show(*args, **kwargs):
    """Show every open figure below the output so far, in the order in which they were made, and close it."""
    for manager in Gcf.get_all_fig_managers():
        bundle, metadata = forms(manager.canvas.figure)
        tabdisplay.publish(bundle, metadata)
    Gcf.destroy_all()


def forms(figure):
    """A figure's forms by MIME type, and their metadata."""
    file = io.BytesIO()
    figure.savefig(file, format=format, bbox_inches="tight", facecolor=figure.get_facecolor())
    image = file.getvalue()
    mime = _TYPES[format]
    bundle = {mime: image.decode() if format == "svg" else image, "text/plain": repr(figure)}
    return bundle, {mime: {"alt": _alt(figure)}}


def _alt(figure):
    """In words: the titles, and what the axes are called."""
    parts = []
    for axes in figure.get_axes():
        title, x, y = axes.get_title(), axes.get_xlabel(), axes.get_ylabel()
        of = " over ".join(label for label in (y, x) if label)
        parts.append(": ".join(part for part in (title, of) if part))
    words = "; ".join(part for part in parts if part)
    return f"Figure: {words}" if words else f"Figure with {len(parts)} axes"
