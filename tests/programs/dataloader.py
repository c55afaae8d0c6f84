"""A Dataset of one's own, DataLoader, collate, samplers, random_split."""

import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler, random_split


class Squares(Dataset):
    def __init__(self, n, transform=None):
        self.n, self.transform = n, transform

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = torch.tensor(float(i))
        return {"x": self.transform(x) if self.transform else x, "y": i * i, "name": f"n{i}"}


torch.manual_seed(0)
loader = DataLoader(Squares(7, lambda t: t / 2), batch_size=3, shuffle=True)
print(len(loader), len(loader.dataset))
for batch in loader:
    print(batch["x"], batch["y"], batch["name"])
print([b["y"].tolist() for b in DataLoader(Squares(7), batch_size=2, drop_last=True)])
a, b = random_split(range(10), [7, 3], generator=torch.Generator().manual_seed(42))
print(list(a), list(b), list(Subset("abcdef", [1, 3])))
a, b = random_split(TensorDataset(torch.arange(10)), [0.8, 0.2])
print([t.item() for (t,) in a], [t.item() for (t,) in b])
sampler = WeightedRandomSampler([0.1, 0.9, 0.4, 0.7], 6, replacement=True)
print(list(sampler))
pad = DataLoader(
    [[1], [2, 3], [4, 5, 6]],
    batch_size=3,
    collate_fn=lambda rows: torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], batch_first=True),
)
print(next(iter(pad)))
images, labels = next(iter(DataLoader(TensorDataset(torch.rand(8, 2, 2), torch.arange(8)), batch_size=4, shuffle=True)))
print(images.shape, labels, images[0])
