"""Handwritten digits: a small convolutional network learns to read them"""

from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

import tabtorch  # for show(), plot() and pad(); the rest is PyTorch

DATA = Path(__file__).parent / "data" / "digits.txt"
EPOCHS = 8
RATE = 0.01  # of the first epoch; it falls in a straight line
FRAMES = 3000  # in which your drawing is looked at, at the end; Stop ends it too

device = "cuda" if torch.cuda.is_available() else "cpu"


def digits():
    """The 1,797 8x8 digits, as images (N, 1, 8, 8) from 0 to 1 and labels (N,)."""
    images, labels = [], []
    for line in DATA.read_text().splitlines():
        label, pixels = line.split()
        labels.append(int(label))
        images.append([int(c, 17) / 16 for c in pixels])
    return TensorDataset(torch.tensor(images).view(-1, 1, 8, 8), torch.tensor(labels))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 24, 3, padding=1)
        self.conv2 = nn.Conv2d(24, 48, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()
        self.out = nn.Linear(48 * 2 * 2, 10)

    def forward(self, x):  # (B, 1, 8, 8)
        x = self.pool(self.relu(self.conv1(x)))  # (B, 24, 4, 4)
        x = self.pool(self.relu(self.conv2(x)))  # (B, 48, 2, 2)
        return self.out(x.flatten(1))  # (B, 10)


def setup():
    """Seeded: the split, the first weights and every shuffle are the same on each run."""
    torch.manual_seed(0)
    train_set, test_set = random_split(digits(), [1536, 261])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=len(test_set))
    model = Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    return model, optimizer, train_loader, test_loader


def train(model, optimizer, loader):
    """One epoch; yields the loss of each step."""
    model.train()
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    correct = total = 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        correct += (model(images).argmax(1) == labels).sum().item()
        total += len(labels)
    return correct / total


@torch.no_grad()
def show_mistakes(model, loader):
    """Which digit was read as which, and the images of those that were read wrong."""
    images, labels = (torch.cat(each).to(device) for each in zip(*loader, strict=True))
    guess = model(images).argmax(1)
    confusion = torch.bincount(labels * 10 + guess, minlength=100).view(10, 10)
    title = "row: the digit; column: what was read"
    tabtorch.show(confusion.float().sqrt(), cmap="viridis", scale=24, title=title)
    wrong = (guess != labels).nonzero()[:, 0]
    if len(wrong):
        title = "read wrong: " + ", ".join(f"{a} as {b}" for a, b in zip(labels[wrong].tolist(), guess[wrong].tolist()))
        tabtorch.show(images[wrong], scale=6, title=title)


@torch.no_grad()
def read_drawing(model):
    """What you draw, as the network sees it: the digits were made so too, from 32 by 32 pixels, 4 by 4 of them each."""
    pad = tabtorch.pad("Draw a digit", 32, 32)
    canvas = tabtorch.canvas(8, 8, 12, alt="What the network sees")
    guess = None
    for _ in range(FRAMES):
        seen = F.avg_pool2d(pad.value.to(device)[None, None], 4)
        canvas.draw(seen[0, 0])
        before, guess = guess, model(seen).argmax(1).item() if seen.sum() > 2 else None
        if guess not in (None, before):
            print("you drew a", guess)


def main():
    model, optimizer, train_loader, test_loader = setup()
    tabtorch.show(train_loader.dataset[:40][0], columns=10, scale=4, title="what there is to read")
    for epoch in range(1, EPOCHS + 1):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - (epoch - 1) / EPOCHS)
        losses = []
        for loss in train(model, optimizer, train_loader):
            losses.append(loss)
            tabtorch.plot("loss", loss, log=True)
        loss = torch.stack(losses).mean().item()
        print(f"epoch {epoch}  loss {loss:.6f}  accuracy {accuracy(model, test_loader):.4f}")
    show_mistakes(model, test_loader)
    read_drawing(model)


if __name__ == "__main__":
    main()
