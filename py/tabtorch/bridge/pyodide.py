"""The bridge in Pyodide: the runtime is in the same JavaScript realm, and reads the block in place.

A call into JavaScript costs about a microsecond, so the functions are bound once, the block is looked at through one
view that is renewed only when wasm memory has grown or Python has replaced the block, and a flush is one call with one
number. Waiting needs JSPI (`run_sync`); where that is missing, a read goes through a canvas, which is synchronous.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType
from typing import Any, NoReturn

from pyodide.code import run_js
from pyodide.ffi import JsException, can_run_sync
from pyodide.ffi import run_sync as _run_sync

from tabtorch.base import package_files, thread_state
from tabtorch.base.errors import AcceleratorError
from tabtorch.bridge.base import LOCK, Bridge, check_device, owned, requested_device
from tabtorch.bridge.block import CPU

__all__ = ["PyodideBridge", "start", "start_async"]


def _awaited(promise: Any) -> Any:
    """`pyodide.ffi.run_sync` of a promise, which is awaited as it is. Pyodide would make a task of it, which takes turns of the event
    loop, 0.3 ms each time: it asks `asyncio.ensure_future` what to await, and here gets the promise back."""
    tasks: Any = asyncio
    ensure = tasks.ensure_future

    def as_it_is(awaitable: Any, **_: Any) -> Any:
        tasks.ensure_future = ensure
        return awaitable

    tasks.ensure_future = as_it_is
    try:
        return _run_sync(promise)
    finally:
        if tasks.ensure_future is as_it_is:  # it was not asked
            tasks.ensure_future = ensure


# What is neither Pyodide's own nor our page's may ask for other things meanwhile; Firefox is left its turns, see js/src/webgpu/scopes.ts.
_KNOWN = isinstance(_run_sync, BuiltinFunctionType) or _run_sync.__module__ == "tabpage"
_FIREFOX = run_js("/firefox/i.test(globalThis.navigator?.userAgent ?? '')")

#: waits in JavaScript, while other tasks run
run_sync = thread_state.apart(_awaited if _KNOWN and not _FIREFOX else _run_sync)
setattr(asyncio.Handle, "_run", thread_state.in_turns(vars(asyncio.Handle)["_run"]))  # noqa: B010  # mypy has its own idea of it

# `execute` gives the number of errors that wait, or, where there is none, -1 if the GPU has fallen behind, or -2 if commands
# wait or a value is on its way.
# `read*` give undefined (None) when errors are waiting to be taken: one call tells both.
GLUE = """
(runtime) => {
  let owner, held, view;
  const hold = () => {
    held?.release();
    held = owner.getBuffer("u8");
    view = held.data;
  };
  const nothing = new Uint8Array(0);
  const block = (nbytes) => {
    if (nbytes === 0) return nothing;
    if (view.byteLength === 0) hold(); // wasm memory has grown, and the old view with it became empty
    return view.subarray(0, nbytes);
  };
  const checked = (bytes) => (runtime.execute(nothing) ? undefined : bytes);
  // In a box: of a promise that a function gives, Pyodide makes a future, which takes turns of the event loop.
  const boxed = (make) => (...of) => ({ promise: make(...of) });
  let refusal = "[]";
  const refused = (error) => {
    refusal = JSON.stringify(error.record ? [error.record] : []);
    throw error;
  };
  const now = (name) => (id, offset, nbytes) => {
    try {
      return checked(runtime[name](id, offset, nbytes));
    } catch (error) {
      return refused(error);
    }
  };
  return {
    bind(block) {
      held?.release();
      held = undefined;
      owner?.destroy();
      owner = block.copy();
      hold();
    },
    execute(nbytes) {
      return runtime.execute(block(nbytes)) || (runtime.behind ? -1 : runtime.holding ? -2 : 0);
    },
    read: now("read"),
    // The block, and reads after it. What is read waits for the GPU, and so need not wait for room; but its speed is found so.
    executeAndRead: boxed(async (nbytes, id, offset, size) => {
      const reads = runtime.executeAndRead(block(nbytes), [{ id, offset, nbytes: size }]);
      if (runtime.behind) void runtime.caughtUp();
      return checked((await reads.catch(refused))[0]);
    }),
    executeAndReadAll: boxed(async (nbytes, wanted) => {
      const specs = JSON.parse(wanted).map(([id, dev, offset, nbytes]) => ({ id, offset, nbytes }));
      const reads = runtime.executeAndRead(block(nbytes), specs);
      if (runtime.behind) void runtime.caughtUp();
      return checked(await reads.catch(refused));
    }),
    readCanvas: now("readCanvas"),
    async present(canvas, id, picture) {
      await runtime.present(canvas, id, JSON.parse(picture)).catch(refused);
      return runtime.execute(nothing);
    },
    refusal: () => refusal,
    canvasWorks: () => Boolean(runtime.canvasWorks()),
    synchronize: boxed(async () => {
      await runtime.synchronize().catch(refused);
      return runtime.execute(nothing);
    }),
    portion: () => runtime.portion,
    holding: () => runtime.holding,
    caughtUp: boxed(async () => {
      await runtime.caughtUp();
      return runtime.portion;
    }),
    revive: () => runtime.revive(),
    call: (name, argument) => runtime[name](argument) ?? "",
    close() {
      held?.release();
      owner?.destroy();
      runtime.destroy();
    },
  };
}
"""

CREATE = """
async (device, waits) => {
  const gpu = globalThis.__tabtorch_gpu ?? globalThis.navigator?.gpu;
  // Pipelines that are made while Python goes on are there when it waits: where it never does, they are made one by one.
  const sideBySide = waits ? {} : { sideBySide: false };
  return await globalThis.tabtorchRuntime({ gpu, preferCpu: device === "cpu", watch: true, ...sideBySide });
}
"""


class PyodideBridge(Bridge):
    """A bridge to `runtime`, a JavaScript object in this realm."""

    kind = "pyodide"

    def __init__(self, runtime: Any) -> None:
        super().__init__()
        self.runtime = runtime  # for the page that this is part of
        glue = self._glue = run_js(GLUE)(runtime)
        self._bind_js = glue.bind
        self._execute_js = glue.execute
        self._read_js = glue.read
        self._read_async_js = glue.executeAndRead
        self._read_all_js = glue.executeAndReadAll
        self._portion_js = glue.portion
        self._holding_js = glue.holding
        self._read_canvas_js = glue.readCanvas
        self._synchronize_js = glue.synchronize
        self._caught_up_js = glue.caughtUp
        self._call_js = glue.call
        self._canvas: bool | None = None
        self._holding = False  # commands may wait, or values be on their way, and who reads had better wait with them
        self._bound: bytearray | None = None
        self.info = json.loads(self._call("info"))
        self.portion = self._portion_js()
        if self.info.get("webgpu"):
            self.define_kernel = self._kernel
        check_device(self.info)

    def _bind(self) -> None:
        data = self.block.data
        if data is not self._bound:
            self._bind_js(data)
            self._bound = data

    def _execute(self, nbytes: int) -> str | None:
        self._bind()
        try:
            told = self._execute_js(nbytes)
            self.behind = told == -1
            self._holding = told < 0
            return self._call("takeErrors") if told > 0 else None
        except JsException as error:
            for found in (self._call("takeErrors"), self._glue.refusal()):
                if found and found != "[]":
                    return found
            return json.dumps([{"kind": "", "operation": "", "message": f"the runtime failed: {error}"}])

    def _kernel(self, spec: dict[str, Any]) -> int:
        """Defines a kernel, and sends it with all before it. Where pipelines are made beside Python (not for a software adapter), it
        is compiled while the plan that runs it is still being made."""
        with LOCK:
            ident = self.block.kernel(spec)
            try:
                self._carry(self._execute_ahead)
            except JsException as error:
                self._failed("the runtime failed", error)
        return ident

    def _execute_ahead(self, nbytes: int) -> None:
        """As `_execute`; what is wrong stays in JavaScript until the next call asks for it."""
        self._bind()
        told = self._execute_js(nbytes)
        self.behind = told == -1
        self._holding = told < 0

    def _asked(self, promise: Callable[..., Any], *wanted: Any) -> Any:
        """The promise of a read. The block goes in the same call: its work and the read are one submit of the device."""

        def away(nbytes: int) -> Any:
            self._bind()
            return promise(nbytes, *wanted).promise

        with LOCK:
            return self._carry(away)

    def read(self, ident: int, dev: int, offset: int, nbytes: int) -> bytes:
        """The bytes `[offset, offset + nbytes)` of a buffer, when everything before it is done."""
        if dev == CPU or not nbytes or not can_run_sync():
            return super().read(ident, dev, offset, nbytes)
        try:
            found = run_sync(self._asked(self._read_async_js, ident, offset, nbytes))
        except JsException as error:
            self._failed("the read failed", error)
        self._told()
        return self._bytes(found)

    def _read(self, ident: int, dev: int, offset: int, nbytes: int) -> bytes:
        try:
            if dev == CPU and not (self._holding and can_run_sync()):
                found = self._read_js(ident, offset, nbytes)
            elif can_run_sync():
                found = run_sync(self._asked(self._read_async_js, ident, offset, nbytes))
                self._told()
            elif self.canvas_works():
                found = self._read_canvas_js(ident, offset, nbytes)
            else:
                _cannot_wait("this value cannot be read here", "tensor.read()")
        except JsException as error:
            self._failed("the read failed", error)
        return self._bytes(found)

    async def read_async(self, ident: int, dev: int, offset: int, nbytes: int) -> bytes:
        """As `read`, but never blocks."""
        if dev == CPU or not nbytes:
            self.flush()
            if not nbytes or not self._holding:
                return self._read(ident, dev, offset, nbytes) if nbytes else b""
        try:
            found = await self._asked(self._read_async_js, ident, offset, nbytes)
        except JsException as error:
            self._failed("the read failed", error)
        self._told()
        return self._bytes(found)

    def read_many(self, wanted: Sequence[tuple[int, int, int, int]]) -> list[Any]:
        """As `read` for each `(ident, dev, offset, nbytes)`, with one wait for all of them."""
        if not can_run_sync():
            return super().read_many(wanted)
        try:
            found = run_sync(self._asked(self._read_all_js, json.dumps(wanted)))
        except JsException as error:
            self._failed("the read failed", error)
        self._told()
        if found is None:
            self._bytes(None)
        return [each.to_bytes() for each in found]

    @property
    def can_wait(self) -> bool:
        """Whether Python can wait for promises here."""
        return bool(can_run_sync())

    def _told(self) -> None:
        """After a read: nothing of before is in flight, and the speed of the device may have been found."""
        self.behind = False
        self._holding = self._holding_js()
        self.portion = self._portion_js()

    def present(self, canvas: Any, ident: int, picture: dict[str, int], shown: Callable[[Any], Any]) -> None:
        """Draw a buffer on an `OffscreenCanvas`; `picture` is what js/src/picture.ts says of it.

        shown: takes a promise that it is drawn, and gives one that it has been seen. Where Python can wait, it waits for that.
        """
        self.flush()
        drawn = shown(self._glue.present(canvas, ident, json.dumps(picture)))
        if not can_run_sync():
            return
        try:
            errors = run_sync(drawn)
        except JsException as error:
            self._failed("the picture could not be drawn", error)
        if errors:
            self._raise_pending()

    def _bytes(self, found: Any) -> bytes:
        if found is None:
            self._raise_pending()
            raise RuntimeError("the read failed, and the runtime does not say why")
        data: bytes = found.to_bytes()
        return data

    def canvas_works(self) -> bool:
        """Whether a buffer can be read through a canvas, which needs no waiting. Tried once."""
        if self._canvas is None:
            self._canvas = bool(self._glue.canvasWorks())
        return self._canvas

    def synchronize(self) -> None:
        """Wait until the device has done everything sent so far; raise the errors of it."""
        self.flush()
        if not self.info.get("webgpu"):
            return
        if can_run_sync():
            try:
                errors = run_sync(self._synchronize_js().promise)
            except JsException as error:
                self._failed("the device failed", error)
            self._told()
            if errors:
                self._raise_pending()
        elif self.canvas_works():
            # A read of anything comes back only when all work before it is done.
            fence = self.alloc(0, 16)
            try:
                self.read(fence, 0, 0, 16)
            finally:
                self.free(fence)
        else:
            _cannot_wait("synchronize() cannot wait here", "tensor.read()")

    async def take_times_async(self) -> list[tuple[float, float]]:
        """As `take_times`, but never blocks; see there."""
        mine = self.timing
        try:
            with LOCK:
                self._carry(self._execute_ahead)
            failed = await self._synchronize_js().promise
        except JsException:
            failed = 1
        if self.timing != mine:
            return []
        times = self.end_times()
        return [] if failed else times

    def catch_up(self) -> None:
        """Wait for the GPU, which has more to do than some frames' worth. Stop is seen meanwhile, as in any wait."""
        if not owned() and can_run_sync():
            self.behind = False
            self.portion = run_sync(self._caught_up_js().promise)

    def _failed(self, what: str, error: Exception) -> NoReturn:
        """`error` came out of JavaScript: the reason that the runtime noted, if there is one, else its own words."""
        self._raise_pending()
        self._raise(self._glue.refusal())
        raise RuntimeError(f"{what}: {error}") from error

    def _raise(self, errors: str) -> None:
        try:
            super()._raise(errors)
        except AcceleratorError:
            # The next line finds another device; where Python cannot wait, the next script does.
            another = self._glue.revive()
            if can_run_sync():
                run_sync(another)
            raise

    def _call(self, name: str, argument: str = "") -> str:
        text: str = self._call_js(name, argument)
        return text

    def close(self) -> None:
        """Let the runtime and all its buffers go."""
        super().close()
        self._glue.close()


def _cannot_wait(what: str, instead: str) -> NoReturn:
    raise RuntimeError(
        f"{what}: this browser has no JSPI (or Python was not started with runPythonAsync), and no canvas to read "
        f"through; use `await {instead}`"
    )


def load_runtime() -> None:
    """Puts `tabtorchRuntime` into this realm."""
    if not run_js("'tabtorchRuntime' in globalThis"):
        run_js(package_files.javascript("runtime.js"))


def _create() -> Any:
    """A promise of the runtime."""
    load_runtime()
    return run_js(CREATE)(requested_device(), can_run_sync())


def start() -> Bridge:
    """Start the runtime and wait for it."""
    if not can_run_sync():
        _cannot_wait("the runtime cannot be started here", "tabtorch.init()")
    return PyodideBridge(run_sync(_create()))


async def start_async() -> Bridge:
    """Start the runtime without blocking."""
    return PyodideBridge(await _create())
