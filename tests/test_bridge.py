"""The command block and the bridge in CPython: what is written, what comes back, and what happens when it breaks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest

from tabtorch import bridge as module
from tabtorch.base.errors import AcceleratorError, OutOfMemoryError
from tabtorch.bridge import CPU, WEBGPU, BlockWriter, Bridge
from tabtorch.bridge.base import raise_errors

NAMES = ["", "KERNEL", "PLAN", "RUN", "FREE", "UPLOAD", "COPY", "ALIAS", "ALLOC", "FORGET"]


def commands(block: BlockWriter) -> list[tuple[str, bytes]]:
    """The block, cut into (name, arguments)."""
    found, at = [], 0
    while at < block.pos:
        opcode, size = struct.unpack_from("<2I", block.data, at)
        assert size % 8 == 0
        found.append((NAMES[opcode], bytes(block.data[at + 8 : at + size])))
        at += size
    assert at == block.pos
    return found


def words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


class TestBlock:
    @pytest.mark.parametrize("nslots", [0, 1, 2, 5])
    def test_run(self, nslots: int) -> None:
        block = BlockWriter()
        block.alloc(CPU, 4)  # so that it does not start at nought
        run = block.run_packer(7, nslots, ["f32", "i64", "f64"])
        run(*range(1, nslots + 1), 1.5, -(2**62), 3)
        name, data = commands(block)[-1]
        assert name == "RUN"
        assert words(data[: 8 + 4 * nslots]) == (7, nslots, *range(1, nslots + 1))
        start = block.pos - 24
        assert start % 8 == 0
        assert struct.unpack_from("<dqd", block.data, start) == (1.5, -(2**62), 3.0)

    def test_run_that_does_not_fit_its_scalars_writes_nothing(self) -> None:
        block = BlockWriter()
        run = block.run_packer(1, 1, ["i64"])
        with pytest.raises(struct.error):
            run(1, 2**63)
        assert block.pos == 0

    def test_specs_are_json(self) -> None:
        block = BlockWriter()
        assert [block.kernel({"name": "a"}), block.kernel({"name": "b"}), block.plan({"name": "é"})] == [1, 2, 1]
        for (name, data), (kind, ident, text) in zip(
            commands(block), [("KERNEL", 1, "a"), ("KERNEL", 2, "b"), ("PLAN", 1, "é")], strict=True
        ):
            got, nbytes = words(data[:8])
            assert (name, got) == (kind, ident)
            assert json.loads(data[8 : 8 + nbytes]) == {"name": text}

    @pytest.mark.parametrize("size", [0, 1, 4, 5, 8, 1000])
    def test_upload(self, size: int) -> None:
        block = BlockWriter()
        payload = bytes(range(256)) * 4
        assert block.upload(WEBGPU, payload[:size]) == 1
        ((name, data),) = commands(block)
        assert name == "UPLOAD"
        assert words(data[:12]) == (1, WEBGPU, size)
        assert data[12 : 12 + size] == payload[:size]

    def test_upload_takes_any_contiguous_buffer(self) -> None:
        import numpy as np

        block = BlockWriter()
        for value in (np.arange(6.0).reshape(2, 3), np.zeros((0, 3)), bytearray(b"abc"), memoryview(b"abc")):
            block.upload(CPU, value)
            assert bytes(value) in commands(block)[-1][1]

    def test_copy_alias_alloc_forget(self) -> None:
        block = BlockWriter()
        assert [block.copy(WEBGPU, 9, 40), block.alias(1, 256, 12), block.alloc(CPU, 64)] == [1, 2, 3]
        block.forget([5, 6, 7])
        found = [(name, words(data)) for name, data in commands(block)]
        assert found[0] == ("COPY", (1, 0, 9, 40))
        assert found[1] == ("ALIAS", (2, 1, 256, 12))
        assert found[2][1][:3] == (3, CPU, 64)
        assert found[3] == ("FORGET", (3, 5, 6, 7))

    def test_an_id_comes_back_only_after_its_free(self) -> None:
        block = BlockWriter()
        ids = [block.alloc(CPU, 4) for _ in range(3)]
        block.freed.append(ids[1])
        assert block.new_buffer() == 4  # FREE is not written yet
        block.run_packer(1, 0, [])()
        assert [name for name, _ in commands(block)] == ["ALLOC"] * 3 + ["FREE", "RUN"]
        assert words(commands(block)[3][1])[:2] == (1, ids[1])
        assert block.new_buffer() == ids[1]

    def test_growing_keeps_what_is_there_and_the_old_block_alone(self) -> None:
        block = BlockWriter()
        block.upload(CPU, b"first")
        before = block.data
        held = memoryview(before)  # as JavaScript would: a bytearray that is looked at cannot be resized
        block.upload(CPU, bytes(block.capacity))
        assert block.data is not before
        assert block.data[: block.pos].startswith(bytes(held[:32]))
        assert len(commands(block)) == 2

    def test_a_huge_block_is_given_back(self) -> None:
        block = BlockWriter()
        block.upload(CPU, bytes(1 << 25))
        block.clear()
        assert block.pos == 0
        assert len(block.data) < 1 << 20


class TestErrors:
    def error(self, kind: str, operation: str = "matmul") -> dict[str, str]:
        return {"kind": kind, "operation": operation, "message": "why"}

    @pytest.mark.parametrize(
        ("kind", "exception"),
        [
            ("validation", RuntimeError),
            ("internal", RuntimeError),
            ("compile", RuntimeError),
            ("out-of-memory", OutOfMemoryError),
            ("lost", AcceleratorError),
            ("gone", AcceleratorError),
        ],
    )
    def test_kinds(self, kind: str, exception: type[Exception]) -> None:
        with pytest.raises(exception, match=r"^matmul: (.*: )?why$") as caught:
            raise_errors(json.dumps([self.error(kind)]))
        assert type(caught.value) is exception

    def test_the_cause_is_told_rather_than_the_first(self) -> None:
        errors = [self.error("validation", "a"), self.error("out-of-memory", "b"), self.error("validation", "c")]
        with pytest.raises(OutOfMemoryError, match=r"^b: .* \(and 2 more\)$"):
            raise_errors(json.dumps(errors))

    def test_none(self) -> None:
        raise_errors("[]")


DOUBLE = {
    CPU: "for (let i = 0; i < P[0]; i++) b1[i] = b0[i] * F[1];",
    WEBGPU: """
