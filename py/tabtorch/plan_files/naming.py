"""What tensors and numbers are called in a file: PyTorch's names of parameters, buffers and optimizer states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tabtorch.core.tensor import Tensor
from tabtorch.nn.modules.module import Module
from tabtorch.optim._elementwise import Elementwise, plain
from tabtorch.optim._fused import fill_all
from tabtorch.optim._state import NumberStorage
from tabtorch.optim.optimizer import Optimizer


def models_of(model: Any) -> dict[str, Module]:
    """By the prefix of their names. model: a module, {name: module}, or None."""
    if model is None:
        return {}
    if isinstance(model, Mapping):
        return {f"{name}.": m for name, m in model.items()}
    return {"": model}


def optimizers_of(given: Any, found: Iterable[Optimizer]) -> dict[str, Optimizer]:
    """By the prefix of the names of their states. found: those that methods see."""
    if isinstance(given, Mapping):
        return {f"{name}.": o for name, o in given.items()}
    every = [given] if given is not None else []
    every += [o for o in found if o is not given]
    return {"optimizer." if k == 0 else f"optimizer{k}.": o for k, o in enumerate(every)}


def outermost(seen: Iterable[Any]) -> list[Module]:
    """The modules that are part of no other."""
    modules = [m for m in seen if isinstance(m, Module)]
    inner = {id(c) for m in modules for c in m.modules() if c is not m}
    return [m for m in modules if id(m) not in inner]


class Names:
    """Names of tensors by id, and other names of the same ones."""

    def __init__(self, models: Mapping[str, Module], optimizers: Mapping[str, Optimizer]) -> None:
        self.of: dict[int, str] = {}
        self.tensors: dict[str, Tensor] = {}
        self.aliases: dict[str, str] = {}
        #: (id of a dict, key) -> name, and the values by name
        self.numbers: dict[tuple[int, Any], str] = {}
        self.values: dict[str, Any] = {}
        self.where: dict[str, list[tuple[dict, Any]]] = {}
        self._others = 0
        for prefix, m in models.items():
            for name, t in [*m.named_parameters(remove_duplicate=False), *m.named_buffers(remove_duplicate=False)]:
                if t is not None:
                    self.add(prefix + name, t)
        for prefix, o in optimizers.items():
            for g, group in enumerate(o.param_groups):
                for p in group["params"]:
                    self.other(p)
                for key, value in dict.items(group):
                    if type(value) in (int, float):
                        same = all(
                            type(x.get(key)) is type(value) and repr(x[key]) == repr(value) for x in o.param_groups
                        )
                        head = prefix.removeprefix("optimizer.")
                        self.number(group, key, f"{head}{key}" if same else f"{head}{g}.{key}", value)
            for p, state in o.state.items():
                for key, value in dict.items(state):
                    name = f"{prefix}{self.other(p)}.{key}"
                    if isinstance(value, Tensor) and type(value._tab_storage) is NumberStorage:
                        self.number(value._tab_storage.box, "value", name, value._tab_storage.box["value"])
                    elif isinstance(value, Tensor):
                        self.add(name, value)
                    elif type(value) in (int, float):
                        self.number(state, key, name, value)

    def add(self, name: str, t: Tensor) -> None:
        known = self.of.get(id(t))
        if known is not None:
            self.aliases[name] = known
            return
        self.of[id(t)] = name
        self.tensors[name] = t

    def other(self, t: Tensor) -> str:
        """The name of a tensor; of one that has none, a new one."""
        if id(t) not in self.of:
            self.add(f"constant.{self._others}", t)
            self._others += 1
        return self.of[id(t)]

    def number(self, d: dict, key: Any, name: str, value: Any) -> None:
        self.numbers[id(d), key] = name
        self.where.setdefault(name, []).append((d, key))
        self.values[name] = value


def begun(optimizers: Iterable[Optimizer]) -> Iterator[tuple[Any, Any]]:
    """Gives optimizers the state that their first step would make; yields (a dict, the key that it had not). ValueError where only a
    step can tell."""
    for o in optimizers:
        if not isinstance(o, Elementwise):
            if not o.state:
                raise ValueError(
                    f"{type(o).__name__} makes its state in its first step: take one before it is exported"
                )
            continue
        for group in o.param_groups:
            members = [p for p in group["params"] if p.requires_grad]
            for p in members:
                known = p in o.state and bool(o.state[p])
                had = p in o.state
                state = o._state_of(p, group)
                if not had and p in o.state:
                    yield o.state, p
                if had and not known:
                    for key in state:
                        yield state, key
            numbers = plain(group, None)
            first = [
                p for p in members if o._fills(numbers, p) and any(k not in o.state[p] for k in o._fills(numbers, p))
            ]
            if first and group.get("momentum") and group.get("dampening"):
                raise ValueError(
                    f"{type(o).__name__} with dampening begins otherwise: take one step before it is exported"
                )
            for p in first:
                for name, value in o._fills(numbers, p).items():
                    if dict.get(o.state[p], name) is None:
                        value = complex(value, value) if p.dtype.is_complex and value else value
                        o.state[p][name] = fill_all([p], value)[0]
                        yield o.state[p], name
