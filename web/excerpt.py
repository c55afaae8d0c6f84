"""The part of Python's library that a page wants before its first script runs, as an archive. Runs in Pyodide, in the build.

The page fetches that part first, and the whole library when something is imported that is not in it: src/python/tablibrary.py.
"""

import importlib
import io
import sys
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


async def excerpt():
    """The archive's bytes: sources of what is loaded, as they are, and the names of those that are not."""
    await _load()
    files = (getattr(module, "__file__", None) or "" for module in list(sys.modules.values()))
    wanted = {file.removeprefix(f"{ARCHIVE}/") for file in files if file.startswith(f"{ARCHIVE}/")}
    made = io.BytesIO()
    with zipfile.ZipFile(ARCHIVE) as whole, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as part:
        absent = []
        for info in whole.infolist():
            if info.filename in wanted:
                part.writestr(info, whole.read(info), zipfile.ZIP_DEFLATED, 9)
            elif info.filename.endswith(".py"):
                absent.append(info.filename)
        names = {file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in absent}
        part.writestr(zipfile.ZipInfo("_absent.py", (1980, 1, 1, 0, 0, 0)), f"NAMES = {sorted(names)}\n")
    return made.getvalue()
