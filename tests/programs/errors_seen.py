"""Mistakes that everybody makes, and what is said."""

import torch
import torch.nn as nn


def say(f):
    try:
        f()
    except Exception as e:
        print(type(e).__name__, "|", str(e).splitlines()[0])
    else:
        print("no error")


x = torch.ones(2, 3, requires_grad=True)
say(lambda: torch.ones(2, 3) + torch.ones(2, 4))
say(lambda: torch.ones(2, 3) @ torch.ones(2, 3))
say(lambda: torch.ones(3)[5])
say(lambda: x.numpy())
say(lambda: x.backward())
say(lambda: torch.ones(2).backward())
say(lambda: torch.tensor([1, 2], requires_grad=True))
say(lambda: torch.ones(2, 2).item())
say(lambda: bool(torch.ones(2)))
say(lambda: torch.ones(2, 3).view(7))
say(lambda: torch.cat([torch.ones(2, 3), torch.ones(3, 2)]))
say(lambda: torch.stack([torch.ones(2), torch.ones(3)]))
say(lambda: nn.Linear(3, 2)(torch.ones(2, 4)))
say(lambda: nn.functional.nll_loss(torch.ones(2, 3), torch.ones(3, dtype=torch.long)))
say(lambda: torch.zeros(2).long().mean())
say(lambda: torch.tensor([[1, 2], [3]]))
say(lambda: torch.optim.SGD([], lr=0.1))
say(lambda: torch.softmax(torch.ones(2), dim=1))
print((torch.ones(2) + 1).sum())
