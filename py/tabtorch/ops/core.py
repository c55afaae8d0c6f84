"""Rows of the elementwise table, and the one registry that torch functions and Tensor methods come from.

An operation is registered once: `elementwise(Row(...))` for a row of the table, `register(name, function, ...)` for
anything else. The function, the method and the in-place form are made from that, when somebody first asks for them.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

#: torch.NAME and Tensor.NAME of what is registered, and of the rows that have been asked for
FUNCTIONS: dict[str, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}
#: every row, by name
ROWS: dict[str, Row] = {}
#: public name (aliases and in-place forms too) -> (row, whether it is the in-place form)
ROW_NAMES: dict[str, tuple[Row, bool]] = {}


class Row:
    """One elementwise operation.

    expr: over `engine.expr` values of the compute type. It gets the operands, then, by name, those options that were
        given and differ from their default, so the lambda's own defaults stand for PyTorch's:
        `lambda x, y, alpha=None: x + y if alpha is None else x + alpha * y`. An option that is a number arrives as an
        expression of the compute type (it is a parameter of the kernel, so no kernel is keyed on it); None, a string
        or a bool arrives as itself.
    grads: one function for each operand, or None where there is no gradient: `(g, *operands, out, **options)` -> Tensor,
        over tensors, so that it can be differentiated again. An operand that was a number arrives as the number;
        arguments that the function does not use are not kept for it (so name them, and use only what is needed).
        The caller reduces the result to the operand's shape and dtype. `grads=None`: not differentiable.
    rule: how the compute and result types follow from the operands: see `promotion.RULES`.
    args: the signature as PyTorch writes it: "input, other, *, alpha=1".
    operands: how many leading arguments are tensors-or-numbers that broadcast and promote (default: those with no default
        value). An operand may have a default of None ("input, min=None, max=None" with operands=3).
    domain: (low, high) of test inputs. cost: rough count of operations.
    method, inplace, out: which forms exist. aliases: other public names, e.g. ("multiply",).
    check: called with the promoted dtype and the operands when a new combination of types is met; raises PyTorch's error.
    kernel: the name PyTorch has in '"NAME" not implemented for' (default: name + "_cpu").
    backward_name: name of the grad_fn (default: CamelCase of name + "Backward0"), or a function that tells it of the operands.
    public: whether it is `torch.NAME`; else only its method is to be seen, and `torch.nn.functional`.
    public_inplace: whether `torch.NAME_` is there too (default: where there is one operand, as PyTorch mostly has it).
    """

    __slots__ = (
        "aliases",
        "args",
        "backward_name",
        "check",
        "cost",
        "defaults",
        "doc",
        "domain",
        "expr",
        "grads",
        "inplace",
        "kernel",
        "method",
        "name",
        "names",
        "operands",
        "out",
        "positional",
        "public",
        "public_inplace",
        "rule",
    )

    def __init__(
        self,
        name: str,
        expr: Callable[..., Any],
        grads: tuple[Callable[..., Any] | None, ...] | None = None,
        rule: Any = "arith",
        args: str = "input",
        doc: str = "",
        domain: tuple[float, float] = (-3.0, 3.0),
        *,
        operands: int | None = None,
        cost: int = 1,
        method: bool = True,
        inplace: bool = True,
        out: bool = True,
        aliases: tuple[str, ...] = (),
        check: Callable[[Any, list[Any]], None] | None = None,
        kernel: str | None = None,
        backward_name: str | Callable[[Sequence[Any]], str] | None = None,
        public: bool = True,
        public_inplace: bool | None = None,
    ) -> None:
        self.name = name
        self.expr = expr
        self.grads = grads
        self.rule = rule
        self.args = args
        self.doc = doc
        self.domain = domain
        self.cost = cost
        self.method = method
        self.inplace = inplace
        self.out = out
        self.aliases = aliases
        self.check = check
        self.kernel = kernel or name + "_cpu"
        self.backward_name = backward_name or camel(name) + "Backward0"
        self.public = public
        self.names, self.defaults = parse_signature(args)
        self.positional = len(parse_signature(args.partition("*")[0])[0])
        self.operands = operands if operands is not None else len(self.names) - len(self.defaults)
        self.public_inplace = public and (self.operands == 1 if public_inplace is None else public_inplace)

    def __repr__(self) -> str:
        return f"<Row {self.name}({self.args})>"


def camel(name: str) -> str:
    """log_softmax -> LogSoftmax, as PyTorch names its backward nodes."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def parse_signature(args: str) -> tuple[list[str], dict[str, Any]]:
    """ "input, other, *, alpha=1" -> (["input", "other", "alpha"], {"alpha": 1})."""
    names: list[str] = []
    defaults: dict[str, Any] = {}
    for part in args.split(","):
        name, eq, value = part.strip().partition("=")
        if name in ("*", ""):
            continue
        names.append(name)
        if eq:
            defaults[name] = _literal(value)
    return names, defaults


def _literal(text: str) -> Any:
    named = {"None": None, "True": True, "False": False}
    if text in named:
        return named[text]
    if text[0] in "'\"":
        return text[1:-1]
    try:
        return int(text)
    except ValueError:
        return float(text)


def elementwise(row: Row) -> Row:
    """Puts a row in the table: `torch.NAME`, `Tensor.NAME`, `NAME_`, `out=` and its aliases."""
    ROWS[row.name] = row
    _note(row.name, *row.aliases, *((row.name + "_", *(a + "_" for a in row.aliases)) if row.inplace else ()))
    for name in (row.name, *row.aliases):
        ROW_NAMES[name] = (row, False)
        if row.inplace:
            ROW_NAMES[name + "_"] = (row, True)
    return row


