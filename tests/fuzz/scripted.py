"""Random TorchScript programs: scripted and saved by PyTorch, loaded and run here; results, types and who raises are compared.

`python -m fuzz.scripted [--programs N] [--seconds S] [--seed S]`, from tests/: prints each program that differs, and exits 1.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import linecache
import math
import random
import secrets
import sys
import time
import types
import warnings
from typing import Any

import torch

import tabtorch

HEAD = """
import math
from typing import Dict, List, NamedTuple, Optional, Tuple
import torch

class Pair(NamedTuple):
    x: torch.Tensor
    n: int

class Tally:
    def __init__(self, n: int):
        self.n = n
        self.seen: List[int] = []

    def push(self, k: int) -> int:
        self.seen.append(k)
        self.n += k
        return self.n

def twice(x: torch.Tensor, n: int = 2) -> torch.Tensor:
    return x * n

def nearest(a: int, b: int) -> Optional[int]:
    if abs(a - b) < 4:
        return a
    return None

class Inner(torch.nn.Module):
    factor: int

    def __init__(self):
        super().__init__()
        self.factor = 3
        self.weight = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.factor

class Net(torch.nn.Module):
    names: Dict[str, int]

    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.many = torch.nn.ModuleList([Inner(), torch.nn.ReLU()])
        self.names = {"a": 1, "b": -2}
        self.count = 0
        self.register_buffer("kept", torch.tensor([1.0, 2.0, 3.0]))

    def helper(self, n: int) -> int:
        self.count += n
        return self.count

