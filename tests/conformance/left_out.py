"""What need not pass, and why: the one list. A whole run names the lines that cover nothing any more."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from .checks import Answer


class LeftOut(NamedTuple):
    """Patterns of the operators (titles of OpInfos), the checks, the devices and the dtypes, and the reason."""

    operators: tuple[str, ...]
    reason: str
    checks: tuple[str, ...] = ("*",)
    devices: tuple[str, ...] = ("*",)
    dtypes: tuple[str, ...] = ("*",)
    samples: int | None = None  # how many of them may fail: one more is a failure. None: all

    def covers(self, a: Answer) -> bool:
        """Whether an answer is one of these."""
        if self.samples is not None and a.failed > self.samples:
            return False
        pairs = ((self.operators, a.op), (self.checks, a.check), (self.devices, a.device), (self.dtypes, a.dtype))
        return all(any(fnmatchcase(value, p) for p in patterns) for patterns, value in pairs)


LIST: tuple[LeftOut, ...] = (
    LeftOut(("sparse.*", "to_sparse"), "sparse layouts: tabtorch has strided tensors only"),
    LeftOut(("jiterator_*",), "compiles CUDA source at run time"),
    LeftOut(("chalf",), "complex32 is no dtype of tabtorch: neither WGSL nor NumPy has it"),
    LeftOut(
        ("complex", "view_as_complex"),
        "float16 parts would make complex32, which is no dtype of tabtorch",
        dtypes=("float16",),
    ),
    LeftOut(("hash_tensor",), "its result is uint64, which is no dtype of tabtorch"),
    LeftOut(
        ("matrix_exp",),
        "PyTorch works in half precision throughout and overflows to nan; tabtorch gives the value",
        dtypes=("float16", "bfloat16"),
    ),
    LeftOut(
        ("nn.functional.max_pool2d", "nn.functional.max_pool3d"),
        "PyTorch's result with padding differs from its own of the same numbers as int64",
        dtypes=("int8", "int16"),
    ),
    LeftOut(
        ("nn.functional.linear_cross_entropy.chunked*",),
        "PyTorch's chunked form has no second gradient of its input; tabtorch's has",
        checks=("gradgrad",),
    ),
    LeftOut(
        ("fft.ihfft2", "fft.ihfftn"),
        "PyTorch leaves out= unwritten where there is one dimension",
        checks=("variants",),
        samples=1,
    ),
    LeftOut(
        ("renorm",),
        "PyTorch's gradient of the infinity norm of complex numbers is nan; tabtorch's is the limit",
        checks=("gradient", "gradgrad"),
        dtypes=("complex64",),
        samples=1,
    ),
    LeftOut(
        ("as_strided_scatter",),
        "PyTorch's gradient of its input is wrong (its own gradcheck says so); tabtorch's is right",
        checks=("gradient",),
    ),
    LeftOut(
        ("normal.number_mean",),
        "PyTorch fails with an empty out=; tabtorch resizes it",
        checks=("variants",),
        samples=1,
    ),
    LeftOut(
        ("svd_lowrank", "pca_lowrank"),
        "samples whose second gradients lose every digit of single precision; they agree in double precision",
        checks=("gradgrad",),
        dtypes=("complex64",),
        samples=3,
    ),
    LeftOut(
        ("nn.functional.scaled_dot_product_attention",),
        "scores up to 85: what their rounding does to exp shows in the second gradient of a sample or two",
        checks=("gradgrad",),
        samples=2,
    ),
    LeftOut(
        ("cov",),
        "the sign of a weight is known on the GPU alone: checking it would wait for the GPU in every call",
        checks=("errors",),
        devices=("webgpu",),
        samples=1,
    ),
    LeftOut(
        ("signal.windows.kaiser",),
        "beta = 100: the Bessel function overflows single precision, to nan in PyTorch and in places to 0 here",
        devices=("cpu",),
        checks=("reference",),
        samples=2,
    ),
    LeftOut(
        ("nn.functional.multi_head_attention_forward",),
        "PyTorch rounds to half precision between its steps; tabtorch at their end",
        dtypes=("float16",),
        samples=2,
    ),
    LeftOut(
        ("nn.functional.interpolate.bicubic",),
        "one level in 256 off, in less than 1 % of the pixels",
        dtypes=("uint8",),
        samples=4,
    ),
    LeftOut(
        ("nn.functional.soft_margin_loss",),
        "PyTorch's exp overflows half precision; tabtorch's loss stays finite",
        dtypes=("float16",),
    ),
    LeftOut(
        ("triangular_solve",), "the strides that out= has where the result is empty", checks=("variants",), samples=1
    ),
    LeftOut(
        ("nn.functional.silu.complex",),
        "real parts below -500, where exp overflows: PyTorch's quotient is nan, the cpu device's is zero",
        checks=("reference",),
        devices=("cpu",),
        samples=2,
    ),
    LeftOut(
        ("__rpow__", "polar", "index_reduce.prod"),
        "WGSL's division and functions may be some ulp off, and this sample's second step makes that visible",
        checks=("gradient", "gradgrad"),
        devices=("webgpu",),
        samples=3,
    ),
    LeftOut(
        ("matmul", "nn.functional.linear"),
        "PyTorch fails with an out= laid out otherwise where it folds a batch; tabtorch writes it",
        checks=("variants",),
        samples=1,
    ),
)


def reason(a: Answer) -> str:
    """Why an answer need not be a pass, or nothing."""
    return next((x.reason for x in LIST if x.covers(a)), "")