def register(
    name: str,
    function: Callable[..., Any] | None = None,
    *,
    method: bool | Callable[..., Any] = False,
    inplace: Callable[..., Any] | None = None,
    torch: bool = True,
) -> Any:
    """Registers `torch.NAME`. With no function it is a decorator.

    method: True makes it `Tensor.NAME` as well; a function is that method instead.
    inplace: the function of `torch.NAME_` and `Tensor.NAME_`.
    torch=False: only the method.
    """
    if function is None:

        def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
            register(name, f, method=method, inplace=inplace, torch=torch)
            return f

        return decorate
    _note(name, *((name + "_",) if inplace is not None else ()))
    if torch:
        FUNCTIONS[name] = function
    if method:
        METHODS[name] = function if method is True else method
    if inplace is not None:
        METHODS[name + "_"] = inplace
        if torch:
            FUNCTIONS[name + "_"] = inplace
    return function


_noted: dict[str, dict[str, None]] | None = None


def _note(*names: str) -> None:
    if _noted is not None:
        frame: Any = sys._getframe(1)
        while frame.f_code.co_name != "<module>":
            frame = frame.f_back
        _noted.setdefault(frame.f_globals["__name__"], {}).update(dict.fromkeys(names))


def table() -> dict[str, str]:
    """Module -> the names that it registers. For the wheel: to be called before any operation is loaded."""
    global _noted
    _noted = {}
    load_all()
    return {module: " ".join(names) for module, names in _noted.items()}


# ---- looking up


#: a module that only a wheel has, with the names that each module registers: see build_wheel.py
TABLE = "names"


@cache
def _modules() -> list[str]:
    """The modules with operations, the families of the commonest ones first."""
    from . import ORDER, __path__

    names = {m.name for m in pkgutil.iter_modules(__path__)} - {"core", TABLE}
    return [m if "." in m else "tabtorch.ops." + m for m in (*ORDER, *sorted(names.difference(ORDER)))]


@cache
def _places() -> dict[str, list[str]]:
    """Name -> the modules that register it; empty where there is no table."""
    places: dict[str, list[str]] = {}
    try:
        table = importlib.import_module("tabtorch.ops." + TABLE)
    except ModuleNotFoundError:
        return places
    for module, names in table.MODULES.items():
        for name in names.split():
            places.setdefault(name, []).append(module)
    return places


def _load_for(name: str) -> bool:
    """Imports a module that may register `name`; False when there is none left.

    Operations are not imported with the package: a script pays for the families it uses. A wheel knows where each name
    is; a checkout looks through the modules, one by one.
    """
    places = _places()
    candidates = places.get(name, ()) if places else () if name[0] == "_" else _modules()
    for module in candidates:
        if module not in sys.modules:
            importlib.import_module(module)
            return True
    return False


def _from_row(name: str, is_method: bool) -> Callable[..., Any] | None:
    entry = ROW_NAMES.get(name)
    if entry is None:
        return None
    row, in_place = entry
    if is_method and not (row.method and _is_method(name)):
        return None
    from .dispatch import make_function, make_inplace

    f = make_inplace(row, name) if in_place else make_function(row, name)
    FUNCTIONS[name] = f
    if row.method and _is_method(name):
        METHODS[name] = f
    return f


def _is_method(name: str) -> bool:
    return not name.startswith("special_")  # an alias that only torch.special has


def known(name: str) -> bool:
    """Whether a module that is loaded already has registered `torch.NAME`."""
    return name in FUNCTIONS or name in ROW_NAMES


def function(name: str) -> Callable[..., Any] | None:
    """The function `torch.NAME`, or None."""
    while True:
        f = FUNCTIONS.get(name) or _from_row(name, False)
        if f is not None:
            return f
        if not _load_for(name):
            return None


def public(name: str) -> Callable[..., Any] | None:
    """The function that PyTorch has as `torch.NAME` too, or None; `function` also has what only torch.nn.functional shows."""
    f = None if name.startswith("special_") else function(name)
    return f if f is not None and _is_public(name) else None


def _is_public(name: str) -> bool:
    entry = ROW_NAMES.get(name)
    if name.startswith("special_"):
        return False
    return entry is None or (entry[0].public_inplace if entry[1] else entry[0].public)


def method(name: str) -> Callable[..., Any] | None:
    """The function that is the method `Tensor.NAME`, or None."""
    while True:
        f = METHODS.get(name) or _from_row(name, True)
        if f is not None:
            return f
        if not _load_for(name):
            return None


def load_all() -> None:
    """Imports every module of operations; for tests, `dir()` and the compatibility page."""
    for module in _modules():
        importlib.import_module(module)


def all_functions() -> list[str]:
    """The names of `torch.NAME`."""
    load_all()
    return [n for n in sorted(FUNCTIONS.keys() | ROW_NAMES.keys()) if _is_public(n)]


def all_methods() -> list[str]:
    load_all()
    return sorted(METHODS.keys() | {n for n, (row, _) in ROW_NAMES.items() if row.method and _is_method(n)})


class Missing(AttributeError, NotImplementedError):
    """A name that PyTorch may have and tabtorch has not. `hasattr` sees an attribute that is not there."""


# So a traceback calls it what PyTorch would have raised.
Missing.__name__ = Missing.__qualname__ = "AttributeError"
Missing.__module__ = "builtins"
