"""`torch.webgpu.tunable`: layouts of products that are measured on the GPU there is, as PyTorch's TunableOp measures GEMMs.

Off, which it is by default, how a product is laid out (the threads of a workgroup, in how many parts k is cut) is computed of its sizes.
`enable()` has measured layouts used in place of computed ones, and, unless `tuning_enable(False)` says otherwise, measures those of the
products that come up. PyTorch does that when a product first runs; here the program goes on with the computed layout, and some ms of GPU
time are spent whenever the GPU has nothing else to do: in a tab when no window was sent for a tenth of a second, in CPython after a
read or `synchronize()`. `tune()` measures all that was met at once. When nothing is left to be measured, what was found is used.

It takes a device with timestamps (WebGPU's "timestamp-query") and never a software adapter. Results are kept in `get_filename()`; in a tab
in the page's IndexedDB, and in that file if it was named. Those of another adapter or version are refused.

The environment has PyTorch's variables, which are read once: PYTORCH_TUNABLEOP_ENABLED=1, _TUNING=0, _RECORD_UNTUNED=1, _FILENAME,
_UNTUNED_FILENAME, _MAX_TUNING_DURATION_MS, _MAX_TUNING_ITERATIONS and _ROTATING_BUFFER_SIZE. The others of its variables mean nothing.
"""

from __future__ import annotations

import glob

from tabtorch import _lazy

__all__ = [
    "enable",
    "is_enabled",
    "tuning_enable",
    "tuning_is_enabled",
    "record_untuned_enable",
    "record_untuned_is_enabled",
    "set_max_tuning_duration",
    "get_max_tuning_duration",
    "set_max_tuning_iterations",
    "get_max_tuning_iterations",
    "set_filename",
    "get_filename",
    "get_results",
    "get_validators",
    "read_file",
    "tune",
    "tune_gemm_in_file",
    "mgpu_tune_gemm_in_file",
    "set_rotating_buffer_size",
    "get_rotating_buffer_size",
    "set_numerical_check_tolerances",
]


def enable(val: bool = True) -> None:
    """Uses measured layouts, or, with False, computed ones again."""
    _lazy.tuning.settings.on = bool(val)
    _lazy.tuning.switch()


def is_enabled() -> bool:
    """Whether measured layouts are used."""
    return _lazy.tuning.enabled()


def tuning_enable(val: bool = True) -> None:
    """Whether layouts of products that the table lacks are measured; they are unless this says otherwise."""
    tuning = _lazy.tuning
    before, tuning.settings.tuning = tuning.tunes(), bool(val)
    tuning.switch()
    if tuning.tunes() and not before and tuning.enabled():
        tuning.renew()  # so that products are met again


def tuning_is_enabled() -> bool:
    """Whether layouts are measured, while `is_enabled()`."""
    return _lazy.tuning.tunes()


def record_untuned_enable(val: bool = True) -> None:
    """Writes products that the table lacks to tunableop_untuned0.csv, for `tune_gemm_in_file`, in place of measuring them."""
    tuning = _lazy.tuning
    before, tuning.settings.record = tuning.records(), bool(val)
    if tuning.records() != before and tuning.enabled():
        tuning.renew()  # so that products are met again


def record_untuned_is_enabled() -> bool:
    """Whether products that the table lacks are written to a file."""
    return _lazy.tuning.records()


def set_max_tuning_duration(duration: int) -> None:
    """The most ms of GPU time that a layout of a product runs while it is measured, 30 at first. It runs once at least."""
    _lazy.tuning.settings.duration = max(0, int(duration))


def get_max_tuning_duration() -> int:
    """What `set_max_tuning_duration` has set, in ms."""
    return _lazy.tuning.settings.duration


def set_max_tuning_iterations(iterations: int) -> None:
    """The most runs of a layout, 100 at first; where the clock is coarse, as browsers make it, a run is so many that it can tell."""
    _lazy.tuning.settings.iterations = max(0, int(iterations))


