"""Learning to play: a network finds its way through a small maze by trial and error (deep Q-learning)"""

import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

MAZE = """
S..#...
.#.#.#.
.#...#.
.####..
....#.#
.##...G
""".split()
HEIGHT, WIDTH = len(MAZE), len(MAZE[0])
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
GAMES, LONGEST, BATCH = 120, 60, 64


def find(letter):
    return next((r, row.index(letter)) for r, row in enumerate(MAZE) if letter in row)


def play(place, move):
    """Where a move leads, what it is worth, and whether it ends the game."""
    r, c = place[0] + MOVES[move][0], place[1] + MOVES[move][1]
    if not (0 <= r < HEIGHT and 0 <= c < WIDTH) or MAZE[r][c] == "#":
        return place, -0.3, False
    return (r, c), 1.0 if MAZE[r][c] == "G" else -0.05, MAZE[r][c] == "G"


def number(place):
    return place[0] * WIDTH + place[1]


random.seed(0)
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(HEIGHT * WIDTH, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
memory = deque(maxlen=2000)
places = torch.arange(HEIGHT * WIDTH, device=device)

for game in range(1, GAMES + 1):
    with torch.no_grad():
        table = model(places).tolist()  # what each move is worth, everywhere: read once a game
    curious = max(0.05, 1 - game / (0.6 * GAMES))
    place, total = find("S"), 0.0
    for turn in range(1, LONGEST + 1):  # noqa: B007  # printed below
        values = table[number(place)]
        move = random.randrange(4) if random.random() < curious else values.index(max(values))
        after, worth, over = play(place, move)
        memory.append((number(place), move, worth, number(after), over))
        place, total = after, total + worth
        if over:
            break
    for _ in range(8):
        batch = random.sample(list(memory), min(BATCH, len(memory)))
        before, move, worth, after, over = (torch.tensor(each).to(device) for each in zip(*batch, strict=True))
        with torch.no_grad():
            best = worth + 0.95 * model(after).amax(1) * (~over).float()
        loss = F.smooth_l1_loss(model(before).gather(1, move[:, None])[:, 0], best)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tabtorch.plot("reward of a game", total)
    if game % 10 == 0:
        worth = model(places).amax(1).detach().view(HEIGHT, WIDTH)
        walls = torch.tensor([[each == "#" for each in row] for row in MAZE], device=device)
        shown = worth.masked_fill(walls, float("nan"))
        tabtorch.show(shown, cmap="viridis", scale=30, name="worth", title=f"what a place is worth, game {game}")
    if game % 30 == 0:
        print(f"game {game:3d}  {turn} moves, reward {total:+.2f}")

place, path = find("S"), []
table = model(places).tolist()
while place != find("G") and len(path) < LONGEST:
    values = table[number(place)]
    place = play(place, values.index(max(values)))[0]
    path.append(place)
print("found the way in" if place == find("G") else "still lost after", len(path), "moves")
