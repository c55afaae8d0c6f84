"""Seeds: the numbers of every tutorial."""

import torch

torch.manual_seed(0)
print(torch.rand(3), torch.randn(2, 3), torch.randint(0, 10, (5,)), torch.randperm(6), sep="\n")
torch.manual_seed(1234)
print(torch.randn(20), torch.rand(2, 2), torch.normal(2.0, 3.0, (2, 2)), sep="\n")
g = torch.Generator().manual_seed(5)
print(torch.rand(2, generator=g), torch.randn(2, generator=g), torch.randperm(4, generator=g))
x = torch.empty(3, 2)
torch.manual_seed(3)
print(torch.nn.init.xavier_uniform_(x), torch.nn.init.kaiming_normal_(x), torch.nn.init.normal_(x, std=0.02), sep="\n")
print(x.uniform_(-1, 1), x.normal_(), torch.empty(4).bernoulli_(0.5), torch.bernoulli(torch.full((3,), 0.5)), sep="\n")
print(torch.nn.Linear(2, 3).weight, torch.nn.Conv1d(1, 2, 3).bias, torch.nn.Embedding(2, 2).weight, sep="\n")
torch.manual_seed(8)
state = torch.get_rng_state()
first = torch.rand(2)
torch.set_rng_state(state)
print(first == torch.rand(2), torch.initial_seed())
print(torch.multinomial(torch.tensor([0.1, 0.2, 0.7]), 2).shape, torch.rand_like(x).shape)
