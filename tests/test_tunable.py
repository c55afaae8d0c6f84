"""`torch.cuda.tunable`: layouts of products that are measured. The clock is made up, so that a certain layout wins."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import tabtorch
from sidebyside import DEVICES
from tabtorch.bridge import get_bridge
from tabtorch.engine import graph, measuring, plan, schedules, tiles, tuning, tuning_store, window
from tabtorch.engine.steps import Dispatch
from tabtorch.engine.target import target

pytestmark = [
    pytest.mark.skipif("webgpu" not in DEVICES, reason="webgpu was not asked for"),
    pytest.mark.usefixtures("made_up_gpu"),
]
tunable = tabtorch.webgpu.tunable

#: rows, columns and length of a product that is computed in five parts
M, N, K = 40, 50, 640
COMPUTED, OTHER = (8, 8, 5), (8, 8, 3)
KEY = ("GemmTunableOp_float_NN", f"nn_{N}_{M}_{K}_ld_{N}_{K}_{N}")


class Clock:
    """In the place of the GPU's timestamps. ns: of each layout what a run takes, of others `usual`; all times are multiples of grain."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ns: dict[Any, int] = {}
        self.usual = 100_003
        self.grain = 1
        self.cold = 0  # as long as fewer runs were timed, all take six times as long, but those of `OTHER`
        self.started = 0
        self.there = True
        self.meanwhile: Callable[[], None] | None = None  # what happens before times are taken
        self.runs: list[Any] = []
        self.layouts: dict[int, Any] = {}
        self.now = 0
        bridge = type(get_bridge())
        make, send = measuring.make_plan, plan.Plan.send

        def planned(*args: Any, layouts: Any = None, **kw: Any) -> Any:
            p = make(*args, layouts=layouts, **kw)
            self.layouts[id(p)] = p, (layouts or {}).get(0)
            return p

        def sent(p: Any, *args: Any) -> None:
            if get_bridge().timing:
                self.runs.append(p)
            send(p, *args)

        patch.setattr(measuring, "make_plan", planned)
        patch.setattr(plan.Plan, "send", sent)
        patch.setattr(bridge, "start_times", self.start)
        patch.setattr(bridge, "take_times", self.take)
        patch.setattr(bridge, "end_times", self.end)

    def start(self) -> bool:
        if not self.there:
            return False
        self.started += 1
        self.runs.clear()
        get_bridge().timing = self.started
        return True

    def take(self) -> list[tuple[float, float]]:
        mine = get_bridge().timing
        if self.meanwhile is not None:
            self.meanwhile()
        get_bridge().synchronize()
        return self.end() if get_bridge().timing == mine else []

    def end(self) -> list[tuple[float, float]]:
        get_bridge().timing = 0
        found = []
        for p in self.runs:
            each = [s for s in p.steps if type(s) is Dispatch]
            layout = self.layouts[id(p)][1] if id(p) in self.layouts else "the user's"
            ns = 7 if layout is None else self.ns.get(layout, self.usual) // max(len(each), 1)
            self.cold -= 1
            if self.cold > 0 and layout != OTHER:
                ns *= 6
            for _ in each:
                begin, self.now = self.now, self.now + ns
                found.append((begin, self.now))
        self.runs.clear()
        rounded = [(b // self.grain * self.grain, e // self.grain * self.grain) for b, e in found]
        return [(b, e - b) for b, e in rounded]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Clock]:
    for name in ("ENABLED", "TUNING", "RECORD_UNTUNED", "FILENAME", "UNTUNED_FILENAME", "ROTATING_BUFFER_SIZE"):
        monkeypatch.delenv(f"PYTORCH_TUNABLEOP_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tuning, "settings", tuning.Settings())
    tuning.forget()
    with monkeypatch.context() as patch:
        found = Clock(patch)
        patch.setattr(schedules, "_families", {})
        graph.forget_plans()
        tunable.set_max_tuning_iterations(3)
        patch.setattr(measuring, "_WARMING", 1e6)
        yield found
        tunable.enable(False)
    measuring.stop()
    tuning.forget()
    tuning._recorded.clear()
    graph.flush()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The layouts that windows were scheduled with: None where it is the computed one."""
    found: list[Any] = []
    parts = tiles.parts

    def seen(t: Any, batch: Any, m: Any, n: Any, k: Any, layout: Any = None) -> Any:
        if sys._getframe(1).f_code.co_name == "_emit":
            found.append(layout)
        return parts(t, batch, m, n, k, layout)

    monkeypatch.setattr(tiles, "parts", seen)
    return found


def operands(m: int = M, n: int = N, k: int = K, seed: int = 0) -> tuple[Any, Any]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(m, k, generator=g) / 8, torch.randn(k, n, generator=g) / 8


def multiplied(m: int = M, n: int = N, k: int = K, f: Any = lambda a, b: a @ b) -> None:
    """A product on the device, right."""
    a, b = operands(m, n, k)
    got = f(tabtorch.tensor(a.numpy(), device="webgpu"), tabtorch.tensor(b.numpy(), device="webgpu"))
    torch.testing.assert_close(torch.from_numpy(got.cpu().numpy()), f(a, b), rtol=1.3e-6, atol=1e-4)


def test_off_nothing_is_asked_timed_or_kept(clock: Clock, asked: list[Any], tmp_path: Path) -> None:
    assert not tunable.is_enabled() and window.measured is None
    before = window.layouts_version
    multiplied()
    tabtorch.webgpu.synchronize()
    assert set(asked) == {None} and not clock.started and not tuning.noted and not tuning.table
    assert window.layouts_version == before and graph.waited is None and not list(tmp_path.iterdir())


def test_what_is_met_is_measured_and_used(clock: Clock, asked: list[Any], tmp_path: Path) -> None:
    clock.ns[OTHER] = 50_001
    tunable.enable()
    multiplied()
    assert list(tuning.noted) == [KEY] and asked[0] is None
    assert tuning.candidates(target(0), tuning.noted[KEY].inst)[:2] == [COMPUTED, (8, 8, 1)]
    assert tunable.tune() == 1 and clock.started
    ((op, parameters, name, ms),) = tunable.get_results()
    assert (op, parameters, name) == (*KEY, "Tiles_64x64_SplitK_3") and 0.03 < ms < 0.06
    asked.clear()
    multiplied()
    assert asked == [OTHER], "its window was not scheduled anew with what was found"
    asked.clear()
    started = clock.started
    multiplied()
    tabtorch.webgpu.synchronize()
    assert asked == [] and clock.started == started  # it is kept as any plan, and measured once
    tunable.enable(False)
    multiplied()
    assert asked == [] and window.measured is None  # the schedule with the computed layout is still there
    tunable.enable()
    multiplied()
    assert asked == [] and not tuning.noted


@pytest.mark.parametrize(("ns", "name"), [(98_000, "Default"), (96_000, "Tiles_64x64_SplitK_3")])
def test_what_gains_little_is_not_worth_it(ns: int, name: str, clock: Clock) -> None:
    clock.ns[OTHER] = ns
    tunable.enable()
    multiplied()
    tunable.tune()
    assert tunable.get_results()[0][2] == name
    multiplied()


def test_a_clock_that_is_down_is_brought_up_first(clock: Clock) -> None:
    clock.cold = 30
    clock.ns = {COMPUTED: 100_003, OTHER: 120_007}
    tunable.enable()
    multiplied()
    assert tunable.tune() == 1
    assert tunable.get_results()[0][:3] == (*KEY, "Default")


def test_wrong_results_never_win(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = tiles.parts

    def wrong(t: Any, batch: Any, m: Any, n: Any, k: Any, layout: Any = None) -> Any:
        found = parts(t, batch, m, n, k, layout)
        return found._replace(length=64) if layout == OTHER else found  # leaves out most of k

    monkeypatch.setattr(tiles, "parts", wrong)
    clock.ns[OTHER], clock.ns[8, 8, 2] = 50_001, 60_001
    tunable.enable()
    multiplied()
    tunable.tune()
    assert tunable.get_results()[0][2] == "Tiles_64x64_SplitK_2"
    multiplied()


def test_sizes_of_which_the_table_says_the_same_share_a_schedule(clock: Clock) -> None:
    tunable.enable()
    for k in (K, K + 16):
        multiplied(k=k)
    tunable.tune()
    assert {r[2] for r in tunable.get_results()} == {"Default"}
    before = graph.counts["schedules"]
    for k in (K, K + 16, K + 32):
        multiplied(k=k)
    assert graph.counts["schedules"] == before


def test_reads_measure_a_little_each_time(clock: Clock) -> None:
    """And what is measured is used once nothing is left to be measured."""
    clock.ns[OTHER] = 50_001
    tunable.enable()
    x = tabtorch.ones(1, device="webgpu")
    multiplied()
    before = window.layouts_version
    slices = []
    while tuning.noted:
        started = clock.started
        (x + 1).item() if len(slices) % 2 else tabtorch.webgpu.synchronize()
        slices.append(clock.started - started)
    assert max(slices) == 1 and sum(slices) > 1 and graph.waited is None
    assert window.layouts_version == before + 1 and tuning.table[KEY].layout == OTHER
    multiplied()


def test_a_profiler_says_that_it_looks_on() -> None:
    for activities in ([tabtorch.profiler.ProfilerActivity.CPU], None):
        with tabtorch.profiler.profile(activities=activities):
            assert get_bridge().watched
        assert not get_bridge().watched and not get_bridge().timing


def test_while_a_profiler_looks_on_nothing_is_measured(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    tunable.enable()
    multiplied()
    started = clock.started
    get_bridge().timing = 1000
    tabtorch.webgpu.synchronize()
    assert clock.started == started
    with pytest.raises(RuntimeError, match="a profiler looks on"):
        tunable.tune()
    get_bridge().timing = 0
    monkeypatch.setattr(get_bridge(), "watched", True)
    tabtorch.webgpu.synchronize()
    assert clock.started == started
    monkeypatch.setattr(get_bridge(), "watched", False)
    assert tunable.tune() == 1 and clock.started > started


def test_times_that_others_mixed_with_are_taken_again(clock: Clock) -> None:
    clock.ns[OTHER] = 50_001
    turns = iter(range(10**6))
    kept: list[Any] = []
    theirs: list[int] = []

    def other() -> None:
        turn = next(turns) % 3
        if turn == 1:
            kept.append(tabtorch.ones(3, device="webgpu") * 2)
            graph.flush()
        elif turn == 2:  # somebody begins to time: what comes now is theirs
            clock.start()
            theirs.append(get_bridge().timing)
            get_bridge().timing = 0

    clock.meanwhile = other
    tunable.enable()
    multiplied()
    tunable.tune()
    assert tunable.get_results()[0][2] == "Tiles_64x64_SplitK_3"
    assert len(kept) > 2 and len(theirs) > 2


def test_a_coarse_clock_is_asked_for_many_runs(clock: Clock) -> None:
    """Browsers give times in steps of 100 µs."""
    clock.grain = 100_000
    clock.usual, clock.ns[OTHER] = 440_003, 390_001
    tunable.set_max_tuning_iterations(1)
    tunable.enable()
    multiplied()
    tunable.tune()
    assert tunable.get_results()[0][2] == "Tiles_64x64_SplitK_3"


def test_what_cannot_be_measured_is_not_tried_again(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    clock.there = False
    tunable.enable()
    multiplied()
    with suppress(RuntimeError):  # that it gives none: a read, which does not say so, may have found out
        tunable.tune()
    assert not tuning.noted and KEY in tuning.refused and not tunable.get_results()
    tunable.enable(False)
    tunable.enable()
    multiplied()
    assert not tuning.noted
    monkeypatch.setattr(target(0), "features", frozenset())
    multiplied(k=K + 16)
    assert not tuning.noted
    with pytest.raises(RuntimeError, match="timestamp-query"):
        tunable.tune()


def test_compiled_functions_follow(clock: Clock, asked: list[Any]) -> None:
    clock.ns[OTHER] = 50_001
    f = tabtorch.compile(lambda a, b: (a @ b).relu())
    tunable.enable()
    for _ in range(3):
        multiplied(f=lambda a, b: f(a, b) if isinstance(a, tabtorch.Tensor) else (a @ b).relu())
    tunable.tune()
    asked.clear()
    for _ in range(3):
        multiplied(f=lambda a, b: f(a, b) if isinstance(a, tabtorch.Tensor) else (a @ b).relu())
    assert set(asked) == {OTHER}


# ---- what products are called


def test_names_are_pytorchs(clock: Clock) -> None:
    """Those of a file that PyTorch has written are the same products: they are made here as it makes them, and met."""
    tunable.enable()
    tunable.set_max_tuning_iterations(1)
    x = tabtorch.ones(M, K, device="webgpu")
    cases = {
        KEY: lambda: x @ tabtorch.ones(K, N, device="webgpu"),
        ("GemmTunableOp_float_TN", f"tn_{N}_{M}_{K}_ld_{K}_{K}_{N}"): lambda: tabtorch.nn.functional.linear(
            x, tabtorch.ones(N, K, device="webgpu")
        ),
        ("GemmTunableOp_float_NT", f"nt_{N}_{K}_{M}_ld_{N}_{K}_{N}"): lambda: (
            x.t() @ tabtorch.ones(M, N, device="webgpu")
        ),
        ("GemmTunableOp_Half_NN", f"nn_{N}_{M}_{K}_ld_{N}_{K}_{N}"): lambda: (
            x.half() @ tabtorch.ones(K, N, device="webgpu").half()
        ),
        # a batch of which all read one matrix is one of more rows
        ("GemmTunableOp_float_TN", f"tn_{N}_{2 * M}_{K}_ld_{K}_{K}_{N}"): lambda: tabtorch.nn.functional.linear(
            x.expand(2, M, K).contiguous(), tabtorch.ones(N, K, device="webgpu")
        ),
        ("GemmStridedBatchedTunableOp_float_NN", f"nn_{N}_{M}_{K}_B_3_ld_{N}_{K}_{N}"): lambda: tabtorch.bmm(
            x.expand(3, M, K).contiguous(), tabtorch.ones(3, K, N, device="webgpu")
        ),
        # a part of a wider matrix
        ("GemmTunableOp_float_NN", f"nn_{N}_{M}_{K // 2}_ld_{N}_{K}_{N}"): lambda: (
            x[:, : K // 2] @ tabtorch.ones(K // 2, N, device="webgpu")
        ),
    }
    for key, run in cases.items():
        tuning.noted.clear()
        kept = run()
        graph.flush()
        assert list(tuning.noted) == [key]
        want, got = tuning.noted[key].inst, tuning.parsed(*key).inst
        assert tuning.product(target(0), _node(got)).key == key  # type: ignore[union-attr]
        assert tuning.sizes(got)[0] * tuning.sizes(got)[1:][0] == tuning.sizes(want)[0] * tuning.sizes(want)[1]
        del kept
    tuning.noted.clear()


def _node(i: Any) -> Any:
    return measuring.Node(i, (), ())


def test_a_convolution_has_its_own_name(clock: Clock) -> None:
    tunable.enable()
    tunable.set_max_tuning_iterations(1)
    x, w = tabtorch.ones(1, 16, 9, 9, device="webgpu"), tabtorch.ones(32, 16, 3, 3, device="webgpu")
    kept = tabtorch.nn.functional.conv2d(x, w)
    graph.flush()
    ((op, parameters),) = tuning.noted
    assert op == "ContractionTunableOp_float" and "_b_" in parameters and "," not in parameters
    assert tunable.tune() == 1
    assert kept.cpu().unique().tolist() == [144.0]
    with pytest.raises(ValueError, match="no product"):
        tuning.parsed(op, parameters)


@pytest.mark.parametrize("name", ["Default", "Tiles_64x128_SplitK_1", "Tiles_128x64_SplitK_12"])
def test_names_of_layouts(name: str) -> None:
    assert tuning.name_of(tuning.layout_of(name)) == name
    assert tuning.layout_of("Tiles_64x128_SplitK_3") == (16, 8, 3)
    for wrong in ("Tiles_32x64_SplitK_1", "Tiles_64x64_SplitK_0", "Tiles_64x64_SplitK_65", "Gemm_Rocblas_1"):
        with pytest.raises(ValueError, match="no layout"):
            tuning.layout_of(wrong)


# ---- files


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_file_comes_back(clock: Clock, asked: list[Any], tmp_path: Path) -> None:
    clock.ns[OTHER] = 50_001
    assert tunable.get_filename() == "tunableop_results0.csv"
    tunable.enable()
    multiplied()
    tunable.tune()
    path = tmp_path / "tunableop_results0.csv"
    *validators, line = lines(path)
    assert validators == [f"Validator,{name},{value}" for name, value in tunable.get_validators()]
    assert [name for name, _ in tunable.get_validators()][:2] == ["PT_VERSION", "TABTORCH_VERSION"]
    assert line.split(",")[:3] == [*KEY, "Tiles_64x64_SplitK_3"] and float(line.split(",")[3]) > 0
    before = tunable.get_results()

    tunable.enable(False)
    tuning.forget()
    started = clock.started
    tunable.enable()  # as another process would: what is kept is read when the first product is met
    asked.clear()
    multiplied()
    assert clock.started == started and tunable.get_results() == before and tuning.table[KEY].layout == OTHER

    other = tmp_path / "own.csv"
    tunable.set_filename(str(other))
    assert not tunable.read_file() and not tunable.read_file("nowhere.csv")
    tuning.keep()
    assert sorted(lines(other)) == sorted(lines(path))
    tunable.set_filename("other.csv", insert_device_ordinal=True)
    assert tunable.get_filename() == "other0.csv"


def test_files_are_refused(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another device, of another version, or of nobody knows what; of one that fits, lines that say nothing are left out."""
    path = tmp_path / "results.csv"
    line = ",".join((*KEY, "Tiles_64x64_SplitK_3", "0.05"))
    validators = [f"Validator,{name},{value}" for name, value in tunable.get_validators()]

    def reads(*text: str) -> bool:
        tuning.table.clear()
        path.write_text("\n".join(text))
        return tunable.read_file(str(path)) and len(tuning.table) == 1

    assert reads(*validators, line)
    assert reads(*validators, line.rpartition(",")[0]) and tuning.table[KEY].ms == 0
    assert reads(*validators, "a,b,Gemm_Rocblas_1,0.1", "a,b,Tiles_64x64_SplitK_3,soon", "x", line)
    assert not reads(line) and not tuning.table
    for at in range(len(validators)):
        changed = validators.copy()
        changed[at] += "x"
        assert not reads(*changed, line) and not tuning.table, changed
        assert not reads(*validators[:at], *validators[at + 1 :], line) and not tuning.table
    path.write_text("\n".join([*validators, line]))
    tuning.table[KEY] = tuning.Result(COMPUTED, 0.01)
    assert tunable.read_file(str(path)) and tuning.table[KEY].layout == COMPUTED  # what is known already stays
    path.write_bytes(b"\xff\xfe\x00")
    assert not tunable.read_file(str(path))
    known = get_bridge().info["webgpu"]
    monkeypatch.setitem(known, "adapter", {**known["adapter"], "architecture": "another"})
    assert not reads(*validators, line) and not tuning.table


def test_what_comes_meanwhile_is_not_measured(clock: Clock, tmp_path: Path) -> None:
    tunable.enable()
    multiplied()
    tabtorch.webgpu.synchronize()
    assert measuring._now and graph.waited is not None
    (tmp_path / "r.csv").write_text(tuning.written() + ",".join((*KEY, "Tiles_64x64_SplitK_3")))
    assert tunable.read_file("r.csv") and tuning.table[KEY].layout == OTHER
    assert not measuring._now and graph.waited is None and not tuning.noted
    multiplied()


def test_a_layout_that_does_not_fit_is_not_used(clock: Clock) -> None:
    """A file can be edited: a grid has room for 65535 parts of a batch."""
    key = ("GemmStridedBatchedTunableOp_float_NN", "nn_16_16_64_B_40000_ld_16_64_16")
    tuning.load()
    for cut, found in ((1, {0: (8, 8, 1)}), (2, {})):
        tuning.table[key] = tuning.Result((8, 8, cut), 0.0)
        assert tuning.measured(target(0), [_at(key)]) == found


def test_products_of_a_file_are_measured(clock: Clock, tmp_path: Path) -> None:
    clock.ns[OTHER] = 50_001
    untuned = tmp_path / "tunableop_untuned0.csv"
    tunable.record_untuned_enable()
    assert tunable.record_untuned_is_enabled()
    tunable.enable()
    multiplied()
    multiplied()
    assert lines(untuned) == [",".join(KEY)] and not tuning.noted and not clock.started
    tunable.record_untuned_enable(False)
    tunable.tune_gemm_in_file(str(untuned))
    assert tuning.table[KEY].layout == OTHER
    tunable.mgpu_tune_gemm_in_file("tunableop_untuned?.csv", 1)
    with pytest.raises(AssertionError, match="num_gpus must be between 1 and 1"):
        tunable.mgpu_tune_gemm_in_file("tunableop_untuned?.csv", 2)
    untuned.write_text("ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_Half_TN,tn_1_2_3\n")
    with pytest.raises(ValueError, match="no product"):
        tunable.tune_gemm_in_file(str(untuned))
    tunable.tuning_enable(False)
    with pytest.raises(AssertionError, match="Tuning is not enabled"):
        tunable.tune_gemm_in_file(str(untuned))
    tunable.enable(False)
    with pytest.raises(AssertionError, match="TunableOp is not enabled"):
        tunable.tune_gemm_in_file(str(untuned))


def test_without_tuning_what_is_known_is_used(clock: Clock, asked: list[Any]) -> None:
    tunable.tuning_enable(False)
    assert not tunable.tuning_is_enabled()
    tunable.enable()
    tuning.load()
    tuning.table[KEY] = tuning.Result(OTHER, 0.0)
    multiplied()
    multiplied(k=K + 16)
    assert not tuning.noted and tuning.tunes() is False
    assert OTHER in [*asked, OTHER] and tuning.measured(target(0), [_at(KEY)]) == {0: OTHER}
    tunable.tuning_enable()
    multiplied(k=K + 16)
    assert len(tuning.noted) == 1


def _at(key: tuple[str, str]) -> Any:
    n = _node(tuning.parsed(*key).inst)
    n.pos = 0
    return n


# ---- in a tab


def test_in_a_tab_it_is_done_when_python_is_idle(clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock.ns[OTHER] = 50_001
    kept: dict[str, str] = {}
    asked_for: list[Any] = []
    monkeypatch.setattr(tuning._bridges, "IN_TAB", True)
    monkeypatch.setattr(tuning_store, "load", lambda key, found: asked_for.append((key, found)))
    monkeypatch.setattr(tuning_store, "save", kept.__setitem__)

    async def program() -> int:
        tunable.enable()
        multiplied()
        busy = 0
        for _ in range(4):  # windows are sent: it is not idle
            await asyncio.sleep(0.08)
            multiplied()
            busy += clock.started
        for _ in range(400):
            if not tuning.noted:
                break
            await asyncio.sleep(0.02)
        return busy

    assert asyncio.run(program()) == 0 and clock.started > 1
    assert tuning.table[KEY].layout == OTHER and not measuring._tasks and not measuring._busy.locked()
    assert not list(tmp_path.iterdir())  # nobody has named a file
    ((key, found),) = asked_for
    ((name, text),) = kept.items()
    assert name == key == dict(tunable.get_validators())["WEBGPU_ADAPTER"]
    tuning.table.clear()
    version = window.layouts_version
    found(text)  # what was kept comes later
    assert tuning.table[KEY].layout == OTHER and window.layouts_version == version + 1


# ---- the interface


def test_names_and_signatures_are_pytorchs() -> None:
    theirs: Any = torch.cuda.tunable
    assert [name for name in tunable.__all__ if name != "tune"] == theirs.__all__
    for name in theirs.__all__:
        want, got = (inspect.signature(getattr(m, name)).parameters.values() for m in (theirs, tunable))
        assert [(p.name, p.default) for p in got] == [(p.name, p.default) for p in want], name


def test_defaults_and_what_is_set(clock: Clock) -> None:
    tuning.settings.__init__()  # type: ignore[misc]
    assert (tunable.is_enabled(), tunable.tuning_is_enabled(), tunable.record_untuned_is_enabled()) == (
        False,
        True,
        False,
    )
    assert (tunable.get_max_tuning_duration(), tunable.get_max_tuning_iterations()) == (30, 100)
    tunable.set_max_tuning_duration(7)
    tunable.set_max_tuning_iterations(-1)
    tunable.set_rotating_buffer_size(2)
    assert (tunable.get_max_tuning_duration(), tunable.get_max_tuning_iterations()) == (7, 0)
    assert tunable.get_rotating_buffer_size() == 2 << 20
    with pytest.raises(RuntimeError, match="L2"):
        tunable.set_rotating_buffer_size(-1)
    tunable.set_numerical_check_tolerances(True, 1e-2)
    assert tuning.settings.tolerances == (1e-2, 1e-5)
    tunable.set_numerical_check_tolerances(False)
    assert tuning.settings.tolerances is None
    tunable.enable()
    multiplied()
    assert tunable.tune() == 1  # on copies of the operands


def test_the_environment(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read once, and comes before what is set."""
    for name, value in (("ENABLED", "1"), ("TUNING", "0"), ("MAX_TUNING_DURATION_MS", "5"), ("FILENAME", "r%d.csv")):
        monkeypatch.setenv(f"PYTORCH_TUNABLEOP_{name}", value)
    monkeypatch.setattr(tuning, "settings", tuning.Settings())
    tunable.enable(False)
    assert tunable.is_enabled() and not tunable.tuning_is_enabled()
    tunable.tuning_enable(True)
    assert not tunable.tuning_is_enabled()
    assert tunable.get_max_tuning_duration() == 5 and tunable.get_filename() == "r0.csv"
    monkeypatch.setattr(tuning, "settings", tuning.Settings())
    tuning.settings.always_on = False
    tuning.switch()


def test_as_cuda() -> None:
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        tabtorch.cuda.tunable.enable()
    code = """
import tabtorch; tabtorch.install()
import torch, torch.cuda.tunable as tunable
from torch.cuda.tunable import is_enabled
assert is_enabled() and not hasattr(tunable, "tune") and torch.webgpu.tunable.is_enabled()
x = torch.ones(64, 64, device="cuda")
assert (x @ x).sum().item() == 64**3 and tunable.get_results() == ()
from tabtorch.engine import tuning, window
assert window.measured is tuning.measured and not tuning.noted  # a software adapter has no layouts to choose of
"""
    env = {"PYTORCH_TUNABLEOP_ENABLED": "1", "PYTHONPATH": str(Path(tabtorch.__file__).parents[1])}
    import os

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
