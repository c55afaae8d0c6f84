"""What an operation costs, in Chromium. Prints a table, and writes bench/operations.json.

python -m bench.overhead [--browser chromium|firefox|node] [--device webgpu|cpu]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "bench" / "operations.json"
#: µs per operation, until done, that must not be exceeded in Chromium on SwiftShader
TARGETS = {"add, 64 floats": 6.0, "add with backward": 15.0}


def measure(browser: str, device: str | None) -> dict[str, Any]:
    """What operations.py prints in there."""
    with tempfile.TemporaryDirectory() as folder:  # alone there, so that no other file comes along
        script = shutil.copy(HERE / "operations.py", folder)
        command = [sys.executable, "-m", "tabtorch.cli", "run", script, "--browser", browser, "--timeout", "600"]
        done = subprocess.run([*command, *(["--device", device] if device else [])], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def table(found: dict[str, Any]) -> str:
    """The figures for people."""
    adapter = found["adapter"]
    words = (
        [adapter[k] for k in ("vendor", "architecture", "device", "description") if adapter.get(k)] if adapter else []
    )
    lines = [
        f"{found['browser']}, {found['device']}, adapter {' '.join(words) or 'none'}, Python {found['python']}, "
        f"{found['processors']} processors, {found['machine']}, load {found['load'][0]}",
        "",
        f"{'per operation or step, medians':32}{'until done':>12}{'best':>9}{'submitted':>11}{'first':>10}"
        f"{'dispatches':>12}{'submits':>9}{'compiles':>10}{'plans':>7}{'MB held':>9}",
    ]
    for row in found["rows"]:
        held = (row["bytes"] + row["pooledBytes"]) / 1e6
        target = TARGETS.get(row["name"])
        mark = f"   (wanted: ≤ {target:g} µs)" if target else ""
        lines.append(
            f"{row['name']:32}{row['done']:>9.2f} {row['unit']}{row['best']:>9.2f}{row['submitted']:>11.2f}{row['first']:>10.1f}"
            f"{row['dispatches']:>12}{row['submits']:>9}{row['compiles']:>10}{row['plans']:>7}{held:>9.2f}{mark}"
        )
    lines += ["", f"(x + 1).item()       {found['item_ms']:>9.2f} ms"]
    if found["start_ms"]:
        lines.append(
            f"import tabtorch      {found['import_ms']:>9.0f} ms, tabtorch.nn {found['import_nn_ms']:.0f} ms more, nothing cached"
        )
        lines.append(
            f"start-up             {found['start_ms']:>9.0f} ms from an empty worker to the first line of the script"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--browser", choices=["chromium", "firefox", "node"], default="chromium")
    parser.add_argument("--device", choices=["webgpu", "cpu"])
    options = parser.parse_args()
    found = measure(options.browser, options.device)
    found |= {
        "browser": options.browser,
        "machine": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "load": [round(each, 1) for each in os.getloadavg()],
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(table(found))
    print(f"\n{RESULTS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
