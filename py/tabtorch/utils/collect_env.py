"""`torch.utils.collect_env`: what a report of a bug should say of where it happened."""

from __future__ import annotations

import platform
import sys

from tabtorch import _lazy


def get_pretty_env_info() -> str:
    """Versions, platform, adapter and its features, a line each."""
    info = _lazy.bridge.get_bridge().info
    gpu = info.get("webgpu")
    numpy = sys.modules.get("numpy")
    lines = {
        "PyTorch version": _lazy.torch.__version__,
        "Is debug build": False,
        "Python version": sys.version.replace("\n", " "),
        "Python platform": platform.platform(),
        "JavaScript platform": info.get("platform", ""),
        "Is CUDA available": _lazy.torch.cuda.is_available(),
        "Is WebGPU available": gpu is not None,
        "GPU": _lazy.torch.webgpu.get_device_name() if gpu else info.get("reason", ""),
        "GPU features": ", ".join(gpu["features"]) if gpu else "",
        "NumPy version": getattr(numpy, "__version__", "not loaded"),
    }
    return "\n".join(f"{k}: {v}" for k, v in lines.items())


def main() -> None:
    """Prints it."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
