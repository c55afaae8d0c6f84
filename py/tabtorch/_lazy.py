"""Modules that are loaded when something of them is first used: `_lazy.NAME` is the module, and importing this loads none.

Two reasons to use it and not an import statement: a script pays for what it uses (what a tab does not load it does not compile),
and two modules may need each other when they run. tests/test_layers.py says which of the latter there are.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tabtorch import _utils as _utils
    from tabtorch import accelerator as accelerator
    from tabtorch import autograd as autograd
    from tabtorch import bridge as bridge
    from tabtorch import compiler as compiler
    from tabtorch import cuda as cuda
    from tabtorch import distributions as distributions
    from tabtorch import func as func
    from tabtorch import install as install
    from tabtorch import library as library
    from tabtorch import nn as nn
    from tabtorch import ops as ops
    from tabtorch import overrides as overrides
    from tabtorch import profiler as profiler
    from tabtorch import random as random
    from tabtorch import safetensors as safetensors
    from tabtorch import serialization as serialization
    from tabtorch import storage as storage
    from tabtorch import version as version
    from tabtorch import webgpu as webgpu
    from tabtorch.autograd import anomaly_mode as anomaly_mode
    from tabtorch.autograd import engine as engine
    from tabtorch.autograd import forward_ad as forward_ad
    from tabtorch.autograd import grad_mode as grad_mode
    from tabtorch.autograd import saved_tensors as saved_tensors
    from tabtorch.autograd import tape as tape
    from tabtorch.autograd import variable as variable
    from tabtorch.autograd import zero_curvature as zero_curvature
    from tabtorch.base import device as device
    from tabtorch.base import dtypes as dtypes
    from tabtorch.bridge import pyodide as pyodide
    from tabtorch.compiled import explain as explain
    from tabtorch.core import creation as creation
    from tabtorch.core import from_host as from_host
    from tabtorch.core import indexing as indexing
    from tabtorch.core import layout as layout
    from tabtorch.core import operators as operators
    from tabtorch.core import printing as printing
    from tabtorch.core import shapes as shapes
    from tabtorch.core import tensor as tensor
    from tabtorch.core import tensor_base as tensor_base
    from tabtorch.core import to_host as to_host
    from tabtorch.display import svg as svg
    from tabtorch.distributions import lowrank_multivariate_normal as lowrank_multivariate_normal
    from tabtorch.distributions import multivariate_normal as multivariate_normal
    from tabtorch.engine import complex as complex
    from tabtorch.engine import expr as expr
    from tabtorch.engine import plan as plan
    from tabtorch.engine import salvage as salvage
    from tabtorch.engine import view as view
    from tabtorch.func import batch as batch
    from tabtorch.func import batch_kernels as batch_kernels
    from tabtorch.func import functions as functions
    from tabtorch.func import transforms as transforms
    from tabtorch.interception import torch_function as torch_function
    from tabtorch.nn import functional as functional
    from tabtorch.nn import parameter as parameter
    from tabtorch.nn.modules import _traverse as _traverse
    from tabtorch.nn.modules import batchnorm as batchnorm
    from tabtorch.nn.modules import conv as conv
    from tabtorch.nn.modules import module as module
    from tabtorch.nn.modules import rnn as rnn
    from tabtorch.ops.compatibility import constructors as constructors
    from tabtorch.ops.compatibility import deprecated_overloads as deprecated_overloads
    from tabtorch.ops.compatibility import settings as settings
    from tabtorch.ops.fourier import stft as stft
    from tabtorch.ops.functional import bags as bags
    from tabtorch.ops.functional import norm as norm
    from tabtorch.ops.functional import vision as vision
    from tabtorch.ops.indexing import gather as gather
    from tabtorch.ops.indexing import index_maps as index_maps
    from tabtorch.ops.indexing import scatter as scatter
    from tabtorch.ops.indexing import slices as slices
    from tabtorch.ops.linalg import factorize_arrays as factorize_arrays
    from tabtorch.ops.linalg import host_arrays as host_arrays
    from tabtorch.ops.linalg import spectral as spectral
    from tabtorch.ops.machinery import arguments as arguments
    from tabtorch.ops.machinery import asserts as asserts
    from tabtorch.ops.machinery import dispatch as dispatch
    from tabtorch.ops.machinery import inplace as inplace
    from tabtorch.ops.machinery import operand_devices as operand_devices
    from tabtorch.ops.machinery import operation as operation
    from tabtorch.ops.machinery import promotion as promotion
    from tabtorch.ops.machinery import registry as registry
    from tabtorch.ops.machinery import row_tape as row_tape
    from tabtorch.ops.machinery import signatures as signatures
    from tabtorch.ops.reductions import nonzero as nonzero
    from tabtorch.ops.reductions import norms as norms
    from tabtorch.ops.reductions import reduce as reduce
    from tabtorch.ops.rows import row_helpers as row_helpers
    from tabtorch.ops.shaping import convert as convert
    from tabtorch.ops.shaping import joining as joining
    from tabtorch.ops.shaping import resizing as resizing
    from tabtorch.optim import _fused as _fused
    from tabtorch.profiler import schedules as schedules
    from tabtorch.serialization import legacy_format as legacy_format
    from tabtorch.serialization import pickler as pickler
    from tabtorch.utils import fetch as fetch
    from tabtorch.utils.benchmark import compare as compare

#: name here -> module
_MODULES = {
    "_fused": "tabtorch.optim._fused",
    "_traverse": "tabtorch.nn.modules._traverse",
    "_utils": "tabtorch._utils",
    "accelerator": "tabtorch.accelerator",
    "anomaly_mode": "tabtorch.autograd.anomaly_mode",
    "arguments": "tabtorch.ops.machinery.arguments",
    "asserts": "tabtorch.ops.machinery.asserts",
    "autograd": "tabtorch.autograd",
    "autograd_graph": "tabtorch.autograd.graph",
    "autograd_hooks": "tabtorch.autograd.hooks",
    "autograd_views": "tabtorch.autograd.views",
    "bags": "tabtorch.ops.functional.bags",
    "batch": "tabtorch.func.batch",
    "batch_kernels": "tabtorch.func.batch_kernels",
    "batchnorm": "tabtorch.nn.modules.batchnorm",
    "bridge": "tabtorch.bridge",
    "compare": "tabtorch.utils.benchmark.compare",
    "compiler": "tabtorch.compiler",
    "complex": "tabtorch.engine.complex",
    "constructors": "tabtorch.ops.compatibility.constructors",
    "conv": "tabtorch.nn.modules.conv",
    "convert": "tabtorch.ops.shaping.convert",
    "core_views": "tabtorch.core.views",
    "creation": "tabtorch.core.creation",
    "cuda": "tabtorch.cuda",
    "deprecated_overloads": "tabtorch.ops.compatibility.deprecated_overloads",
    "device": "tabtorch.base.device",
    "dispatch": "tabtorch.ops.machinery.dispatch",
    "distributions": "tabtorch.distributions",
    "dtypes": "tabtorch.base.dtypes",
    "engine": "tabtorch.autograd.engine",
    "engine_graph": "tabtorch.engine.graph",
    "explain": "tabtorch.compiled.explain",
    "expr": "tabtorch.engine.expr",
    "factorize_arrays": "tabtorch.ops.linalg.factorize_arrays",
    "fetch": "tabtorch.utils.fetch",
    "forward_ad": "tabtorch.autograd.forward_ad",
    "from_host": "tabtorch.core.from_host",
    "func": "tabtorch.func",
    "functional": "tabtorch.nn.functional",
    "functions": "tabtorch.func.functions",
    "gather": "tabtorch.ops.indexing.gather",
    "grad_mode": "tabtorch.autograd.grad_mode",
    "host_arrays": "tabtorch.ops.linalg.host_arrays",
    "index_maps": "tabtorch.ops.indexing.index_maps",
    "indexing": "tabtorch.core.indexing",
    "inplace": "tabtorch.ops.machinery.inplace",
    "install": "tabtorch.install",
    "joining": "tabtorch.ops.shaping.joining",
    "layout": "tabtorch.core.layout",
    "legacy_format": "tabtorch.serialization.legacy_format",
    "library": "tabtorch.library",
    "lowrank_multivariate_normal": "tabtorch.distributions.lowrank_multivariate_normal",
    "module": "tabtorch.nn.modules.module",
    "modules_lazy": "tabtorch.nn.modules.lazy",
    "multivariate_normal": "tabtorch.distributions.multivariate_normal",
    "nn": "tabtorch.nn",
    "nonzero": "tabtorch.ops.reductions.nonzero",
    "norm": "tabtorch.ops.functional.norm",
    "norms": "tabtorch.ops.reductions.norms",
    "operand_devices": "tabtorch.ops.machinery.operand_devices",
    "operation": "tabtorch.ops.machinery.operation",
    "operators": "tabtorch.core.operators",
    "ops": "tabtorch.ops",
    "overrides": "tabtorch.overrides",
    "parameter": "tabtorch.nn.parameter",
    "plan": "tabtorch.engine.plan",
    "pickler": "tabtorch.serialization.pickler",
    "printing": "tabtorch.core.printing",
    "profiler": "tabtorch.profiler",
    "promotion": "tabtorch.ops.machinery.promotion",
    "pyodide": "tabtorch.bridge.pyodide",
    "random": "tabtorch.random",
    "reduce": "tabtorch.ops.reductions.reduce",
    "registry": "tabtorch.ops.machinery.registry",
    "resizing": "tabtorch.ops.shaping.resizing",
    "rnn": "tabtorch.nn.modules.rnn",
    "row_helpers": "tabtorch.ops.rows.row_helpers",
    "row_tape": "tabtorch.ops.machinery.row_tape",
    "safetensors": "tabtorch.safetensors",
    "salvage": "tabtorch.engine.salvage",
    "saved_tensors": "tabtorch.autograd.saved_tensors",
    "schedules": "tabtorch.profiler.schedules",
    "scatter": "tabtorch.ops.indexing.scatter",
    "serialization": "tabtorch.serialization",
    "settings": "tabtorch.ops.compatibility.settings",
    "shapes": "tabtorch.core.shapes",
    "signatures": "tabtorch.ops.machinery.signatures",
    "slices": "tabtorch.ops.indexing.slices",
    "spectral": "tabtorch.ops.linalg.spectral",
    "stft": "tabtorch.ops.fourier.stft",
    "storage": "tabtorch.storage",
    "svg": "tabtorch.display.svg",
    "tape": "tabtorch.autograd.tape",
    "tensor": "tabtorch.core.tensor",
    "tensor_base": "tabtorch.core.tensor_base",
    "to_host": "tabtorch.core.to_host",
    "torch": "tabtorch",
    "torch_function": "tabtorch.interception.torch_function",
    "transforms": "tabtorch.func.transforms",
    "utils_hooks": "tabtorch.utils.hooks",
    "variable": "tabtorch.autograd.variable",
    "version": "tabtorch.version",
    "view": "tabtorch.engine.view",
    "vision": "tabtorch.ops.functional.vision",
    "webgpu": "tabtorch.webgpu",
    "zero_curvature": "tabtorch.autograd.zero_curvature",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tabtorch._lazy' has no attribute '{name}'")
    module = globals()[name] = importlib.import_module(_MODULES[name])
    return module
