"""`torch.cuda` and its kin: as a PyTorch without CUDA before `install()`, and as the GPU there is after it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

import tabtorch as tt
from sidebyside import DEVICES


def outcome(f: Any) -> str:
    try:
        return repr(f())
    except Exception as e:
        return f"{type(e).__name__}: {e}"


@pytest.mark.parametrize(
    "text",
    """is_available() device_count() is_initialized() synchronize() current_device() get_device_name() get_device_properties(0)
    get_device_capability() get_rng_state() get_rng_state_all() initial_seed() manual_seed(1) manual_seed_all(1) empty_cache()
    memory_allocated() max_memory_allocated() mem_get_info() current_stream() is_bf16_supported(False) ipc_collect()""".split(),
)
def test_without_cuda(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What PyTorch's build for the cpu says."""
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: False)  # which conformance/checks.py says, for speed
    assert outcome(lambda: eval("tt.cuda." + text)) == outcome(lambda: eval("torch.cuda." + text))


def installed(program: str) -> str:
    code = "import tabtorch; tabtorch.install()\nimport torch\n" + program
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif("webgpu" not in DEVICES, reason="webgpu was not asked for")
def test_installed() -> None:
    out = installed(
        """
import warnings
import torch.backends.cuda, torch.backends.cudnn as cudnn, torch.cuda.nvtx as nvtx, torch.distributed as dist
from torch.cuda.amp import GradScaler, autocast
from torch.nn.attention import SDPBackend, sdpa_kernel

c = torch.cuda
assert c.is_available() and c.is_initialized() and c.device_count() == 1 and c.current_device() == 0
p = c.get_device_properties(0)
assert p.name == c.get_device_name() and p.total_memory > 0 and "timestamp-query" in p.features or True
assert c.get_device_capability("cuda:0") == (0, 0) and c.is_bf16_supported() and not c.is_bf16_supported(False)
assert repr(p).startswith("_CudaDeviceProperties(name=")
for bad in (1, "cuda:1"):
    try:
        c.set_device(bad)
        print("no error")
    except (AssertionError, RuntimeError) as e:
        assert "nvalid device" in str(e), e
c.reset_peak_memory_stats()
before = c.memory_allocated()
x = torch.ones(1 << 18, device="cuda")
c.synchronize()
assert c.memory_allocated() - before == 1 << 20 and c.max_memory_allocated() >= 1 << 20
assert c.memory_reserved() >= c.memory_allocated() and c.max_memory_reserved() >= c.memory_reserved()
stats = torch.webgpu.memory_stats()
assert stats["allocated_bytes.all.current"] == c.memory_allocated() and stats["dispatches"] > 0
assert "Allocated memory" in c.memory_summary() and "1" in c.memory_summary(abbreviated=True)
assert sum(b["total_size"] for b in c.memory_snapshot()) == c.memory_allocated()
del x
c.empty_cache()
assert c.memory_allocated() == before
try:
    c.mem_get_info()
except RuntimeError as e:
    print(e)
start, end = c.Event(enable_timing=True), torch.webgpu.Event(True)
start.record()
torch.ones(8, device="cuda").sum().item()
end.record()
assert start.elapsed_time(end) > 0 and end.query()
for a, b in ((c.Event(), end), (c.Event(True), end)):
    try:
        a.elapsed_time(b)
    except RuntimeError as e:
        print(e)
s = c.Stream()
with c.stream(s), c.device(0), torch.cuda.device("cuda"):
    y = torch.ones(2, device="cuda") + 1
s.wait_stream(c.current_stream())
assert s == c.default_stream() and y.tolist() == [2, 2] and y.pin_memory().to("cuda", non_blocking=True).is_cuda
state = c.get_rng_state()
assert state.shape == (16,) and state.dtype is torch.uint8
a = torch.nn.functional.dropout(torch.ones(64, device="cuda"))
c.set_rng_state(state)
assert torch.equal(a, torch.nn.functional.dropout(torch.ones(64, device="cuda")))
c.manual_seed_all(5)
assert c.initial_seed() == 5
torch.backends.cuda.matmul.allow_tf32 = True
assert torch.get_float32_matmul_precision() == "high"
cudnn.benchmark = cudnn.deterministic = True
q = torch.rand(1, 4, 4, device="cuda")
with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    assert not torch.backends.cuda.math_sdp_enabled() and torch.backends.cuda.flash_sdp_enabled()
    torch.nn.functional.scaled_dot_product_attention(q, q, q)
assert torch.backends.cuda.math_sdp_enabled()
print(SDPBackend.MATH)
try:
    with sdpa_kernel([]):
        pass
except RuntimeError as e:
    print(e)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    with autocast():
        assert (q @ q).dtype is torch.float16
    assert GradScaler(enabled=True).is_enabled()
    assert [str(w.message)[:33] for w in seen] == ["`torch.cuda.amp.autocast(args...)", "`torch.cuda.amp.GradScaler(args.."]
with torch.amp.autocast("cuda", torch.bfloat16), torch.webgpu.amp.autocast(enabled=False):
    assert (q @ q).dtype is torch.float32
assert nvtx.range_push("a") == 0 and nvtx.range_pop() == 0
assert not dist.is_available() and not torch.mps.is_available() and not torch.xpu.is_available()
try:
    dist.init_process_group("nccl")
except RuntimeError as e:
    print(e)
assert torch.accelerator.current_accelerator().type == "webgpu" and torch.accelerator.device_count() == 1
with torch.accelerator.device_index(0):
    torch.accelerator.synchronize()
assert torch.version.cuda is None
"""
    )
    assert out.splitlines() == [
        "mem_get_info: WebGPU does not tell how much memory the GPU has",
        "Both events must be created with argument 'enable_timing=True'.",
        "Both events must be recorded before calculating elapsed time.",
        "SDPBackend.MATH",
        "No viable backend for scaled_dot_product_attention was found.",
        "init_process_group: torch.distributed is not available in tabtorch: a browser tab is one process. Run the script without "
        "torchrun (no RANK in the environment), or take it to PyTorch.",
    ]


