"""Views share memory; in-place operations; what autograd says about them."""

import torch

base = torch.arange(12.0)
m = base.view(3, 4)
m[1] = 100
m[:, 0] += 1
print(base)
t = m.t()
t[0, 0] = -5
print(base[0], t.is_contiguous(), t.stride(), m.data_ptr() == base.data_ptr())
d = torch.zeros(4, 4)
d.diagonal().fill_(3)
d[1:3, 1:3].mul_(2).add_(1)
d[d > 5] = -1
print(d)
b = torch.zeros(2, 3)
row = b[0]
row.copy_(torch.tensor([1.0, 2, 3]))
b[1] = row * 2
row += 10
print(b)
b.unsqueeze_(0).squeeze_(0).t_()
print(b.shape, b.clamp_(max=11).tolist())
x = torch.ones(3, requires_grad=True)
y = x * 2
y[0] = 10
y[1:] *= 3
y.sum().backward()
print(x.grad)
z = x.exp()
z.add_(1)
try:
    z.sum().backward()
except RuntimeError as e:
    print(str(e).split(":")[0])
w = torch.ones(2, requires_grad=True)
try:
    w += 1
except RuntimeError as e:
    print(e)
with torch.no_grad():
    w += 1
print(w, w.grad_fn)
s = torch.arange(6).reshape(2, 3)
s[0], s[1] = s[1].clone(), s[0].clone()
s[:, [0, 2]] = s[:, [2, 0]]
print(s, s.flip(1), s.roll(1, 0), s.narrow(1, 1, 2), s.unfold(1, 2, 1), sep="\n")
print(torch.arange(10).as_strided((3, 3), (2, 1)), s.expand(2, 2, 3).shape)
