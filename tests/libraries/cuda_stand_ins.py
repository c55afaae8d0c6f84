"""CUDA libraries that do nothing: PyPI's torchvision and torchaudio are built for CUDA and link to some, which the oracle, a PyTorch for
the CPU, has not. With these they load, and its operators on the CPU are the real ones.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

#: what torchvision 0.28.0 and torchaudio 2.11.0 take from each library (`nm -D --undefined-only`)
SYMBOLS = {
    "libc10_cuda.so": """
        _ZN2at4cuda26getCurrentDevicePropertiesEv _ZN3c104cuda12device_countEv _ZN3c104cuda14ExchangeDeviceEa
        _ZN3c104cuda14MaybeSetDeviceEa _ZN3c104cuda17getStreamFromPoolEba _ZN3c104cuda17getStreamFromPoolEia
        _ZN3c104cuda20CUDACachingAllocator9allocatorE _ZN3c104cuda20getCurrentCUDAStreamEa _ZN3c104cuda20getDefaultCUDAStreamEa
        _ZN3c104cuda20setCurrentCUDAStreamENS0_10CUDAStreamE _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb
        _ZN3c104cuda9GetDeviceEPa _ZN3c104cuda9SetDeviceEab _ZNK3c104cuda10CUDAStream11synchronizeEv
        _ZNK3c104cuda10CUDAStream5queryEv _ZNK3c104cuda10CUDAStream6streamEv aoti_torch_get_current_cuda_stream
        torch_c10_cuda_check_msg torch_c10_cuda_free_error_msg torch_cuda_stream_synchronize torch_get_cuda_stream_from_pool
        torch_set_current_cuda_stream""",
    "libcudart.so.13": """
        __cudaGetKernel __cudaInitModule __cudaLaunchKernel __cudaPopCallConfiguration __cudaPushCallConfiguration
        __cudaRegisterFatBinary __cudaRegisterFatBinaryEnd __cudaRegisterFunction __cudaRegisterVar __cudaUnregisterFatBinary
        cudaDeviceSynchronize cudaEventCreateWithFlags cudaEventDestroy cudaEventElapsedTime cudaEventQuery cudaEventRecord
        cudaEventSynchronize cudaGetErrorString cudaGetLastError cudaStreamIsCapturing cudaStreamWaitEvent cudaGetErrorName
        cudaMemcpy2DAsync cudaMemcpyAsync cudaMemset cudaMemsetAsync cudaSetDevice cudaStreamSynchronize""",
    "libtorch_cuda.so": "",
}


def compiler() -> list[str] | None:
    """A C compiler's command, or None."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found:
        return [found]
    there = subprocess.run([sys.executable, "-m", "ziglang", "version"], capture_output=True).returncode == 0
    return [sys.executable, "-m", "ziglang", "cc"] if there else None


def build(folder: Path) -> Path | None:
    """The folder with the libraries, inside of `folder`, which belongs into LD_LIBRARY_PATH. None where there is no compiler."""
    folder /= hashlib.sha256(str(SYMBOLS).encode()).hexdigest()[:12]
    if all((folder / name).exists() for name in SYMBOLS):
        return folder
    cc = compiler()
    if cc is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    for name, symbols in SYMBOLS.items():
        # the allocator is an object; of the functions, those that are called when a library loads return a pointer to nothing
        text = "".join(
            f"void* {s}[64];\n" if "allocator" in s else f"void* {s}(void) {{ static void* none[64]; return none; }}\n"
            for s in symbols.split()
        )
        source, versions = folder / "source.c", folder / "versions"
        source.write_text(text or "int nothing;\n")
        versions.write_text(f"{name} {{ global: *; }};\n")
        flags = ["-shared", "-fPIC", f"-Wl,-soname,{name}"]
        if name.startswith("libcudart"):
            flags.append(f"-Wl,--version-script={versions}")
        subprocess.run([*cc, *flags, "-o", str(folder / name), str(source)], check=True, capture_output=True)
    return folder
