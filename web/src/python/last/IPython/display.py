"""Values with a form of their own: HTML, Markdown, images and the like. Signatures are IPython's.

https://ipython.readthedocs.io/en/stable/api/generated/IPython.display.html
"""

import array
import base64
import html
import io
import json
import mimetypes
import os
import wave

from tabdisplay import DisplayHandle, clear_output, display, publish, update_display

__all__ = [
    "Audio",
    "Code",
    "DisplayHandle",
    "DisplayObject",
    "HTML",
    "IFrame",
    "Image",
    "JSON",
    "Latex",
    "Markdown",
    "Math",
    "Pretty",
    "SVG",
    "TextDisplayObject",
    "clear_output",
    "display",
    "publish_display_data",
    "set_matplotlib_formats",
    "update_display",
]


def publish_display_data(data, metadata=None, *, transient=None, **kwargs):
    """Show a MIME bundle as it is."""
    publish({"text/plain": ""} | data, metadata, (transient or {}).get("display_id"))


def set_matplotlib_formats(*formats, **kwargs):
    """How matplotlib's figures are shown: "png", "svg" or "jpeg"."""
    import tabplot

    known = [each for each in formats if each in ("png", "svg", "jpeg", "jpg")]
    if not known:
        raise ValueError(f"a figure is shown as png, svg or jpeg, not as {formats!r}")
    tabplot.format = known[0]


class DisplayObject:
    """Data, or the name of a file that holds it, to be shown in one form."""

    _mode = "r"

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if isinstance(data, os.PathLike):
            data, filename = None, os.fspath(data)
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata or {}
        self.reload()

    def __repr__(self):
        return f"<IPython.core.display.{type(self).__name__} object>"

    def reload(self):
        """Read the file, or the address, again."""
        if self.filename is not None:
            with open(self.filename, self._mode) as file:
                self.data = file.read()
        elif self.url is not None:
            from pyodide.http import open_url

            self.data = open_url(self.url).read()

    def _form(self):
        return (self.data, self.metadata) if self.metadata else self.data


class TextDisplayObject(DisplayObject):
    """The same, of text."""


class HTML(TextDisplayObject):
    """HTML; scripts and frames in it are left out."""

    def _repr_html_(self):
        return self._form()

    def __html__(self):
        return self.data


class Markdown(TextDisplayObject):
    def _repr_markdown_(self):
        return self._form()


class SVG(TextDisplayObject):
    """An SVG, from text or bytes."""

    def _repr_svg_(self):
        return self.data.decode() if isinstance(self.data, bytes) else self._form()


class Latex(TextDisplayObject):
    """LaTeX, shown as it is written."""

    def _repr_latex_(self):
        return self._form()


class Math(TextDisplayObject):
    """A formula in LaTeX, shown as it is written."""

    def _repr_latex_(self):
        return rf"$\displaystyle {self.data.strip('$')}$"


class JSON(DisplayObject):
    """What `json` takes, or text that it reads."""

    def __init__(self, data=None, url=None, filename=None, expanded=False, metadata=None, root="root", **kwargs):
        super().__init__(data, url, filename, metadata)

    def _repr_json_(self):
        return json.loads(self.data) if isinstance(self.data, str) else self.data


class Pretty(TextDisplayObject):
    """Text, shown as it is."""

    def __repr__(self):
        return str(self.data)


class Code(TextDisplayObject):
    """A piece of a program."""

    def __init__(self, data=None, url=None, filename=None, language=None):
        self.language = language
        super().__init__(data, url, filename)

    def __repr__(self):
        return str(self.data)

    def _repr_html_(self):
        return f"<pre><code>{html.escape(self.data)}</code></pre>"


class Image(DisplayObject):
    """A PNG, JPEG, GIF or WebP image: bytes, a file's name, or an address."""

    _mode = "rb"
    #: how such a file begins
    _BEGINNINGS = {b"\x89PNG": "png", b"\xff\xd8": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}

    def __init__(
        self,
        data=None,
        url=None,
        filename=None,
        format=None,
        embed=None,
        width=None,
        height=None,
        retina=False,
        unconfined=False,
        metadata=None,
        alt=None,
    ):
        if isinstance(data, str):  # a name or an address
            is_url = data.startswith(("http://", "https://", "data:"))
            data, url, filename = None, data if is_url else url, filename if is_url else data
        self.format, self.width, self.height, self.alt = format, width, height, alt
        super().__init__(data, url, filename, metadata)
        if self.data is None and self.url is None:
            raise ValueError("No image data found. Expecting filename, url, or data.")

    def reload(self):
        if self.filename is not None:
            super().reload()

    @property
    def _type(self):
        if self.format:
            return "image/" + {"jpg": "jpeg"}.get(self.format.lower(), self.format.lower())
        kinds = [kind for start, kind in self._BEGINNINGS.items() if self.data.startswith(start)]
        if not kinds:
            raise ValueError("these bytes are no PNG, JPEG, GIF or WebP image")
        return f"image/{kinds[0]}"

    def _sizes(self):
        given = {"width": self.width, "height": self.height, "alt": self.alt}
        return self.metadata | {name: value for name, value in given.items() if value is not None}

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.data is not None:
            return {self._type: bytes(self.data)}, {self._type: self._sizes()}
        sizes = "".join(f' {name}="{html.escape(str(value))}"' for name, value in self._sizes().items())
        return {"text/html": f'<img src="{html.escape(self.url)}"{sizes}>'}


class IFrame:
    """Another page. Output has no frames here, so it is a link that opens beside this page."""

    def __init__(self, src, width=None, height=None, extras=None, **kwargs):
        self.src = src

    def __repr__(self):
        return f"<IFrame {self.src}>"

    def _repr_html_(self):
        address = html.escape(self.src)
        return f'<p><a href="{address}">{address}</a></p>'


class Audio(DisplayObject):
    """Sound with a control to play it: samples (a tensor, an array or a list; of several channels (channels, time)) and
    their `rate` in Hz, or a file's bytes, name or address."""

    _mode = "rb"

    def __init__(
        self,
        data=None,
        filename=None,
        url=None,
        embed=None,
        rate=None,
        autoplay=False,
        normalize=True,
        *,
        element_id=None,
    ):
        if isinstance(data, str):
            is_url = data.startswith(("http://", "https://"))
            data, url, filename = None, data if is_url else url, filename if is_url else data
        self._type = mimetypes.guess_type(filename or url or "")[0] or "audio/wav"
        if data is not None and not isinstance(data, bytes):
            if rate is None:
                raise ValueError("rate must be specified when data is a numpy array or list of audio samples.")
            data = _wav(data.tolist() if hasattr(data, "tolist") else list(data), rate, normalize)
        super().__init__(data, url, filename)

    def reload(self):
        if self.filename is not None:
            super().reload()

    def _repr_html_(self):
        source = self.url
        if self.data is not None:
            source = f"data:{self._type};base64,{base64.b64encode(self.data).decode()}"
        return f'<audio controls src="{html.escape(source)}"></audio>'


def _wav(samples, rate, normalize):
    """Samples from -1 to 1 as a WAV file of 16 bits; normalized, the loudest is as loud as can be."""
    channels = samples if samples and isinstance(samples[0], list) else [samples]
    loudest = max((abs(each) for channel in channels for each in channel), default=0)
    if not normalize and loudest > 1:
        raise ValueError("Audio data must be between -1 and 1 when normalize=False.")
    scale = 32767 / (loudest or 1) if normalize else 32767
    frames = array.array("h", (int(each * scale) for frame in zip(*channels) for each in frame))
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(len(channels))
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(frames.tobytes())
    return file.getvalue()
