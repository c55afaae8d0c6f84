"""The models of the demos that run without Python: their weights, and the files that the pages load.

    python web/models.py FOLDER          what the site's build calls: writes digits.safetensors and gpt.safetensors
    python web/models.py --train NAME    trains digits or gpt with PyTorch, and keeps the weights in web/demos/models

The weights that are kept are of 16 bits. The files have them as float32, with the state that AdamW begins with, and the plans
of two methods: one that tells, and one that learns.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WEIGHTS = HERE / "demos" / "models"
DIGITS = HERE / "demos" / "data" / "digits.txt"

#: of digits that are learnt from at once: those that a reader drew, and others so that they are not forgotten
DIGITS_BATCH = 16

#: characters that the GPT knows, by number; any other is read as a blank
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
CONTEXT, WIDTH, HEADS, LAYERS = 64, 64, 4, 2
GPT_BATCH = 4


def digits_net(torch: Any) -> Any:
    """(B, 1, 8, 8), from 0 to 1 -> logits (B, 10)."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 10),
    )


def gpt_net(torch: Any) -> Any:
    """Characters (B, CONTEXT) -> logits (B, CONTEXT, characters)."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x: Any) -> Any:
            q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).flatten(2))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.character, self.place = nn.Embedding(len(ALPHABET), WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, len(ALPHABET))

        def forward(self, i: Any) -> Any:
            return self.head(self.norm(self.blocks(self.character(i) + self.place.weight)))

    return GPT()


def numbers_of(text: str) -> list[int]:
    known = {character: number for number, character in enumerate(ALPHABET)}
    return [known.get(character, known[" "]) for character in text]


def the_text() -> str:
    """What the GPT learns from: the project's own guides, which are all in the repository."""
    return "\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))


def the_digits() -> tuple[list[list[float]], list[int]]:
    rows = [line.split() for line in DIGITS.read_text().splitlines()]
    return [[int(c, 17) / 16 for c in pixels] for _, pixels in rows], [int(label) for label, _ in rows]


# -- the files


def save_digits(torch: Any, path: Path, net: Any) -> None:
    """Two methods: `predict(x)` gives probabilities, `step(x, y)` learns."""
    from tabtorch import plan_files

    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)

    def predict(x: Any) -> Any:
        return {"probabilities": net(x).softmax(1)}

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    batch = (torch.zeros(DIGITS_BATCH, 1, 8, 8), torch.zeros(DIGITS_BATCH, dtype=torch.int64))
    methods = {"predict": (predict, (torch.zeros(1, 1, 8, 8),)), "step": (step, batch)}
    plan_files.save(path, methods, model=net, optimizer=optimizer)


def save_gpt(torch: Any, path: Path, net: Any) -> None:
    """Two methods: `predict(x, at)` gives what follows the character at `at`, as logits; `step(x, y)` learns."""
    from tabtorch import plan_files

    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.95))

    def predict(x: Any, at: Any) -> Any:
        return {"logits": net(x)[0].index_select(0, at)[0]}

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    one = (torch.zeros(1, CONTEXT, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    batch = tuple(torch.zeros(GPT_BATCH, CONTEXT, dtype=torch.int64) for _ in range(2))
    plan_files.save(path, {"predict": (predict, one), "step": (step, batch)}, model=net, optimizer=optimizer)


NETS = {"digits": (digits_net, save_digits), "gpt": (gpt_net, save_gpt)}


def write(folder: Path) -> list[Path]:
    """The files of all models, in `folder`."""
    sys.path.insert(0, str(ROOT / "py"))
    import tabtorch

    folder.mkdir(parents=True, exist_ok=True)
    made = []
    with tabtorch.device("cpu"):
        for name, (net_of, save) in NETS.items():
            net = net_of(tabtorch)
            kept = tabtorch.safetensors.load_file(WEIGHTS / f"{name}.safetensors")
            net.load_state_dict({key: value.float() for key, value in kept.items()})
            made.append(folder / f"{name}.safetensors")
            save(tabtorch, made[-1], net)
    return made


# -- training, with PyTorch


def train(name: str, steps: int) -> None:
    """Trains on all there is but the last tenth, on which it says how good it is."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    net = NETS[name][0](torch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.05)
    if name == "digits":
        images, labels = (torch.tensor(each) for each in the_digits())
        xs, ys = images.view(-1, 1, 8, 8), labels
        most = len(xs) * 9 // 10

        def loss_of(at: Any) -> Any:
            return torch.nn.functional.cross_entropy(net(xs[at]), ys[at])

    else:
        text = torch.tensor(numbers_of(the_text()))
        xs = text.unfold(0, CONTEXT + 1, 1)
        most = len(xs) * 9 // 10

        def loss_of(at: Any) -> Any:
            window = xs[at]
            return torch.nn.functional.cross_entropy(net(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())

    for k in range(steps):
        optimizer.zero_grad()
        loss = loss_of(torch.randint(most, (64,)))
        loss.backward()
        optimizer.step()
        schedule.step()
        if k % 200 == 199:
            with torch.no_grad():
                print(k + 1, loss.item(), loss_of(torch.arange(most, len(xs))[::7]).item(), flush=True)
    WEIGHTS.mkdir(exist_ok=True)
    state = {key: value.half().contiguous() for key, value in net.state_dict().items()}
    save_file(state, WEIGHTS / f"{name}.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--train", choices=NETS)
    parser.add_argument("--steps", type=int, default=3000)
    wanted = parser.parse_args()
    if wanted.train:
        train(wanted.train, wanted.steps)
    elif wanted.folder:
        print(json.dumps({path.name: path.stat().st_size for path in write(wanted.folder)}))
    else:
        parser.error("name a folder, or a model to train")


if __name__ == "__main__":
    main()
