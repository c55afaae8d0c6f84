"""The losses, with their reductions."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)
x = torch.randn(4, 3, requires_grad=True)
t = torch.tensor([0, 2, 1, 2])
print(F.cross_entropy(x, t), F.cross_entropy(x, t, reduction="none"), F.cross_entropy(x, t, label_smoothing=0.1))
print(F.cross_entropy(x, t, weight=torch.tensor([1.0, 2.0, 0.5])), F.cross_entropy(x, t, ignore_index=2))
print(F.cross_entropy(x, torch.softmax(torch.ones(4, 3), 1)), F.nll_loss(F.log_softmax(x, 1), t))
y = torch.randn(4, 3)
print(F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.5))
p = torch.sigmoid(x)
b = (y > 0).float()
print(F.binary_cross_entropy(p, b), F.binary_cross_entropy_with_logits(x, b, pos_weight=torch.tensor(2.0)))
print(F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"), F.cosine_similarity(x, y))
print(nn.TripletMarginLoss()(x, y, y.flip(0)), nn.HingeEmbeddingLoss()(x, b * 2 - 1), F.soft_margin_loss(x, b * 2 - 1))
loss = F.cross_entropy(x, t) + F.mse_loss(x, y) + F.binary_cross_entropy_with_logits(x, b) + F.smooth_l1_loss(x, y)
loss.backward()
print(loss, x.grad, sep="\n")
