"""The programs of tests/projects as methods of files: a prediction and a training step of each, for test_plan_projects.py."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tabtorch as torch

HERE = Path(__file__).resolve().parent

#: what is appended to a program that ends before it trains: `methods`, `model`, `optimizer`, and `batch()`, the arguments of each step
ENDS = {
    "resnet18": """
def step(x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
def predict(x):
    model.eval()
    out = model(x).argmax(1)
    model.train()
    return out
batch = lambda: pictures(4)
""",
    "gpt": """
def step(x, y):
    _, loss = model(x, y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return {"loss": loss}
def predict(x):
    return model(x)[0]
batch = get_batch
""",
    "lstm_lm": """
def step(x, y, hidden):
    model.zero_grad()
    output, hidden = model(x, hidden)
    loss = criterion(output, y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-lr)
    return loss, hidden
def predict(x, hidden):
    return model(x, hidden)[0]
optimizer = None
def batch():
    return batches[:bptt], batches[1 : 1 + bptt].reshape(-1), model.init_hidden(bsz)
""",
    "vit": """
def step(image, label):
    loss = nn.functional.cross_entropy(model(image), label)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
def predict(image):
    return model(image)
def arguments():
    return batch(4)
""",
    "gan": """
def step(real):
    netD.zero_grad()
    label = torch.full((len(real),), 1.0)
    errD_real = criterion(netD(real), label)
    errD_real.backward()
    noise = torch.randn(len(real), nz, 1, 1)
    fake = netG(noise)
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()), label)
    errD_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake), label)
    errG.backward()
    optimizerG.step()
    return {"D": errD_real + errD_fake, "G": errG}
def predict(noise):
    return netG(noise)
model, optimizer = {"G": netG, "D": netD}, {"optimizer.D": optimizerD, "optimizer.G": optimizerG}
batch = lambda: (real_batch(4),)
""",
    "dqn": """
def step(state, action, next_state, final, reward):
    values = policy_net(state).gather(1, action)
    with torch.no_grad():
        following = torch.where(final, 0.0, target_net(next_state).max(1).values)
    loss = nn.SmoothL1Loss()(values, (following * GAMMA + reward).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(target_net.parameters(), policy_net.parameters()):
            a.lerp_(b, TAU)
    return loss
def predict(state):
    return policy_net(state).max(1).indices
model = {"policy": policy_net, "target": target_net}
def batch():
    n = 6
    return torch.randn(n, 4), torch.randint(0, 2, (n, 1)), torch.randn(n, 4), torch.rand(n) < 0.2, torch.ones(n)
""",
    "diffusion": """
def step(x, t):
    noise = torch.randn_like(x)
    loss = F.huber_loss(model(q_sample(x, t, noise), t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), model.parameters()):
            a.lerp_(b, 0.1)
    return loss
def predict(x, t):
    return ema(x, t)
model = {"model": model, "ema": ema}
batch = lambda: (moons(6), torch.randint(0, T, (6,)))
step.__globals__["model"] = model["model"]
models = {"model": model, "ema": ema}
""",
    "unet": """
def step(images, masks):
    loss = F.binary_cross_entropy_with_logits(net(images), masks) + dice_loss(net(images), masks)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return loss
def predict(images):
    net.eval()
    out = net(images) > 0
    net.train()
    return out
model = net
batch = lambda: discs(2)
""",
    "vae": """
def step(x):
    loss = model.loss(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
torch.distributions.Distribution.set_default_validate_args(False)  # which reads values
def predict(z):
    return torch.sigmoid(model.decoder(z))
def batch():
    return (Bars(6).data,)
""",
}


class _Patches(torch.nn.Module):
    """What the vision transformer has of einops: (b, c, h p1, w p2) -> (b, h w, p1 p2 c)."""

    def __init__(self, _: str, p1: int, p2: int) -> None:
        super().__init__()
        self.p = p1

    def forward(self, x: Any) -> Any:
        b, c, h, w = x.shape
        p = self.p
        return (
            x.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1).reshape(b, (h // p) * (w // p), p * p * c)
        )


class _Mean(torch.nn.Module):
    def __init__(self, *_: str) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x.mean(1)


def _heads(t: Any, form: str, h: int = 0) -> Any:
    """(b, n, h d) -> (b, h, n, d), or back."""
    if h:
        return t.reshape(*t.shape[:2], h, -1).transpose(1, 2)
    return t.transpose(1, 2).flatten(2)


def program(name: str, device: str) -> dict[str, Any]:
    """The globals of a program before it trains, and its methods."""
    text = (HERE / "projects" / f"{name}.py").read_text()
    text = re.sub(r"^(\s*)import torch$", r"\1import tabtorch as torch", text, flags=re.M)
    text = re.sub(r"^(\s*)import torch\.(\S+) as", r"\1import tabtorch.\2 as", text, flags=re.M)
    text = re.sub(r"^(\s*)from torch\b", r"\1from tabtorch", text, flags=re.M)
    text = re.sub(r"^device = .*$", f"device = {device!r}", text, flags=re.M)
    text = re.sub(r"^from einops.*$", "", text, flags=re.M)  # which would take these for tensors of PyTorch
    text = text.replace("num_workers=2", "num_workers=0")
    body = ast.parse(text).body
    trains = re.compile(r"backward|env\.reset")
    first = next(k for k, s in enumerate(body) if isinstance(s, ast.For) and trains.search(ast.unparse(s)))
    kept = [
        s
        for s in body[:first]
        if not (isinstance(s, ast.Expr) and "print" in ast.unparse(s)) and "torch.compile" not in ast.unparse(s)
    ]
    space: dict[str, Any] = {"__name__": "__main__"}
    space |= {
        "Rearrange": _Patches,
        "Reduce": _Mean,
        "rearrange": _heads,
        "repeat": lambda t, _, b: t.expand(b, -1, -1),
    }
    with torch.device(device):
        exec(compile(ast.Module(kept, []), name, "exec"), space)
        exec(compile(ENDS[name], f"{name}-methods", "exec"), space)
    return space


def methods(space: dict[str, Any]) -> tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]:
    """Its step, its prediction, and arguments for a step."""
    batch = space.get("arguments", space["batch"])
    return space["step"], space["predict"], tuple(batch())
