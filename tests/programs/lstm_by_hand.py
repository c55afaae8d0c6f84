"""An LSTM cell written out, unrolled over a sequence, trained with Adam."""

import torch
import torch.nn as nn

torch.manual_seed(4)


class LSTMCell(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.x2h = nn.Linear(n_in, 4 * n_hidden)
        self.h2h = nn.Linear(n_hidden, 4 * n_hidden, bias=False)

    def forward(self, x, state):
        h, c = state
        i, f, g, o = (self.x2h(x) + self.h2h(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


cell, head = LSTMCell(3, 6), nn.Linear(6, 1)
parameters = [*cell.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.02)
xs = torch.randn(7, 4, 3)
target = xs.sum((0, 2)).unsqueeze(1).tanh()
for step in range(8):
    h = torch.zeros(4, 6)
    c = torch.zeros(4, 6)
    for x in xs:
        h, c = cell(x, (h, c))
    loss = ((head(h) - target) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.6f}")
print(h[0], c.shape, cell.h2h.weight.grad.abs().sum())
