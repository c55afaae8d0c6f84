"""Runs cases in the environment of the libraries: `python child.py FILE torch|cpu|webgpu NAME ...`.

With `torch`, `import torch` is real PyTorch; else it is tabtorch, on that device. Prints a line of JSON for each case: its name,
its numbers, what went wrong ("" if nothing did), and how long it took.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import traceback
import warnings
from typing import Any


def numbers(value: Any) -> Any:
    """A result as JSON has it: tensors and arrays as lists of numbers."""
    if isinstance(value, dict):
        return {str(k): numbers(v) for k, v in value.items()}
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if value.is_complex():
            value = [value.real.tolist(), value.imag.tolist()]
        else:
            value = value.tolist()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [numbers(v) for v in value]
    return value


def main(file: str, torch: str, *names: str) -> None:
    answers = os.fdopen(os.dup(1), "w")  # libraries print
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    if torch != "torch":
        import tabtorch

        tabtorch.install()
    import torch as _torch

    device = "cuda" if torch == "webgpu" else "cpu"
    cases: Any = None
    for name in names:
        begun, found, wrong = time.perf_counter(), None, ""
        try:
            if cases is None:
                spec: Any = importlib.util.spec_from_file_location("cases", file)
                cases = sys.modules["cases"] = importlib.util.module_from_spec(spec)  # pickles find its classes there
                spec.loader.exec_module(cases)
            _torch.manual_seed(0)
            found = numbers(getattr(cases, name)(device))
        except BaseException:  # a library may leave by SystemExit as well
            wrong, cases = traceback.format_exc(), cases if hasattr(cases, name) else None
        print(json.dumps([name, found, wrong, round(time.perf_counter() - begun, 2)]), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # threads of a library must not keep it
