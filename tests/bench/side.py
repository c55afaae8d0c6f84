"""One side of the comparison: times rows in this process, whichever it is (a tab, Node, CPython), and prints a line of JSON for each.

python -m bench.side [--native] [--small] [NAME …]
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import traceback
from typing import Any

from bench.rows import ROWS
from bench.timing import Clock, OwnClock, measure


def about(torch: Any, device: str, native: bool) -> dict[str, Any]:
    """What the figures depend on."""
    found: dict[str, Any] = {"version": torch.__version__, "device": device, "python": sys.version.split()[0]}
    if not native:
        from tabtorch.bridge import get_bridge

        info = get_bridge().info
        adapter = (info["webgpu"] or {}).get("adapter") or {}
        return found | {"platform": info.get("platform"), "adapter": adapter}
    if device == "cuda":
        found["adapter"] = {"description": torch.cuda.get_device_name()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--native", action="store_true", help="real PyTorch, on CUDA where there is one")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.native:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        clock: Clock = Clock(torch, device)
    else:
        import tabtorch

        torch, device = tabtorch, str(tabtorch.ones(()).device).split(":")[0]
        tabtorch.set_default_device("cpu")  # inputs are made there, as in the other library
        clock = OwnClock(torch, device)
    print(json.dumps({"about": about(torch, device, options.native)}), flush=True)
    for name in options.names or ROWS:
        begin = time.perf_counter()
        try:
            found = measure(clock, ROWS[name], options.small)
        except Exception as error:
            traceback.print_exc(limit=4)
            found = {"name": name, "failed": f"{type(error).__name__}: {error}"[:200]}
        found["seconds"] = round(time.perf_counter() - begin, 1)
        print(json.dumps(found), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
