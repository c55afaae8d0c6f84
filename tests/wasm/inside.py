"""Run in Pyodide by `python -m wasm`: pytest over the suite's own files, or a module's own command, with PyTorch and NumPy
in the CPython next door."""

from __future__ import annotations

import json
import os
import runpy
import sys
from typing import Any

import pyodide_js

spec = json.loads(os.environ["TABTORCH_WASM"])
for folder in (spec["root"], spec["site"], spec["scratch"]):
    if not os.path.exists(folder):  # in a checkout the packages are below the root
        os.makedirs(folder)
        pyodide_js.mountNodeFS(folder, folder)  # under its own name: paths mean the same on both sides
os.chdir(spec["root"])
sys.path += [spec["root"] + "/tests", spec["site"]]
sys.pycache_prefix, sys.dont_write_bytecode = spec["scratch"] + "/pyc", False
os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | spec["env"]

from wasm import channel, examples, remote, uninstall  # noqa: E402

uninstall.uninstall()
peer = remote.Peer(*channel.from_pyodide(spec["scratch"]), real=False)
remote.use(peer, "torch", "numpy", "hypothesis", "fuzz.oracle", "reliability")
examples.use(peer)
if "module" in spec:
    name, *sys.argv[1:] = spec["module"]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
    raise SystemExit(0)

import pytest  # noqa: E402

from wasm.report import Report  # noqa: E402

report = Report(spec, peer)
status: Any = pytest.main(["-p", "no:cacheprovider", *spec["arguments"]], plugins=[report])
report.save()
raise SystemExit(int(status))
