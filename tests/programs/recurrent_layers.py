"""nn.RNN, nn.LSTM and nn.GRU, as the documentation uses them."""

import torch
import torch.nn as nn

torch.manual_seed(1)
lstm = nn.LSTM(3, 3)
inputs = [torch.randn(1, 3) for _ in range(5)]
hidden = (torch.randn(1, 1, 3), torch.randn(1, 1, 3))
for i in inputs:
    out, hidden = lstm(i.view(1, 1, -1), hidden)
print(out, hidden)
inputs = torch.cat(inputs).view(len(inputs), 1, -1)
out, hidden = lstm(inputs)
print(out)
gru = nn.GRU(4, 5, num_layers=2, batch_first=True)
out, h = gru(torch.randn(2, 6, 4))
out.sum().backward()
print(out.shape, h.shape, out[0, -1], gru.weight_hh_l0.grad.norm())
rnn = nn.RNN(2, 3, bidirectional=True)
out, h = rnn(torch.ones(4, 1, 2))
print(out[:, 0], rnn)
cell = nn.LSTMCell(2, 3)
h, c = cell(torch.ones(1, 2))
print(h, c)
