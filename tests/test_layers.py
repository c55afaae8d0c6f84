"""Which part may import which. ARCHITECTURE.md shows the same table; what is late is lazy, or listed here with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1] / "py" / "tabtorch"

#: from the bottom to the top: a layer's name, and its modules (the longest name that fits counts). A module imports from its
#: own layer and from those before it
LAYERS = (
    ("base", "tabtorch.base tabtorch._archive tabtorch._extras tabtorch._lazy tabtorch.version"),
    ("bridge", "tabtorch.bridge"),
    ("engine", "tabtorch.engine"),
    ("registry", "tabtorch.ops tabtorch.ops.machinery tabtorch.ops.machinery.registry"),
    (
        "tensor",
        "tabtorch.core.tensor tabtorch.core.tensor_base tabtorch.core.shapes tabtorch.core.reinterpreted tabtorch.core.layout "
        "tabtorch.core.storage tabtorch.storage tabtorch.core",
    ),
    ("autograd", "tabtorch.autograd"),
    ("operations", "tabtorch.ops.* tabtorch.core.* tabtorch.random tabtorch.return_types"),
    ("interception", "tabtorch.interception"),
    ("torch", "tabtorch.* tabtorch.ops.aten tabtorch.ops.aten.*"),
    ("commands", "tabtorch.cli"),
)
#: modules of `autograd` that are written in terms of the public namespace
_PUBLIC = ("tabtorch.autograd.functional", "tabtorch.autograd.gradcheck", "tabtorch.autograd.profiler")

#: imports at load time that go up all the same -> why
EXCEPTIONS = {
    ("autograd", "tabtorch.ops.machinery.row_tape"): "forward-mode derivatives of rows are the rows' own formulas",
    ("autograd", "tabtorch.utils.hooks"): "RemovableHandle is PyTorch's name, and has no import of its own",
    ("operations", "tabtorch"): "composites (ops.functional) are written over the public namespace, as a script is",
}
#: (layer, layer above it): what is loaded lazily there, and why it is not below
UPWARD = {
    ("base", "bridge"): "the default device is asked of the runtime, when a first tensor is made",
    ("tensor", "autograd"): "`backward`, `register_hook`, `grad_fn` of a view: attributes of every tensor",
    ("tensor", "operations"): "indexing, printing, conversion and views are methods and operators of every tensor",
    ("tensor", "interception"): "a subclass of Tensor turns overrides on",
    ("tensor", "torch"): "pickling a storage writes PyTorch's format; `__torch_function__` shows `torch.overrides`",
    ("registry", "operations"): "a row becomes a function when it is first asked for",
    ("registry", "interception"): "an operation that fails lets its arguments override it",
    ("autograd", "operations"): "gradients are added up, converted and viewed by operations",
    ("autograd", "torch"): "under vmap a backward pass has rules of its own; hooks' handles are PyTorch's",
    ("operations", "torch"): "vmap's rules for operations that look at values; pickling; public names over others",
    ("interception", "torch"): "the namespaces whose functions may be overridden are met when the first override is",
}
#: import statements inside functions, on_device_of those of the commands: file -> how many, and why they are no `_lazy`
LATE = {
    "_archive.py": (1, "it is loaded before the package, which is in the archive that it opens"),
    "engine/expr.py": (3, "expressions build complex ones, which are expressions; functions fill a table of both"),
    "bridge/__init__.py": (3, "one of two bridges: the other's imports do not exist where it runs"),
    "bridge/node.py": (1, "asks whether the process was forked, of the package that imports it"),
    "base/device.py": (2, "what devices there are, the runtime knows"),
}


class Edge(NamedTuple):
    module: str
    target: str
    how: str  # "load", "late" or "lazy"


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("tabtorch", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def layer(module: str) -> int:
    """The number of a module's layer, from the bottom."""
    if module in _PUBLIC or module == "tabtorch":
        return [name for name, _ in LAYERS].index("torch")
    fits = [
        (len(name), number)
        for number, (_, names) in enumerate(LAYERS)
        for name in names.split()
        if module == name or (module + ".").startswith(name.removesuffix("*").removesuffix(".") + ".")
        if name.endswith("*") or module == name or name.count(".") == 1
    ]
    return max(fits)[1]


@cache
def lazy() -> dict[str, str]:
    tree = ast.parse((PACKAGE / "_lazy.py").read_text())
    (table,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_MODULES"
    )
    return dict(ast.literal_eval(table))


