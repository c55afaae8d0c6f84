"""Files of weights: a safetensors file, made here, from the disk or from a URL, opened and looked at"""

import json
import struct
from pathlib import Path

import torch
import torch.nn as nn
from safetensors.torch import load_file, save_file

import tabtorch  # for show(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

FILE = Path("weights.safetensors")  # a file of your own: drop it on the page, and write its name here
URL = ""  # or where it is, such as "https://huggingface.co/sentence-transformers/.../model.safetensors"


def make(path):
    """A small network's weights, which are a file as good as any."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10))
    save_file(model.state_dict(), path, metadata={"made by": "this demo"})


def header(path):
    """What is in the file, told by its beginning alone: eight bytes, the length of what follows, and then JSON."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))


if URL:
    torch.hub.download_url_to_file(URL, str(FILE), progress=False)
elif not FILE.exists():
    make(FILE)

found = header(FILE)
print(f"{FILE}: {FILE.stat().st_size:,} bytes", found.pop("__metadata__", {}))
for name, each in found.items():
    first, last = each["data_offsets"]
    print(f"  {name:12} {each['dtype']:4} {each['shape']!s:16} {last - first:8,} bytes")

weights = load_file(FILE, device=device)
for name, each in weights.items():
    if each.dim() < 2:
        continue
    values = each.detach().float()
    print(f"\n{name}: mean {values.mean().item():+.4f}, deviation {values.std().item():.4f}")
    if values.dim() == 4:  # the filters of a convolution
        tabtorch.show(values[:16].flatten(0, 1)[:16], cmap="coolwarm", scale=10, title=f"the first filters of {name}")
    else:
        tabtorch.show(values.flatten(1)[:128, :256], cmap="coolwarm", title=f"a corner of {name}")
