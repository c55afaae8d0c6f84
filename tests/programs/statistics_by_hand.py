"""Probability & statistics by hand, MCMC, EM, regression, HMM, bootstraps."""

import math

import torch

torch.manual_seed(0)
x = torch.randn(200) * 2 + 1
print(
    x.mean(),
    x.std(),
    x.var(unbiased=False),
    x.median(),
    x.quantile(torch.tensor([0.05, 0.25, 0.75, 0.95])),
    ((x - x.mean()) ** 3).mean() / x.std() ** 3,
    ((x - x.mean()) / x.std()).pow(4).mean() - 3,
    torch.histc(x, 5),
    x.sort()[0][:3],
    x.aminmax(),
)
idx = torch.randint(0, 200, (50, 200))
bm = x[idx].mean(1)
print(bm.mean(), bm.std(), bm.quantile(0.025))
z = torch.cat([torch.randn(100) - 3, torch.randn(100) + 3])
mu = torch.tensor([-1.0, 1])
sd = torch.ones(2)
pi = torch.tensor([0.5, 0.5])
for _ in range(10):
    lp = -0.5 * ((z[:, None] - mu) / sd) ** 2 - sd.log() + pi.log()
    r = lp.softmax(1)
    N = r.sum(0)
    mu = (r * z[:, None]).sum(0) / N
    sd = ((r * (z[:, None] - mu) ** 2).sum(0) / N).sqrt()
    pi = N / N.sum()
print(mu, sd, pi, lp.logsumexp(1).mean())
s = torch.zeros(())
acc = 0
chain = []
for _i in range(200):
    p = s + torch.randn(())
    a = torch.exp(-0.5 * (p**2 - s**2))
    if torch.rand(()) < a:
        s = p
        acc += 1
    chain.append(s)
c = torch.stack(chain)
print(acc, c.mean(), c.std())
A = torch.tensor([[0.7, 0.3], [0.4, 0.6]])
B = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
p0 = torch.tensor([0.6, 0.4])
obs = [0, 1, 1, 0]
al = p0 * B[:, obs[0]]
for o in obs[1:]:
    al = (al @ A) * B[:, o]
print(al, al.sum().log())
d = (p0 * B[:, obs[0]]).log()
bp = []
for o in obs[1:]:
    m, k = (d[:, None] + A.log()).max(0)
    bp.append(k)
    d = m + B[:, o].log()
path = [d.argmax().item()]
for k in reversed(bp):
    path.insert(0, k[path[0]].item())
print(path, d)
X = torch.cat([torch.ones(50, 1), torch.randn(50, 2)], 1)
w = torch.tensor([1.0, 2, -1])
y = X @ w + 0.1 * torch.randn(50)
print(
    torch.linalg.lstsq(X, y[:, None]).solution.squeeze(),
    torch.linalg.inv(X.T @ X + 0.1 * torch.eye(3)) @ X.T @ y,
    torch.linalg.solve(X.T @ X, X.T @ y),
    torch.linalg.pinv(X) @ y,
    1 - ((y - X @ w) ** 2).sum() / ((y - y.mean()) ** 2).sum(),
)
q, r = torch.linalg.qr(X)
print(torch.linalg.solve_triangular(r, (q.T @ y)[:, None], upper=True).squeeze())
u, sv, vh = torch.linalg.svd(X, full_matrices=False)
print(vh.T @ ((u.T @ y) / sv), sv)
b = torch.zeros(3)
t = (torch.sigmoid(X @ w) > 0.5).float()
for _ in range(6):
    p = torch.sigmoid(X @ b)
    W = p * (1 - p) + 1e-3
    b = b + torch.linalg.solve(X.T @ (W[:, None] * X) + torch.eye(3) * 0.1, X.T @ (t - p) - 0.1 * b)
print(b, ((X @ b > 0) == t).float().mean())
P = torch.multinomial(torch.tensor([0.2, 0.3, 0.5]), 1000, replacement=True).bincount() / 1000.0
print(P, -(P * P.log()).sum(), torch.nn.functional.kl_div(P.log(), torch.tensor([0.2, 0.3, 0.5]), reduction="sum"))
print(
    torch.poisson(torch.full((5,), 4.0)),
    torch.empty(3).exponential_(2.0),
    torch.normal(torch.zeros(2), torch.tensor([1.0, 10.0])),
    torch.bernoulli(torch.tensor([0.0, 1.0, 0.5])),
    torch.randn(3).cumsum(0),
    torch.rand(4).log().neg().sum(),
    torch.empty(2).geometric_(0.5),
    torch.randperm(6).view(2, 3),
    torch.rand(3, 3).tril().sum(),
    torch.randint(0, 2, (8,)).float().mean(),
)
L = torch.linalg.cholesky(torch.tensor([[2.0, 0.5], [0.5, 1]]))
S = torch.randn(500, 2) @ L.T
print(torch.cov(S.T), torch.corrcoef(S.T)[0, 1], S.mean(0))
e, V = torch.linalg.eigh(torch.cov(S.T))
print(e, V.abs())
mah = ((S - S.mean(0)) @ torch.linalg.inv(torch.cov(S.T)) * (S - S.mean(0))).sum(1)
print(mah.mean(), mah.max())
mi = torch.tensor([[0.3, 0.1], [0.2, 0.4]])
print(
    (mi * (mi / (mi.sum(1, keepdim=True) * mi.sum(0))).log()).sum(),
    torch.special.entr(mi).sum(),
    torch.logsumexp(mi, (0, 1)),
    torch.lgamma(torch.tensor(5.0)).exp(),
    torch.special.gammainc(torch.tensor(2.0), torch.tensor(1.0)),
    torch.erf(torch.tensor(1 / math.sqrt(2))),
    torch.special.ndtr(torch.tensor([-1.96, 0, 1.96])),
    torch.special.ndtri(torch.tensor(0.975)),
    torch.special.xlogy(torch.tensor(0.0), torch.tensor(0.0)),
    torch.special.log_ndtr(torch.tensor(-10.0)),
    torch.special.gammaln(torch.tensor(10.5)),
    torch.special.digamma(torch.tensor(2.0)),
    torch.special.zeta(torch.tensor(2.0), torch.tensor(1.0)),
    torch.special.erfcx(torch.tensor(3.0)),
    torch.special.i0e(torch.tensor(2.0)),
)
roc = torch.tensor([0.1, 0.4, 0.35, 0.8])
lab = torch.tensor([0, 0, 1, 1])
o = roc.argsort(descending=True)
tpr = lab[o].cumsum(0) / lab.sum()
fpr = (1 - lab[o]).cumsum(0) / (1 - lab).sum()
print(tpr, fpr, torch.trapezoid(tpr, fpr), (roc[lab == 1][:, None] > roc[lab == 0]).float().mean())
dcg = ((2 ** torch.tensor([3.0, 2, 0]) - 1) / torch.log2(torch.arange(3) + 2.0)).sum()
print(dcg)
