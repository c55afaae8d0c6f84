"""Models as files that run without Python: methods recorded as plans, beside the weights in a safetensors file.

`save` writes what the npm package `tabtorch` (js/package), wasi-nn and `load` here run. docs/plan-files.md is the format.
"""

from tabtorch.plan_files.checked import PlanFileError
from tabtorch.plan_files.methods import ExportError
from tabtorch.plan_files.read import PlanFile, load
from tabtorch.plan_files.save import save

__all__ = ["ExportError", "PlanFile", "PlanFileError", "load", "save"]
