"""Mutations of pickles, opcode by opcode, and pickles that no library writes."""

from __future__ import annotations

import pickletools
import random
import struct

#: names that a file may not call, that it may, and that nobody has
NAMES = """
os system|posix system|sys exit|builtins eval|builtins exec|builtins getattr|builtins __import__|__builtin__ eval
subprocess Popen|shutil rmtree|codecs encode|_codecs encode|torch.hub load|torch.storage _load_from_bytes
torch.serialization load|torch._utils _rebuild_tensor|torch._utils _rebuild_tensor_v2|torch._utils _rebuild_tensor_v3
torch._utils _rebuild_parameter|torch._utils _rebuild_parameter_with_state|torch._utils _rebuild_sparse_tensor
torch._utils _rebuild_qtensor|torch._utils _rebuild_meta_tensor_no_storage|torch._tensor _rebuild_from_type_v2
torch Tensor|torch.nn.parameter Parameter|torch Size|torch device|torch.serialization _get_layout|torch strided
torch float32|torch int64|torch float8_e4m3fn|torch uint4|torch nosuch|torch FloatStorage|torch LongStorage
torch ByteStorage|torch HalfStorage|torch ComplexFloatStorage|torch QInt8Storage|torch.storage UntypedStorage
torch.storage TypedStorage|collections OrderedDict|collections Counter|builtins set|builtins bytearray
builtins complex|builtins dict|builtins list|builtins print|__builtin__ set|copy_reg _reconstructor
collections OrderedDict.__init__.__globals__|torch._C _nn|tabtorch.hub load|types SimpleNamespace|numpy ndarray
""".replace("\n", "|").split("|")
NAMES = [n for n in NAMES if n]

NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 63, 64, 255, 256, 65535, 2**31 - 1, -1, -2, -(2**31)]
TEXTS = ["storage", "module", "cpu", "cuda", "cuda:0", "meta", "0", "1", "2", "", "../0", "x\0y", "é", "nowhere"]


def text(s: str) -> bytes:
    raw = s.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(n: int) -> bytes:
    if -(2**31) <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def name(pair: str) -> bytes:
    module, _, attribute = pair.partition(" ")
    return f"c{module}\n{attribute}\n".encode()


def split(data: bytes) -> list[bytes]:
    """The opcodes of a pickle, each with its argument; what cannot be read is one last piece."""
    starts: list[int] = []
    try:
        starts = [at for _, _, at in pickletools.genops(data) if at is not None]
    except Exception:
        pass
    if not starts:
        return [data]
    return [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)])]


def _snippet(rng: random.Random) -> bytes:
    """A few opcodes to put anywhere."""
    return rng.choice(
        [
            lambda: rng.choice([b"N", b"\x88", b"\x89", b")", b"]", b"}", b"(", b"\x8f"]),
            lambda: rng.choice([b"R", b"b", b"\x81", b"Q", b"a", b"e", b"s", b"u", b"t", b"\x85", b"\x86", b"\x87"]),
            lambda: rng.choice([b"0", b"1", b"2", b"o", b"i", b"l", b"d", b"P1\n", b"\x92", b"\x93", b"\x94", b"\x95"]),
            lambda: b"h" + bytes([rng.randrange(256)]),
            lambda: b"q" + bytes([rng.randrange(256)]),
            lambda: rng.choice([b"j", b"r"]) + struct.pack("<I", rng.choice([0, 1, 5, 2**20, 2**32 - 1])),
            lambda: number(rng.choice(NUMBERS + [2**63 - 1, 2**63, 2**64, -(2**63), 10**30])),
            lambda: text(rng.choice(TEXTS)),
            lambda: name(rng.choice(NAMES)),
            lambda: name(rng.choice(NAMES)) + b")R",
            lambda: name(rng.choice(NAMES)) + text("exit 3") + b"\x85R",
            lambda: name(rng.choice(NAMES)) + number(rng.choice(NUMBERS)) + b"\x85R",
            lambda: name(rng.choice(NAMES)) + b")\x81}b",
            lambda: b"}" + text(rng.choice(["__class__", "__dict__", "data", "grad", "x"])) + b"Nsb",
            lambda: b"\x8a" + bytes([rng.randrange(9)]) + rng.randbytes(8),
            lambda: b"G" + rng.randbytes(8),
            lambda: b"U" + bytes([rng.randrange(4)]) + rng.randbytes(3),
            lambda: b"\x80" + bytes([rng.randrange(8)]),
            lambda: b")" + b"\x85" * rng.choice([3, 150, 250, 3000]),
            lambda: b"].",
        ]
    )()


