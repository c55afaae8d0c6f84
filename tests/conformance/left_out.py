"""The one list of what is not asked, is asked otherwise, or need not pass, each with its reason. Nothing else excuses a failure.

An entry of `LIST` covers failures of certain kinds (`compare.KINDS`) in certain questions, so many and so large: one more, or
one of another kind, fails. A whole run fails, too, if an entry covers nothing any more.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from .checks import Answer, Failure


def _as_strided_scatter(x: Any, src: Any, size: Any, stride: Any, storage_offset: int = 0) -> Any:
    places = torch.arange(x.numel()).as_strided(size, stride, storage_offset)
    return x.reshape(-1).index_put((places,), src).reshape(x.shape)


# -- how an operator is asked where its result is not the only right one

#: whose values are whatever was in memory: shapes, dtypes and strides are compared
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
#: whose results are known up to a sign, a phase or an order: compared as PyTorch's gradient checks do, made unique
UP_TO_GAUGE = {"svd", "linalg.svd", "linalg.eig", "linalg.eigh", "svd_lowrank", "pca_lowrank", "linalg.eigvals"}
#: whose indices name any of several equal elements, as the processor's own sort has it; where `dim` is among the arguments
TIES = {"sort": 0, "argsort": 0, "mode": 0, "topk": 1, "kthvalue": 1}
#: whose result with padding PyTorch has right only as int64: the dtypes that are compared with that
ORACLES = {"nn.functional.max_pool2d": ("int8", "int16"), "nn.functional.max_pool3d": ("int8", "int16")}
#: of which PyTorch's gradient is wrong (its own gradcheck says so): a formula of PyTorch's whose gradient is right
FORMULAS = {"as_strided_scatter": _as_strided_scatter}
#: of which PyTorch writes outside an out= that is not contiguous, and the process dies: out= laid out otherwise is not asked
OUT_NOT_PERMUTED = {"lu_unpack", "linalg.lu"}


# -- of the elementwise table (test_elementwise.py, test_render.py)

#: whose zeros have the sign that the C library or the vector unit at hand gives them
UNSIGNED_ZERO = {
    "fmax", "fmin", "gelu", "special_ndtri", "special_i1", "special_i1e", "softshrink", "special_modified_bessel_i1",
    "special_chebyshev_polynomial_u",
}  # fmt: skip


class Edge(NamedTuple):
    """Operands at which a row is not compared: patterns of rows, the reason, and which of nan, inf, huge and tiny numbers."""

    rows: tuple[str, ...]
    reason: str
    at: Callable[[tuple[float, ...]], bool]
    devices: tuple[str, ...] = ("*",)
    option: str = ""  # only with it

    def covers(self, row: str, options: dict[str, Any], device: str, operands: tuple[float, ...]) -> bool:
        """Whether these operands are left out."""
        names = any(fnmatchcase(row, p) for p in self.rows) and any(fnmatchcase(device, p) for p in self.devices)
        return names and (not self.option or self.option in options) and self.at(operands)


EDGES: tuple[Edge, ...] = (
    Edge(
        ("add", "sub", "rsub"),
        "alpha * 3e38 overflows on a GPU, whose fma may round in between; PyTorch's is fused",
        lambda x: max(map(abs, x)) == math.inf and 3e38 in x,
        devices=("webgpu",),
        option="alpha",
    ),
    Edge(
        ("special_*_polynomial_*",),
        "PyTorch returns a variable that it has not set",
        lambda x: math.isnan(x[0]),
    ),
    Edge(
        ("polygamma",),
        "poles, at which PyTorch's result is what rounding leaves of sin(pi x)",
        lambda x: -math.inf < x[0] < 0 and x[0] == math.floor(x[0]),
        devices=("webgpu",),
    ),
)


def edge_tolerance(row: str, device: str) -> dict[str, float]:
    """Of a comparison at edges: WGSL's division may be 2.5 ulp off, and a recurrence of a hundred steps adds that up."""
    return {"rtol": 1e-5, "atol": 1e-5} if "_polynomial_" in row and device == "webgpu" else {}


