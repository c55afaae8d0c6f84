"""Libraries of pure Python where a tab runs them: in Pyodide, with no NumPy and no network, beside PyTorch's numbers.

Of those that people use in a tab the rest want NumPy (torchmetrics, transformers, x-transformers), which Pyodide's own index has.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from libraries import environment

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"einops": "einops", "rotary-embedding-torch": "rotary_embedding_torch", "tqdm": "tqdm"}

SCRIPT = """
import json
import sys
import torch
from einops import einsum, pack, rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from tqdm import tqdm

said = {}
x = torch.arange(48.0, device="cpu").reshape(2, 3, 8).sin().requires_grad_()
y = rearrange(x, "b c (h w) -> b h (w c)", h=2)
said["einops"] = [reduce(y, "b h f -> f", "max"), repeat(x[0], "c w -> c (w k)", k=2), einsum(x, x, "b c w, b d w -> b c d")]
said["einops"].append(pack([x, x[:, 0]], "b *")[0])
net = torch.nn.Sequential(Rearrange("b c w -> b (c w)"), torch.nn.Linear(24, 4), torch.nn.Tanh(), Reduce("b (k f) -> b f", "mean", k=2))
for p in net.parameters():
    p.data = torch.linspace(-0.4, 0.4, p.numel(), device="cpu").reshape(p.shape)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
losses = []
for _ in tqdm(range(5), file=sys.stderr):
    loss = (net(x) - 0.3).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
said["training"] = [*losses, x.grad]
rotary = RotaryEmbedding(dim=4).to("cpu")
q, k = x.detach().reshape(1, 2, 3, 8) + 1, x.detach().reshape(1, 2, 3, 8).cos()
rq, rk = rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k)
said["rotary"] = [rq, rk, (rq @ rk.transpose(-1, -2)).softmax(-1), apply_rotary_emb(rotary(torch.arange(3.0, device="cpu")), k)]
far = RotaryEmbedding(dim=4, use_xpos=True).to("cpu")
said["rotary"] += list(far.rotate_queries_and_keys(q, k))
print(json.dumps({name: [t.detach().flatten().tolist() for t in ts] for name, ts in said.items()}))
"""


def test_in_a_tab(tmp_path: Path) -> None:
    try:
        environment.install(PACKAGES, seconds=300)
    except environment.NotThere as why:
        pytest.skip(str(why))
    (site,) = environment.WHERE.glob("lib/python*/site-packages")
    for folder in PACKAGES.values():
        shutil.copytree(site / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    there = subprocess.run(
        [environment.PYTHON, script], check=True, capture_output=True, text=True, env=env, timeout=300
    )
    run = [sys.executable, "-m", "tabtorch.cli", "run", str(script), "--browser", "node"]
    here = subprocess.run(run, check=True, capture_output=True, text=True, cwd=ROOT, timeout=300)
    want, got = (json.loads(done.stdout.splitlines()[-1]) for done in (there, here))
    assert want.keys() == got.keys()
    for name in want:
        for a, b in zip(want[name], got[name], strict=True):
            assert a == pytest.approx(b, rel=1e-4, abs=1e-5), name
