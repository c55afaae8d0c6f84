"""Learning to play: a network learns to catch what falls, by trial and error (deep Q-learning)"""

import torch
import torch.nn as nn
import torch.nn.functional as F

import tabtorch  # for show() and plot(); the rest is PyTorch

device = "cuda" if torch.cuda.is_available() else "cpu"

HEIGHT, WIDTH = 8, 7  # of the field; the ball falls by a row a turn, and the paddle is in the last row
GAMES, ROUNDS = 48, 80  # played side by side; how often
KEPT, UPDATES, MIXED = 12, 12, 5  # rounds in memory; steps of learning after each, of so many turns
RATE, FUTURE = 8e-3, 0.95  # FUTURE: what a reward of the next turn is worth now


def begin(games):
    """The column of each paddle, and the column, drift and row of each ball."""
    ball, drift = torch.randint(WIDTH, (games,)), torch.randint(-1, 2, (games,))
    return torch.stack([torch.full((games,), WIDTH // 2), ball, drift, torch.zeros(games)], 1).to(device)


def play(state, move):
    """One turn; the moves are 0 for left, 1 for staying, 2 for right. The new state, and the rewards."""
    paddle, ball, drift, row = state.unbind(1)
    paddle = (paddle + move - 1).clamp(0, WIDTH - 1)
    drift = torch.where((ball + drift < 0) | (ball + drift > WIDTH - 1), -drift, drift)  # off the wall
    ball, row = ball + drift, row + 1
    caught = (paddle == ball).float() * 2 - 1  # 1, or -1 for a miss
    return torch.stack([paddle, ball, drift, row], 1), caught * (row == HEIGHT - 1)


def field(state):
    """What is seen of the games: (games, HEIGHT, WIDTH)."""
    paddle, ball, _, row = state.long().unbind(1)
    game = torch.arange(len(state), device=device)
    seen = torch.zeros(len(state), HEIGHT, WIDTH, device=device)
    seen[game, HEIGHT - 1, paddle] = 0.6
    seen[game, row, ball] = 1.0
    return seen


torch.manual_seed(0)
middle = torch.tensor([WIDTH / 2, WIDTH / 2, 0.0, HEIGHT / 2], device=device)
size = torch.tensor([WIDTH / 2, WIDTH / 2, 1.0, HEIGHT / 2], device=device)
model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
memory = []  # of the last rounds: where the games were, what was done, what came of it


def worth(state):
    """What the network thinks of each move: (games, 3)."""
    return model((state - middle) / size)


@torch.no_grad()
def play_round(curious, look):
    """GAMES games to their end; so often a move is made at random. How many were won."""
    state = begin(GAMES)
    for _ in range(1, HEIGHT):
        guess = torch.randint(3, (GAMES,)).to(device)
        move = torch.where((torch.rand(GAMES) < curious).to(device), guess, worth(state).argmax(1))
        before, (state, reward) = state, play(state, move)
        memory.append((before, move, state, reward))
        if look:
            tabtorch.show(field(state)[:8], cmap="magma", columns=4, padding=1, scale=10, name="games", title=look)
    del memory[: -(HEIGHT - 1) * KEPT]
    return (reward > 0).float().mean()


def learn(before, move, after, reward):
    """A move is worth its reward, and the best that can follow it."""
    over = after[:, 3] == HEIGHT - 1
    with torch.no_grad():
        target = reward + FUTURE * worth(after).amax(1) * (~over).float()
    loss = F.smooth_l1_loss(worth(before).gather(1, move[:, None])[:, 0], target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for games in range(ROUNDS + 1):
    curious = max(0.05, 1 - games / (ROUNDS / 2))
    won = play_round(curious, f"eight of {GAMES} games, round {games}" if games % 20 == 0 else None)
    tabtorch.plot("caught", won)
    if games % 20 == 0:
        print(f"round {games:2d}  caught {won.item():.2f}  random moves {curious:.2f}")
    for turns in torch.randint(len(memory), (UPDATES, MIXED)).tolist():
        learn(*(torch.cat(each) for each in zip(*(memory[turn] for turn in turns), strict=True)))
