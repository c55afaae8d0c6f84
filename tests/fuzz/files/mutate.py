"""A file by its number: a valid one, and a few changes to it, each drawn from a generator of its own.

So that a change can be left out without touching the others, which is how a finding is shrunk.
"""

from __future__ import annotations

import io
import json
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable

from . import pickles, seeds

EXTREMES = [0, 1, 2, 7, 8, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1]

# ---- bytes


def flip(data: bytes, rng: random.Random) -> bytes:
    bad = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        if bad:
            bad[rng.randrange(len(bad))] = rng.randrange(256)
    return bytes(bad)


def bit(data: bytes, rng: random.Random) -> bytes:
    bad = bytearray(data)
    if bad:
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
    return bytes(bad)


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.choice([rng.randrange(len(data) + 1), max(0, len(data) - rng.randrange(1, 60))])]


def chunk(data: bytes, rng: random.Random) -> bytes:
    """A piece left out, put in twice, or of noise."""
    a = rng.randrange(len(data) + 1)
    b = min(len(data), a + rng.randrange(1, 80))
    return rng.choice([data[:a] + data[b:], data[:b] + data[a:], data[:a] + rng.randbytes(b - a) + data[b:]])


def more(data: bytes, rng: random.Random) -> bytes:
    """Something after the end, or before the beginning."""
    noise = rng.choice([b"\0", b"PK\5\6" + bytes(18), rng.randbytes(30), bytes(70000)])
    return rng.choice([data + noise, noise + data])


BYTES = [flip, flip, bit, bit, cut, chunk, more]

# ---- archives: what their fields say


def _set(data: bytes, at: int, layout: str, value: int) -> bytes:
    bad = bytearray(data)
    size = struct.calcsize(layout)
    if 0 <= at <= len(bad) - size:
        struct.pack_into(layout, bad, at, value % (1 << 8 * size))
    return bytes(bad)


def _places(data: bytes, magic: bytes) -> list[int]:
    return [m.start() for m in re.finditer(re.escape(magic), data)]


#: (signature, [(offset, struct layout)]): the fields of each kind of header
FIELDS = [
    (
        b"PK\3\4",
        [(4, "<H"), (6, "<H"), (8, "<H"), (10, "<I"), (14, "<I"), (18, "<I"), (22, "<I"), (26, "<H"), (28, "<H")],
    ),
    (
        b"PK\1\2",
        [(o, "<H") for o in (4, 6, 8, 10, 28, 30, 32, 34, 36)] + [(o, "<I") for o in (12, 16, 20, 24, 38, 42)],
    ),
    (b"PK\5\6", [(o, "<H") for o in (4, 6, 8, 10, 20)] + [(12, "<I"), (16, "<I")]),
    (b"PK\6\6", [(4, "<Q"), (12, "<H"), (16, "<I"), (20, "<I"), (24, "<Q"), (32, "<Q"), (40, "<Q"), (48, "<Q")]),
    (b"PK\6\7", [(4, "<I"), (8, "<Q"), (16, "<I")]),
    (b"PK\7\x08", [(4, "<I"), (8, "<I"), (12, "<I")]),
]


def field(data: bytes, rng: random.Random) -> bytes:
    """One field of one header: another number, near the right one or far from it."""
    magic, fields = rng.choice(FIELDS)
    places = _places(data, magic)
    if not places:
        return data
    at = rng.choice(places)
    offset, layout = rng.choice(fields)
    try:
        (now,) = struct.unpack_from(layout, data, at + offset)
    except struct.error:
        return data
    value = rng.choice([rng.choice(EXTREMES), now + rng.choice([-1, 1, 16]), now ^ (1 << rng.randrange(16))])
    return _set(data, at + offset, layout, value)


def signature(data: bytes, rng: random.Random) -> bytes:
    magic, _ = rng.choice(FIELDS)
    places = _places(data, magic)
    return _set(data, rng.choice(places) + rng.randrange(4), "<B", rng.randrange(256)) if places else data


