"""safetensors: files of tensors, whole, in part, of models that share weights."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
from torch import nn


def _net():
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))


def files(device):
    net = _net().to(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file(net.state_dict(), path, metadata={"format": "pt"})
        size = path.stat().st_size
        loaded = load_file(path, device=device)
        other = _net().to(device)
        other.load_state_dict(loaded)
    x = torch.randn(3, 4, device=device)
    return {"size": size, "y": other(x), "same": torch.equal(net(x), other(x)), "keys": sorted(loaded)}


def parts_of_a_file(device):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.safetensors"
        save_file({"table": torch.arange(24.0).view(6, 4).to(device), "n": torch.tensor([3])}, path, {"by": "rows"})
        with safe_open(path, framework="pt", device=device) as f:
            part = f.get_slice("table")
            return {
                "keys": sorted(f.keys()),
                "metadata": f.metadata(),
                "shape": list(part.get_shape()),
                "dtype": part.get_dtype(),
                "rows": part[2:4],
                "column": part[:, 1:2],
                "n": f.get_tensor("n"),
            }


def bytes_of_tensors(device):
    tensors = {
        "half": torch.randn(3, device=device).half(),
        "brain": torch.randn(2, 2, device=device).bfloat16(),
        "int": torch.tensor([[1, -2]], device=device),
        "bool": torch.tensor([True, False], device=device),
    }
    data = save(tensors)
    back = load(data)
    return {"n": len(data), **{k: v.float() for k, v in back.items()}, "dtypes": [str(back[k].dtype) for k in tensors]}


def shared_weights(device):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    net, other = Tied().to(device), Tied().to(device)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tied.safetensors")
        save_model(net, path)
        missing, unexpected = load_model(other, path)
    ids = torch.tensor([1, 5, 6], device=device)
    return {"y": other(ids), "same": torch.equal(net(ids), other(ids)), "missing": len(missing) + len(unexpected)}
