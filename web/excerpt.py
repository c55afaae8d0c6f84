"""The part of Python's library that a page wants before its first script runs, as an archive. Runs in Pyodide, in the build.

The page fetches that part first, and the whole library when something is imported that is not in it: src/python/tablibrary.py.
"""

import importlib
import io
import sys
import tokenize
import zipfile

ARCHIVE = f"/lib/python{sys.version_info.major}{sys.version_info.minor}.zip"
#: what nearly every script, or what tabtorch shows, saves and loads, wants soon after
SOON = ("copy", "csv", "datetime", "html", "pickle", "pickletools", "pprint", "timeit")


async def _load():
    """Import what the page does as it starts, and as a script does."""
    import tabcomplete
    import tabfresh

    import tabtorch
    from tabtorch.bridge.pyodide import load_runtime

    tabtorch.install()
    load_runtime()  # as far as a device's start goes where there is none
    tabfresh.remember()
    await tabfresh.restore()
    tabcomplete.complete("len", {})
    for name in SOON:
        importlib.import_module(name)


def _files():
    """What is loaded from the archive. Frozen modules are inside the interpreter; their files only show lines of them."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        spec = getattr(module, "__spec__", None)
        if file.startswith(f"{ARCHIVE}/") and not (spec and spec.origin == "frozen"):
            yield file.removeprefix(f"{ARCHIVE}/")


def _without_comments(source):
    """The same program, and the same lines of it: a fifth of the bytes is comments."""
    lines = source.decode().splitlines(keepends=True)
    for token in tokenize.generate_tokens(iter(lines).__next__):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    return "".join(lines).encode()


async def excerpt():
    """The archive's bytes: sources of what is loaded, and the names of those that are not."""
    await _load()
    wanted = set(_files())
    made = io.BytesIO()
    with zipfile.ZipFile(ARCHIVE) as whole, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as part:
        missing = []
        for info in whole.infolist():
            if info.filename in wanted:
                part.writestr(info, _without_comments(whole.read(info)), zipfile.ZIP_DEFLATED, 9)
            elif info.filename.endswith(".py"):
                missing.append(info.filename)
        names = {file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in missing}
        absent = zipfile.ZipInfo("_absent.py", (1980, 1, 1, 0, 0, 0))
        part.writestr(absent, f"NAMES = {sorted(names)}\n", zipfile.ZIP_DEFLATED, 9)
    return made.getvalue()