@pytest.mark.filterwarnings("ignore:TF32")
def test_backends() -> None:
    for ns in (torch, tt):
        before = ns.backends.mkldnn.enabled
        with ns.backends.mkldnn.flags(enabled=False):
            assert ns.backends.mkldnn.enabled is False
        assert ns.backends.mkldnn.enabled == before
        with ns.backends.cudnn.flags(enabled=False, deterministic=True):
            assert ns.backends.cudnn.deterministic and not ns.backends.cudnn.enabled
        assert ns.backends.cuda.flash_sdp_enabled() and ns.backends.cuda.matmul.fp32_precision == "none"
        with pytest.raises((AttributeError, RuntimeError)):
            ns.backends.cuda.matmul.nonsense = 1
    assert not tt.backends.openmp.is_available() and not tt.backends.mps.is_built()


def test_names() -> None:
    """Every name that PyTorch's `torch.accelerator` documents, and the commonest ones of `torch.cuda`."""
    assert set(torch.accelerator.__all__) - set(dir(tt.accelerator)) <= {"Graph"}
    asked = (
        "Event Stream amp current_device current_stream default_stream device device_count empty_cache get_device_capability "
        "get_device_name get_device_properties get_rng_state get_rng_state_all init initial_seed ipc_collect is_available "
        "is_bf16_supported is_initialized manual_seed manual_seed_all max_memory_allocated max_memory_reserved mem_get_info "
        "memory_allocated memory_reserved memory_snapshot memory_stats memory_summary nvtx reset_peak_memory_stats seed "
        "seed_all set_device set_rng_state set_rng_state_all set_stream stream synchronize utilization OutOfMemoryError"
    ).split()
    for name in asked:
        assert hasattr(torch.cuda, name) and hasattr(tt.cuda, name) and (name == "nvtx" or hasattr(tt.webgpu, name)), (
            name
        )


def test_benchmark() -> None:
    """The text of a measurement is PyTorch's, but for its figures."""
    import re

    def text(ns: Any, **settings: Any) -> list[str]:
        shown = repr(ns.utils.benchmark.Timer("x + 1", "x = 1", **settings).timeit(50))
        return re.sub(r"0x\w+|[\d.]+ [nu]s", "#", shown).splitlines()

    import torch.utils.benchmark

    for settings in ({}, {"label": "a", "sub_label": "b", "description": "c"}):
        assert text(tt, **settings) == text(torch, **settings)
    x = tt.ones(4, device="cpu")
    m = tt.utils.benchmark.Timer("x + 1", globals={"x": x}).blocked_autorange(min_run_time=0.01)
    assert m.median > 0 and m.iqr >= 0 and sum(m.raw_times) >= 0.01
    with pytest.raises(ValueError, match="Invalid language"):
        tt.utils.benchmark.Timer("1", language="c++")
    assert "Is WebGPU available" in tt.utils.collect_env.get_pretty_env_info()


@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps", "xpu:3", "meta", "cpu:0", "nothing", "cuda:x"])
def test_devices_can_be_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are not there, too; making something there is PyTorch's error."""
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: False)  # as in test_without_cuda
    ours, theirs = (
        outcome(lambda m=m: [str(m.device(name)), m.device(name).type, m.device(name).index]) for m in (tt, torch)
    )
    assert ours == theirs if ours.startswith("[") else theirs.startswith(ours.partition(":")[0])
    if name == "cuda":
        assert outcome(lambda: tt.zeros(1, device=name)) == outcome(lambda: torch.zeros(1, device=name))


@pytest.mark.skipif("webgpu" not in DEVICES, reason="webgpu was not asked for")
def test_cuda_is_shown() -> None:
    """What a script calls "cuda" shows so, and is the GPU all the same."""
    out = installed(
        """
d = torch.device("cuda")
x = torch.ones(2).to(d)
print(d, d.type, d.index, x.device, x.cuda().device, {"cuda": 1, "cpu": 2}[x.device.type], x.to("webgpu").device, x)
assert d.type == "cuda" and d.type == "webgpu" and d.type in ("cuda",) and d.type != "cpu" and d != torch.device("cpu")
assert x.device == torch.device("cuda:0") == torch.device("webgpu:0") and len({x.device, torch.device("webgpu", 0)}) == 1
assert torch.zeros(1, device=x.device).device == x.device and (x + torch.ones(2, device="webgpu")).tolist() == [2, 2]
lib = torch.library.Library("facade_test", "DEF")
lib.define("where(Tensor x) -> Tensor")
for key, n in (("CUDA", 1), ("CPU", 2)):
    lib.impl("where", lambda x, n=n: x + n, key)
assert torch.ops.facade_test.where(x).tolist() == [2, 2] and torch.ops.facade_test.where(x.cpu()).tolist() == [3, 3]
assert len({torch.Stream(), torch.Stream(device="cuda")}) == 1
try:
    x + x.cpu()
except RuntimeError as e:
    print(e)
"""
    )
    assert out.splitlines() == [
        "cuda cuda None cuda:0 cuda:0 1 webgpu:0 tensor([1., 1.])",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    ]
