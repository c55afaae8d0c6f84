"""What few programs use, fetched from beside the tab's wheel when something of it is first asked for (see _archive.py)."""

from __future__ import annotations

import os

__all__ = ["fetch"]


def fetch(path: str, name: str) -> None:
    """Fetches the extras out of their wheel, to the file `path`; ModuleNotFoundError that names `name` where that cannot be."""
    address = os.environ.get("TABTORCH_EXTRAS") or _beside(os.path.dirname(path))
    wheel = address.rpartition("/")[2].partition("?")[0] or "tabtorch_extras-….whl"
    why = f"{name.removesuffix('.py').removesuffix('/__init__').replace('/', '.')} is in {wheel}, "
    try:
        if not address:
            raise OSError("it is not known where tabtorch came from")
        import io
        import zipfile

        with zipfile.ZipFile(io.BytesIO(_bytes(address))) as file:
            data = file.read("tabtorch/" + os.path.basename(path))
    except Exception as error:
        raise ModuleNotFoundError(
            f"{why}which lies beside tabtorch's wheel and could not be fetched ({error}); install it, too"
        ) from None
    with open(path, "wb") as file:
        file.write(data)


def _beside(package: str) -> str:
    """The address of the wheel with EXTRAS, beside the one that this package came from; nothing if none is on record."""
    import json

    site = os.path.dirname(package)
    for folder in sorted(os.listdir(site)):
        if folder.startswith("tabtorch-") and folder.endswith(".dist-info"):
            for record in ("PYODIDE_URL", "direct_url.json", "PYODIDE_SOURCE"):
                try:
                    with open(os.path.join(site, folder, record), encoding="utf-8") as file:
                        text = file.read().strip()
                except OSError:
                    continue
                address = json.loads(text)["url"] if record.endswith(".json") else text
                head, slash, last = address.rpartition("/")
                if last.startswith("tabtorch-"):
                    return f"{head}{slash}tabtorch_extras-{last.removeprefix('tabtorch-')}"
    return ""


def _bytes(address: str) -> bytes:
    """What lies at an address, at once: nobody waits in an import. In Node it may be a path."""
    if address.startswith("emfs:"):
        with open(address.removeprefix("emfs:"), "rb") as file:
            return file.read()
    import js
    from pyodide.code import run_js

    if not hasattr(js, "XMLHttpRequest"):
        read = (
            "(a) => new Uint8Array(process.getBuiltinModule('fs').readFileSync(a.startsWith('file:') ? new URL(a) : a))"
        )
    else:  # a page's own thread gets no bytes, but characters for them
        read = """(a) => {
            const request = new XMLHttpRequest();
            request.open("GET", a, false);
            request.overrideMimeType("text/plain; charset=x-user-defined");
            request.send();
            if (request.status !== 200) throw new Error(`HTTP ${request.status}`);
            return Uint8Array.from(request.responseText, (c) => c.charCodeAt(0) & 0xff);
        }"""
    data: bytes = run_js(read)(address).to_bytes()
    return data