"""
TYPES = {
    "int": "int", "float": "float", "bool": "bool", "str": "str", "x": "torch.Tensor", "ints": "List[int]",
    "floats": "List[float]", "xs": "List[torch.Tensor]", "dict": "Dict[str, int]", "maybe": "Optional[int]",
    "maybe_x": "Optional[torch.Tensor]", "pair": "Tuple[int, float]", "named": "Pair", "tally": "Tally",
}  # fmt: skip
#: kinds that come back as results
SHOWN = [k for k in TYPES if k != "tally"]
INPUTS = [("x", "x"), ("y", "x"), ("n", "int"), ("f", "float"), ("flag", "bool"), ("items", "ints"), ("o", "maybe")]

#: kind → templates; {kind} is an expression of that kind, {kind!} a variable
FORMS: dict[str, list[str]] = {
    "int": """{int} + {int}|{int} - {int}|{int} * {int}|{int} // {int}|{int} % ({int} * 2 + 1)|-{int!}|len({ints})|int({float})
        {ints}[{small}]|{ints}[-1]|abs({int})|min({int}, {int})|max({int}, {int})|({int} if {bool} else {int})|{int} & {int}
        {int} | {int}|{int} ^ {int}|{x}.size(0)|{x}.dim()|int({bool})|ord("q")|{named!}.n|{dict}["a"]|sum({ints})
        len({str})|{pair!}[0]|math.floor({float})|math.ceil({float})|math.gcd({int}, {int})|{int} << 2|{int} >> 1
        {x}.numel()|{x}.shape[-1]|self.helper({int})|{tally!}.push({int})|self.names["b"]|self.count|{ints}.index({int})
        {ints}.count({int})|{ints!}.pop()|len({xs})|len({dict})|max({ints})|{str}.find("1")
        int({x}.sum().item() > 0)|{dict!}.setdefault("z", {int})|{dict!}.pop("a")|int({x}.argmax())
        self.inner.factor|{tally!}.n|{ints}[{small}:][0]""",
    "float": """{float} + {float}|{float} - {float}|{float} * {float}|{float} / {float}|{int} / {int}|float({int})
        math.sqrt(abs({float}))|{float} ** 2|{float} ** {float}|{int} ** {int}|min({float}, {float})|max({float}, {float})
        abs({float})|{float} // {float}|{float} % {float}|math.sin({float})|math.exp({float})|math.log({float})
        float({x}.sum())|{floats}[{small}]|-{float!}|{pair!}[1]|({float} if {bool} else {float})|{int} + {float}|{float} * {int}
        math.pow({float}, 2.0)|math.fmod({float}, {float})|math.copysign({float}, {float})|math.atan2({float}, {float})
        round({float})|math.fabs({float})|sum({floats})|{int} % {float}|{float} // {int}|math.tanh({float})|float("2.5")
        math.degrees({float})|math.log1p({float})|math.inf|float({bool})|math.log(abs({int}))""",
    "bool": """{int} < {int}|{int} <= {float}|{float} > {float}|{int} == {int}|{int} != {int}|not {bool}|{bool} and {bool}
        {bool} or {bool}|{int} in {ints}|{str} == {str}|{str} < {str}|"a" in {dict}|{maybe!} is None|{maybe_x!} is not None
        bool({int})|bool({x}.sum() > {float})|{str}.startswith("a")|{ints} == {ints}|isinstance({maybe!}, int)
        {int} < {int} < {int}|math.isnan({float})|{float} >= {int}|{bool} == {bool}|{bool} != {bool}|bool({float})
        {float} == {float}|{x}.is_floating_point()|torch.equal({x}, {x})|{str}.isdigit()|any([{bool}, {bool}])
        all([{bool}, {bool}])|{x}.dtype == torch.float32|{x}.device.type == "cpu"|"1" in {str}|{ints!} != {ints}""",
    "str": """{str} + {str}|str({int})|str({float})|str({bool})|{str}.upper()|{str}.lower()|"{} {}".format({int}, {float})
        f"{n}-{f}"|{str}[{small}:]|{str}.strip()|{str}.replace("1", "yy")|{str}[0]|({str} if {bool} else {str})
        ",".join([{str}, {str}])|{str}[:{small}]|{str}.split(" ")[0]|str({ints})|{str}[::2]|chr(97)
        {str}.title()|"%d" % {int}|hex({int})|str({maybe})|{str}.capitalize()|{str}[-2:]""",
    "x": """{x} + {x}|{x} - {x}|{x} * {x}|{x} * {float}|{x} + {int}|{x} / 2|{int} - {x}|{x} / {x}|torch.relu({x})|{x}[0]|{x}[-1]|-{x!}
        torch.stack([{x}, {x}])|torch.zeros(3)|torch.full([3], {float})|torch.where({x} > 0, {x}, {x})|{xs}[{small}]
        {x}.clone()|{x}.sum()|torch.tensor({ints})|torch.tensor({float})|({x} if {bool} else {x})|{x}.unsqueeze(0)|{x}[1:]
        {x}.to(torch.float32)|twice({x})|twice({x}, {int})|twice({x}, n=3)|{x}.abs().sqrt()|torch.cat([{x}, {x}])|{x}.mean()
        self.inner({x})|self.kept|{named!}.x|{x}.t()|{x} ** 2|torch.sigmoid({x})|{x}.reshape(-1)|{x}[..., 0]|{x}[:, None]
        {x}.clamp({float}, 2.0)|{x}.clamp(min={float})|torch.arange({small})|torch.ones({x}.size())|{x}.int()|{x}.long() // 2
        {x}.float() // {float}|{x} % 3|torch.max({x}, {x})|{x}.max()|{x}.sum(0)|{x}.flip(0)|{x}.softmax(-1)|{x}.argsort()
        torch.topk({x}, 1)[0]|{x}.expand(2, -1)|{x} > {float}|({x} > 0) & ({x} < 2)|~({x} > 0)|{x}[{x} > 0]|{x}.view(3)
        torch.tensor([{float}, {float}])|torch.tensor([[{int}, 2], [3, 4]])|{x}.type_as({x})|{x}.new_zeros([2])|{x}.round()
        {x}[:, 0]|{x}[0:3:2]|{x}[torch.tensor([0, 1])]|{x}.norm()|{x} == {x}|{x}.masked_fill({x} > 1, {float})|{x}.floor()
        torch.nn.functional.gelu({x})|torch.nn.functional.softplus({x})|torch.linspace(0, 1, 3)|{x}.cumsum(0)|{x} @ {x}
        torch.zeros(3, dtype=torch.int64)|torch.zeros_like({x})|{x}.double().float()|torch.minimum({x}, {x})|{x}.sum(dtype=torch.float64)
        {x}.add({x}, alpha=2)|torch.add({x}, {x}, alpha={int})|{float} / {x}|{x}.pow({x})|2 ** {x}
        torch.rsub({x}, 1)|{x}.squeeze()|{x}.transpose(0, -1)|torch.eye(3)|{x}.sign()|{x}.fmod(2)|{x}.remainder({float})""",
    "ints": """[{int}, {int}]|{ints} + {ints}|{ints}[1:]|[k * 2 for k in {ints}]|list(range({small}))|sorted({ints})|{x}.size()
        {ints}.copy()|{ints} * 2|{ints}[:{small}]|list({x}.shape)|[{int}]|{tally!}.seen|[len({str}) for k in {ints}]
        list({dict}.values())|{ints}[::2]|torch.tensor({ints}).tolist()""",
    "floats": """[{float}, {float}]|{floats} + {floats}|[float(k) for k in {ints}]|{floats}[1:]|sorted({floats})|[{float}]""",
    "xs": """[{x}, {x}]|list({x}.unbind(0))|torch.split({x}.reshape(-1), 2)|[v * 2 for v in {xs}]|{xs} + {xs}
        list(torch.chunk({x}.reshape(-1), 2))|{xs}[1:]
        [m({x}) for m in self.many]|torch.meshgrid([{x}, {x}])|torch.broadcast_tensors([{x}, {x}])""",
    "dict": """{"a": {int}, "b": {int}}|{{str}: {int}, "a": {int}}|{dict}.copy()|self.names|{str(k): k for k in {ints}}
        dict([("a", {int}), ("q", 2)])""",
    "maybe": """{int}|nearest({int}, {int})|{dict}.get("b")|{dict}.get("nothing")|{maybe!}|torch.jit.annotate(Optional[int], None)""",
    "maybe_x": """{x}|{maybe_x!}|torch.jit.annotate(Optional[torch.Tensor], None)""",
    "pair": """({int}, {float})|{pair!}""",
    "named": """Pair({x}, {int})|Pair(n={int}, x={x})|{named!}""",
    "tally": """Tally({int})|{tally!}""",
}  # fmt: skip
#: statements on variables that are there
EFFECTS = """{ints!}.append({int})|{ints!}[{small}] = {int}|{ints!}.insert(0, {int})|{ints!}.extend([{int}])
    {ints!}.reverse()|{ints!}.sort()
    {dict!}["k"] = {int}|{dict!}[{str}] = {int}
    {x!}.add_({float})|{x!}[0] = {float}|{x!}[{x!} > 0] = {float}|{x!}.mul_({x})|{tally!}.push({int})
    {xs!}.append({x})|{int!} += {int}|{int!} *= {int}
    {float!} -= {float}|{float!} /= {float}|{x!} += {x}|{x!} *= {float}|{ints!} += [{int}, {int}]|{str!} += {str}
    {ints!}[{small}] += {int}|{dict!}["a"] += 1|self.count = {int}|self.kept = {x}
    {x!}[1:] += {float}|assert {bool}, "wrong"|{x!}.relu_()|{ints!}.clear()
    {ints!}.remove({int})|del {ints!}[0]|{xs!}[0] = {x}|self.kept.add_({float})|{dict!}.update({dict})|{x!}[:, 0] = {x}|{x!}.fill_({int})
    {tally!}.n = {int}|{dict!}.clear()|{x!}.zero_()|{float!} = {float} if {bool} else {float}|{x!} -= 1|{x!}.copy_({x})"""


def forms(text: str) -> list[str]:
    """The templates of a text: they are apart by a bar without a blank on either side, or by a line's end."""
    found, rest = [], text.replace("\n", "|")
    for part in rest.split("|"):
        if found and (found[-1].endswith(" ") or part.startswith(" ")) and not part.startswith("    "):
            found[-1] += "|" + part
        else:
            found.append(part.strip() if part.startswith("    ") else part)
    return [f for f in found if f.strip()]


