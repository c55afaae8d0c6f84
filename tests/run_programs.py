"""Runs the programs of a folder beside it and prints, as JSON, what each printed. For test_programs.py and test_projects.py.

run_programs.py FOLDER [--tabtorch DEVICE] [NAME ...]
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
    folder = Path(__file__).parent / arguments[0]
    arguments = arguments[1:]
    if arguments[:1] == ["--tabtorch"]:
        import tabtorch

        tabtorch.install(cuda=arguments[1] != "cpu")
        if arguments[1] != "webgpu":  # which is the default where it is there: unnamed, as in a tab
            tabtorch.set_default_device(arguments[1])
        arguments = arguments[2:]
    import torch

    names = arguments or sorted(path.stem for path in folder.glob("*.py"))
    results = {}
    for name in names:
        results[name] = printed(folder / f"{name}.py")
        torch.set_printoptions(profile="default")
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
