"""Rows of the elementwise table, and the one registry that torch functions and Tensor methods come from.

An operation is registered once: `elementwise(Row(...))` for a row of the table, `register(name, function, ...)` for
anything else. The function, the method and the in-place form are made from that, when somebody first asks for them.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from functools import cache, update_wrapper
from types import FunctionType
from typing import Any

from tabtorch import _lazy
from tabtorch.base.errors import Refused

#: whether functions are led elsewhere now, on any thread (interception/code_swapping.py): whoever leaves calls out asks
exchanged = [False]
#: torch.NAME and Tensor.NAME of what is registered, and of the rows that have been asked for
FUNCTIONS: dict[str, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}
#: names that begin so are those of a namespace: torch.special.NAME, torch.linalg.NAME
SPACES = ("special_", "linalg_", "fft_")
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
    out_rule: which types `out=` may have, one of `out_types` (default: that of its family, see there).
    check: called with the promoted dtype and the operands when a new combination of types is met; raises PyTorch's error.
    check_options: the same for calls that name options: called with the promoted dtype and these.
    each: called with the operands of each call that computes with integers; raises, or asserts on the device, what no table of
        types tells: a divisor that is 0.
    kernel: the name PyTorch has in '"NAME" not implemented for' (default: name + "_cpu").
    backward_name: name of the grad_fn (default: CamelCase of name + "Backward0"), or a function that tells it of the operands.
    numbers: the positions of operands that may be Python numbers, e.g. "1" for `eq`, "" for `maximum`; "*" where all may be at
        once (`add`): then they become a tensor.
    apart: the positions of operands that PyTorch's kernel gets beside its tensors where they are numbers, so that they say
        nothing about the layout of the result: the exponent of `pow`.
    grads_inplace: the gradients of the in-place form, where PyTorch takes them from the result (default: `grads`).
    public: whether it is `torch.NAME`; else only its method is to be seen, and `torch.nn.functional`.
    public_inplace: whether `torch.NAME_` is there too (default: where there is one operand, as PyTorch mostly has it).
    row_major: whether the result is row-major, however the operands are laid out.
    empty_like: "complex" where PyTorch makes the result of a complex operand with `empty_like`, so that it has its very strides;
        "always" where it does so with any.
    seen: operands -> those that PyTorch's kernel gets, as to geometry (a list of Metas), where it gets others or another order.
    """

    __slots__ = (
        "aliases",
        "apart",
        "args",
        "backward_name",
        "check",
        "check_options",
        "cost",
        "defaults",
        "doc",
        "domain",
        "each",
        "empty_like",
        "expr",
        "grads",
        "grads_inplace",
        "inplace",
        "kernel",
        "method",
        "name",
        "names",
        "numbers",
        "operands",
        "out",
        "out_rule",
        "positional",
        "public",
        "public_inplace",
        "row_major",
        "rule",
        "seen",
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
        out_rule: Callable[..., None] | None = None,
        aliases: tuple[str, ...] = (),
        check: Callable[[Any, list[Any]], None] | None = None,
        check_options: Callable[[Any, dict[str, Any]], None] | None = None,
        each: Callable[[list[Any]], None] | None = None,
        kernel: str | None = None,
        backward_name: str | Callable[[Sequence[Any]], str] | None = None,
        numbers: str = "012345",
        public: bool = True,
        public_inplace: bool | None = None,
        row_major: bool = False,
        empty_like: str = "",
        seen: Callable[[list[Any]], list[Any]] | None = None,
        apart: str = "",
        grads_inplace: tuple[Callable[..., Any] | None, ...] | None = None,
    ) -> None:
        self.name = name
        self.expr = expr
        self.grads = grads
        self.grads_inplace = grads_inplace
        self.rule = rule
        self.args = args
        self.doc = doc
        self.domain = domain
        self.cost = cost
        self.method = method
        self.inplace = inplace
        self.out = out
        self.out_rule = out_rule
        self.aliases = aliases
        self.check = check
        self.check_options = check_options
        self.each = each
        self.kernel = kernel or name + "_cpu"
        self.backward_name = backward_name or camel(name) + "Backward0"
        self.numbers = numbers
        self.public = public
        self.row_major = row_major
        self.empty_like = empty_like
        self.seen = seen
        self.apart = apart
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
    doc: str | None = None,
) -> Any:
    """Registers `torch.NAME`. With no function it is a decorator.

    method: True makes it `Tensor.NAME` as well; a function is that method instead.
    inplace: the function of `torch.NAME_` and `Tensor.NAME_`.
    torch=False: only the method.
    doc: the documentation of a function that has none, such as a lambda.
    """
    if function is None:

        def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
            register(name, f, method=method, inplace=inplace, torch=torch)
            return f

        return decorate
    _note(name, *((name + "_",) if inplace is not None else ()))
    _describe(function, name, doc)
    if torch:
        FUNCTIONS[name] = function
    if method:
        METHODS[name] = function if method is True else _describe(method, name, function.__doc__)
    if inplace is not None:
        _describe(inplace, name + "_", f"`{name}` in place.")
        METHODS[name + "_"] = inplace
        if torch:
            FUNCTIONS[name + "_"] = inplace
    return function