CHOICES = {kind: forms(text) for kind, text in FORMS.items()}
CHANGES = forms(EFFECTS)


#: PyTorch keeps every class that it compiled, by its module's name
_numbers = itertools.count()


class Writer:
    """One program."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.names: dict[str, list[str]] = {k: [] for k in TYPES}
        self.count = 0
        self.loops = 0
        self.depth = 2

    def expression(self, kind: str, depth: int) -> str:
        rng = self.rng
        if kind == "small":
            return str(rng.randrange(3))
        names = self.names[kind]
        if names and (depth <= 0 or rng.random() < 0.3):
            return rng.choice(names)
        if depth <= 0:
            return self.literal(kind)
        return self.filled(rng.choice(CHOICES[kind]), depth - 1, "({})")

    def literal(self, kind: str) -> str:
        rng = self.rng
        whole = str(rng.choice([0, 1, 2, 3, -1, 7, rng.randrange(-50, 50)]))
        return {
            "int": whole if whole[0] != "-" else f"({whole})",
            "float": repr(rng.choice([0.0, 0.5, 1.5, 2.0, 1e-3, 3.25, 1e6])),
            "bool": rng.choice(["True", "False"]),
            "str": repr(rng.choice(["", "a", "abc", "1", " x1 y ", "12"])),
            "x": rng.choice(["torch.ones(3)", "torch.tensor([1.0, -2.0, 0.5])", "torch.tensor([3, -4])", "torch.ones(2, 3)"]),
            "ints": f"[{whole}, 5]",
            "floats": "[0.5, -1.5]",
            "xs": "[torch.ones(3), torch.zeros(3)]",
            "dict": '{"a": 3, "c": 4}',
            "maybe": "torch.jit.annotate(Optional[int], 3)",
            "maybe_x": "torch.jit.annotate(Optional[torch.Tensor], None)",
            "pair": f"({whole}, 0.5)",
            "named": f"Pair(torch.ones(3), {whole})",
            "tally": "Tally(1)",
        }[kind]  # fmt: skip

    def filled(self, form: str, depth: int, wrap: str = "{}") -> str:
        out, rest = "", form
        while rest:
            start = rest.find("{")
            if start < 0:
                break
            end = rest.find("}", start)
            inner = rest[start + 1 : end]
            kind = inner.rstrip("!")
            if kind in TYPES or kind == "small":
                if inner.endswith("!"):
                    piece = self.rng.choice(self.names[kind]) if self.names[kind] else self.declared(kind)
                else:
                    piece = self.expression(kind, depth)
                out += rest[:start] + piece
                rest = rest[end + 1 :]
            else:
                out += rest[: start + 1]
                rest = rest[start + 1 :]
        made = out + rest
        simple = made.replace("_", "").isalnum() or made[-1] in ")]}\"'" and " " not in made
        return made if simple else wrap.format(made) if "{" not in wrap.replace("{}", "") else made

    def declared(self, kind: str) -> str:
        """A new variable of a kind, put before the statement that wants it."""
        self.count += 1
        name = f"v{self.count}"
        self.lines.append(self.indent + f"{name}: {TYPES[kind]} = {self.literal(kind)}")
        self.names[kind].append(name)
        return name

    def put(self, text: str) -> None:
        self.lines.append(self.indent + text)

    @property
    def indent(self) -> str:
        return "    " * self.depth

    def statement(self, room: int) -> None:
        rng = self.rng
        roll = rng.random()
        if roll < 0.4:
            kind = rng.choice(list(TYPES))
            value = self.expression(kind, 2)
            if self.names[kind] and rng.random() < 0.4:
                self.put(f"{rng.choice(self.names[kind])} = {value}")
                return
            self.count += 1
            self.put(f"v{self.count}: {TYPES[kind]} = {value}")
            self.names[kind].append(f"v{self.count}")
        elif roll < 0.65 or room <= 0:
            self.put(self.filled(rng.choice(CHANGES), 1))
        elif roll < 0.8:
            test = self.expression("bool", 2)
            self.put(f"if {test}:")
            self.block(room - 1)
            if rng.random() < 0.3:
                self.put(f"elif {self.expression('bool', 0)}:")
                self.block(room - 1)
            if rng.random() < 0.5:
                self.put("else:")
                self.block(room - 1)
        elif roll < 0.92:
            self.loop(room)
        elif roll < 0.96 and self.names["maybe"]:
            name = rng.choice(self.names["maybe"])
            self.put(f"if {name} is not None:")
            self.depth += 1
            self.put(f"{self.variable('int')} = {name}" if self.names["int"] else "pass")
            self.depth -= 1
        else:
            self.put(f"if {self.expression('bool', 1)}:")
            self.depth += 1
            self.put(rng.choice(["return " + self.results(), "raise RuntimeError('stop')", "pass"]))
            self.depth -= 1

    def variable(self, kind: str) -> str:
        return self.rng.choice(self.names[kind])

    def loop(self, room: int) -> None:
        rng = self.rng
        self.count += 1
        k = f"k{self.count}"
        before = {kind: list(v) for kind, v in self.names.items()}
        roll = rng.randrange(6)
        if roll == 0:
            self.put(f"{k} = 0")
            self.put(f"while {k} < {rng.randrange(4)} and {self.expression('bool', 1)}:")
            self.block(room - 1, [f"{k} += 1"], {}, True)
            self.names = before
            return
        head, names = [
            (f"for {k} in range({rng.randrange(5)}):", {"int": [k]}),
            (f"for {k} in range({rng.randrange(5)}, {rng.randrange(-3, 9)}, {rng.choice([1, 2, -1])}):", {"int": [k]}),
            (f"for {k}, {k}v in enumerate({self.expression('ints', 1)}[:4]):", {"int": [k, k + "v"]}),
            (f"for {k}, {k}v in {self.expression('dict', 1)}.items():", {"str": [k], "int": [k + "v"]}),
            (f"for {k}, {k}v in zip({self.expression('floats', 1)}, {self.expression('xs', 1)}[:3]):", {"float": [k], "x": [k + "v"]}),
        ][roll - 1]  # fmt: skip
        self.put(head)
        self.block(room - 1, [], names, True)

    def block(
        self, room: int, first: list[str] | None = None, names: dict[str, list[str]] | None = None, loop: bool = False
    ) -> None:
        before = {kind: list(v) for kind, v in self.names.items()}
        for kind, more in (names or {}).items():
            self.names[kind] += more
        self.depth += 1
        self.loops += loop
        for text in first or []:
            self.put(text)
        for _ in range(self.rng.randrange(1, 4)):
            self.statement(room)
        if self.loops and loop and self.rng.random() < 0.2:
            self.put(f"if {self.expression('bool', 1)}:")
            self.put("    " + self.rng.choice(["break", "continue"]))
        self.loops -= loop
        self.depth -= 1
        self.names = before

    def results(self) -> str:
        """What is returned, of the same type wherever it is: one value of each kind that a program has from the start."""
        return "(" + ", ".join(self.variable(k) for k in SHOWN) + ", self.count, self.kept)"

    def program(self) -> str:
        for name, kind in INPUTS:
            self.names[kind].append(name)
        for kind in TYPES:
            self.declared(kind)
        for _ in range(self.rng.randrange(3, 12)):
            self.statement(2)
        returned = ", ".join([TYPES[k] for k in SHOWN] + ["int", "torch.Tensor"])
        takes = ", ".join(f"{n}: {TYPES[k]}" for n, k in INPUTS)
        self.put("return " + self.results())
        head = f"    def forward(self, {takes}) -> Tuple[{returned}]:\n"
        return HEAD + head + "\n".join(self.lines) + "\n"


def scripted(seed: int) -> tuple[str, bytes | None]:
    """The text of a program, and its archive; None where PyTorch does not compile it."""
    text = Writer(seed).program()
    try:
        return text, archive(text, f"scripted_{seed}_{next(_numbers)}")
    except Exception:
        return text, None


def archive(text: str, name: str) -> bytes:
    """The archive of the module `Net` in a text. What PyTorch does not compile raises."""
    module = types.ModuleType(name)
    module.__file__ = f"<{name}>"  # PyTorch reads a class's text from there
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(True), module.__file__)
    sys.modules[name] = module
    try:
        exec(compile(text, module.__file__, "exec", dont_inherit=True), module.__dict__)
        file = io.BytesIO()
        torch.jit.save(torch.jit.script(module.Net()), file)
        torch.jit.load(
            io.BytesIO(file.getvalue())
        )  # it does not read all that it writes: 1000000000000 for the float 1e12
        return file.getvalue()
    finally:
        del sys.modules[name]


def arguments(rng: random.Random) -> list[Any]:
    x = torch.tensor([rng.choice([0.0, 1.5, -2.0, rng.gauss(0, 2)]) for _ in range(3)])
    y = torch.tensor([[rng.gauss(0, 1) for _ in range(3)] for _ in range(2)]) if rng.random() < 0.4 else x.flip(0) + 1
    n, f = rng.choice([0, 1, 3, -2, 5]), rng.choice([0.0, 0.5, -1.25, 2.0])
    items = [rng.randrange(-3, 6) for _ in range(rng.randrange(4))]
    return [x, y, n, f, rng.random() < 0.5, items, rng.choice([None, 2])]


def plain(x: Any) -> Any:
    """A value as what can be compared: tensors as their type and numbers."""
    if isinstance(x, (torch.Tensor, tabtorch.Tensor)):
        return ["tensor", str(x.dtype), list(x.shape), x.detach().tolist()]
    if isinstance(x, dict):
        return [[k, plain(v)] for k, v in x.items()]
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return [type(x).__name__, x]


def differs(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) != len(b) or any(map(differs, a, b))
    if isinstance(a, float) and isinstance(b, float):
        near = math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4)
        return not (near or (a != a and b != b) or (abs(a) > 1e30 and abs(b) > 1e30))
    return type(a) is not type(b) or a != b


def run(net: Any, args: list[Any]) -> tuple[Any, str]:
    try:
        with tabtorch.device("cpu"):  # programs look at devices
            return plain(net(*args)), ""
    except NotImplementedError as error:
        return "not here", f"{type(error).__name__}: {error}"
    except Exception as error:
        return "raises", f"{type(error).__name__}: {str(error)[-300:]}"


def ours(x: Any) -> Any:
    return (
        tabtorch.tensor(x.tolist(), device="cpu")
        if isinstance(x, torch.Tensor)
        else list(x)
        if isinstance(x, list)
        else x
    )


def difference(seed: int) -> str | None:
    """What differs in a program, as a text; "" where PyTorch does not compile it, None where nothing differs."""
    text, data = scripted(seed)
    if data is None:
        return ""
    try:
        net = tabtorch.jit.load(data, map_location="cpu")
    except Exception as error:
        return f"{text}\nis not loaded: {type(error).__name__}: {error}"
    torch._C._set_graph_executor_optimize(False)  # else what raises and is not used is left out
    theirs = torch.jit.load(io.BytesIO(data))
    rng = random.Random(seed)
    for _ in range(3):
        args = arguments(rng)
        shown = json.dumps([a.tolist() if isinstance(a, torch.Tensor) else a for a in args])
        here = [ours(a) for a in args]
        want, why = run(
            theirs, [list(a) if isinstance(a, list) else a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        )
        got, why_not = run(net, here)
        if differs(want, got):
            return f"{text}\n{shown}\nPyTorch: {want} {why}\n   here: {got} {why_not}"
        if want == "raises":
            break
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--results", default=None, help="a file that gets a line of JSON")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    seed = secrets.randbelow(10**6) * 10**6 if given.seed is None else given.seed
    print(f"seed {seed}")
    end, ran, left, bad = time.monotonic() + given.seconds, 0, 0, []
    while ran < given.programs and time.monotonic() < end:
        found = difference(seed + ran)
        ran += 1
        left += found == ""
        if found:
            bad.append(seed + ran - 1)
            print(f"==== seed {seed + ran - 1}\n{found[len(HEAD) :] if found.startswith(HEAD) else found}", flush=True)
    print(f"{ran} programs, of which PyTorch did not compile {left}; {len(bad)} differ: {bad[:20]}")
    if given.results:
        with open(given.results, "a") as file:
            file.write(json.dumps({"fuzzer": "scripted", "programs": ran, "differ": bad}) + "\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
