"""Runs each program of `tests/programs` and prints, as JSON, what each printed. For test_programs.py.

run_programs.py [--tabtorch DEVICE] [NAME ...]
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
import traceback
import warnings
from pathlib import Path

FOLDER = Path(__file__).parent / "programs"


def printed(path: Path) -> dict[str, str]:
    """What the program says on standard output, and the traceback that ended it."""
    out = io.StringIO()
    error = ""
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            runpy.run_path(str(path), run_name="__main__")
        except BaseException:
            error = traceback.format_exc()
    return {"out": out.getvalue(), "error": error}


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--tabtorch"]:
        import tabtorch

        tabtorch.install()
        tabtorch.set_default_device(arguments[1])
        arguments = arguments[2:]
    import torch

    names = arguments or sorted(path.stem for path in FOLDER.glob("*.py"))
    results = {}
    for name in names:
        results[name] = printed(FOLDER / f"{name}.py")
        torch.set_printoptions(profile="default")
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
