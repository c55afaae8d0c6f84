"""Fixtures of the whole suite, and the slices of what is long. Comparing with real PyTorch is in sidebyside.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from math import inf

import pytest

import plain_torch  # noqa: F401
import tabtorch
from sidebyside import DEVICES
from slices import sliced
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph, schedules
from tabtorch.engine.target import target

schedules.strict = True

# what a shell starts in the background ignores Ctrl+C, and so would the processes that tests interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of what is long, this commit's slice: see slices.py."""
    out, said = sliced([item.nodeid for item in items])
    if not out or config.option.keyword or any("::" in a for a in config.args):
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for line in said:
        if reporter:
            reporter.write_line(f"slice: {line} (TABTORCH_SLICE=all: all)")
    config.hook.pytest_deselected(items=[item for i, item in enumerate(items) if i in out])
    items[:] = [item for i, item in enumerate(items) if i not in out]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """ "cpu", then "webgpu": the default device while the test runs."""
    name: str = request.param
    with tabtorch.device(name):
        yield name


@pytest.fixture
def webgpu() -> Iterator[None]:
    """The default device is the GPU while the test runs."""
    if "webgpu" not in DEVICES:
        pytest.skip("webgpu was not asked for")
    with tabtorch.device("webgpu"):
        yield


@pytest.fixture
def whole_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where windows are cut does not depend on the machine: a tab cuts them by the speed of its GPU, so at other places once
    something else keeps the machine busy."""
    always = property(lambda bridge: inf, lambda bridge, portion: None)
    monkeypatch.setattr(type(get_bridge()), "portion", always, raising=False)


@contextmanager
def _forms_of_a_gpu() -> Iterator[None]:
    """Kernels have the forms that they have on a real GPU: with barriers, of which a software adapter, for which they are dear, gets
    none. So sizes should be small."""
    graph.flush()
    t = target(0)
    before = t.software, t.barriers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "_plans", {})
        patch.setattr(schedules, "_families", {})  # those that are known are of the other form
        t.software, t.barriers = False, True
        yield
        graph.flush()
        t.software, t.barriers = before


@pytest.fixture(scope="module")
def made_up_gpu() -> Iterator[None]:
    """See `_forms_of_a_gpu`, while the tests of a module run."""
    with _forms_of_a_gpu():
        yield


@pytest.fixture(scope="session", autouse=True)
def _asked_for_forms() -> Iterator[None]:
    """TABTORCH_FORMS=gpu: the same for all tests. What is about the forms of a software adapter fails then."""
    with _forms_of_a_gpu() if os.environ.get("TABTORCH_FORMS") == "gpu" else nullcontext():
        yield
