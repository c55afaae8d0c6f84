"""RNN/seq idioms: packed sequences, beam search, CTC decode, masking, teacher forcing, tied weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence, unpad_sequence

torch.manual_seed(0)
seqs = [torch.randint(1, 9, (n,)) for n in (5, 3, 2)]
L = torch.tensor([len(s) for s in seqs])
P = pad_sequence(seqs, batch_first=True, padding_value=0)
print(P, P != 0, unpad_sequence(P, L, batch_first=True)[1])
emb = nn.Embedding(9, 4, padding_idx=0)
rnn = nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True, dropout=0.0)
pk = pack_padded_sequence(emb(P), L, batch_first=True, enforce_sorted=False)
o, (h, c) = rnn(pk)
out, ol = pad_packed_sequence(o, batch_first=True)
print(out.shape, ol, h[-1], out[1, -1])
out.sum().backward()
print(emb.weight.grad[0], emb.weight.grad.abs().sum(), sum(p.grad.abs().sum() for p in rnn.parameters()))
print(
    pk.batch_sizes,
    pk.sorted_indices,
    pack_sequence([torch.ones(3), torch.ones(1)]).data,
    repr(pack_sequence([torch.ones(2)])),
)
m = torch.arange(5)[None] < L[:, None]
print(
    m,
    (out * m[..., None]).sum(1) / L[:, None],
    out.masked_fill(~m[..., None], -1e9).max(1)[0],
    F.cross_entropy(torch.randn(3, 9, 5), P, ignore_index=0),
    F.cross_entropy(torch.randn(15, 9), P.view(-1), reduction="none").view(3, 5) * m,
)


class Seq(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Embedding(9, 6)
        s.g = nn.GRU(6, 6)
        s.o = nn.Linear(6, 9, bias=False)
        s.o.weight = s.e.weight

    def forward(s, x, h=None):
        y, h = s.g(s.e(x), h)
        return s.o(y), h


n = Seq()
print(len(list(n.parameters())), len(n.state_dict()), n.o.weight is n.e.weight)
opt = torch.optim.Adam(n.parameters(), 0.02)
T = torch.randint(0, 9, (6, 4))
for _i in range(15):
    opt.zero_grad()
    l, _ = n(T[:-1])
    loss = F.cross_entropy(l.reshape(-1, 9), T[1:].reshape(-1))
    loss.backward()
    opt.step()
print(f"{loss.item():.3f}")
h = None
t = T[:1, :1]
gen = []
with torch.no_grad():
    for _ in range(6):
        l, h = n(t, h)
        t = l[-1].argmax(-1, keepdim=True)
        gen.append(t.item())
print(gen)


def beam(k=2, steps=3):
    beams = [(0.0, [int(T[0, 0])], None)]
    for _ in range(steps):
        c = []
        for s, seq, h in beams:
            l, h2 = n(torch.tensor([[seq[-1]]]), h)
            lp = F.log_softmax(l[0, 0], -1)
            v, i = lp.topk(k)
            c += [(s + a.item(), seq + [b.item()], h2) for a, b in zip(v, i)]
        beams = sorted(c, key=lambda t: -t[0])[:k]
    return [(round(s, 3), q) for s, q, _ in beams]


with torch.no_grad():
    print(beam())
lp = torch.randn(8, 2, 5).log_softmax(-1).requires_grad_()
ct = F.ctc_loss(lp, torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor([8, 7]), torch.tensor([3, 2]), reduction="none")
ct.sum().backward()
print(ct, lp.grad.sum(-1)[:, 0])
best = lp.argmax(-1).T
print(
    best,
    [
        torch.unique_consecutive(b)[lambda u: u != 0]
        if False
        else [v for v in torch.unique_consecutive(b).tolist() if v]
        for b in best
    ],
)
cell = nn.LSTMCell(4, 3)
hx = cx = torch.zeros(2, 3)
outs = []
for t in torch.randn(3, 2, 4):
    hx, cx = cell(t, (hx, cx))
    outs.append(hx)
print(torch.stack(outs).shape, hx, cx)
a = torch.bmm(F.softmax(torch.bmm(hx[:, None], torch.stack(outs).permute(1, 2, 0)), -1), torch.stack(outs, 1))
print(a.squeeze(1))
mask = nn.Transformer.generate_square_subsequent_mask(4)
print(mask, torch.triu(torch.ones(3, 3), 1).bool())
mha = nn.MultiheadAttention(4, 2, batch_first=True)
q = torch.randn(2, 4, 4)
o1, w1 = mha(
    q,
    q,
    q,
    attn_mask=mask,
    key_padding_mask=torch.tensor([[False] * 4, [False, False, True, True]])
    .float()
    .masked_fill(torch.tensor([[False] * 4, [False, False, True, True]]), float("-inf")),
)
print(o1[1], w1[1])
tr = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
src, tgt = torch.randn(1, 3, 8), torch.randn(1, 2, 8)
print(tr(src, tgt, tgt_mask=nn.Transformer.generate_square_subsequent_mask(2))[0])
tr.eval()
print(tr(src, tgt).sum().abs() < 1e-3, tr.encoder.layers[0].self_attn.in_proj_weight.shape)
h0 = torch.zeros(1, 2, 3)
r = nn.RNN(4, 3, nonlinearity="relu")
print(r(torch.ones(2, 2, 4), h0)[1], r.all_weights[0][0].shape, r.flatten_parameters())
print(r)
n.train()
x = torch.randn(3, 4, requires_grad=True)
bn = nn.BatchNorm1d(4, momentum=0.5)
[bn(x * k) for k in range(3)]
print(bn.running_mean, bn.running_var, bn.num_batches_tracked)
bn.eval()
print(bn(x)[0])
bn.reset_running_stats()
print(bn.running_var)
e = nn.Embedding.from_pretrained(torch.eye(3))
print(
    e(torch.tensor([[0, 2]])),
    e.weight.requires_grad,
    nn.Embedding(3, 2, max_norm=0.5)(torch.tensor([0, 1])).norm(dim=1),
    nn.EmbeddingBag(3, 2, mode="max")(torch.tensor([[0, 1]])).shape,
    F.embedding_bag(torch.tensor([0, 1, 2]), torch.eye(3), torch.tensor([0, 1])),
)
