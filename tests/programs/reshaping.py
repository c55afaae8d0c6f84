"""Shapes: view, permute, stack, split, chunk, repeat, pad, tile, squeeze, flatten."""

import torch
import torch.nn.functional as F

x = torch.arange(24)
y = x.view(2, 3, 4)
print(
    y.permute(2, 0, 1).shape,
    y.transpose(0, 1)[0],
    y.flatten(1).shape,
    y.unflatten(2, (2, 2)).shape,
    y.movedim(0, -1).shape,
)
print(torch.stack([x[:3], x[3:6]]), torch.stack([x[:3], x[3:6]], dim=1), torch.cat((y[0], y[1]), 1), sep="\n")
print(torch.split(x[:7], 3), x[:7].split([2, 5]), torch.chunk(x[:7], 3), x[:6].tensor_split(4), sep="\n")
print(x[:3].repeat(2, 2), x[:3].repeat_interleave(2), torch.tile(x[:2], (2,)), sep="\n")
print(F.pad(y[0], (1, 2), value=-1), F.pad(y.float(), (1, 1), mode="reflect")[0, 0], y[0, 0].flip(0), sep="\n")
print(x.unsqueeze(1).shape, x[None, :, None].squeeze().shape, y.reshape(-1, 2).shape, y.unbind(0)[1], sep="\n")
print(
    torch.hstack((x[:2], x[2:4])),
    torch.vstack((x[:2], x[2:4])),
    torch.rot90(y[0]),
    torch.block_diag(y[0, :1], y[1, :1]),
)
print(y[1, ::2, 1::2], y[..., 0], y[:, -1], y[0].T, y.mT.shape, y.is_contiguous(), y.mT.is_contiguous(), sep="\n")
print(
    torch.swapaxes(y, 0, 2).stride(), y.select(1, 0), torch.diag(torch.tensor([1, 2])), torch.diagonal(y[0]), sep="\n"
)
a, b, *rest = torch.arange(5)
print(a, b, rest, list(torch.arange(2)), torch.arange(3).tolist(), 2 in torch.arange(3))
try:
    y.view(5, 5)
except RuntimeError as e:
    print(e)
try:
    y.transpose(0, 1).view(24)
except RuntimeError as e:
    print(e)