def _replaced(op: bytes, rng: random.Random) -> bytes:
    """Another argument for an opcode, of the same kind where it has one."""
    code = op[:1]
    if code in b"JKM\x8a":
        near = [int.from_bytes(op[1:], "little") + d for d in (-1, 1)] if code in b"KM" else []
        return number(rng.choice(NUMBERS + near + [2**31, 2**62, 2**63 - 1, 2**63]))
    if code == b"X":
        return text(rng.choice([*TEXTS, op[5:].decode("utf-8", "replace") + "x"]))
    if code == b"c":
        return name(rng.choice(NAMES))
    if code in b"hq":
        return code + bytes([rng.randrange(256)])
    if code in b"\x88\x89N)":
        return rng.choice([b"\x88", b"\x89", b"N", b")", b"}", number(rng.choice(NUMBERS))])
    return _snippet(rng)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One change somewhere."""
    ops = split(data)
    how = rng.randrange(9)
    at = rng.randrange(len(ops))
    if how < 3:
        ops[at] = _replaced(ops[at], rng)
    elif how == 3:
        del ops[at]
    elif how == 4:
        ops.insert(at, _snippet(rng))
    elif how == 5:
        ops.insert(at, ops[rng.randrange(len(ops))])
    elif how == 6:
        other = rng.randrange(len(ops))
        ops[at], ops[other] = ops[other], ops[at]
    elif how == 7:  # the numbers are where sizes, strides and offsets are
        numbers = [i for i, op in enumerate(ops) if op[:1] in (b"K", b"M", b"J", b"\x8a")]
        if numbers:
            i = rng.choice(numbers)
            ops[i] = _replaced(ops[i], rng)
    else:
        raw = bytearray(b"".join(ops))
        if raw:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        return bytes(raw)
    return b"".join(ops)


def _ints(values: list[int], rng: random.Random) -> bytes:
    if rng.random() < 0.03:
        return rng.choice([b"N", b")", text("3"), b"]", number(3)])
    return b"(" + b"".join(number(v) for v in values) + b"t"


STORAGES = "Float Long Int Short Char Byte Bool Half BFloat16 Double ComplexFloat ComplexDouble".split()
SIZES = dict(zip(STORAGES, [4, 8, 4, 2, 1, 1, 1, 2, 2, 8, 8, 16]))


def view(rng: random.Random, old: bool = False) -> tuple[bytes, bytes]:
    """A pickle of one tensor with a random view of a random storage, and the bytes of that storage: often not fitting."""
    kind = rng.choice(STORAGES)
    numel = rng.choice([0, 1, 4, 6, 12])
    claimed = numel if rng.random() < 0.85 else rng.choice([numel + 1, 0, -1, 2**20, 2**31, 2**62, 2**63])
    raw = rng.randbytes(SIZES[kind] * numel)
    raw = bytes(b & 1 for b in raw) if kind == "Bool" else raw
    storage_type = rng.choice([kind] * 20 + ["QInt8", "Float8_e5m2", "Evil"])
    where = "ctorch.storage\nUntypedStorage\n" if rng.random() < 0.04 else f"ctorch\n{storage_type}Storage\n"
    pid = b"(" + text("storage") + where.encode() + text(rng.choice(["0"] * 20 + ["1", "../0"]))
    places = [t for t in TEXTS if t != "meta"] if old else TEXTS
    pid += text(rng.choice(["cpu"] * 30 + places)) + number(claimed) + (b"N" if old else b"") + b"tQ"
    rank = rng.randrange(4)
    shape = [rng.choice([0, 1, 1, 2, 2, 3, 4]) for _ in range(rank)]
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= max(n, 1)
    offset = 0
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        extreme = rng.choice([-1, 0, 1, 2, 3, 5, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64])
        part = rng.randrange(3)
        if part == 0 and shape:
            shape[rng.randrange(rank)] = extreme
        elif part == 1 and strides:
            strides[rng.randrange(rank)] = extreme
        else:
            offset = extreme
    if rng.random() < 0.05:
        strides.append(1)
    body = pid + number(offset) + _ints(shape, rng) + _ints(strides, rng)
    grad = rng.choice([b"\x89"] * 8 + [b"\x88", b"N", number(1)])
    hooks = rng.choice([b"ccollections\nOrderedDict\n)R"] * 8 + [b"N", b"}"])
    version = rng.randrange(12)
    if version == 0:
        tensor = b"ctorch._utils\n_rebuild_tensor\n(" + body + b"tR"
    elif version == 1:
        dtype = rng.choice(["float32", "int64", "uint8", "float16", "bool", "uint16", "float8_e4m3fn", "nosuch"])
        tensor = b"ctorch._utils\n_rebuild_tensor_v3\n(" + body + grad + hooks + f"ctorch\n{dtype}\n".encode() + b"tR"
    elif version == 2:
        marks = rng.choice(["conj", "neg", "x"])
        more = b"}" + text(marks) + rng.choice([b"\x88", b"\x89", b"N"]) + b"s"
        tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + body + grad + hooks + more + b"tR"
    else:
        tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + body + grad + hooks + b"tR"
    if version == 3:
        tensor = b"ctorch._utils\n_rebuild_parameter\n" + tensor + grad + hooks + b"\x87R"
    elif version == 4:
        call = b"ctorch._utils\n_rebuild_tensor_v2\n"
        cls = rng.choice(
            [b"ctorch\nTensor\n", b"ctorch.nn.parameter\nParameter\n", b"ccollections\nOrderedDict\n", b"N"]
        )
        state = (
            b"}"
            + text(rng.choice(["tag", "data", "grad", "__class__", "_tab_requires_grad", "shape"]))
            + number(1)
            + b"s"
        )
        args = b"(" + body + grad + hooks + b"t"
        tensor = b"ctorch._tensor\n_rebuild_from_type_v2\n(" + call + cls + args + state + b"tR"
    elif version == 5:
        tensor = b"](" + tensor + tensor + b"e"
    return b"\x80\x02" + tensor + b".", raw
