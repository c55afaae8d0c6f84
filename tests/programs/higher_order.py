"""Gradients of gradients, `autograd.grad`, hooks."""

import torch

x = torch.linspace(-2, 2, 5, requires_grad=True)
y = x.sin() * x.exp()
(g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
(gg,) = torch.autograd.grad(g.sum(), x)
print(y, g, gg, sep="\n")

w = torch.tensor([1.0, 2.0], requires_grad=True)
seen = []
h = w.register_hook(lambda grad: seen.append(grad.tolist()) or grad * 10)
(w**2).sum().backward()
print(seen, w.grad)
h.remove()

a = torch.randn(3, generator=torch.Generator().manual_seed(3)).requires_grad_()
b = a * 2
b.retain_grad()
b.pow(3).sum().backward()
print(b.grad, a.grad, a.is_leaf, b.is_leaf)

# gradient penalty, as in WGAN-GP
torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
inp = torch.randn(4, 3, requires_grad=True)
(gi,) = torch.autograd.grad(net(inp).sum(), inp, create_graph=True)
penalty = ((gi.norm(2, dim=1) - 1) ** 2).mean()
penalty.backward()
print(penalty.item())
print(net[0].weight.grad)
print(torch.autograd.grad(inp.sum(), [inp, a], allow_unused=True)[1])