def targets(module: str, node: ast.ImportFrom | ast.Import) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "tabtorch")
        return
    parent = module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]
    base = ".".join(parent.split(".")[: len(parent.split(".")) - node.level + 1]) if node.level else ""
    base = ".".join(part for part in (base, node.module) if part)
    if base.partition(".")[0] == "tabtorch":
        for alias in node.names:
            full = f"{base}.{alias.name}"
            yield full if full in modules() else base


@cache
def edges() -> tuple[Edge, ...]:
    found = []
    for module, path in modules().items():
        if module == "tabtorch._lazy":
            continue

        def visit(node: ast.AST, late: bool, module: str = module) -> None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                    continue
                if isinstance(child, (ast.ImportFrom, ast.Import)):
                    found.extend(Edge(module, t, "late" if late else "load") for t in {*targets(module, child)})
                elif (
                    isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name) and child.value.id == "_lazy"
                ):
                    found.append(Edge(module, lazy()[child.attr], "lazy"))
                visit(child, late or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))

        visit(ast.parse(path.read_text()), False)
    return tuple(found)


def test_every_module_has_a_layer() -> None:
    counts = [0] * len(LAYERS)
    for module in modules():
        counts[layer(module)] += 1
    assert all(counts), dict(zip([name for name, _ in LAYERS], counts, strict=True))


def test_imports_go_down() -> None:
    up = {e for e in edges() if e.how == "load" and layer(e.module) < layer(e.target)}
    unknown = {e for e in up if (LAYERS[layer(e.module)][0], e.target) not in EXCEPTIONS}
    assert not unknown, sorted(unknown)
    assert {(LAYERS[layer(e.module)][0], e.target) for e in up} == EXCEPTIONS.keys()


def test_nothing_below_imports_nn() -> None:
    below = {e for e in edges() if layer(e.module) < layer("tabtorch.nn") and e.target.startswith("tabtorch.nn")}
    # whose functions may be overridden, and what is a Parameter: asked when the first override is there
    assert {e.module for e in below} <= {"tabtorch.interception.torch_function"}, sorted(below)


def test_what_goes_up_is_lazy_and_has_a_reason() -> None:
    up = {
        (LAYERS[layer(e.module)][0], LAYERS[layer(e.target)][0])
        for e in edges()
        if e.how != "load" and layer(e.module) < layer(e.target)
    }
    assert up == UPWARD.keys(), up ^ UPWARD.keys()
    assert len(UPWARD) <= 20


def test_no_cycle_at_load_time() -> None:
    load: dict[str, set[str]] = {}
    for e in edges():
        if e.how == "load" and e.target != e.module and e.target != "tabtorch":
            load.setdefault(e.module, set()).add(e.target)
    state: dict[str, int] = {}

    def walk(module: str, path: tuple[str, ...]) -> None:
        state[module] = 1
        for target in load.get(module, ()):
            assert state.get(target) != 1 or target in _packages(module), (*path, module, target)
            if target not in state:
                walk(target, (*path, module))
        state[module] = 2

    for module in modules():
        if module not in state:
            walk(module, ())


def _packages(module: str) -> set[str]:
    """The packages that a module is in: they have begun to load before it does, which is no cycle."""
    parts = module.split(".")
    return {".".join(parts[:n]) for n in range(1, len(parts))}


def test_late_imports_are_counted() -> None:
    """Lazy loading goes through `_lazy`. Import statements inside functions are the few that LATE lists."""
    found: dict[str, int] = {}
    for module, path in modules().items():
        if module.startswith("tabtorch.cli"):  # a command starts fast, and what only a host has is no part of a tab
            continue
        tree = ast.parse(path.read_text())
        for function in (n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))):
            for node in ast.walk(function):
                if isinstance(node, (ast.Import, ast.ImportFrom)) and not hasattr(node, "counted"):
                    node.counted = True  # type: ignore[union-attr]
                    if list(targets(module, node)):
                        name = path.relative_to(PACKAGE).as_posix()
                        found[name] = found.get(name, 0) + 1
    assert found.keys() <= LATE.keys(), found
    assert all(count <= LATE[name][0] for name, count in found.items()), found
    assert sum(count for count, _ in LATE.values()) <= 20


def test_what_is_lazy_exists_and_is_used() -> None:
    used = {e.target for e in edges() if e.how == "lazy"}
    assert set(lazy().values()) <= modules().keys()
    assert used == set(lazy().values()), used ^ set(lazy().values())
