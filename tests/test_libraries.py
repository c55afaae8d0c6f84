"""Other people's libraries on tabtorch as `torch`, beside real PyTorch: one with each commit, `make libraries` for all of them."""

from __future__ import annotations

import os

import pytest

import slices
from libraries import environment, running

#: seconds that the library may take to be installed, and a case of it on one device
INSTALLING = 300
PATIENCE = 60

ALL = running.names()
#: what is measured wholly by `make libraries`, in a box of time here
DUE = ALL if slices.whole() else [ALL[slices.slice_of(len(ALL), "libraries")]]


@pytest.fixture(scope="module", params=DUE)
def lib(request: pytest.FixtureRequest) -> running.Library:
    found = running.library(request.param)
    try:
        environment.install([found.name, *found.needs], INSTALLING)
    except environment.NotThere as e:
        pytest.skip(str(e))
    return found


@pytest.fixture(scope="module")
def theirs(lib: running.Library) -> dict[str, running.Answer]:
    return running.ask(lib, "torch", patience=PATIENCE)


@pytest.mark.skipif(os.name != "posix", reason="the environment's Python is found as on Linux")
def test_equal(lib: running.Library, theirs: dict[str, running.Answer], device: str) -> None:
    wrong = running.compare(lib, running.ask(lib, device, patience=PATIENCE), theirs)
    unexpected = {
        case: w or f"is equal, though it is said not to be: {lib.why(case, device)}"
        for case, w in wrong.items()
        if bool(w) != bool(lib.why(case, device))
    }
    assert not unexpected, "\n".join(f"{case}: {w}" for case, w in unexpected.items())


def test_every_library_is_pinned() -> None:
    pins = environment.pins()
    for name in ALL:
        found = running.library(name)
        assert len(found.cases) >= 3 and {environment.plain(n) for n in (name, *found.needs)} <= set(pins)
        assert {k.split()[0] for k in (*found.known, *found.rtol)} <= set(found.cases)
        assert all(v <= 1e-3 for v in found.rtol.values())


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0001]}, True),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.001]}, False),
        ({"a": [1.0]}, {"a": [1.0, 2.0]}, False),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"b": 1}, {"a": 1}, False),
        ({"a": {"b": [float("nan")]}}, {"a": {"b": [float("nan")]}}, True),
        (None, {"a": 1}, False),
    ],
)
def test_what_counts_as_equal(ours: object, theirs: object, same: bool) -> None:
    assert bool(running.differ(ours, theirs, 1e-4)) != same
