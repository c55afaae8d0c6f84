"""States of random generators: exchanged with PyTorch, kept and restored, on every device."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import tabtorch as tt


def as_torch(state: Any) -> torch.Tensor:
    return torch.tensor(state.tolist(), dtype=torch.uint8)


def as_tab(state: torch.Tensor) -> Any:
    return tt.tensor(state.tolist(), dtype=tt.uint8, device="cpu")


@pytest.mark.parametrize("drawn", [0, 1, 7, 700])
def test_states_are_pytorchs(drawn: int) -> None:
    """5,056 bytes both ways, in the middle of a stream and with half of a pair of normals left over."""
    ours, theirs = tt.Generator().manual_seed(11), torch.Generator().manual_seed(11)
    for ns, g in ((tt, ours), (torch, theirs)):
        ns.randn(drawn, generator=g, device="cpu")
        ns.rand(drawn, generator=g, device="cpu")
    assert ours.get_state().shape == (5056,) and ours.get_state().tolist() == theirs.get_state().tolist()
    later, real = tt.Generator(), torch.Generator()
    later.set_state(as_tab(theirs.get_state()))
    real.set_state(as_torch(ours.get_state()))
    want = [torch.randn(5, generator=theirs), torch.rand(3, generator=theirs)]
    for ns, g in ((tt, ours), (tt, later), (torch, real)):
        got = [ns.randn(5, generator=g, device="cpu"), ns.rand(3, generator=g, device="cpu")]
        assert [t.tolist() for t in got] == [t.tolist() for t in want]
    assert later.initial_seed() == real.initial_seed() == 11


def test_copies(device: str) -> None:
    g = tt.Generator(device).manual_seed(3)
    x = tt.empty(8, device=device)
    x.uniform_(generator=g)
    copies = [
        g.clone_state(),
        copy.deepcopy(g),
        pickle.loads(pickle.dumps(g)),
        tt.Generator(device).set_state(g.get_state()),
    ]
    want = tt.empty(8, device=device).uniform_(generator=g).tolist()
    for c in copies:
        assert c.device == g.device
        assert tt.empty(8, device=device).uniform_(generator=c).tolist() == want


def test_the_default_one(device: str) -> None:
    tt.manual_seed(5)
    state, on_gpu = tt.get_rng_state(), tt.webgpu.get_rng_state_all()
    a = tt.rand(4).tolist(), tt.nn.functional.dropout(tt.ones(64)).tolist()
    with tt.random.fork_rng():
        tt.manual_seed(9)
        tt.rand(100)
        tt.nn.functional.dropout(tt.ones(64))
    after = tt.rand(2).tolist()
    tt.set_rng_state(state)
    tt.webgpu.set_rng_state_all(on_gpu)
    assert (tt.rand(4).tolist(), tt.nn.functional.dropout(tt.ones(64)).tolist()) == a
    assert tt.rand(2).tolist() == after and tt.initial_seed() == 5
    torch.manual_seed(5)
    assert tt.manual_seed(5) is tt.default_generator is tt.random.default_generator
    assert tt.rand(4).tolist() == torch.rand(4).tolist()
    seed = tt.seed()
    assert seed == tt.initial_seed() != 5


def test_exchange() -> None:
    """One stream put aside for another costs no copy, and comes back where it was."""
    g, real = tt.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    tt.rand(3, generator=g, device="cpu")
    mine = g.exchange(None)
    g.manual_seed(2)
    assert (
        tt.rand(2, generator=g, device="cpu").tolist()
        == torch.rand(2, generator=torch.Generator().manual_seed(2)).tolist()
    )
    g.exchange(mine)
    torch.rand(3, generator=real)
    assert tt.rand(4, generator=g, device="cpu").tolist() == torch.rand(4, generator=real).tolist()


def test_errors() -> None:
    for call in (
        lambda ns: ns.set_rng_state(ns.zeros(10, dtype=ns.uint8)),
        lambda ns: ns.set_rng_state(ns.zeros(5056)),
        lambda ns: ns.Generator().set_state(3),
        lambda ns: ns.Generator().get_offset(),
        lambda ns: ns.Generator().manual_seed("x"),
    ):
        seen = []
        for ns in (tt, torch):
            with pytest.raises((RuntimeError, TypeError, ValueError)) as e:
                call(ns)
            seen.append(e.type)
        assert seen[0] is seen[1], (seen, e.value)
