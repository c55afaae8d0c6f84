"""For type checkers: the modules that `_lazy.NAME` loads."""

import tabtorch as torch
import tabtorch.install as install
import tabtorch.serialization.pickler as pickler
from tabtorch import _utils as _utils
from tabtorch import accelerator as accelerator
from tabtorch import amp as amp
from tabtorch import autograd as autograd
from tabtorch import bridge as bridge
from tabtorch import compiler as compiler
from tabtorch import cuda as cuda
from tabtorch import dispatching as dispatching
from tabtorch import distributions as distributions
from tabtorch import func as func
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
from tabtorch._library import checking as checking
from tabtorch.autograd import anomaly_mode as anomaly_mode
from tabtorch.autograd import engine as engine
from tabtorch.autograd import forward_ad as forward_ad
from tabtorch.autograd import grad_dtype as autograd_grad_dtype
from tabtorch.autograd import grad_mode as grad_mode
from tabtorch.autograd import graph as autograd_graph
from tabtorch.autograd import hooks as autograd_hooks
from tabtorch.autograd import saved_tensors as saved_tensors
from tabtorch.autograd import tape as tape
from tabtorch.autograd import variable as variable
from tabtorch.autograd import views as autograd_views
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
from tabtorch.core import ranges as ranges
from tabtorch.core import reinterpreted as reinterpreted
from tabtorch.core import shapes as shapes
from tabtorch.core import tensor as tensor
from tabtorch.core import tensor_base as tensor_base
from tabtorch.core import to_host as to_host
from tabtorch.core import views as core_views
from tabtorch.display import svg as svg
from tabtorch.distributions import lowrank_multivariate_normal as lowrank_multivariate_normal
from tabtorch.distributions import multivariate_normal as multivariate_normal
from tabtorch.engine import complex as complex
from tabtorch.engine import expr as expr
from tabtorch.engine import functions as engine_functions
from tabtorch.engine import graph as engine_graph
from tabtorch.engine import measuring as measuring
from tabtorch.engine import plan as plan
from tabtorch.engine import rows as rows
from tabtorch.engine import salvage as salvage
from tabtorch.engine import target as engine_target
from tabtorch.engine import tiles as tiles
from tabtorch.engine import tuning as tuning
from tabtorch.engine import view as view
from tabtorch.func import batch as batch
from tabtorch.func import batch_kernels as batch_kernels
from tabtorch.func import functions as functions
from tabtorch.func import transforms as transforms
from tabtorch.interception import torch_function as torch_function
from tabtorch.jit import archive as jit_archive
from tabtorch.nn import functional as functional
from tabtorch.nn import parameter as parameter
from tabtorch.nn.modules import _traverse as _traverse
from tabtorch.nn.modules import attention as modules_attention
from tabtorch.nn.modules import batchnorm as batchnorm
from tabtorch.nn.modules import conv as conv
from tabtorch.nn.modules import module as module
from tabtorch.nn.modules import parameters as parameters
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
from tabtorch.ops.linalg import host_kernels as host_kernels
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
from tabtorch.utils import _backward_hooks as backward_hooks
from tabtorch.utils import fetch as fetch
from tabtorch.utils import hooks as utils_hooks
from tabtorch.utils.benchmark import compare as compare

__all__ = [
    "_fused",
    "_traverse",
    "_utils",
    "accelerator",
    "amp",
    "anomaly_mode",
    "arguments",
    "asserts",
    "autograd",
    "autograd_graph",
    "autograd_grad_dtype",
    "autograd_hooks",
    "autograd_views",
    "backward_hooks",
    "bags",
    "batch",
    "batch_kernels",
    "batchnorm",
    "bridge",
    "compare",
    "compiler",
    "complex",
    "constructors",
    "conv",
    "convert",
    "core_views",
    "creation",
    "cuda",
    "deprecated_overloads",
    "device",
    "dispatch",
    "distributions",
    "dtypes",
    "engine",
    "engine_functions",
    "engine_graph",
    "engine_target",
    "explain",
    "expr",
    "fetch",
    "forward_ad",
    "from_host",
    "func",
    "functional",
    "functions",
    "gather",
    "grad_mode",
    "host_kernels",
    "index_maps",
    "indexing",
    "inplace",
    "install",
    "joining",
    "layout",
    "legacy_format",
    "jit_archive",
    "library",
    "checking",
    "dispatching",
    "lowrank_multivariate_normal",
    "measuring",
    "module",
    "modules_attention",
    "multivariate_normal",
    "nn",
    "nonzero",
    "norm",
    "norms",
    "operand_devices",
    "operation",
    "operators",
    "ops",
    "overrides",
    "parameter",
    "parameters",
    "pickler",
    "plan",
    "printing",
    "profiler",
    "promotion",
    "pyodide",
    "random",
    "reduce",
    "registry",
    "resizing",
    "rnn",
    "row_helpers",
    "row_tape",
    "rows",
    "safetensors",
    "salvage",
    "saved_tensors",
    "scatter",
    "schedules",
    "serialization",
    "settings",
    "shapes",
    "signatures",
    "slices",
    "spectral",
    "stft",
    "storage",
    "svg",
    "tape",
    "tensor",
    "tensor_base",
    "tiles",
    "to_host",
    "torch",
    "torch_function",
    "transforms",
    "tuning",
    "utils_hooks",
    "variable",
    "version",
    "view",
    "vision",
    "webgpu",
    "zero_curvature",
]
