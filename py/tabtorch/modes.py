"""Whether autograd records. `torch.no_grad` and its kin, which change it, are in `autograd/mode.py`."""

from __future__ import annotations

import itertools

#: numbers the nodes of the tape in the order in which they are made
next_seq = itertools.count().__next__


class State:
    """The present mode; one for the whole program, since a tab runs Python on one thread."""

    __slots__ = ("dualed", "duals", "flips", "grad", "hidden", "inference")

    def __init__(self) -> None:
        self.grad = True  # whether operations record
        self.inference = False
        # Forward mode reads its tangents off the tape, so within a level everything is recorded. Where autograd is off
        # for the user, as in `no_grad`, nodes are `hidden`: backward does not see them.
        self.duals = 0  # how many levels there are
        self.dualed = False  # whether there ever was one
        self.hidden = False
        self.flips: list[int] = []  # the numbers at which `hidden` began and ended, in turns

    def enabled(self) -> bool:
        """Whether autograd is on for the user."""
        return self.grad and not self.hidden

    def enable(self, on: bool) -> None:
        """Turns autograd on or off for the user."""
        if not self.duals:
            self.grad = on
            return
        self.grad = not self.inference
        if self.hidden is on:
            self.hidden = not on
            n, flips = next_seq(), self.flips
            if flips and flips[-1] == n - 1:  # nothing lies between
                flips.pop()
            else:
                flips.append(n)


STATE = State()
