"""Whether the plan of a file is one that can be run: every index, count and size is looked at before anything is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tabtorch.base import dtypes
from tabtorch.plan_files.trees import DEEPEST

_OPERATORS = frozenset(
    ("+", "-", "*", "/", "//", "%", "**", "&", "==", "!=", "<", "<=", ">", ">=", "ceil", "neg", "abs")
)
_COMPARED = frozenset(("==", "!=", "<", "<=", ">", ">="))
_KINDS = frozenset(("f32", "f64", "i32", "u32", "i64", "u8", "i8", "i16", "u16"))
_LARGEST = 2**53


class PlanFileError(ValueError):
    """A file holds no plan, or one that is damaged."""


def require(holds: Any, what: str) -> None:
    if not holds:
        raise PlanFileError(f"the plan is damaged: {what}")


def whole(x: Any, below: int = _LARGEST, least: int = 0) -> int:
    require(type(x) is int and least <= x < below, f"{x!r} is no number from {least} to {below - 1}")
    number: int = x
    return number


def among(x: Any, allowed: Any) -> bool:
    """Whether it is one of some texts."""
    return isinstance(x, str) and x in allowed


def listed(x: Any, what: str) -> list[Any]:
    require(isinstance(x, list), f"{what} is no list")
    found: list[Any] = x
    return found


def table(x: Any, what: str, *keys: str) -> dict[str, Any]:
    require(isinstance(x, dict), f"{what} is no object")
    for k in keys:
        require(k in x, f"{what} has no {k}")
    found: dict[str, Any] = x
    return found


class Checked:
    """The checks of one file, for one device. tensors: bytes by name."""

    def __init__(self, plan: Mapping[str, Any], tensors: Mapping[str, int], device: str) -> None:
        self.plan = plan
        self.tensors = tensors
        self.device = device

    def all(self) -> None:
        p = table(
            self.plan, "it", "dims", "numbers", "generators", "kernels", "templates", "state", "methods", "asserts"
        )
        for name, d in table(p["dims"], "dims").items():
            table(d, f"dim {name}", "min", "max")
        for name, x in table(p["numbers"], "numbers").items():
            require(type(x) in (int, float), f"number {name} is none")
        for g in listed(p["generators"], "generators"):
            if "philox" in table(g, "a generator"):
                f = table(g["philox"], "a generator", "seed", "offset")
                for x in (f["seed"], f["offset"]):
                    require(isinstance(x, str) and len(x) <= 20 and x.isdecimal() and int(x) < 2**64, "a generator")
            else:
                require(among(g.get("mt19937"), self.tensors), "a generator has no state")
        for key in ("kernels", "templates", "state"):
            require(self.device in table(p[key], key), f"it has no plans for {self.device}")
        self.kernels = listed(p["kernels"][self.device], "kernels")
        for k in self.kernels:
            self._kernel(k)
        self.templates = listed(p["templates"][self.device], "templates")
        for t in self.templates:
            self._template(t)
        self._state()
        for m in table(p["methods"], "methods").values():
            self._method(m)
        for a in table(p["asserts"], "asserts").values():
            require(isinstance(a, list) and len(a) == 3 and all(isinstance(x, str) for x in a), "an assert")

    def _kernel(self, k: Any) -> None:
        k = table(k, "a kernel", "name", "source", "bindings", "constants", "device")
        require(isinstance(k["source"], str) and isinstance(k["name"], str), "a kernel without text")
        whole(k["device"], 2)
        for b in listed(k["bindings"], "bindings"):
            b = table(b, "a binding", "type", "access")
            require(isinstance(b["type"], str) and among(b["access"], ("r", "rw")), "a binding")
        table(k["constants"], "constants")

    def recipe(self, r: Any, given: Mapping[str, int | None]) -> tuple[int, int]:
        """given: how many numbers there are of each name, None where there are four for each. Returns how many results there are."""
        r = table(r, "a recipe", "steps", "tests", "results")
        steps = listed(r["steps"], "steps")
        for k, s in enumerate(steps):
            require(isinstance(s, list) and 2 <= len(s) <= 3 and isinstance(s[0], str), "a step of a recipe")
            op, a, b = (*s, -1)[:3]
            if op == "number":
                text = isinstance(a, str) and a in ("inf", "-inf", "nan")
                require(len(s) == 2 and (text or type(a) in (int, float)), "a number of a recipe")
                if type(a) is int:
                    whole(abs(a))
            elif op in given:
                most = given[op]
                whole(a, self.words if most is None else most)
                if most is None:
                    whole(b, 4)
                else:
                    require(len(s) == 2, "a step of a recipe")
            else:
                require(op in _OPERATORS, f"operator {op!r}")
                whole(a, k)
                if op not in ("neg", "abs"):
                    whole(b, k)
        for t in listed(r["tests"], "tests"):
            require(isinstance(t, list) and len(t) == 4 and among(t[0], _COMPARED) and type(t[3]) is bool, "a test")
            whole(t[1], len(steps))
            whole(t[2], len(steps))
        results = listed(r["results"], "results")
        for x in results:
            whole(x, len(steps))
        return len(results), len(steps)

    def _template(self, t: Any) -> None:
        t = table(t, "a template", "plan", "lives", "apart", "recipe")
        p = table(
            t["plan"], "a plan", "name", "device", "slots", "outputs", "temps", "places", "scalars", "work", "steps"
        )
        slots = whole(p["slots"], 1 << 20)
        for x in listed(p["scalars"], "scalars"):
            require(among(x, _KINDS), "a scalar")
        lives, apart = listed(t["lives"], "lives"), listed(t["apart"], "apart")
        require(len(lives) == len(apart) and len(listed(p["places"], "places")) == 3 * len(lives), "its temporaries")
        steps = listed(p["steps"], "steps")
        for first_last, own in zip(lives, apart, strict=True):
            require(isinstance(first_last, list) and len(first_last) == 2, "a life")
            require(0 <= whole(first_last[0]) <= whole(first_last[1]) < max(1, len(steps)), "a life")
            for x in listed(own, "apart"):
                whole(x, len(lives))
        require([x[0] for x in lives] == sorted(x[0] for x in lives), "lives are out of order")
        every = slots + len(lives)
        count = 0
        for s in steps:
            s = table(s, "a step")
            if "kernel" in s:
                table(s, "a step", "bind", "words", "patch", "grid")
                kernel = self.kernels[whole(s["kernel"], len(self.kernels))]
                require(kernel["device"] == p["device"], "a kernel of another device")
                bind = listed(s["bind"], "bind")
                require(len(bind) == len(kernel["bindings"]), "a kernel binds otherwise")
                for x in bind:
                    whole(x, every)
                require(len(listed(s["grid"], "grid")) == 3, "a grid")
                words = len(listed(s["words"], "words"))
                for x in listed(s["patch"], "patch"):
                    require(isinstance(x, list) and len(x) == 3 and among(x[2], _KINDS), "a patch")
                    whole(x[0], max(words, 1))
                    whole(x[1], len(p["scalars"]))
                count += words + 3
            elif "copy" in s:
                a = listed(s["copy"], "copy")
                require(len(a) == 3, "a copy")
                whole(a[0], every)
                whole(a[1], every)
                count += 1
            else:
                a = listed(s.get("clear"), "clear")
                require(len(a) == 1, "a clear")
                whole(a[0], every)
        outputs = table(p["outputs"], "outputs")
        for x in outputs:
            require(x.isdecimal() and int(x) < slots, "an output")
        whole(p["work"], 2**63)
        whole(p["device"], 2)
        given = 1 << 20
        results, _ = self.recipe(t["recipe"], {"s": given})
        require(results == count + len(outputs) + len(lives), "a template has not the numbers that its steps need")
        symbols = [s[1] for s in t["recipe"]["steps"] if s[0] == "s"]
        t["given"] = 1 + max(symbols, default=-1)

    def _state(self) -> None:
        places = self.places = listed(self.plan["state"][self.device], "state")
        each = [table(p, "a place", "nbytes", "parts") for p in places]
        total = sum(whole(p["nbytes"]) for p in each if "window" not in p)
        # what has no tensor of the file are gradients, and what lies between the parameters of an optimizer
        most = 4 * sum(self.tensors.values()) + 4096 * (len(places) + len(self.tensors))
        require(total <= most, f"{total} bytes of memory for {most // 4} bytes of tensors")
        for p in places:
            nbytes = whole(table(p, "a place", "nbytes", "parts")["nbytes"], 2**32)
            if "window" in p:
                require(isinstance(p["window"], list) and len(p["window"]) == 2, "a window")
                base, offset = whole(p["window"][0], len(places)), whole(p["window"][1])
                require("window" not in places[base] and offset % 256 == 0, "a window of a window")
                require(offset + nbytes <= whole(places[base].get("nbytes")), "a window outside of its memory")
            for part in listed(p["parts"], "parts"):
                require(isinstance(part, list) and len(part) == 2 and isinstance(part[0], str), "a part")
                require(part[0] in self.tensors, f"there is no tensor {part[0]}")
                require(whole(part[1]) + self.tensors[part[0]] <= nbytes, f"{part[0]} lies outside of its memory")

    def _source(self, x: Any, counts: Mapping[str, int], plans: Sequence[Any]) -> None:
        require(isinstance(x, list) and len(x) >= 2 and isinstance(x[0], str), "a source")
        if x[0] == "constant":
            require(len(x) == 2 and among(x[1], self.tensors), "a constant")
        elif x[0] == "new":
            require(len(x) == 3, "a source")
            p = self.templates[plans[whole(x[1], len(plans))]["template"]]["plan"]
            require(str(whole(x[2])) in p["outputs"], "a source is no output")
        else:
            require(len(x) == 2 and x[0] in counts, "a source")
            whole(x[1], counts[x[0]])

    def _method(self, m: Any) -> None:
        m = table(m, "a method", "inputs", "tree", "variants")
        inputs = listed(m["inputs"], "inputs")
        for i in inputs:
            i = table(i, "an input", "name", "dtype", "shape")
            require(isinstance(i["dtype"], str), "a dtype")
            for n in listed(i["shape"], "a shape"):
                require(n in self.plan["dims"] if isinstance(n, str) else whole(n) >= 0, "a shape")
        self._tree(m["tree"], len(inputs), 0)
        table(m["tree"].get("dict"), "the inputs")
        require(self.device in table(m["variants"], "variants"), f"a method has no plans for {self.device}")
        for v in listed(m["variants"][self.device], "variants"):
            self._variant(v, len(inputs))

    def _tree(self, t: Any, tensors: int, sizes: int, deep: int = 0) -> None:
        require(deep < DEEPEST and isinstance(t, dict) and len(t) == 1, "a tree")
        ((kind, x),) = t.items()
        if kind == "tensor":
            whole(x, tensors)
        elif kind == "size":
            whole(x, sizes)
        elif kind in ("list", "tuple"):
            for y in listed(x, "a tree"):
                self._tree(y, tensors, sizes, deep + 1)
        elif kind == "dict":
            for y in table(x, "a tree").values():
                self._tree(y, tensors, sizes, deep + 1)
        else:
            require(kind == "value" and (x is None or type(x) in (bool, int, float, str)), "a tree")

    def _variant(self, v: Any, inputs: int) -> None:
        v = table(
            v,
            "a variant",
            "sizes",
            "numbers",
            "words",
            "ahead",
            "plans",
            "after",
            "rebinds",
            "written",
            "outputs",
            "tree",
            "tree_sizes",
        )
        dims, numbers = len(self.plan["dims"]), len(self.plan["numbers"])
        generators = self.plan["generators"]
        for k in listed(v["words"], "words"):
            require("philox" in generators[whole(k, len(generators))], "words of no Philox generator")
        self.words = len(v["words"])
        found, _ = self.recipe(v["sizes"], {"s": dims})
        scalars, _ = self.recipe(v["numbers"], {"s": dims, "v": numbers, "r": None})
        plans, ahead = listed(v["plans"], "plans"), listed(v["ahead"], "ahead")
        after = listed(v["after"], "after")
        require(len(after) <= scalars, "numbers after")
        for k in after:
            whole(k, numbers)
        counts = {"state": len(self.places), "input": inputs, "ahead": 0}
        for k, a in enumerate(ahead):
            counts["ahead"] = k
            if "draw" in table(a, "what is done ahead"):
                mt = counts | {"generator": len(generators)}
                self._plan(a["draw"], mt, [], found, scalars)
                require(len(self.templates[a["draw"]["template"]]["plan"]["outputs"]) == 1, "a draw")
                for s in a["draw"]["inputs"]:
                    require(s[0] != "generator" or "mt19937" in generators[s[1]], "a draw of no such generator")
            else:
                a = table(a, "a copy", "copy", "device", "nbytes")
                whole(a["device"], 2)
                whole(a["nbytes"], found)
                self._source(a["copy"], counts, [])
        counts["ahead"] = len(ahead)
        for k, p in enumerate(plans):
            self._plan(p, counts, plans[:k], found, scalars)
        for b in listed(v["rebinds"], "rebinds"):
            require(isinstance(b, list) and len(b) == 2, "a rebinding")
            self._source(b[0], {k: counts[k] for k in ("state", "input")}, [])
            whole(b[1], len(ahead))
        for k in listed(v["written"], "written"):
            whole(k, inputs)
        outputs = listed(v["outputs"], "outputs")
        for o in outputs:
            o = table(o, "an output", "source", "dtype", "shape")
            require(isinstance(o["dtype"], str) and o["dtype"] in dtypes.TYPE_NAMES, "a dtype")
            self._source(o["source"], counts, plans)
            for n in listed(o["shape"], "a shape"):
                whole(n, found)
        sizes = listed(v["tree_sizes"], "sizes")
        for n in sizes:
            whole(n, found)
        self._tree(v["tree"], len(outputs), len(sizes))

    def _plan(self, p: Any, counts: Mapping[str, int], before: Sequence[Any], found: int, scalars: int) -> None:
        p = table(p, "a plan", "template", "values", "inputs", "scalars")
        t = self.templates[whole(p["template"], len(self.templates))]
        spec = t["plan"]
        values = listed(p["values"], "values")
        require(len(values) >= t["given"], "a template is given too few numbers")
        for k in values:
            whole(k, found)
        inputs = listed(p["inputs"], "inputs")
        require(len(inputs) + len(spec["outputs"]) == spec["slots"], "a plan binds otherwise")
        for x in inputs:
            self._source(x, counts, before)
        require(set(map(int, spec["outputs"])) == set(range(len(inputs), spec["slots"])), "outputs are no last slots")
        require(isinstance(p["scalars"], list) and len(p["scalars"]) == 2, "scalars")
        first, count = whole(p["scalars"][0]), whole(p["scalars"][1])
        require(count == len(spec["scalars"]) and first + count <= scalars, "a plan has other scalars")