def get_max_tuning_iterations() -> int:
    """What `set_max_tuning_iterations` has set."""
    return _lazy.tuning.settings.iterations


def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """The file for results; `insert_device_ordinal` puts the device's number, 0, before its ending. It is read before the next product
    is planned, and written whenever one was measured."""
    settings = _lazy.tuning.settings
    settings.filename = _lazy.tuning.with_ordinal(filename) if insert_device_ordinal else filename
    settings.named = True
    _lazy.tuning._loaded[0] = False


def get_filename() -> str:
    """The file for results: tunableop_results0.csv in the current folder, unless another was set."""
    return _lazy.tuning.settings.filename


def get_results() -> tuple[tuple[str, str, str, float], ...]:
    """(operation, parameters, layout, ms) of each product that was measured or read. "Default" is the computed layout."""
    tuning = _lazy.tuning
    tuning.load()
    return tuple((*key, tuning.name_of(r.layout), r.ms) for key, r in tuning.table.items())


def get_validators() -> tuple[tuple[str, str], ...]:
    """(name, value) of what results hang on: versions, adapter, kernel."""
    return _lazy.tuning.validators()


def read_file(filename: str | None = None) -> bool:
    """Takes in the results of a file, by default `get_filename()`. False if it cannot be read, or is of another device or version."""
    tuning = _lazy.tuning
    found = tuning.read_file(tuning.settings.filename if filename is None else filename)
    if found and tuning.enabled():
        tuning.renew()
    return found


def tune() -> int:
    """Measures the products that were met and are not in the table yet: how many. PyTorch has no such function.

    RuntimeError on a device without timestamps, while a profiler uses them, and in a browser in which Python cannot wait.
    """
    return _lazy.measuring.tune()


def tune_gemm_in_file(filename: str) -> None:
    """Measures the products of a file that `record_untuned_enable` wrote, here or in PyTorch. ValueError for a line that is none of
    plain matrices of float32, float16 or bfloat16."""
    if not is_enabled():
        raise AssertionError("TunableOp is not enabled")
    if not tuning_is_enabled():
        raise AssertionError("Tuning is not enabled")
    _lazy.tuning.load()
    with open(filename, encoding="utf-8") as file:
        lines = [line.strip().split(",") for line in file if line.startswith(("Gemm", "ScaledGemm"))]
    _lazy.measuring.tune_all([_lazy.tuning.parsed(*line[:2]) for line in lines])


def mgpu_tune_gemm_in_file(filename_pattern: str, num_gpus: int) -> None:
    """`tune_gemm_in_file` of each file that fits. There is one GPU, and one file of results: AssertionError if `num_gpus` is not 1."""
    if num_gpus != 1:
        raise AssertionError(f"num_gpus must be between 1 and 1, got {num_gpus}")
    for filename in sorted(glob.glob(filename_pattern)):
        tune_gemm_in_file(filename)


def set_rotating_buffer_size(buffer_size: int) -> None:
    """Measures on as many copies of the operands as take so many MB (64 at most), so that caches do not hold them; 0, as at first, on one.
    RuntimeError for a negative one, which in PyTorch means the size of the second cache: WebGPU does not tell that."""
    if buffer_size < 0:
        raise RuntimeError("set_rotating_buffer_size: WebGPU does not tell how large the L2 cache is")
    _lazy.tuning.settings.rotating = int(buffer_size) << 20


def get_rotating_buffer_size() -> int:
    """What `set_rotating_buffer_size` has set, in bytes."""
    return _lazy.tuning.settings.rotating


def set_numerical_check_tolerances(enable: bool, atol: float = 1e-5, rtol: float = 1e-5) -> None:
    """How far results of a layout may be from those of the computed one. Without `enable` that is as float32 (or the halves) and the
    length of the sums have it; it is always looked at."""
    _lazy.tuning.settings.tolerances = (float(atol), float(rtol)) if enable else None
