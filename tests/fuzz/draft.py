"""A random program in the making: choices that hang on their names alone, so that one can be dropped and the rest stay."""

from __future__ import annotations

from random import Random
from typing import Any

HEADER = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return g * (s + x * s * (1 - s))
"""


def indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line if line else line for line in text.split("\n"))


class Draft:
    """`features`: what may be dropped; `dropped`: what is."""

    def __init__(self, seed: int, dropped: frozenset[str] = frozenset()) -> None:
        self.seed = seed
        self.dropped = dropped
        self.features: list[str] = []
        self.sections: dict[str, list[str]] = {}
        self.functions: list[str] = []
        self.picked = ""

    # ---- choices

    def _random(self, what: str) -> Random:
        return Random(f"{self.seed} {what}")

    def roll(self, what: str, n: int) -> int:
        return self._random(what).randrange(n)

    def choice(self, what: str, among: list[Any]) -> Any:
        return self._random(what).choice(among)

    def choices(self, what: str, among: list[Any], n: int) -> list[Any]:
        return self._random(what).choices(among, k=n)

    def on(self, feature: str) -> bool:
        """Whether something that was chosen is not dropped."""
        self.features.append(feature)
        return feature not in self.dropped

    def maybe(self, feature: str, probability: float) -> bool:
        return self._random(feature).random() < probability and self.on(feature)

    # ---- text

    def add(self, section: str, text: str) -> None:
        if text:
            self.sections.setdefault(section, []).append(text)

    def section(self, name: str) -> list[str]:
        return self.sections.get(name, [])

    def function(self, name: str, args: str, body: list[str], returned: str, compiled: bool) -> None:
        text = "\n".join(body)
        shared = [v for v in ("shadow", "total") if f"{v} =" in text]
        lines = [
            f"def {name}({args}):",
            *[f"    global {v}" for v in shared],
            indented(text, 4),
            f"    return {returned}",
        ]
        if compiled:
            lines.append(f"{name} = compile({name})")
        self.functions.append("\n".join(lines))

    def program(self, names: str) -> str:
        """`names`: the globals that `call` may bind."""
        body = ["global " + ", ".join(names.split())]
        for name in ("data", "before", "call", "after"):
            body += self.section(name)
        text = "\n".join(body)
        top = "\n".join([*self.section("top"), *self.functions])
        return f"{HEADER}\n{top}\n\n\ndef call(i):\n{indented(text, 4)}\n"