# -- of PyTorch's docstrings (docstrings.py)

#: what no example can be asked of, and why
DOCSTRINGS = {
    "quantized tensors": "*quantize* *.q_* *.int_repr",
    "names of dimensions, which PyTorch itself calls experimental": "*.names *.rename* *.refine_names *.align_* *.unflatten_names",
    "processes that speak to each other": "torch.distributed* *DistributedDataParallel* *SyncBatchNorm*",
    "a trace or an export of the graph": "torch.export* torch.cond torch.while_loop torch.library* torch.jit*",
}

#: docstrings whose draws tabtorch takes from a generator of its own, or which show memory that nothing has written, or a
#: seed that the system gave: only the form is compared
DOCSTRINGS_FORM_ONLY = re.compile(
    r"[dD]ropout|[rR]ReLU|rrelu|\bempty|\.new_empty|resize_|exponential_|gumbel|geometric_|cauchy_|log_normal_|\.seed\(\)"
)


# -- of other tests

#: expressions of test_dispatch.py whose error has not PyTorch's words
EXPRESSIONS = {
    "torch.add(x)": "PyTorch has other words for it in another place, and its parser's list of overloads here",
    "x.no_such_thing": "tabtorch adds that PyTorch may have it",
    "x.to('nonsense')": "tabtorch's list of devices has webgpu in it",
    "x.to(1.5)": "PyTorch takes a float as the number of a dtype; tabtorch raises TypeError",
}
#: how far the numbers that a program prints may be apart, where that is more than 2e-4 (test_programs.py)
PROGRAMS = {
    "custom_function": 1e-3,  # sums of 200 squares, summed in another order, then a chaotic fit
    "module_training": 1e-3,  # a training, in which rounding grows from step to step
}
#: functions of test_render.py that are not asked at EDGES: at poles PyTorch's trigamma is only large
NO_EDGES = ("trigamma",)


def optimizer_tolerance(name: str, options: dict[str, Any], at: str, steps: int) -> tuple[float, float] | None:
    """(rtol, atol) of a parameter or state of an optimizer where PyTorch's for the dtype are not fair, else None."""
    if name == "Muon":  # its updates are bfloat16, whose rounding turns on the last bit of a gradient
        rtol, _ = torch.testing._comparison.default_tolerances(torch.bfloat16)
        return rtol, rtol * options.get("lr", 1e-3) * steps
    if name == "LBFGS" and at.startswith("1"):  # quotients of differences of gradients: digits are lost in both
        return 1e-3, 5e-5
    if options.get("centered") and "momentum_buffer" in at:
        # steps over the root of a difference of squares that nearly cancel: its digits depend on the processor, too
        return 1e-4, 1e-5
    return None


# -- of op_db


class LeftOut(NamedTuple):
    """Failures that are excused: patterns of the operators (titles of OpInfos), checks, devices and dtypes, and the reason."""

    operators: tuple[str, ...]
    reason: str
    kinds: tuple[str, ...]  # of compare.KINDS
    samples: (
        int | None
    )  # how many may fail in one question; None, which says that nothing is there to ask, needs `said`
    checks: tuple[str, ...] = ("*",)
    devices: tuple[str, ...] = ("*",)
    dtypes: tuple[str, ...] = ("*",)
    said: str = ""  # what the failure must say: a regular expression
    within: float = 0.0  # of differences of values: how many times the tolerance

    def asks(self, a: Answer) -> bool:
        """Whether an answer is to one of these questions."""
        pairs = ((self.operators, a.op), (self.checks, a.check), (self.devices, a.device), (self.dtypes, a.dtype))
        return all(any(fnmatchcase(value, p) for p in patterns) for patterns, value in pairs)

    def covers(self, f: Failure) -> bool:
        """Whether a failure is of these kinds, and not too large."""
        if f.cause not in self.kinds or (f.cause == "values" and not f.size <= self.within):
            return False
        return re.search(self.said, f.why) is not None


