"""`torch.random`: generators, and the state of the default one. See https://docs.pytorch.org/docs/stable/random.html

The default generator is PyTorch's CPU generator, whatever device a tensor is on, so seeded numbers are PyTorch's. Its state
lies on the cpu device, where each draw changes it. The generator of the GPU is Philox: a seed and an offset, from which any
element can be computed where it is needed; dropout takes its bits from the default one of that kind.
"""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from tabtorch import _lazy, bridge
from tabtorch.base import dtypes
from tabtorch.base import random_streams as streams
from tabtorch.base.device import cpu, resolve, webgpu
from tabtorch.base.device import device as Device
from tabtorch.base.thread_state import STATE
from tabtorch.core.tensor import Tensor
from tabtorch.engine import draws, graph
from tabtorch.engine.graph import Node
from tabtorch.engine.view import Meta, contiguous_meta

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
    "thread_safe_generator",
]

_MASK = 2**32 - 1


class Generator:
    """`torch.Generator(device="cpu")`. On "cpu": MT19937, PyTorch's own numbers; on "webgpu" (or "cuda"): Philox."""

    __slots__ = ("__weakref__", "_device", "_seed")
    _device: Any
    _seed: int

    def __new__(cls, device: Any = "cpu") -> Generator:
        where = resolve(Device(device) if not isinstance(device, Device) else device)
        if where.implicit:  # named by a tensor that named none: PyTorch has it on the cpu
            where = cpu
        if cls is Generator:
            cls = HostGenerator if where.host else PhiloxGenerator
        g = object.__new__(cls)
        g._device = where
        g._start(streams.DEFAULT_SEED)
        return g

    def _start(self, seed: int) -> None:
        raise NotImplementedError

    @property
    def device(self) -> Any:
        return self._device.public

    def manual_seed(self, seed: Any) -> Generator:
        """Seeds it; the same seed gives the same numbers. ValueError outside of -2**63 .. 2**64 - 1."""
        if isinstance(seed, Tensor) or not hasattr(seed, "__index__"):
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        self._start(streams.normalize_seed(seed.__index__()))
        return self

    def seed(self) -> int:
        """Seeds it with a number from the system, which is returned."""
        self._start(streams.nondeterministic_seed())
        return self._seed

    def initial_seed(self) -> int:
        """The seed it was last given."""
        return self._seed

    def get_state(self) -> Tensor:
        """The state as a ByteTensor on cpu, in PyTorch's own format."""
        raise NotImplementedError

    def set_state(self, new_state: Tensor) -> Generator:
        """Goes on from a state that `get_state()` gave, here or in PyTorch."""
        raise NotImplementedError

    def get_offset(self) -> int:
        """How far a Philox generator has come."""
        raise RuntimeError("CPU Generator does not use offset")

    def set_offset(self, offset: int) -> Generator:
        """Moves a Philox generator."""
        raise RuntimeError("CPU Generator does not use offset")

    def clone_state(self) -> Generator:
        """Another generator in the same state."""
        g = Generator(self._device)
        g._restore(self._snapshot())
        return g

    def _snapshot(self) -> Any:
        """The state as it is, for `_restore`; reads nothing back."""
        raise NotImplementedError

    def _restore(self, snapshot: Any) -> None:
        raise NotImplementedError

    def exchange(self, state: Any) -> Any:
        """Takes on a state that this method gave, None for none in particular; gives the present one. Copies nothing."""
        names = [n for n in type(self).__slots__ if not n.startswith("__")] + ["_seed"]
        before = [getattr(self, n) for n in names]
        for n, value in zip(names, state or before, strict=True):
            setattr(self, n, value)
        return before

    def __reduce__(self) -> Any:
        return (_rebuild, (str(self._device), _bytes(self.get_state())))

    def __deepcopy__(self, memo: Any) -> Generator:
        return self.clone_state()

    def __repr__(self) -> str:
        return f"<torch._C.Generator object at {id(self):#x}>"


def _rebuild(device: str, state: bytes) -> Generator:
    g = Generator(device)
    return g.set_state(_byte_tensor(state))


