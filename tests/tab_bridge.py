"""Run inside Pyodide by test_cli.py: the bridge in the tab, without anything above it."""

import os
import struct

import tabtorch.bridge.pyodide as pyodide
from tabtorch.bridge import CPU, WEBGPU, get_bridge, init

bridge = get_bridge()
assert bridge.kind == "pyodide"
assert get_bridge() is bridge
devices = [WEBGPU, CPU] if bridge.info["webgpu"] else [CPU]

for dev in devices:
    # Small, then so large that the block is replaced, while JavaScript holds a view of it; then small again.
    for size in (0, 1, 5, 4096, 1 << 22, 3 << 23, 12):
        data = os.urandom(1 << 12) * (size >> 12) if size > 4096 else os.urandom(size)
        ident = bridge.upload(dev, data)
        assert bridge.read(ident, dev, 0, size) == data, (dev, size)
        assert await bridge.read_async(ident, dev, 0, size) == data, (dev, size)  # noqa: F704
        bridge.free(ident)
    # Wasm memory grows under a block that JavaScript looks at: its view becomes empty, and must be renewed.
    ident = bridge.upload(dev, b"before")
    bridge.flush()
    ballast = bytearray(150 << 20)
    grown = bridge.upload(dev, b"after!")
    assert bridge.read(ident, dev, 0, 6) + bridge.read(grown, dev, 0, 6) == b"beforeafter!"
    del ballast
    bridge.synchronize()
    # An error names its operation, and the next command works.
    bad = bridge.define_kernel({"name": "broken", "device": dev, "source": "!?", "bindings": []})
    step = {"kernel": bad, "bind": [], "words": [], "patch": [], "grid": [1, 1, 1], "label": "broken"}
    plan = {"name": "broken", "device": dev, "slots": 0, "outputs": {}, "temps": [], "scalars": [], "steps": [step]}
    bridge.run_packer(bridge.define_plan(plan), 0, [])()
    try:
        bridge.read(grown, dev, 0, 6)
    except RuntimeError as error:
        assert "broken" in str(error), error
    else:
        raise AssertionError("nothing was raised")
    assert bridge.read(grown, dev, 0, 6) == b"after!"
    bridge.free(ident)
    bridge.free(grown)

stats = bridge.stats()
assert stats["buffers"] == 0, stats

# Without promise integration: the cpu device as ever, the GPU through a canvas, or not, and then with a clear word.
pyodide.can_run_sync = lambda: False
data = struct.pack("<64f", *range(64))
ident = bridge.upload(CPU, data)
assert bridge.read(ident, CPU, 4, 252) == data[4:]
if WEBGPU in devices:
    ident = bridge.upload(WEBGPU, data)
    if bridge.canvas_works():
        print("through a canvas")
        for offset, nbytes in ((0, 256), (4, 252), (8, 4)):
            assert bridge.read(ident, WEBGPU, offset, nbytes) == data[offset : offset + nbytes]
        bridge.synchronize()
    else:
        try:
            bridge.read(ident, WEBGPU, 0, 256)
        except RuntimeError as error:
            assert "await" in str(error), error
        else:
            raise AssertionError("nothing was raised")
    assert await bridge.read_async(ident, WEBGPU, 0, 256) == data  # noqa: F704
bridge.close()
try:
    get_bridge()
except RuntimeError as error:
    assert "await tabtorch.init()" in str(error), error
else:
    raise AssertionError("nothing was raised")
await init()  # noqa: F704
assert get_bridge() is not bridge

print("all good")