_ABSENT = r"AttributeError|NotImplementedError|Unsupported"

LIST: tuple[LeftOut, ...] = (
    LeftOut(("jiterator_*",), "compiles CUDA source at run time", ("raised",), None, said=_ABSENT),
    LeftOut(
        ("chalf", "complex", "view_as_complex"),
        "complex32 is no dtype of tabtorch: neither WGSL nor NumPy has it",
        ("raised",),
        None,
        said=r"complex32|chalf",
    ),
    LeftOut(("hash_tensor",), "its result is uint64, which is no dtype of tabtorch", ("raised",), None, said=_ABSENT),
    LeftOut(
        ("nn.functional.linear_cross_entropy.chunked*",),
        "PyTorch's chunked form has no second gradient of its input; tabtorch's has",
        ("missing gradient",),
        None,
        checks=("gradgrad", "disturbed second gradient"),
        said="there, and not zero",
    ),
    LeftOut(
        ("fft.ihfft2", "fft.ihfftn"),
        "PyTorch leaves out= unwritten, and of its size, where there is one dimension",
        ("values", "shape"),
        1,
        checks=("variants",),
        said=r"not 0j|not \(0,\)",
        within=1e7,
    ),
    LeftOut(
        ("renorm",),
        "PyTorch's gradient of the infinity norm of complex numbers is nan; tabtorch's is the limit",
        ("nan",),
        1,
        checks=("gradient", "gradgrad"),
        dtypes=("complex64",),
    ),
    LeftOut(
        ("normal.number_mean",),
        "PyTorch fails with an empty out=; tabtorch resizes it",
        ("no error",),
        1,
        checks=("variants",),
        said="size of tensor",
    ),
    LeftOut(
        ("svd_lowrank", "pca_lowrank"),
        "samples whose second gradients lose every digit of single precision; they agree in double precision",
        ("values",),
        5,
        checks=("gradgrad",),
        dtypes=("complex64",),
        within=1000,
    ),
    LeftOut(
        ("nn.functional.scaled_dot_product_attention",),
        "scores up to 85, whose rounding exp multiplies: PyTorch's own error against double precision is half of ours",
        ("values",),
        2,
        checks=("gradgrad",),
        within=4,
    ),
    LeftOut(
        ("normal",),
        "an out= of sixteen elements or more, laid out otherwise: PyTorch draws its numbers one by one there, by another formula",
        ("values",),
        1,
        checks=("variants",),
        said="^out: ",
        within=1e7,
    ),
    LeftOut(
        ("nn.functional.linear",),
        "PyTorch fails with an out= laid out otherwise where it folds a batch; tabtorch writes it",
        ("no error",),
        1,
        checks=("variants",),
        said="size of tensor",
    ),
)


def excuses(a: Answer) -> list[LeftOut]:
    """The entries that cover an answer's failures; nothing unless each failure is covered."""
    used: list[LeftOut] = []
    for f in a.failures:
        x = next((x for x in LIST if x.asks(a) and x.covers(f)), None)
        if x is None:
            return []
        used.append(x)
    if len(a.failures) < a.failed:
        return []
    many = any(x.samples is not None and n > x.samples for x, n in Counter(used).items())
    return [] if many else list(dict.fromkeys(used))


def reason(a: Answer) -> str:
    """Why an answer need not be a pass, or nothing."""
    return "; ".join(x.reason for x in excuses(a))


def idle(answers: list[Answer], devices: tuple[str, ...]) -> list[LeftOut]:
    """The entries about these devices alone, or about all of a whole run, that excuse nothing in it."""
    used = [x for a in answers if a.failed for x in excuses(a)]
    whole = {"cpu", "webgpu"} == set(devices)
    return [x for x in LIST if x not in used and (whole or set(x.devices) <= set(devices))]