def letter(data: bytes, rng: random.Random) -> bytes:
    """A name in the directory, or before a record: another letter, another case, bytes that are no UTF-8."""
    magic, start = rng.choice([(b"PK\1\2", 46), (b"PK\3\4", 30)])
    places = _places(data, magic)
    if not places:
        return data
    at = rng.choice(places) + start
    i = at + rng.randrange(20)
    if i >= len(data):
        return data
    return _set(data, i, "<B", rng.choice([data[i] ^ 0x20, 0xFF, 0x80, 0, ord("/"), ord("\\"), ord("."), data[i] + 1]))


# ---- archives: written anew


def _zip(records: list[tuple[str, bytes]], deflated: bool = False, comment: bytes = b"") -> bytes:
    file = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", kind) as z:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, data in records:
            info = zipfile.ZipInfo(name, (2020, 1, 1, 12, 30, 0))  # the same in every run
            info.compress_type = kind
            z.writestr(info, data)
        z.comment = comment
    return file.getvalue()


def _read(data: bytes) -> list[tuple[str, bytes]]:
    try:
        return list(seeds.records(data).items())
    except Exception:
        return []


SMALL = {
    "byteorder": [b"little", b"big", b"", b"Little", b"middle", b"\xff", b"little\n"],
    "version": [b"3\n", b"3", b"1", b"10", b"11", b"0", b"-1", b"", b"x", b"99999999999999999999", b" 3", b"3x", b"+3"],
    ".format_version": [b"1", b"0", b"2", b"", b"\xff"],
    ".storage_alignment": [b"64", b"1", b"0", b"-5", b"", b"x", b" 64 ", b"6_4", b"9" * 5000],
    ".data/serialization_id": [b"", b"x", b"0" * 40],
    "constants.pkl": [b"\x80\x02N."],
}


def again(data: bytes, rng: random.Random) -> bytes:
    """The same records in another archive: left out, twice, in another order, compressed, with other small ones."""
    found = _read(data)
    if not found:
        return data
    folder = found[0][0].partition("/")[0]
    how = rng.randrange(10)
    at = rng.randrange(len(found))
    if how == 0:
        del found[at]
    elif how == 1:
        found.insert(at, found[rng.randrange(len(found))])
    elif how == 2:
        found.append((found[at][0], rng.randbytes(len(found[at][1]))))
    elif how == 3:
        rng.shuffle(found)
    elif how == 4:
        return _zip(found, deflated=True)
    elif how == 5:
        return _zip(found, comment=rng.choice([b"x", b"PK\5\6", bytes(65535)]))
    elif how == 6:
        name, values = rng.choice(list(SMALL.items()))
        found = [(n, d) for n, d in found if n != f"{folder}/{name}"]
        found.append((f"{folder}/{name}", rng.choice(values)))
    elif how == 7:
        other = rng.choice(["", "x/", "../", "/", folder + "/", "A" * 600 + "/"])
        found = [(n.replace(folder + "/", other, 1), d) for n, d in found]
    elif how == 8:
        n, d = found[at]
        found[at] = n, rng.choice([d[:-1], d + b"\0", d * 2, b"", flip(d, rng)])
    else:
        found.insert(0, (rng.choice(["a", "b/x", folder + "/x", "x/data.pkl", folder.upper() + "/DATA.PKL"]), b"x"))
    return _zip(found)


def inner(data: bytes, rng: random.Random) -> bytes:
    """Another pickle in it, with a sum that is right."""
    found = _read(data)
    changed = [(n, pickles.mutated(d, rng) if n.endswith("/data.pkl") else d) for n, d in found]
    return _zip(changed) if found else data


def _bomb(rng: random.Random) -> bytes:
    """A record that claims more than it has, or that is small only while it is packed."""
    pkl, raw = pickles.view(rng)
    return _zip(
        [("archive/data.pkl", pkl), ("archive/version", b"3\n"), ("archive/data/0", bytes(1 << 22))], deflated=True
    )


# ---- files that no library writes