def _describe(f: Any, name: str, doc: str | None) -> Any:
    """What has no name of its own, or no documentation, gets these."""
    if getattr(f, "__name__", "") == "<lambda>":
        f.__name__ = f.__qualname__ = name
    if f.__doc__ is None:
        f.__doc__ = doc
    return f


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


#: the modules that register names which begin with an underscore
_PRIVATE = (
    "tabtorch.ops.compatibility.private_names",
    "tabtorch.ops.compatibility.foreach",
    "tabtorch.ops.compatibility.settings",
)

#: a module that only a wheel has, with the names that each module registers: see build_wheel.py
TABLE = "names"


@cache
def _modules() -> list[str]:
    """The modules with operations, the families of the commonest ones first."""
    packages = [m.name for m in pkgutil.iter_modules(_lazy.ops.__path__, "tabtorch.ops.") if m.ispkg]
    families = [name for name in packages if name != "tabtorch.ops.aten"]  # which registers nothing, and reads all
    names = {
        m.name
        for family in families
        for m in pkgutil.iter_modules(importlib.import_module(family).__path__, family + ".")
        if m.name != __name__
    }
    return [*_lazy.ops.ORDER, *sorted(names.difference(_lazy.ops.ORDER))]


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
    candidates = places.get(name, ()) if places else (*_PRIVATE, *_modules()) if name[0] == "_" else _modules()
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
    make = _lazy.dispatch.make_inplace if in_place else _lazy.dispatch.make_function
    FUNCTIONS[name] = f = make(row, name)
    if row.method and _is_method(name):  # as in PyTorch, `torch.add` and `Tensor.add` are two functions
        METHODS[name] = make(row, name)
    return METHODS[name] if is_method else f


def _is_method(name: str) -> bool:
    return not name.startswith(SPACES)  # an alias that only torch.special has


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
    f = None if name.startswith(SPACES) else function(name)
    return in_space(name) if f is not None and _is_public(name) else None


def in_space(name: str) -> Callable[..., Any] | None:
    """The function that a namespace shows: `in_space("linalg_inv")` is `torch.linalg.inv`."""
    f = function(name)
    return shown(name) if f is not None and has_guard(name) else f


#: where the code of a guard is said to be
GUARD = "<torch>"
#: what `overridden` gives where nobody overrides
NOTHING = object()
#: the guards that were asked for
SHOWN: dict[str, Callable[..., Any]] = {}


def has_guard(name: str) -> bool:
    """Whether `torch.NAME` is not the registered function itself, but its guard: it takes tensors.

    Rows, and functions that are marked `guarded`, look for overrides themselves when they fail.
    """
    f = FUNCTIONS[name]
    if name in ROW_NAMES or not isinstance(f, FunctionType) or getattr(f, "guarded", False):
        return False
    return f is METHODS.get(name) or _tensors(f) != []


