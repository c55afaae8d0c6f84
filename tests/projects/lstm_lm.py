"""An LSTM language model over words: packed batches of unequal length, truncated backpropagation, SGD with a decaying rate, perplexity."""

import math

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(1111)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Dictionary:
    def __init__(self):
        self.word2idx, self.idx2word = {}, []

    def add_word(self, word):
        if word not in self.word2idx:
            self.idx2word.append(word)
            self.word2idx[word] = len(self.idx2word) - 1
        return self.word2idx[word]

    def __len__(self):
        return len(self.idx2word)


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp=24, nhid=24, nlayers=2, tie_weights=True):
        super().__init__()
        self.ntoken, self.nhid, self.nlayers = ntoken, nhid, nlayers
        self.drop = nn.Dropout(0.0)
        self.encoder = nn.Embedding(ntoken, ninp, padding_idx=0)
        self.rnn = nn.LSTM(ninp, nhid, nlayers)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
        return nn.functional.log_softmax(decoded, dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid)


def repackage_hidden(h):
    """The same values, cut from their history."""
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


words = Dictionary()
words.add_word("<pad>")
sentences = [
    f"{a} {b} {c} and then {d} sleeps <eos>".split()
    for a in ("a", "the")
    for b in ("cat", "dog", "owl", "fox")
    for c in ("runs", "eats fish", "waits")
    for d in ("it", "she")
]
ids = torch.tensor([words.add_word(w) for s in sentences for w in s])
print(len(words), len(ids))
bptt, bsz = 9, 4
batches = ids.narrow(0, 0, len(ids) // bsz * bsz).view(bsz, -1).t().contiguous().to(device)

model = RNNModel(len(words)).to(device)
criterion = nn.NLLLoss()
lr = 4.0
for epoch in range(2):
    model.train()
    total, count = 0.0, 0
    hidden = model.init_hidden(bsz)
    for i in range(0, batches.size(0) - 1, bptt):
        length = min(bptt, batches.size(0) - 1 - i)
        data, targets = batches[i : i + length], batches[i + 1 : i + 1 + length].reshape(-1)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total += loss.item()
        count += 1
    print(f"epoch {epoch} loss {total / count:.3f} ppl {math.exp(total / count):.2f}")
    lr *= 0.7

# a classifier over sentences of different length, with packed sequences and a bidirectional GRU
lines = [torch.tensor([words.word2idx[w] for w in s]) for s in sentences]
label = torch.tensor([float("fish" in s) for s in sentences], device=device)
lengths = torch.tensor([len(each) for each in lines])
padded = pad_sequence(lines, batch_first=True).to(device)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(words), 8, padding_idx=0)
        self.gru = nn.GRU(8, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 1)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embed(x), lengths, batch_first=True, enforce_sorted=False)
        out, h = self.gru(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        return self.head(torch.cat([h[0], h[1], out.mean(1)], dim=1)).squeeze(1)


classifier = Classifier().to(device)
optimizer = torch.optim.NAdam(classifier.parameters(), lr=0.02)
for step in range(20):
    optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy_with_logits(classifier(padded, lengths), label)
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        print(f"step {step} loss {loss.item():.3f}")
