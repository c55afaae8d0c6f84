"""Physics: heat, wave, Ising, Lorenz, FDTD, spectral Poisson, Schroedinger, random walks, cellular automata."""

import math

import torch

torch.manual_seed(0)
u = torch.zeros(16, 16)
u[8, 8] = 100.0
for _ in range(20):
    lap = u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4 * u
    u = u + 0.2 * lap
print(u.sum(), u[8, 6:11], u.max())
v = torch.zeros(12, 12)
v[0] = 1.0
for _ in range(30):
    v[1:-1, 1:-1] = 0.25 * (v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:])
print(v[:4, 6])
w0 = torch.exp(-(((torch.arange(40.0) - 20) / 3) ** 2))
w1 = w0.clone()
for _ in range(10):
    w2 = torch.zeros_like(w1)
    w2[1:-1] = 2 * w1[1:-1] - w0[1:-1] + 0.25 * (w1[2:] - 2 * w1[1:-1] + w1[:-2])
    w0, w1 = w1, w2
print(w1[15:20], (w1**2).sum())
s = torch.randint(0, 2, (8, 8)) * 2 - 1
ch = (torch.arange(8)[:, None] + torch.arange(8)) % 2 == 0
for k in range(6):
    nb = sum(s.roll(d, a) for d in (1, -1) for a in (0, 1))
    dE = 2 * s * nb
    flip = (torch.rand(8, 8) < torch.exp(-dE / 2.0)) & (ch if k % 2 else ~ch)
    s = torch.where(flip, -s, s)
print(s.sum(), (s * s.roll(1, 0)).float().mean(), s[0])
p = torch.tensor([1.0, 1, 1])
for _ in range(50):
    x, y, z = p
    p = p + 0.01 * torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])
print(p)
n = 16
k = torch.fft.fftfreq(n, 1 / n)
k2 = k[:, None] ** 2 + k**2
X = torch.arange(n) * 2 * math.pi / n
f = torch.sin(X)[:, None] * torch.cos(2 * X)
fh = torch.fft.fft2(f)
k2[0, 0] = 1
sol = torch.fft.ifft2(-fh / k2).real
print((sol + f / 5).abs().max() < 1e-5, sol[1, :4])
psi = torch.exp(-((torch.arange(64.0) - 20) ** 2) / 20) * torch.exp(1j * torch.arange(64.0))
psi = psi / psi.abs().pow(2).sum().sqrt()
kk = 2 * math.pi * torch.fft.fftfreq(64)
V = torch.zeros(64)
V[40:44] = 1.0
for _ in range(20):
    psi = psi * torch.exp(-0.5j * V * 0.5)
    psi = torch.fft.ifft(torch.fft.fft(psi) * torch.exp(-0.5j * kk**2 * 0.5))
    psi = psi * torch.exp(-0.5j * V * 0.5)
print(psi.abs().pow(2).sum(), (psi.abs() ** 2 * torch.arange(64)).sum(), psi[25:27])
rule = torch.tensor([int(b) for b in f"{30:08b}"[::-1]])
c = torch.zeros(21, dtype=torch.long)
c[10] = 1
for _ in range(6):
    print("".join("#" if v else "." for v in c))
    c = rule[4 * c.roll(1) + 2 * c + c.roll(-1)]
pos = torch.rand(6, 2) * 4
vel = torch.randn(6, 2) * 0.1
for _ in range(10):
    d = pos[:, None] - pos[None]
    d = d - 4 * torch.round(d / 4)
    r2 = (d**2).sum(-1) + torch.eye(6)
    fo = (1 / r2**2 - torch.eye(6))[..., None] * d
    vel = vel + 0.001 * fo.sum(1)
    pos = (pos + 0.01 * vel) % 4
print(pos, vel.sum(0).abs() < 1)
q = torch.tensor([math.pi / 2], requires_grad=True)
pq = torch.zeros(1)


def H(q, p):
    return p**2 / 2 - torch.cos(q)


for _ in range(10):
    (g,) = torch.autograd.grad(H(q, pq).sum(), q)
    pq = pq - 0.1 * g
    q = (q + 0.1 * pq).detach().requires_grad_()
print(q, pq, H(q, pq).item())


def lj(r):
    d = torch.cdist(r, r) + torch.eye(len(r)) * 1e3
    return (1 / d**12 - 1 / d**6).sum() / 2 * 4


R = (torch.stack(torch.meshgrid(*[torch.arange(2.0)] * 3, indexing="ij"), -1).view(-1, 3) * 1.2).requires_grad_()
for _ in range(5):
    E = lj(R)
    (F_,) = torch.autograd.grad(-E, R)
    R = (R + 0.001 * F_.clamp(-10, 10)).detach().requires_grad_(True)
print(E, R[0])
a = torch.tensor([0.0, 0])
th = torch.linspace(0, 2 * math.pi, 9)[:-1]
pts = torch.stack([th.cos(), th.sin()], 1)
Rm = torch.tensor([[math.cos(0.3), -math.sin(0.3)], [math.sin(0.3), math.cos(0.3)]])
print(
    pts @ Rm.T,
    torch.linalg.norm(pts, dim=1),
    0.5 * (pts[:, 0] * pts[:, 1].roll(-1) - pts[:, 1] * pts[:, 0].roll(-1)).sum(),
)
Hm = torch.diag(torch.full((8,), 2.0)) - torch.diag(torch.ones(7), 1) - torch.diag(torch.ones(7), -1)
ev, U = torch.linalg.eigh(Hm)
print(ev, U[:, 0].abs(), torch.matrix_exp(-Hm)[0], torch.linalg.matrix_rank(Hm), torch.linalg.cond(Hm))
sx = torch.tensor([[0, 1], [1, 0]], dtype=torch.complex64)
sy = torch.tensor([[0, -1j], [1j, 0]])
print(
    sx @ sy - sy @ sx,
    torch.kron(sx, sy),
    torch.linalg.eigvalsh(sx + sy),
    torch.matrix_exp(-1j * sx * 0.5),
    (sy.mH == sy).all(),
    torch.linalg.det(sx),
    torch.trace(sy @ sy),
    torch.linalg.inv(sy + 2 * torch.eye(2)),
    torch.linalg.svdvals(sy),
)
