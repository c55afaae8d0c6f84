"""Colour maps: small tables of 17 colours from low to high, as matplotlib has them, with straight lines between."""

from __future__ import annotations

_TABLES = {
    "gray": "000000ffffff",
    "viridis": "44015447186a472c7b4240853a528b32628d2c728e26818e20908c1e9e8827ad803dbb745bc86281d34caadb32d4e11afde724",
    "magma": "0000030a07221c1046350f6a50127b691c808225819c2e7fb63679ce4070e55063f4685bfb8660fda470fec286fddfa1fbfcbf",
    "coolwarm": "3a4cc04d67d76182ea779af68daffda3c1feb8cff8ccd8eddddcdbebd3c6f4c4adf7b194f49a7beb7f63dd604cca3d38b30326",
}
NAMES = [*_TABLES, *(f"{name}_r" for name in _TABLES)]

Colour = tuple[int, int, int]


def table(name: str) -> list[Colour]:
    """256 colours (red, green, blue), from the lowest value to the highest. ValueError for a name that is not known."""
    if name not in NAMES:
        raise ValueError(f"there is no colour map {name!r}: there are {', '.join(NAMES)}")
    packed = bytes.fromhex(_TABLES[name.removesuffix("_r")])
    anchors = [packed[k : k + 3] for k in range(0, len(packed), 3)]
    steps = len(anchors) - 1
    found = []
    for level in range(256):
        at = level * steps / 255
        k = min(int(at), steps - 1)
        mixed = [round(a + (b - a) * (at - k)) for a, b in zip(anchors[k], anchors[k + 1])]
        found.append((mixed[0], mixed[1], mixed[2]))
    return found[::-1] if name.endswith("_r") else found
