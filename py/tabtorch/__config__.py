"""`torch.__config__`: how this package was built, as text that programs search (`"USE_MKL=OFF" in torch.__config__.show()`)."""

from tabtorch import _lazy

__all__ = ["parallel_info", "show"]


def show() -> str:
    """What there is of the libraries that PyTorch can be built with: none, for everything is WGSL and JavaScript."""
    without = "USE_CUDA USE_CUDNN USE_MKL USE_MKLDNN USE_MPI USE_NCCL USE_OPENMP USE_ROCM".split()
    return (
        f"PyTorch built with:\n  - tabtorch {_lazy.version.TABTORCH}, on WebGPU and JavaScript\n"
        f"  - Build settings: TORCH_VERSION={_lazy.version.TORCH}, {', '.join(f'{name}=OFF' for name in without)}, \n"
    )


def parallel_info() -> str:
    """How many threads the cpu device has: one."""
    return "ATen/Parallel:\n\tat::get_num_threads() : 1\n\tat::get_num_interop_threads() : 1\nATen parallel backend: native\n"