def crafted(rng: random.Random, old: bool) -> bytes:
    pkl, raw = pickles.view(rng, old)
    if rng.random() < 0.3:
        pkl = pickles.mutated(pkl, rng)
    if old:
        import pickle

        head = b"".join(pickle.dumps(x, 2) for x in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
        kind = re.search(rb"ctorch\n(\w+)Storage", pkl)
        size = pickles.SIZES.get(kind[1].decode(), 1) if kind else 1
        numel = rng.choice([len(raw) // size] * 6 + [0, 1, 2**62, 2**64 - 1])
        return head + pkl + pickle.dumps(["0"], 2) + struct.pack("<Q", numel) + raw
    records = [("archive/data.pkl", pkl), ("archive/version", b"3\n"), ("archive/data/0", raw)]
    if rng.random() < 0.1:
        records.append(("archive/byteorder", rng.choice(SMALL["byteorder"])))
    if rng.random() < 0.02:
        return _bomb(rng)
    return _zip(records)


def old_part(data: bytes, rng: random.Random) -> bytes:
    """A change to the pickles at the head of an old file, the number of elements of a storage included."""
    at = data.rfind(b"].") if rng.random() < 0.2 else data.find(b"ctorch")
    at = len(data) // 2 if at < 0 else at
    return pickles.mutated(data[:at], rng) + data[at:] if rng.random() < 0.5 else data[:at] + flip(data[at:], rng)


# ---- safetensors


NUMBERS = ["0", "1", "-1", "3", "4294967295", "9223372036854775807", "9223372036854775808", "18446744073709551615"]
NUMBERS += [
    "18446744073709551616",
    "1.0",
    "1e3",
    "NaN",
    "Infinity",
    "-0",
    "00",
    "true",
    "null",
    '"4"',
    "[]",
    "1" + "0" * 400,
]
KINDS = "BOOL F4 F6_E2M3 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64 f32 X".split()
STRINGS = [
    "",
    "__metadata__",
    "\\u0000",
    "\\ud800",
    "\\ud83d\\ude00",
    "\\x",
    "é",
    "a\\nb",
    "layer.0",
    "layer.\\u0030",
    "\\/",
]


def head(data: bytes, rng: random.Random) -> bytes:
    """The length of the header."""
    (n,) = struct.unpack_from("<Q", data) if len(data) >= 8 else (0,)
    value = rng.choice([n + rng.choice([-8, -1, 1, 8]), 0, 1, 2, 100_000_000, 100_000_001, 2**31, 2**63, 2**64 - 1])
    return struct.pack("<Q", value % 2**64) + data[8:]


def _with(data: bytes, change: Callable[[str], str]) -> bytes:
    """The file with another header, its length put right."""
    if len(data) < 8:
        return data
    (n,) = struct.unpack_from("<Q", data)
    text = change(data[8 : 8 + n].decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + data[8 + n :]


def header_text(data: bytes, rng: random.Random) -> bytes:
    """A number, a text or a sign of the header's JSON."""

    def change(text: str) -> str:
        how = rng.randrange(7)
        pattern, values = [
            (r"-?\d+(?=[,\]])", NUMBERS),
            (r'"(?:dtype)":"\w+"', [f'"dtype":"{k}"' for k in KINDS]),
            (r'"[^"]*"', [f'"{s}"' for s in STRINGS]),
            (r"[{}\[\],:]", ["{", "}", "[", "]", ",", ":", "", " ", "\t\n", "\ufeff", "\xa0", "//", "\0"]),
            (r"\[[^\]]*\]", ["[]", "[0,0]", "[4]", "[0]", "{}", "null", "[[1]]", "[0,4,4]", "[1,0]"]),
            (r"\d+", NUMBERS),
            (r'"(?:dtype|shape|data_offsets)"', ['"dtype"', '"shape"', '"data_offsets"', '"extra"', '"Dtype"']),
        ][how]
        found = list(re.finditer(pattern, text))
        if not found:
            return text
        m = rng.choice(found)
        return text[: m.start()] + rng.choice(values) + text[m.end() :]

    return _with(data, change)


def header_table(data: bytes, rng: random.Random) -> bytes:
    """An entry more, fewer, twice, of another shape; white space; deep nesting."""

    def change(text: str) -> str:
        try:
            table = json.loads(text)
        except ValueError:
            return text
        names = [k for k in table if k != "__metadata__"]
        how = rng.randrange(9)
        if not names:
            return text
        e = table[rng.choice(names)]
        if not isinstance(e, dict) or not {"shape", "data_offsets", "dtype"} <= set(e):
            return text
        try:
            if how == 0:
                e["shape"] = rng.choice([[*e["shape"], 1], [1, *e["shape"]], [], e["shape"][::-1], [2**32, 2**32, 0]])
            elif how == 1:
                e["data_offsets"] = [x + rng.choice([-1, 0, 1, 4]) for x in e["data_offsets"]]
            elif how == 2:
                table["twin"] = dict(e)
            elif how == 3:
                del table[rng.choice(names)]
            elif how == 4:
                e["dtype"] = rng.choice(KINDS)
            elif how == 5:
                table["__metadata__"] = rng.choice([None, {}, {"a": 1}, {"a": None}, [], "x", {"a": "b" * 999}])
            elif how == 6:
                e[rng.choice(["extra", "dtype"])] = rng.choice([1, None, "F32", {"a": [1]}])
            elif how == 7:
                table["empty"] = {"dtype": rng.choice(KINDS), "shape": [0], "data_offsets": [rng.choice([0, 1, 4])] * 2}
            else:
                return rng.choice(
                    [
                        " " + text,
                        text + " " * 9,
                        text + "\n",
                        text + "\0",
                        text + "{}",
                        text[:-1] + ',"x":' + "[" * 2000 + "]" * 2000 + "}",
                        text[:-1] + ',"x":' + "[" * 200_000,
                        text[:-1] + ",}",
                        text[:-1] + "," + text[1:],
                        "[" + text + "]",
                        "null",
                        "{}",
                        "",
                    ]
                )
        except TypeError:
            return text
        return json.dumps(table, separators=rng.choice([(",", ":"), (", ", ": ")]), ensure_ascii=rng.random() < 0.5)

    return _with(data, change)


# ---- a file by its number

ARCHIVE = [
    *BYTES,
    field,
    field,
    field,
    field,
    signature,
    letter,
    letter,
    again,
    again,
    again,
    inner,
    inner,
    inner,
    inner,
]
LEGACY = [*BYTES, old_part, old_part, old_part]
TABLE = [*BYTES, head, header_text, header_text, header_text, header_table, header_table]

Change = Callable[[bytes, random.Random], bytes]


class Program:
    """One file: `kind` of loader, `changes` by name, `data`."""

    def __init__(self, seed: str, number: int, keep: frozenset[int] | None = None) -> None:
        rng = random.Random(f"{seed}/{number}")
        self.kind = rng.choice([seeds.ZIP] * 5 + [seeds.OLD] * 2 + [seeds.SAFE] * 3)
        self.number = number
        self.changes: list[str] = []
        made = random.Random(f"{seed}/{number}/base")
        table: list[Change]
        if self.kind == seeds.SAFE:
            self.data, table = seeds.safetensors(made), list(TABLE)
        elif rng.random() < 0.35:
            self.data = crafted(made, self.kind == seeds.OLD)
            self.changes.append("crafted")
            table = list(ARCHIVE if self.kind == seeds.ZIP else LEGACY) if rng.random() < 0.2 else []
        else:
            self.data = seeds.checkpoint(made, self.kind == seeds.OLD)
            table = list(ARCHIVE if self.kind == seeds.ZIP else LEGACY)
        self.count = rng.choice([1, 1, 1, 2, 3]) if table else 0
        for i in range(self.count):
            own = random.Random(f"{seed}/{number}/{i}")
            change = own.choice(table)
            if keep is None or i in keep:
                self.data = change(self.data, own)
                self.changes.append(change.__name__)
