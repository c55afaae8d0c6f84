"""Whether autograd records. `torch.no_grad` and its kin, which change it, are in `autograd/mode.py`."""

from __future__ import annotations


class State:
    """The present mode; one for the whole program, since a tab runs Python on one thread."""

    __slots__ = ("grad", "inference")

    def __init__(self) -> None:
        self.grad = True
        self.inference = False


STATE = State()
