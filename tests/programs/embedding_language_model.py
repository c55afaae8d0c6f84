"""N-gram word embeddings (the tutorial), cross entropy, then a bigram model that writes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
word_to_ix = {"hello": 0, "world": 1}
embeds = nn.Embedding(2, 5)
lookup_tensor = torch.tensor([word_to_ix["hello"]], dtype=torch.long)
print(embeds(lookup_tensor))

text = """When forty winters shall besiege thy brow, And dig deep trenches in thy beauty's field,
Thy youth's proud livery so gazed on now, Will be a totter'd weed of small worth held""".split()
ngrams = [([text[i - j - 1] for j in range(2)], text[i]) for i in range(2, len(text))]
vocab = sorted(set(text))
ix = {w: i for i, w in enumerate(vocab)}


class NGramLanguageModeler(nn.Module):
    def __init__(self, vocab_size, embedding_dim, context_size):
        super().__init__()
        self.embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.linear1 = nn.Linear(context_size * embedding_dim, 32)
        self.linear2 = nn.Linear(32, vocab_size)

    def forward(self, inputs):
        embeds = self.embeddings(inputs).view((inputs.shape[0], -1))
        out = F.relu(self.linear1(embeds))
        return F.log_softmax(self.linear2(out), dim=1)


losses = []
loss_function = nn.NLLLoss()
model = NGramLanguageModeler(len(vocab), 6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
context = torch.tensor([[ix[w] for w in c] for c, _ in ngrams])
target = torch.tensor([ix[w] for _, w in ngrams])
for _ in range(6):
    model.zero_grad()
    loss = loss_function(model(context), target)
    loss.backward()
    optimizer.step()
    losses.append(round(loss.item(), 4))
print(losses)
print(model.embeddings.weight[ix["thy"]])
counts = torch.zeros(len(vocab), len(vocab))
for (w1, _), w2 in ngrams:
    counts[ix[w1], ix[w2]] += 1
P = (counts + 1) / (counts + 1).sum(1, keepdim=True)
word = ix["When"]
said = []
for _ in range(5):
    word = P[word].argmax().item()
    said.append(vocab[word])
print(said, F.cross_entropy(P.log(), torch.arange(len(vocab))).item())
print(F.one_hot(target[:3], len(vocab)).sum(0).nonzero().squeeze(1))
