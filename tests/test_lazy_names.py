"""Namespaces whose names are loaded when they are asked for: all of them are there, and what a program does not name is not loaded."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tabtorch
from tabtorch.base import lazy_namespace

PY = Path(__file__).resolve().parents[1] / "py"


def run(script: str, *arguments: str) -> Any:
    """What the script prints, as JSON, in a Python that has loaded nothing yet."""
    env = {**os.environ, "PYTHONPATH": str(PY)}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


#: prints what each line of a program loads: [modules, bytes of their source]; without the bridge that CPython has, and no tab
COUNTED = """
import json, os, sys, types
homes, modules, *lines = json.loads(sys.argv[1])
sys.modules["tabtorch.ops.names"] = types.SimpleNamespace(HOMES=homes, MODULES=modules)  # as in a wheel
found, before = [], set(sys.modules)
for line in lines:
    exec(line)
    new = [m for n, m in sys.modules.items() if n.startswith("tabtorch") and n not in before and n != "tabtorch.bridge.node"]
    before = set(sys.modules)
    found.append([len(new), sum(os.path.getsize(m.__file__) for m in new)])
print(json.dumps(found))
"""
#: a line of a program -> how many modules it may load, and of how many bytes. In a tab each is compiled from source: half a
#: millisecond per kB
LOADED = {
    "import tabtorch as torch": (38, 268_000),
    "from tabtorch import nn": (12, 78_000),
    "x = torch.ones(2, 2, device='meta') + 1": (15, 175_000),
    "layer = nn.Linear(2, 2, device='meta'); optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)": (33, 290_000),
    "nn.functional.mse_loss(layer(x), x).backward()": (19, 156_500),
}


def test_what_a_first_program_loads() -> None:
    table = "import json; from tabtorch.ops.machinery import registry; print(json.dumps(registry.table()))"
    homes = {package: lazy_namespace.written(package) for package in ("tabtorch.ops.functional", "tabtorch.nn.modules")}
    found = run(COUNTED, json.dumps([homes, run(table), *LOADED]))
    assert all(n <= most and size <= bytes for (n, size), (most, bytes) in zip(found, LOADED.values(), strict=True)), (
        dict(zip(LOADED, found, strict=True))
    )


SPACES = ("nn", "nn.functional", "nn.modules", "optim", "autograd", "distributions")


@pytest.mark.parametrize("space", SPACES)
def test_going_through_a_namespace_finds_every_name(space: str) -> None:
    """`dir`, `vars` and `import *`, in a program that has loaded none of them; what is there is what `getattr` gives."""
    script = f"""
import json, tabtorch.{space} as space
listed = [n for n in dir(space) if n[0] != "_"]
found = vars(space)
stars = {{}}
exec("from tabtorch.{space} import *", stars)
print(json.dumps([listed, [n for n in found if n[0] != "_"], [n for n in stars if n[0] != "_"]]))
"""
    listed, found, stars = run(script)
    there: Any = tabtorch
    theirs: Any = torch
    for part in space.split("."):
        there, theirs = getattr(there, part), getattr(theirs, part)
    public = {
        n
        for n in vars(theirs)
        if n[0].isalpha() and hasattr(there, n) and getattr(vars(theirs)[n], "__module__", "").startswith("torch.")
    }
    public -= {n for n in public if n.startswith("Lazy")}  # by name only
    assert public and public <= {*found, *_BY_NAME}, sorted(public - {*found})
    assert {n for n in public if n in found} <= {*listed}
    named = getattr(theirs, "__all__", None)
    assert {n for n in named or public if n in found and hasattr(there, n)} <= {*stars} or named is None


#: what is shown to who asks for it by name, and is not listed
_BY_NAME = {
    "DataParallel",
    "Variable",
    "detect_anomaly",
    "set_detect_anomaly",
    "gradcheck",
    "gradgradcheck",
    "SavedTensor",
    "variable",
}
_BY_NAME |= {"scaled_mm", "scaled_grouped_mm"}  # which are not there yet, and say so


def test_a_function_is_the_same_wherever_it_is_taken_from() -> None:
    from tabtorch.nn import functional as F

    assert (
        F.linear is vars(F)["linear"] is tabtorch.nn.functional.linear
        and F.linear.__module__ == "tabtorch.nn.functional"
    )
    assert F.native_channel_shuffle is F.channel_shuffle and F._threshold is F.threshold
    assert tabtorch.nn.Linear is tabtorch.nn.modules.Linear is tabtorch.nn.modules.linear.Linear
    assert tabtorch.autograd.Function is tabtorch.autograd.function.Function
    with pytest.raises(AttributeError, match="torch.nn.functional' has no attribute 'no_such'"):
        F.no_such
    for space in (tabtorch.nn, tabtorch.nn.modules, tabtorch.autograd):
        for name in ("no_such", "LazyNothing"):
            with pytest.raises(AttributeError, match=f"'torch.{space.__name__[9:]}' has no attribute '{name}'"):
                getattr(space, name)


def test_pytorch_has_some_layers_in_other_files() -> None:
    modules = tabtorch.nn.modules
    for name in ("channelshuffle", "fold", "padding", "pixelshuffle", "upsampling"):
        assert importlib.import_module(f"tabtorch.nn.modules.{name}") is getattr(modules, name) is modules.reshape
    assert importlib.import_module("tabtorch.nn.modules.instancenorm") is modules.instancenorm is modules.batchnorm
    assert modules.activation.MultiheadAttention is tabtorch.nn.MultiheadAttention
    assert modules.container.ParameterDict is tabtorch.nn.ParameterDict
    with pytest.raises(AttributeError, match="has no attribute 'ParameterSet'"):
        modules.container.ParameterSet
    with pytest.raises(AttributeError, match="has no attribute 'Attention'"):
        modules.activation.Attention


@pytest.mark.parametrize("package", ["tabtorch.ops.functional", "tabtorch.nn.modules"])
def test_names_are_read_from_the_text_as_they_are(package: str) -> None:
    """What a wheel lists, and a checkout reads, is each module's `__all__`."""
    for module, names in lazy_namespace.written(package).items():
        assert names.split() == list(importlib.import_module(f"{package}.{module}").__all__), module
    folder = Path(importlib.import_module(package).__path__[0])
    listing = {path.stem for path in folder.glob("*.py") if "\n__all__ = " in path.read_text()} - {"__init__"}
    assert listing == lazy_namespace.written(package).keys()