#: stands for an argument that was not given, where there is no default
MISSING = object()


def missing(name: str, names: list[str]) -> TypeError:
    """What PyTorch's parser says of required arguments that were not given."""
    quoted = ", ".join(f'"{n}"' for n in names)
    s = "s" if len(names) == 1 else ""  # as PyTorch has it
    return TypeError(f"{name}() missing {len(names)} required positional argument{s}: {quoted}")


def required(f: Any) -> list[str]:
    """The names of the parameters of a function that may be given by position, and have no default."""
    code = own_code(f)
    return list(code.co_varnames[: code.co_argcount - len(f.__defaults__ or ())])


def _tensors(f: Any) -> list[bool]:
    """For each parameter that is a tensor, or may be one: whether it is the first."""
    first = own_code(f).co_varnames[:1]
    return [(k,) == first for k, t in f.__annotations__.items() if k not in ("return", "out") and "Tensor" in str(t)]


def own_code(f: Any) -> Any:
    """The code of a function, also while another is in its place (see `interception/code_swapping.py`)."""
    exchange: Any = sys.modules.get("tabtorch.interception.code_swapping")
    record = exchange._records.get(id(f)) if exchange is not None else None
    return f.__code__ if record is None else record.own


def shown(name: str) -> Callable[..., Any]:
    """`torch.NAME`: a function that calls the registered one, and, should it fail, lets its arguments override it."""
    f = SHOWN.get(name)
    if f is None:
        own = FUNCTIONS[name]
        f = SHOWN[name] = guard(name, own, whole=own is METHODS.get(name))
    return f


#: sizes or dimensions that a method takes one by one, too, and a function does not
_LISTS = frozenset({"size", "shape", "dims", "more"})


def guard(name: str, f: Any, words: bool = True, whole: bool = False) -> Callable[..., Any]:
    """A function with the parameters of `f`: passing them on by name costs a few ns, *args and **kwargs would cost ten times that.

    words: PyTorch's parser, not Python, says what was not given. whole: several numbers are one argument.
    """
    code = own_code(f)
    names = list(code.co_varnames)
    n, k = code.co_argcount, code.co_kwonlyargcount
    args, only = names[:n], names[n : n + k]
    rest = names[n + k : n + k + 1] if code.co_flags & 4 else []
    more = names[n + k + len(rest)] if code.co_flags & 8 else ""
    must = required(f) if words else []
    star = "*" + rest[0] if rest else "*_more" if must else "*" if only else ""
    head = [*args, *([star] if star else []), *only, *(["**" + more] if more else [])]
    if code.co_posonlyargcount:
        head.insert(code.co_posonlyargcount, "/")
    call = [*args, *("*" + r for r in rest), *(f"{o}={o}" for o in only), *(["**" + more] if more else [])]
    space: dict[str, Any] = {"__name__": "tabtorch.torch", "_f": f, "_overridden": _overridden, "_nothing": NOTHING}
    space |= {"_missing": MISSING, "_lazy": _lazy}
    look = f"  if {' or '.join(f'{n} is _missing' for n in must)}: raise TypeError\n" if must else ""
    if star == "*_more":
        look = f"  if _more: raise _lazy.signatures.too_many({name!r}, {len(must)}, {n}, _more)\n{look}"
    if whole and rest and rest[0] in _LISTS:
        x, p, v = args[0], rest[0], f"({', '.join(args[1:])}, *{rest[0]})" if args[1:] else rest[0]
        wrong = p if p == "more" else f"len({p}) > 1 or {p} and not isinstance({p}[0], (tuple, list))"
        look += f"  if {wrong}: raise _lazy.signatures.spread({name!r}, {x}, {p!r}, {v})\n"
    text = (
        f"def {name}({', '.join(head)}):\n try:\n{look}  return _f({', '.join(call)})\n except (TypeError, AttributeError):\n"
        f"  _r = _overridden(_w, _f, locals())\n  if _r is _nothing: raise\n  return _r\n"
    )
    exec(compile(text, GUARD, "exec"), space)
    w: Any = update_wrapper(space.setdefault("_w", space[name]), f)
    w.__name__ = w.__qualname__ = name
    w.__module__ = "torch"
    w.__defaults__ = (*(MISSING for _ in must), *(f.__defaults__ or ())) or None
    w.__kwdefaults__ = f.__kwdefaults__
    return w