def _bytes(t: Tensor) -> bytes:
    return _lazy.to_host.to_bytes(t)


def _byte_tensor(data: bytes) -> Tensor:
    m = contiguous_meta((len(data),), dtypes.uint8, cpu)
    return Tensor._wrap(graph.from_host(data, m), m)


def _state_bytes(new_state: Any) -> bytes:
    if not isinstance(new_state, Tensor):
        raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
    if new_state.dtype is not dtypes.uint8:
        raise TypeError("RNG state must be a torch.ByteTensor")
    return _bytes(new_state)


_STATE = contiguous_meta((streams.STATE_WORDS,), dtypes.int32, cpu)

#: the host generators whose state lies in a buffer, which is lost if the runtime ends
_drawing: weakref.WeakSet[HostGenerator] = weakref.WeakSet()


class HostGenerator(Generator):
    """MT19937. `_node` holds the state; None: it is that of a generator just seeded, or `_from` if there is one."""

    __slots__ = ("_from", "_node", "_promised")
    _node: Node | None
    _from: bytes | None
    _promised: bool  # whether somebody chose the seed or the state

    def _start(self, seed: int) -> None:
        self._seed = seed
        self._node = self._from = None
        self._promised = True

    def draw(self, draw: streams.Draw, out: Meta, inputs: tuple[Node, ...] = ()) -> Node:
        """The next numbers of the stream, as `out`, which is contiguous and on cpu."""
        if STATE.levels:
            return _lazy.batch.drawn_one_by_one(
                lambda given: draws.run(draw, (self._state(), *given), out), out, inputs
            )
        for n in inputs:
            graph.buffer_of(n)
        with graph.LOCK:  # who draws has the state for himself
            return draws.run(draw, (self._state(), *inputs), out)

    def _state(self) -> Node:
        node = self._node
        if node is None:
            if self._from is not None:
                node = graph.from_host(self._from, _STATE)
            else:
                node = draws.run(streams.seed(self._seed), (), _STATE)
            self._node = node
            _drawing.add(self)
        return node

    def seed(self) -> int:
        value = super().seed()
        self._promised = False
        return value

    def get_state(self) -> Tensor:
        with graph.LOCK:
            state = graph.copied(graph.buffer_of(self._state()), 1, streams.STATE_BYTES)
        return _byte_tensor(streams.state_to_torch(graph.bridge().read(state.id, 1, 0, streams.STATE_BYTES)))

    def set_state(self, new_state: Tensor) -> Generator:
        own = streams.state_from_torch(_state_bytes(new_state))
        self._start(streams.state_seed(own))
        self._from = own
        return self

    def _snapshot(self) -> Any:
        with graph.LOCK:
            return self._copied()

    def _copied(self) -> Any:
        node = self._node
        if node is not None:
            b = graph.buffer_of(node)
            copy = Node(node.inst, (), ())
            copy.buf = graph.copied(b, 1, b.nbytes)
            node = copy
        return self._seed, self._from, self._promised, node, _runtimes_ended

    def _restore(self, snapshot: Any) -> None:
        # the snapshot's own copy becomes the state, so it can be restored once
        self._seed, self._from, self._promised, self._node, ended = snapshot
        if self._node is not None:
            _drawing.add(self)
            if ended != _runtimes_ended:
                self._lose()

    def _lose(self) -> None:
        """The runtime has ended, and the state with it."""
        if self._node is None:
            return
        self._node = None
        if id(self) in _at_fork:
            self._from = _at_fork[id(self)]
            return
        if not self._promised:
            self._start(streams.nondeterministic_seed())
            self._promised = False
            return
        warnings.warn(
            "the runtime ended, and with it the state of a random generator: it starts again from "
            + ("the state that was set." if self._from is not None else f"its seed {self._seed}."),
            RuntimeWarning,
            stacklevel=2,
        )


_runtimes_ended = 0


def _runtime_ended() -> None:
    global _runtimes_ended
    _runtimes_ended += 1
    for g in list(_drawing):
        g._lose()
    _drawing.clear()


