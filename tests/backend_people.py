"""Other people's libraries on real PyTorch's device="webgpu", against its CPU: transformers, timm, torchvision and others.

    python tests/backend_people.py [PATTERN ...] [--venv DIR] [--device cpu|webgpu] [-v]

makes an environment with the libraries (DIR; the first time takes minutes), and asks each case of backend_people_transformers.py,
backend_people_vision.py and backend_people_libraries.py there, in processes that may be lost. `--device` is what lies under
"webgpu": the cpu kernels unless said otherwise, as models are large for a software adapter. PATTERN is of names (`train/llama`).
Prints a line for each that fails, and how many of each kind are right.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("transformers", "vision", "libraries")
#: what is installed; a library that there is none of is a failure of its cases, and of no others
PACKAGES = (
    "transformers timm torchvision accelerate safetensors einops lightning peft diffusers torchmetrics torch_geometric gpytorch "
    "pyro-ppl kornia stable-baselines3 torchdiffeq tensordict open_clip_torch segmentation-models-pytorch x-transformers "
    "lion-pytorch captum"
).split()


class Answer(NamedTuple):
    """What became of a case: "" if it is right, and how many seconds it took."""

    name: str
    wrong: str
    seconds: float


def ask(command: list[str], names: list[str], env: dict[str, str], patience: float) -> list[Answer]:
    """The answers of `command NAME ...`, which prints them as lines of JSON. It is run again for what follows a case that ended it.

    patience: seconds for each case.
    """
    found: list[Answer] = []
    left = list(names)
    while left:
        try:
            done = subprocess.run(
                [*command, *left],
                env={**os.environ, **env},
                capture_output=True,
                text=True,
                timeout=patience * len(left),
            )
            said, ended = done.stdout, f"the process ended with {done.returncode}"
        except subprocess.TimeoutExpired as late:
            said, ended = (late.stdout or b"").decode(), f"no answer in {patience * len(left):g} s"
        for line in said.splitlines():
            if line.startswith('["') and len(left) and json.loads(line)[0] == left[0]:
                found.append(Answer(*json.loads(line)))
                left.pop(0)
        if left:
            found.append(Answer(left.pop(0), ended, 0.0))
    return found


def environment(where: Path) -> Path:
    """Python of an environment with the libraries, and the torch that is installed here."""
    python = where / "bin" / "python"
    if not (where / "ready").exists():
        import torch

        subprocess.run([sys.executable, "-m", "venv", str(where)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", f"torch=={torch.__version__}"]
        subprocess.run([*pip, "numpy"], check=True)
        for package in PACKAGES:
            if subprocess.run([*pip, package]).returncode:
                print(f"{package} could not be installed", file=sys.stderr)
        (where / "ready").touch()
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--venv", type=Path, default=Path.home() / ".cache" / "tabtorch" / "people")
    parser.add_argument("--device", default="cpu", choices=["cpu", "webgpu"])
    parser.add_argument("-v", action="store_true", help="print what is right, too")
    chosen = parser.parse_args()
    python = str(environment(chosen.venv))
    env = {
        "PYTHONPATH": f"{ROOT / 'py'}:{ROOT / 'tests'}",
        "TABTORCH_DEVICE": chosen.device,
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }
    kinds: dict[str, list[Answer]] = defaultdict(list)
    for part in PARTS:
        command = [python, str(ROOT / "tests" / f"backend_people_{part}.py")]
        listed = subprocess.run([*command, "--list"], env={**os.environ, **env}, capture_output=True, text=True)
        if listed.returncode:
            print(f"{part}: {listed.stderr[-2000:]}")
            continue
        names = [
            n
            for n in listed.stdout.split()
            if not chosen.patterns or any(fnmatch.fnmatch(n, p) for p in chosen.patterns)
        ]
        for start in range(0, len(names), 20):
            for a in ask(command, names[start : start + 20], env, 300):
                kinds[f"{part} {a.name.partition('/')[0]}"].append(a)
                if a.wrong or chosen.v:
                    print(f"{part} {a.name}: {a.wrong.strip()[-1500:] or 'right'} ({a.seconds:.1f} s)", flush=True)
    for kind, answers in kinds.items():
        print(f"{kind}: {sum(not a.wrong for a in answers)} of {len(answers)} right")


if __name__ == "__main__":
    main()