@group(0) @binding(0) var<uniform> P: array<vec4<u32>, 256>;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read_write> b: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < P[0].x) { b[id.x] = a[id.x] * bitcast<f32>(P[0].y); }
}""",
}


def scale(bridge: Bridge, dev: int, count: int) -> int:
    """A plan that multiplies `count` floats in slot 0 by a scalar, into slot 1."""
    bindings = [{"type": "f32", "access": "r"}, {"type": "f32", "access": "rw"}]
    kernel = bridge.define_kernel({"name": "scale", "device": dev, "source": DOUBLE[dev], "bindings": bindings})
    step = {"kernel": kernel, "bind": [0, 1], "words": [count, 0], "patch": [[1, 0, "f32"]], "label": "mul"}
    step["grid"] = [(count + 63) // 64, 1, 1]
    plan = {"name": "scale", "device": dev, "slots": 2, "outputs": {"1": 4 * count}, "temps": [], "scalars": ["f32"]}
    return bridge.define_plan({**plan, "steps": [step]})


def floats(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 4}f", data))


@pytest.fixture(scope="module")
def shared() -> Iterator[Bridge]:
    yield module.get_bridge()


@pytest.fixture(params=[CPU, WEBGPU], ids=["cpu", "webgpu"])
def dev(request: pytest.FixtureRequest, shared: Bridge) -> int:
    if request.param == WEBGPU and not module.get_bridge().info["webgpu"]:
        pytest.skip("no WebGPU adapter")
    return int(request.param)


@pytest.fixture
def bridge(dev: int) -> Bridge:
    return module.get_bridge()


class TestNode:
    def test_info(self, shared: Bridge) -> None:
        assert shared.kind == "node"
        assert "platform" in shared.info
        assert shared.info["webgpu"] or shared.info["reason"]

    @pytest.mark.parametrize("nbytes", [0, 1, 3, 4, 7, 4096, 300_001])
    def test_round_trip(self, bridge: Bridge, dev: int, nbytes: int) -> None:
        data = os.urandom(nbytes)
        ident = bridge.upload(dev, data)
        assert bridge.read(ident, dev, 0, nbytes) == data
        if nbytes > 16:
            assert bridge.read(ident, dev, 4, 8) == data[4:12]
        bridge.free(ident)

    def test_plan(self, bridge: Bridge, dev: int) -> None:
        run = bridge.run_packer(scale(bridge, dev, 100), 2, ["f32"])
        source = bridge.upload(dev, struct.pack("<100f", *range(100)))
        for factor in (2.0, -0.5):
            out = bridge.new_buffer()
            run(source, out, factor)
            assert floats(bridge.read(out, dev, 0, 400)) == [factor * i for i in range(100)]
            bridge.free(out)
        bridge.free(source)

    def test_copy_alias_alloc(self, bridge: Bridge, dev: int) -> None:
        data = bytes(range(256)) * 4
        ident = bridge.upload(dev, data)
        copied = bridge.copy(dev, ident, 1024)
        window = bridge.alias(ident, 512, 256)
        bridge.free(ident)  # the window keeps it
        zeros = bridge.alloc(dev, 64)
        assert bridge.read(copied, dev, 0, 1024) == data
        assert bridge.read(window, dev, 8, 16) == data[520:536]
        assert bridge.read(zeros, dev, 0, 64) == bytes(64)
        for each in (copied, window, zeros):
            bridge.free(each)

    def test_from_cpu_to_the_gpu(self, shared: Bridge) -> None:
        if not shared.info["webgpu"]:
            pytest.skip("no WebGPU adapter")
        ident = shared.upload(CPU, b"abcdefgh")
        moved = shared.copy(WEBGPU, ident, 8)
        assert shared.read(moved, WEBGPU, 0, 8) == b"abcdefgh"
        shared.free(ident)
        shared.free(moved)

    def test_memory_is_flat(self, bridge: Bridge, dev: int) -> None:
        run = bridge.run_packer(scale(bridge, dev, 1000), 2, ["f32"])
        value = bridge.upload(dev, bytes(4000))
        live = []
        for _ in range(3):
            for _ in range(200):
                out = bridge.new_buffer()
                run(value, out, 1.0)
                bridge.free(value)
                value = out
            bridge.synchronize()
            stats = bridge.stats()
            live.append((stats["buffers"], stats["bytes"]))
        assert live[1] == live[2]
        bridge.free(value)

    def test_a_large_upload(self, bridge: Bridge, dev: int) -> None:
        data = os.urandom(1 << 20) * 20
        ident = bridge.upload(dev, data)
        assert bridge.read(ident, dev, 0, len(data)) == data
        bridge.free(ident)

    def test_read_async(self, bridge: Bridge, dev: int) -> None:
        ident = bridge.upload(dev, b"12345678")
        assert asyncio.run(bridge.read_async(ident, dev, 4, 4)) == b"5678"
        bridge.free(ident)

    def test_stats(self, bridge: Bridge, dev: int) -> None:
        bridge.reset_stats()
        run = bridge.run_packer(scale(bridge, dev, 8), 2, ["f32"])
        source, out = bridge.upload(dev, bytes(32)), bridge.new_buffer()
        run(source, out, 1.0)
        bridge.read(out, dev, 0, 32)
        stats = bridge.stats()
        dispatches = stats["cpuDispatches" if dev == CPU else "dispatches"]
        assert (dispatches, stats["runs"], stats["reads"], stats["readBytes"]) == (1, 1, 1, 32)
        bridge.free(source)
        bridge.free(out)

    def test_a_kernel_that_does_not_compile_names_itself_and_harms_nobody(self, bridge: Bridge, dev: int) -> None:
        bindings = [{"type": "f32", "access": "rw"}]
        bad = bridge.define_kernel({"name": "broken_one", "device": dev, "source": "!?", "bindings": bindings})
        step = {"kernel": bad, "bind": [0], "words": [], "patch": [], "grid": [1, 1, 1], "label": "broken_op"}
        plan = {"name": "p", "device": dev, "slots": 1, "outputs": {"0": 16}, "temps": [], "scalars": []}
        run = bridge.run_packer(bridge.define_plan({**plan, "steps": [step]}), 1, [])
        out = bridge.new_buffer()
        run(out)
        with pytest.raises(RuntimeError, match="broken_o"):
            bridge.read(out, dev, 0, 16)
        bridge.free(out)
        ident = bridge.upload(dev, b"good")
        assert bridge.read(ident, dev, 0, 4) == b"good"
        bridge.free(ident)

    def test_reading_what_is_not_there(self, bridge: Bridge, dev: int) -> None:
        with pytest.raises(RuntimeError):
            bridge.read(1_000_000, dev, 0, 4)
        ident = bridge.upload(dev, b"good")
        assert bridge.read(ident, dev, 0, 4) == b"good"
        bridge.free(ident)


class TestLife:
    """Each of these ends a runtime, so it gets one of its own beside that of the other tests."""

    @pytest.fixture(autouse=True)
    def _fresh(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(module, "_bridge", None)
        monkeypatch.setattr(module, "_on_close", [])
        yield
        with warnings.catch_warnings():  # a generator that another test seeded says that its state is gone
            warnings.simplefilter("ignore", RuntimeWarning)
            module.close()

    def test_a_dead_child_is_told_and_replaced(self) -> None:
        first = module.get_bridge()
        ident = first.upload(CPU, b"abcd")
        gone: list[int] = []
        module.on_close(lambda: gone.append(1))
        os.kill(first._child.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="SIGKILL.*lost"):
            first.read(ident, CPU, 0, 4)
        second = module.get_bridge()
        assert second is not first and gone
        assert second.read(second.upload(CPU, b"abcd"), CPU, 0, 4) == b"abcd"
        with pytest.raises(RuntimeError, match="gone"):
            first.read(ident, CPU, 0, 4)

    def test_an_interrupted_read_leaves_the_pipe_in_step(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bridge = module.get_bridge()
        ident = bridge.upload(CPU, b"abcdefgh")
        fill = bridge._fill  # type: ignore[attr-defined]

        def interrupted(size: int) -> None:
            fill(size)
            raise KeyboardInterrupt

        monkeypatch.setattr(bridge, "_fill", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bridge.read(ident, CPU, 0, 4)
        monkeypatch.undo()
        assert bridge.read(ident, CPU, 4, 4) == b"efgh"

    def test_a_lost_device_is_an_error_and_the_next_one_works(self) -> None:
        bridge = module.get_bridge()
        if not bridge.info["webgpu"]:
            pytest.skip("no WebGPU adapter")
        ident = bridge.upload(WEBGPU, b"abcd")
        bridge.lose_device()
        with pytest.raises(AcceleratorError):
            bridge.read(ident, WEBGPU, 0, 4)
        assert bridge.read(bridge.upload(CPU, b"abcd"), CPU, 0, 4) == b"abcd"

    def test_device_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TABTORCH_DEVICE", "cpu")
        assert module.get_bridge().default_device == CPU
        module.close()
        monkeypatch.setenv("TABTORCH_DEVICE", "tpu")
        with pytest.raises(RuntimeError, match="TABTORCH_DEVICE is 'tpu'"):
            module.get_bridge()

    def test_no_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        with pytest.raises(RuntimeError, match="needs Node 20"):
            module.get_bridge()

    def test_a_fork_does_not_end_the_parents_runtime(self) -> None:
        script = """
import os, warnings
warnings.simplefilter("ignore")
from tabtorch import bridge
first = bridge.get_bridge()
ident = first.upload(1, b"abcd")
if (pid := os.fork()) == 0:
    mine = bridge.get_bridge()
    same = mine is first
    good = mine.read(mine.upload(1, b"wxyz"), 1, 0, 4) == b"wxyz"
    bridge.close()
    os._exit(0 if good and not same else 1)
assert os.waitpid(pid, 0)[1] == 0
assert first.read(ident, 1, 0, 4) == b"abcd"
"""
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

    def test_importing_starts_nothing(self) -> None:
        script = """
import sys
import tabtorch.bridge
assert tabtorch.bridge._bridge is None
assert not {"tabtorch.bridge.node", "tabtorch.bridge.pyodide", "js"} & set(sys.modules)
"""
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