bridge.on_close(_runtime_ended)

#: while the process forks: the states of the generators that have drawn, which its child goes on from
_at_fork: dict[int, bytes] = {}


def _before_fork() -> None:
    for g in list(_drawing):
        if g._node is not None:
            with contextlib.suppress(RuntimeError):  # it has failed: then the child, too, begins again
                _at_fork[id(g)] = graph.read(g._node, 0, streams.STATE_BYTES)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_at_fork.clear, after_in_child=_at_fork.clear)


class PhiloxGenerator(Generator):
    """Philox 4x32-10. Each draw has an offset of its own."""

    __slots__ = ("_offset",)
    _offset: int

    def _start(self, seed: int) -> None:
        self._seed = seed
        self._offset = 0

    def next(self) -> tuple[int, int, int, int]:
        """The first scalars of the next draw: see engine/philox.py."""
        seed, at = self._seed, self._offset
        self._offset = (at + 4) & (2**64 - 1)
        return seed & _MASK, seed >> 32, at & _MASK, at >> 32

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> Generator:
        if offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        if not 0 <= offset < 2**64:
            raise ValueError("Overflow when unpacking unsigned long")
        self._offset = offset
        return self

    def get_state(self) -> Tensor:
        return _byte_tensor(self._seed.to_bytes(8, "little") + self._offset.to_bytes(8, "little"))

    def set_state(self, new_state: Tensor) -> Generator:
        data = _state_bytes(new_state)
        if len(data) not in (8, 16):
            raise RuntimeError("RNG state is wrong size")
        self._seed = int.from_bytes(data[:8], "little")
        self._offset = int.from_bytes(data[8:], "little")
        return self

    def _snapshot(self) -> Any:
        return self._seed, self._offset

    def _restore(self, snapshot: Any) -> None:
        self._seed, self._offset = snapshot


def _unseeded(cls: Any, device: Any) -> Any:
    g = object.__new__(cls)
    g._device = device
    g._start(streams.nondeterministic_seed())
    return g


#: the generator of all draws that name none
default_generator: HostGenerator = _unseeded(HostGenerator, cpu)
default_generator._promised = False
#: the generator of dropout on webgpu
device_generator: PhiloxGenerator = _unseeded(PhiloxGenerator, webgpu)


def manual_seed(seed: Any) -> Generator:
    """Seeds the generators of all devices; returns the default one."""
    seed = int(seed)
    device_generator.manual_seed(seed)
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seeds the generators of all devices with a number from the system, which is returned."""
    value = default_generator.seed()
    device_generator.manual_seed(value)
    return value


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator: the 5,056 bytes that PyTorch's `torch.get_rng_state()` has."""
    return state_of(default_generator, device_generator)


def set_rng_state(new_state: Tensor) -> None:
    """Sets the state of the default generator. RuntimeError for bytes that are none."""
    set_state_of(default_generator, device_generator, new_state)


def state_of(g: Generator, other: Generator) -> Tensor:
    """The state of `g`, which remembers that of `other`: scripts that know one device have one, and replay all with it."""
    state = g.get_state()
    state._tab_other_state = other._snapshot()
    return state


def set_state_of(g: Generator, other: Generator, state: Tensor) -> None:
    """Sets what `state_of` gave, or the state of `g` alone."""
    g.set_state(state)
    if state._tab_other_state is not None:
        other._restore(state._tab_other_state)


def thread_safe_generator() -> Generator | None:
    """None, which means the default generator: the workers of a DataLoader are no threads, and each has the default one in turn."""
    return None


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:
    """On leaving, the generators of all devices are as they were. `devices`: without the GPU's if it is empty."""
    if not enabled:
        yield
        return
    kept: list[Generator] = [default_generator]
    if devices is None or list(devices):
        kept.append(device_generator)
    snapshots = [g._snapshot() for g in kept]
    try:
        yield
    finally:
        for g, s in zip(kept, snapshots):
            g._restore(s)
