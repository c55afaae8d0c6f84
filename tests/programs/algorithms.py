"""Kalman filter, GP, k-means, PageRank, DP, n-body, RK4."""

import math

import torch

torch.manual_seed(0)
# GP
X = torch.linspace(0, 5, 8)[:, None]
y = torch.sin(X).squeeze(-1)


def rbf(a, b, l=1.0, s=1.0):
    return s**2 * torch.exp(-0.5 * torch.cdist(a, b).pow(2) / l**2)


K = rbf(X, X) + 1e-4 * torch.eye(8)
L = torch.linalg.cholesky(K)
alpha = torch.cholesky_solve(y.unsqueeze(-1), L)
Xs = torch.tensor([[0.5], [2.2], [6.0]])
Ks = rbf(X, Xs)
mu = (Ks.T @ alpha).squeeze(-1)
v = torch.linalg.solve_triangular(L, Ks, upper=False)
var = rbf(Xs, Xs).diagonal() - (v**2).sum(0)
print(mu, var)
ls = torch.tensor(0.0, requires_grad=True)
opt = torch.optim.Adam([ls], lr=0.1)
for i in range(10):
    opt.zero_grad()
    K = rbf(X, X, ls.exp()) + 0.01 * torch.eye(8)
    L = torch.linalg.cholesky(K)
    a = torch.cholesky_solve(y[:, None], L)
    nll = 0.5 * y @ a.squeeze() + L.diagonal().log().sum() + 4 * math.log(2 * math.pi)
    nll.backward()
    opt.step()
    print(f"{i}: {nll.item():.3f} {ls.item():.3f}")
# Kalman
F = torch.tensor([[1.0, 1], [0, 1]])
H = torch.tensor([[1.0, 0]])
Q = 0.01 * torch.eye(2)
R = torch.tensor([[0.5]])
x = torch.zeros(2, 1)
P = torch.eye(2)
for z in torch.arange(10.0) + 0.1 * torch.randn(10):
    x = F @ x
    P = F @ P @ F.T + Q
    S = H @ P @ H.T + R
    Kg = P @ H.T @ torch.inverse(S)
    x = x + Kg @ (z - H @ x)
    P = (torch.eye(2) - Kg @ H) @ P
print(x.squeeze(), P.diag())
# kmeans
pts = torch.cat([torch.randn(20, 2) + c for c in torch.tensor([[0.0, 0], [5, 5], [0, 6]])])
C = pts[torch.tensor([0, 25, 45])].clone()
for _ in range(5):
    a = torch.cdist(pts, C).argmin(1)
    C = torch.zeros_like(C).index_add_(0, a, pts) / torch.bincount(a, minlength=3)[:, None]
print(C, a.bincount(), [(a == k).sum().item() for k in range(3)])
knn = torch.cdist(pts[:5], pts).topk(3, largest=False)
print(knn.indices, knn.values[:, 0])
# pagerank
edges = torch.tensor([[0, 1, 2, 2, 3], [1, 2, 0, 3, 0]])
A = torch.zeros(4, 4)
A[edges[0], edges[1]] = 1
M = (A / A.sum(1, keepdim=True)).T
r = torch.full((4,), 0.25)
for _ in range(30):
    r = 0.85 * M @ r + 0.15 / 4
print(r, r.sum())
deg = torch.zeros(4).scatter_add_(0, edges[0], torch.ones(5))
print(deg)


# RK4
def f(t, u):
    return torch.stack([u[1], -u[0]])


u = torch.tensor([1.0, 0.0])
h = 0.1
for _ in range(20):
    k1 = f(0, u)
    k2 = f(0, u + h / 2 * k1)
    k3 = f(0, u + h / 2 * k2)
    k4 = f(0, u + h * k3)
    u = u + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
print(u, math.cos(2), torch.cos(torch.tensor(2.0)))
# nbody
pos = torch.randn(4, 3)
vel = torch.zeros(4, 3)
m = torch.ones(4)
for _ in range(5):
    d = pos[None] - pos[:, None]
    r = (d.pow(2).sum(-1) + 0.01).pow(-1.5)
    vel += 0.01 * (d * (m[None, :, None] * r[..., None])).sum(1)
    pos += 0.01 * vel
print(pos, (m[:, None] * vel).sum(0).abs() < 1e-5)
# Newton
x = torch.tensor(3.0, requires_grad=True)
for _ in range(5):
    fx = x**3 - 2 * x - 5
    (g,) = torch.autograd.grad(fx, x)
    x = (x - fx / g).detach().requires_grad_()
print(x)


def newton(f, x, n=5):
    for _ in range(n):
        (g,) = torch.autograd.grad(f(x), x, create_graph=True)
        H = torch.stack([torch.autograd.grad(g[i], x, retain_graph=True)[0] for i in range(len(x))])
        x = (x - torch.linalg.solve(H, g)).detach().requires_grad_(True)
    return x


print(
    newton(lambda x: (x[0] - 1) ** 2 + 10 * (x[1] - x[0] ** 2) ** 2, torch.tensor([-1.0, 2.0], requires_grad=True), 8)
)
# polyfit
t = torch.linspace(-1, 1, 20)
yy = 1 + 2 * t - 3 * t**2
V = torch.stack([t**k for k in range(3)], 1)
print(torch.linalg.lstsq(V, yy[:, None]).solution.T, torch.linalg.solve(V.T @ V, V.T @ yy), torch.linalg.pinv(V) @ yy)


# dp: edit distance, knapsack
def edit(a, b):
    d = torch.zeros(len(a) + 1, len(b) + 1, dtype=torch.int)
    d[:, 0] = torch.arange(len(a) + 1)
    d[0] = torch.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return d[-1, -1].item()


print(edit("kit", "sitt"))
dp = torch.zeros(11)
for w, val in [(2, 3.0), (3, 4.0), (5, 8.0)]:
    dp[w:] = torch.maximum(dp[w:], dp[:-w] + val)
print(dp)
p = torch.tensor([True, True, True, True, True, True, True, True, True, True, True])
p[:2] = False
for i in range(2, 4):
    p[i * i :: i] = False
print(p.nonzero().flatten().tolist(), torch.arange(11)[p])
fib = torch.tensor([[1, 1], [1, 0]])
print(torch.linalg.matrix_power(fib.float(), 10), torch.matrix_power(fib, 50) if False else fib @ fib)
words = "a b a c b a".split()
voc = sorted(set(words))
ids = torch.tensor([voc.index(w) for w in words])
print(
    dict(zip(voc, ids.bincount().tolist())), torch.zeros(3, dtype=torch.long).scatter_add(0, ids, torch.ones_like(ids))
)
N = torch.zeros(3, 3, dtype=torch.int32)
for a, b in zip(ids, ids[1:]):
    N[a, b] += 1
print(N)
Pm = (N + 1).float()
Pm /= Pm.sum(1, keepdim=True)
print(Pm, Pm[0].sum())


def interp(x, xp, fp):
    i = torch.searchsorted(xp, x).clamp(1, len(xp) - 1)
    return fp[i - 1] + (fp[i] - fp[i - 1]) * (x - xp[i - 1]) / (xp[i] - xp[i - 1])


print(
    interp(torch.tensor([0.5, 1.5]), torch.tensor([0.0, 1, 2]), torch.tensor([0.0, 10, 40])),
    torch.trapezoid(torch.sin(torch.linspace(0, math.pi, 101)), torch.linspace(0, math.pi, 101)),
    torch.trapz(torch.arange(3.0)),
)
