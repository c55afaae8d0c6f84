"""What an nn.Module can do: children, buffers, hooks, apply, eval, requires_grad_, ModuleList, weight tying."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        self.count += 1
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x) * self.scale


def init(m):
    if isinstance(m, nn.Linear):
        nn.init.ones_(m.weight)
        nn.init.zeros_(m.bias)


m = MLP([2, 3, 1])
m.apply(init)
print(m)
print(m(torch.tensor([[1.0, 2.0]])), m.count)
print([n for n, _ in m.named_modules()], [n for n, _ in m.named_parameters()], [n for n, _ in m.named_buffers()])
print(m.training, m.eval().training, all(not c.training for c in m.children()))
for p in m.layers[0].parameters():
    p.requires_grad = False
print([n for n, p in m.named_parameters() if p.requires_grad])
calls = []
handle = m.layers[0].register_forward_hook(lambda mod, args, out: calls.append((type(mod).__name__, out.shape)))
m(torch.zeros(4, 2)).sum().backward()
handle.remove()
m(torch.zeros(4, 2))
print(calls, m.scale.grad, m.layers[0].weight.grad)
d = nn.ModuleDict({"a": nn.Linear(1, 1), "b": nn.Identity()})
print(d, list(d.keys()), "a" in d)
s = nn.Sequential(nn.Linear(2, 2, bias=False), nn.GELU(), nn.Softmax(dim=-1))
print(s[0].weight.shape, len(s), s[-1], s(torch.ones(1, 2)).sum())
try:
    m.layers[0](torch.ones(1, 5))
except RuntimeError as e:
    print(e)
try:
    m.nothing
except AttributeError as e:
    print(e)
emb = nn.Embedding(5, 3)
head = nn.Linear(3, 5, bias=False)
head.weight = emb.weight
print(head.weight is emb.weight, len({id(p) for p in [*emb.parameters(), *head.parameters()]}))