def overridden(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """For a call of `func` that failed: what an argument that overrides it makes of it, else NOTHING."""
    failure = sys.exc_info()[1]
    if isinstance(failure, Refused):  # a tensor that has no dense state was taken for a dense one
        return failure.dispatch(func.__name__, args, kwargs)
    if not _may_override((*args, *kwargs.values())):
        return NOTHING
    return _lazy.torch_function.overridden(func, args, kwargs)


def _may_override(values: Any) -> bool:
    return any(
        hasattr(type(b), "__torch_function__") and not hasattr(type(b), "edge_kind")  # it is no tensor
        for a in values
        for b in (a if type(a) in (list, tuple) else a.values() if type(a) is dict else (a,))
    )


def _overridden(func: Any, f: Any, given: dict[str, Any]) -> Any:
    """See `_overriding.overridden`; `given` are all arguments by name, those that have their default value too.

    Required ones go on by position, others by name: how they were written is not known.
    """
    lacking = [n for n in required(f) if given[n] is MISSING]
    if lacking:
        raise missing(func.__name__, lacking) from None
    if not isinstance(sys.exc_info()[1], Refused) and not _may_override(given.values()):
        blame(func.__name__, f, given)
        return NOTHING
    code = own_code(f)
    n, k = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    plain = n - len(f.__defaults__ or ())
    args = [given[v] for v in names[:plain]]
    kwargs = {v: given[v] for v, d in zip(names[plain:n], f.__defaults__ or (), strict=True) if given[v] is not d}
    kwargs |= {v: given[v] for v in names[n : n + k] if given[v] is not (f.__kwdefaults__ or {}).get(v)}
    at = n + k
    if code.co_flags & 4:
        if given[names[at]]:
            args += [given[v] for v in names[plain:n]]
            kwargs = {v: x for v, x in kwargs.items() if v not in names[plain:n]}
        args += given[names[at]]
        at += 1
    if code.co_flags & 8:
        kwargs |= given[names[at]]
    return overridden(func, tuple(args), kwargs)


def blame(name: str, f: Any, given: dict[str, Any]) -> None:
    """TypeError, as PyTorch's parser raises it, where the failure at hand is that an argument for a tensor is none."""
    failure = str(sys.exc_info()[1])
    # which of them are for tensors is not asked of the annotations: the wheel has few
    for k, n in enumerate(required(f)):
        v = given.get(n)
        if not hasattr(v, "_tab_meta") and failure.startswith(f"'{_lazy.arguments.class_name(v)}' object has no attr"):
            raise _lazy.arguments.must_be_tensor(name, "input" if n == "self" else n, k, v) from None


def _is_public(name: str) -> bool:
    entry = ROW_NAMES.get(name)
    if name.startswith(SPACES):
        return False
    return entry is None or (entry[0].public_inplace if entry[1] else entry[0].public)


def method(name: str) -> Callable[..., Any] | None:
    """The function that is the method `Tensor.NAME`, or None."""
    while True:
        f = guarded_method(name) or _from_row(name, True)
        if f is not None:
            return f
        if not _load_for(name):
            return None


def overridable(f: Any) -> Any:
    """Itself: a function of a namespace that does not come from the registry, and was asked for."""
    return f


def guarded_method(name: str) -> Callable[..., Any] | None:
    """The registered method, behind a guard where an argument beside the tensor itself is a tensor too."""
    f = METHODS.get(name)
    if isinstance(f, FunctionType) and f is FUNCTIONS.get(name) and False in _tensors(f):
        METHODS[name] = f = guard(name, f)
    return f


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
