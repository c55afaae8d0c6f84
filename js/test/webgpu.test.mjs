// What is particular to the GPU: passes and submits, caches, parameters, errors that come back later.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Block, errors, execute, gpu, readAs, scaleAdd, scaleAddPlan, start, stats } from "./block.mjs";

const ones = (n) => new Float32Array(n).fill(1);

/** A runtime with kernel 1 and plan 1 (out = a * s + t, 4 elements) and buffer 1 = ones. */
async function ready() {
  const runtime = await start();
  await execute(
    runtime,
    new Block()
      .kernel(1, scaleAdd(0))
      .plan(1, scaleAddPlan(0, 1, 4))
      .upload(1, 0, ones(4)),
  );
  runtime.resetStats();
  return runtime;
}

/** A chain of `n` runs from buffer 1; its last value is buffer 2 or 3, which it returns. */
function chain(block, n) {
  let current = 1;
  for (let i = 0; i < n; i++) {
    const next = 2 + (i % 2);
    block.run(1, [current, next], [1, 1]);
    if (current > 1) block.free(current);
    current = next;
  }
  return current;
}

test("a thousand dispatches are one pass and one submit", async () => {
  const runtime = await ready();
  const block = new Block();
  const last = chain(block, 1000);
  runtime.execute(block.bytes());
  const now = stats(runtime);
  assert.deepEqual([now.runs, now.dispatches, now.passes, now.submits], [1000, 1000, 1, 1]);
  assert.deepEqual(await readAs(runtime, Float32Array, last, 4), [1001, 1001, 1001, 1001]);
  // three bind groups serve all: 1 -> a, a -> b, b -> a
  assert.ok(now.bindGroups <= 3, `${now.bindGroups} bind groups`);
  assert.ok(now.buffersCreated <= 2, `${now.buffersCreated} buffers`);
  runtime.destroy();
});

test("an observer is called after each block; the most memory that was live is known", async () => {
  const runtime = await ready();
  const before = stats(runtime).gpuPeakBytes;
  let calls = 0;
  runtime.observer = () => calls++;
  await execute(runtime, new Block().upload(5, 0, ones(1 << 16)).free(5));
  await execute(runtime, new Block().upload(6, 0, ones(1 << 10)));
  assert.equal(calls, 2);
  const now = stats(runtime);
  assert.ok(now.gpuPeakBytes >= before + (1 << 18) && now.gpuBytes < 1 << 18, JSON.stringify(now));
  runtime.resetStats();
  assert.equal(stats(runtime).gpuPeakBytes, stats(runtime).gpuBytes);
  runtime.observer = null;
  await execute(runtime, new Block().free(6));
  assert.equal(calls, 2);
  runtime.destroy();
});

test("uploads do not end the pass, copies do", async () => {
  const runtime = await ready();
  const block = new Block().run(1, [1, 2], [1, 1]).upload(3, 0, ones(4)).run(1, [3, 4], [1, 1]);
  runtime.execute(block.bytes());
  assert.equal(stats(runtime).passes, 1);
  runtime.resetStats();
  runtime.execute(new Block().run(1, [1, 5], [1, 1]).copy(6, 0, 5, 16).run(1, [6, 7], [1, 1]).bytes());
  assert.equal(stats(runtime).passes, 2);
  assert.deepEqual(await readAs(runtime, Float32Array, 7, 4), [3, 3, 3, 3]);
  assert.deepEqual(errors(runtime), []);
  runtime.destroy();
});

test("a plan that is replayed makes no bind group, no buffer, no kernel", async () => {
  const runtime = await ready();
  const step = (from, to) => ({ kernel: 1, bind: [from, to], words: [0x3f800000, 1, 4, 0], grid: [1, 1, 1] });
  const steps = [step(0, 2), ...Array.from({ length: 20 }, (_, i) => step(2 + (i % 2), 3 - (i % 2))), step(2, 1)];
  const block = new Block().plan(2, { slots: 2, outputs: { 1: 16 }, temps: [16, 16], steps });
  await execute(runtime, block.run(2, [1, 2]).run(2, [2, 3]).free(2));
  // from here on the state goes round: out of the last run, into the next, as a training step's
  let state = 3;
  const turn = () => {
    const next = state === 3 ? 2 : 3;
    runtime.execute(new Block().run(2, [state, next]).free(state).bytes());
    state = next;
  };
  for (let i = 0; i < 4; i++) turn();
  runtime.resetStats();
  for (let i = 0; i < 100; i++) turn();
  const now = stats(runtime);
  assert.equal(now.dispatches, 2200);
  assert.deepEqual([now.bindGroups, now.buffersCreated, now.kernels], [0, 0, 0]);
  assert.equal(now.submits, 100);
  const value = 1 + 22 * 106;
  assert.deepEqual(await readAs(runtime, Float32Array, state, 4), [value, value, value, value]);
  runtime.destroy();
});

test("large temporaries of a plan that is replayed are kept", async () => {
  const runtime = await ready();
  const bytes = 48 * 2 ** 20;
  const steps = [2, 3, 4].map((temp) => ({
    kernel: 1,
    bind: [0, temp],
    words: [0x3f800000, 1, 4, 0],
    grid: [1, 1, 1],
  }));
  const last = { kernel: 1, bind: [4, 1], words: [0x3f800000, 1, 4, 0], grid: [1, 1, 1] };
  await execute(
    runtime,
    new Block().plan(2, { slots: 2, outputs: { 1: 16 }, temps: [bytes, bytes, bytes], steps: [...steps, last] }),
  );
  const turn = () => runtime.execute(new Block().run(2, [1, 2]).free(2).bytes());
  for (let i = 0; i < 12; i++) turn();
  await runtime.synchronize();
  runtime.resetStats();
  for (let i = 0; i < 200; i++) turn();
  const now = stats(runtime);
  assert.deepEqual([now.buffersCreated, now.buffersDestroyed, now.submits], [0, 0, 200]);
  assert.deepEqual(errors(runtime), []);
  runtime.destroy();
});

test("pipelines are shared by source and constants, and constants are set", async () => {
  const runtime = await ready();
  const kernel = {
    bindings: [{ type: "f32", access: "rw" }],
    source: `override value: f32 = 1;
      @group(0) @binding(1) var<storage, read_write> o: array<f32>;
      @compute @workgroup_size(1) fn main() { o[0] = value; }`,
  };
  const plan = (id) => ({
    slots: 1,
    outputs: { 0: 4 },
    steps: [{ kernel: id, bind: [0], words: [], grid: [1, 1, 1] }],
  });
  const block = new Block();
  for (const [i, constants] of [undefined, { value: 5 }, { value: 5 }, { value: 6 }].entries())
    block
      .kernel(10 + i, { ...kernel, constants })
      .plan(10 + i, plan(10 + i))
      .run(10 + i, [10 + i]);
  await execute(runtime, block);
  assert.equal(stats(runtime).kernels, 3);
  assert.equal(runtime.compiling.asked, 4); // with that of kernel 1
  await runtime.synchronize();
  assert.deepEqual(runtime.compiling, { asked: 4, ready: 4 });
  const times = runtime.compileTimes();
  assert.deepEqual(
    times.map(([id]) => id),
    [1, 10, 11, 12, 13],
  );
  assert.ok(times.every(([, ms]) => ms >= 0));
  const values = await Promise.all([10, 11, 12, 13].map((id) => readAs(runtime, Float32Array, id, 1)));
  assert.deepEqual(values.flat(), [1, 5, 5, 6]);
  runtime.execute(
    new Block()
      .kernel(20, { ...kernel, constants: { nothing: 5 } })
      .plan(20, plan(20))
      .bytes(),
  );
  await runtime.synchronize();
  const [error] = errors(runtime);
  assert.deepEqual([error.kind, error.operation], ["compile", "kernel20"]);
  assert.deepEqual(runtime.compiling, { asked: 5, ready: 5 }, "one that failed is not waited for");
  runtime.destroy();
});

test("more parameters than the ring holds at once", async () => {
  const runtime = await ready();
  const block = new Block();
  const last = chain(block, 9000);
  await execute(runtime, block);
  assert.ok(stats(runtime).submits > 1);
  assert.deepEqual(await readAs(runtime, Float32Array, last, 4), new Array(4).fill(9001));
  // one plan alone that outgrows the ring, between runs of a plan whose bind groups name the old one
  const fixed = { slots: 2, steps: [{ kernel: 1, bind: [0, 1], words: [0x40000000, 3, 4, 0], grid: [1, 1, 1] }] };
  await execute(runtime, new Block().plan(3, fixed).alloc(20, 0, 16).run(3, [1, 20]));
  const n = 9000;
  const steps = Array.from({ length: n }, (_, i) => ({
    kernel: 1,
    bind: [i === 0 ? 0 : 2 + ((i - 1) % 2), i === n - 1 ? 1 : 2 + (i % 2)],
    words: [0x3f800000, 1, 4, 0],
    grid: [1, 1, 1],
  }));
  const big = new Block().plan(2, { slots: 2, outputs: { 1: 16 }, temps: [16, 16], steps });
  await execute(runtime, big.run(1, [1, 10], [1, 1]).run(2, [10, 11]).run(1, [11, 12], [2, 0]).run(2, [12, 13]));
  await execute(runtime, new Block().free(20).alloc(20, 0, 16).run(3, [1, 20]));
  assert.deepEqual(await readAs(runtime, Float32Array, 20, 4), [5, 5, 5, 5]);
  assert.deepEqual(await readAs(runtime, Float32Array, 12, 4), new Array(4).fill(2 * 9002));
  assert.deepEqual(await readAs(runtime, Float32Array, 13, 4), new Array(4).fill(2 * 9002 + 9000));
  runtime.destroy();
});

test("a parameter block of more than 4096 bytes, and one too large", async () => {
  const runtime = await ready();
  const kernel = {
    bindings: [{ type: "u32", access: "rw" }],
    source: `@group(0) @binding(0) var<uniform> P: array<vec4<u32>, 4096>;
      @group(0) @binding(1) var<storage, read_write> o: array<u32>;
      @compute @workgroup_size(1) fn main() { o[0] = P[749].z; }`,
  };
  const words = Array.from({ length: 3000 }, (_, i) => i);
  const plan = (n) => ({
    slots: 1,
    outputs: { 0: 4 },
    scalars: ["u32"],
    steps: [{ kernel: 2, bind: [0], words: words.slice(0, n), patch: [[2998, 0, "u32"]], grid: [1, 1, 1] }],
  });
  await execute(runtime, new Block().kernel(2, kernel).plan(2, plan(3000)).run(2, [10], [123456]).run(2, [11], [7]));
  assert.deepEqual(await readAs(runtime, Uint32Array, 10, 1), [123456]);
  assert.deepEqual(await readAs(runtime, Uint32Array, 11, 1), [7]);
  const huge = plan(3000);
  huge.steps[0].words = new Array(20000).fill(0);
  assert.equal(runtime.execute(new Block().plan(3, huge).bytes()), 1);
  assert.match(errors(runtime)[0].message, /20000 parameter words/);
  runtime.destroy();
});

/** A `gpu` whose devices `change` has had first. */
function withDevices(change) {
  return {
    async requestAdapter(options) {
      const adapter = await gpu.requestAdapter(options);
      const requestDevice = adapter.requestDevice.bind(adapter);
      adapter.requestDevice = async (wanted) => {
        const device = await requestDevice(wanted);
        change(device);
        return device;
      };
      return adapter;
    },
  };
}

/** A `gpu` whose devices count the buffers that can be mapped for reading, as they are made. */
function countingStaging() {
  const made = { staging: 0 };
  const counting = withDevices((device) => {
    const createBuffer = device.createBuffer.bind(device);
    device.createBuffer = (spec) => {
      if (spec.usage & 1) made.staging++;
      return createBuffer(spec);
    };
  });
  return { made, counting };
}

test("work and the read of what it makes are one submit, and staging buffers are used again", async () => {
  const { made, counting } = countingStaging();
  const runtime = await start({ gpu: counting });
  await execute(
    runtime,
    new Block()
      .kernel(1, scaleAdd(0))
      .plan(1, scaleAddPlan(0, 1, 4))
      .upload(1, 0, ones(4)),
  );
  const turn = async (i) => {
    const block = new Block().run(1, [1, 2], [1, i]).bytes();
    const [bytes] = await runtime.executeAndRead(block, [{ id: 2, offset: 0, nbytes: 4 }]);
    assert.deepEqual([...new Float32Array(bytes.buffer)], [1 + i]);
    runtime.execute(new Block().free(2).bytes());
  };
  await turn(0);
  runtime.resetStats();
  made.staging = 0;
  for (let i = 1; i <= 50; i++) await turn(i);
  const now = stats(runtime);
  assert.deepEqual([now.submits, now.reads, now.maps, made.staging], [50, 50, 50, 0]);

  // nothing to do: the copy alone is sent
  runtime.resetStats();
  const [all, part] = await runtime.executeAndRead(new Uint8Array(0), [
    { id: 1, offset: 0, nbytes: 16 },
    { id: 1, offset: 4, nbytes: 8 },
  ]);
  assert.deepEqual([all.byteLength, part.byteLength], [16, 8]);
  assert.deepEqual([stats(runtime).submits, stats(runtime).maps], [1, 1]);

  // several under way, each of which sees its point of the stream; as many staging buffers as were under way at once
  const under = [];
  for (let i = 0; i < 5; i++) {
    const block = new Block().run(1, [1, 10 + i], [1, i]).bytes();
    under.push(runtime.executeAndRead(block, [{ id: 10 + i, offset: 0, nbytes: 4 }]));
    await Promise.resolve();
  }
  const found = await Promise.all(under);
  assert.deepEqual(
    found.map(([bytes]) => new Float32Array(bytes.buffer)[0]),
    [1, 2, 3, 4, 5],
  );
  assert.ok(made.staging <= 5, `${made.staging}`);
  assert.deepEqual(errors(runtime), []);
  runtime.destroy();
});

test("what fails in the submit of a read is known when the read is over", async () => {
  const runtime = await ready();
  const plan = {
    name: "scribble",
    slots: 1,
    steps: [{ kernel: 1, bind: [0, 0], words: [0, 0, 4, 0], grid: [1, 1, 1] }],
  };
  const scribble = new Block().plan(2, plan).run(2, [1]).bytes();
  await runtime.executeAndRead(scribble, [{ id: 1, offset: 0, nbytes: 4 }]).catch(() => {});
  assert.deepEqual(
    errors(runtime).map(({ kind, operation }) => [kind, operation]),
    [["validation", "scribble"]],
  );
  // a command that fails at once, and a buffer that is not there
  const missing = runtime.executeAndRead(new Block().free(77).bytes(), [{ id: 78, offset: 0, nbytes: 4 }]);
  await assert.rejects(missing, /no buffer 78/);
  assert.match(errors(runtime)[0].message, /no buffer 77/);
  // the device is lost while the read waits
  const lost = runtime.executeAndRead(new Block().run(1, [1, 2], [1, 1]).bytes(), [{ id: 2, offset: 0, nbytes: 4 }]);
  runtime.loseDevice();
  await assert.rejects(lost, /the GPU device was lost/);
  runtime.destroy();
});

// -- pipelines side by side

/** The pipeline by which a software adapter's arithmetic is tried as it is opened. */
const PROBE = "exact arithmetic";

/** A `gpu` whose pipelines are made side by side when `release` is called, and not before. */
function slowPipelines() {
  const waiting = [];
  const made = { sync: 0, async: 0 };
  const slow = withDevices((device) => {
    const { createComputePipeline, createComputePipelineAsync } = device;
    device.createComputePipeline = (spec) => {
      if (spec.label !== PROBE) made.sync++;
      return createComputePipeline.call(device, spec);
    };
    device.createComputePipelineAsync = async (spec) => {
      made.async++;
      await new Promise((resolve) => waiting.push(resolve));
      return createComputePipelineAsync.call(device, spec);
    };
  });
  const release = () => {
    for (const resolve of waiting.splice(0)) resolve();
  };
  return { slow, made, release };
}

const turns = () => new Promise((resolve) => setTimeout(resolve, 5));

/** out = a * s + t, as kernel and plan `id`: each a text of its own, so that none is compiled already. */
const another = (block, id) =>
  block.kernel(id, { ...scaleAdd(0), source: `${scaleAdd(0).source}\n// ${id}` }).plan(id, scaleAddPlan(0, id, 4));

test("pipelines are asked for together; what needs one waits, and all that comes after it, in order", async () => {
  const { slow, made, release } = slowPipelines();
  const runtime = await start({ gpu: slow, sideBySide: true });
  runtime.execute(
    another(new Block().upload(1, 0, ones(4)), 1)
      .run(1, [1, 2], [2, 1])
      .bytes(),
  );
  const early = readAs(runtime, Float32Array, 2, 4); // 3, before what comes next
  const second = another(new Block(), 2)
    .run(2, [2, 3], [10, 0])
    .free(2)
    .upload(4, 0, Float32Array.of(7, 7, 7, 7));
  runtime.execute(second.run(1, [4, 2], [1, 1]).bytes());
  const late = runtime.executeAndRead(another(new Block(), 3).run(3, [3, 5], [1, 1]).bytes(), [
    { id: 5, offset: 0, nbytes: 16 },
    { id: 2, offset: 0, nbytes: 16 },
  ]);
  let over = false;
  late.then(() => {
    over = true;
  });
  await turns();
  assert.deepEqual([over, made.sync, made.async], [false, 0, 3], "those of blocks that wait are asked for, too");
  release();
  assert.deepEqual(await early, [3, 3, 3, 3]);
  for (let i = 0; i < 10 && !over; i++) {
    release();
    await turns();
  }
  const [five, two] = await late;
  assert.deepEqual([...new Float32Array(five.buffer)], [31, 31, 31, 31]);
  assert.deepEqual([...new Float32Array(two.buffer)], [8, 8, 8, 8]);
  assert.deepEqual([made.sync, made.async], [0, 3]);
  assert.deepEqual(runtime.compiling, { asked: 3, ready: 3 });
  assert.deepEqual(errors(runtime), []);
  runtime.destroy();
});

test("a kernel is compiled as soon as it is defined, and to wait for those is no reason for Python to wait", async () => {
  const { slow, made, release } = slowPipelines();
  const runtime = await start({ gpu: slow, sideBySide: true });
  const kernel = (id) => ({ ...scaleAdd(0), source: `${scaleAdd(0).source}\n// ${id}` });
  const first = another(new Block().upload(1, 0, ones(4)), 1);
  runtime.execute(first.run(1, [1, 2], [2, 1]).bytes());
  for (let id = 2; id <= 40; id++) runtime.execute(new Block().kernel(id, kernel(id)).bytes());
  assert.deepEqual([made.sync, made.async, runtime.holding, runtime.behind], [0, 40, true, false]);
  for (let id = 41; id <= 60; id++) runtime.execute(new Block().run(1, [1, id], [2, 1]).bytes());
  assert.ok(runtime.behind, "what runs is");
  const found = readAs(runtime, Float32Array, 60, 4);
  release();
  assert.deepEqual(await found, [3, 3, 3, 3]);
  assert.deepEqual([made.sync, made.async, runtime.behind], [0, 40, false]);
  runtime.destroy();
});

test("the pipelines of a block are asked for at once", async () => {
  const { slow, made, release } = slowPipelines();
  const runtime = await start({ gpu: slow, sideBySide: true });
  const block = new Block().upload(1, 0, ones(4));
  for (let id = 1; id <= 8; id++) another(block, id);
  for (let id = 1; id <= 8; id++) block.run(id, [id, id + 1], [1, 1]);
  const reading = runtime.executeAndRead(block.bytes(), [{ id: 9, offset: 0, nbytes: 4 }]);
  assert.deepEqual([made.sync, made.async, runtime.compiling.asked, runtime.compiling.ready], [0, 8, 8, 0]);
  release();
  const [bytes] = await reading;
  assert.deepEqual([...new Float32Array(bytes.buffer)], [9]);
  runtime.destroy();
});

test("numbers of plans that are used again while blocks wait mean what they meant", async () => {
  const { slow, release } = slowPipelines();
  const runtime = await start({ gpu: slow, sideBySide: true });
  const add = (n) => ({
    slots: 2,
    outputs: { 1: 16 },
    steps: [{ kernel: 1, bind: [0, 1], words: [0x3f800000, n, 4, 0], grid: [1, 1, 1] }],
  });
  runtime.execute(
    another(new Block().upload(1, 0, ones(4)), 1)
      .plan(5, add(10))
      .run(5, [1, 2])
      .forget(5)
      .bytes(),
  );
  runtime.execute(new Block().plan(5, add(20)).run(5, [1, 3]).forget(5).bytes());
  runtime.execute(new Block().plan(6, add(30)).bind(5, 6, 0, 0x3f800000, 40, 4, 0, 1, 1, 1, 16).run(5, [1, 4]).bytes());
  const found = Promise.all([2, 3, 4].map((id) => readAs(runtime, Float32Array, id, 1)));
  release();
  assert.deepEqual(await found, [[11], [21], [41]]);
  assert.deepEqual(errors(runtime), []);
  runtime.destroy();
});

test("who cannot wait has them made at once, and they are not made twice", async () => {
  const { slow, made, release } = slowPipelines();
  const runtime = await start({ gpu: slow, sideBySide: true });
  runtime.execute(
    another(new Block().upload(1, 0, ones(4)), 1)
      .run(1, [1, 2], [2, 1])
      .bytes(),
  );
  assert.equal(JSON.parse(runtime.stats(true)).gpuDispatches, 0);
  assert.equal(stats(runtime).gpuDispatches, 1);
  assert.equal(made.sync, 1);
  release();
  assert.deepEqual(await readAs(runtime, Float32Array, 2, 4), [3, 3, 3, 3]);
  runtime.execute(new Block().run(1, [2, 3], [2, 1]).bytes());
  assert.deepEqual(await readAs(runtime, Float32Array, 3, 4), [7, 7, 7, 7]);
  assert.deepEqual([made.sync, made.async], [1, 1]);
  runtime.destroy();
});

test("side by side: a kernel that does not compile, a device that is lost, an end", async () => {
  const { slow, release } = slowPipelines();
  const runtime = await start({ gpu: slow, sideBySide: true });
  const bad = { ...scaleAdd(0), name: "bad", source: scaleAdd(0).source.replace("P[0].z", "Q[0].z") };
  const block = new Block()
    .upload(1, 0, ones(4))
    .kernel(1, bad)
    .plan(1, scaleAddPlan(0, 1, 4))
    .run(1, [1, 2], [1, 1]);
  runtime.execute(block.bytes());
  const failing = runtime.readAsync(2, 0, 4);
  setTimeout(release, 5);
  await assert.rejects(failing, /kernel bad did not compile/);
  assert.ok(errors(runtime).every(({ kind, operation }) => kind === "compile" && operation === "bad"));

  runtime.execute(another(new Block(), 3).run(3, [1, 4], [1, 1]).bytes());
  const lost = runtime.readAsync(4, 0, 4);
  runtime.loseDevice();
  await assert.rejects(lost, /lost/);
  assert.ok(errors(runtime).some(({ kind }) => kind === "lost"));
  await runtime.revive();
  runtime.execute(new Block().upload(5, 0, ones(4)).run(3, [5, 6], [1, 1]).bytes());
  const found = readAs(runtime, Float32Array, 6, 1);
  await turns();
  release();
  assert.deepEqual(await found, [2]);

  runtime.execute(another(new Block(), 7).run(7, [5, 8], [1, 1]).bytes());
  const ended = runtime.readAsync(8, 0, 4);
  runtime.destroy();
  await assert.rejects(ended);
});

test("reads asked for together share a map, and see their point of the stream", async () => {
  const runtime = await ready();
  const block = new Block();
  for (let i = 0; i < 100; i++) block.run(1, [1, 10 + i], [1, i]);
  block.plan(2, { slots: 2, steps: [{ kernel: 1, bind: [0, 1], words: [0, 555, 4, 0], grid: [1, 1, 1] }] });
  runtime.execute(block.bytes());
  const reads = Array.from({ length: 100 }, (_, i) => readAs(runtime, Float32Array, 10 + i, 4));
  // overwritten, and freed and reused, before any of the reads is awaited
  const after = new Block().run(2, [1, 10]).run(2, [1, 11]).free(12).upload(12, 0, ones(4));
  runtime.execute(after.bytes());
  const found = await Promise.all(reads);
  found.forEach((values, i) => {
    assert.deepEqual(values, new Array(4).fill(1 + i));
  });
  assert.equal(stats(runtime).maps, 1);
  assert.deepEqual(await readAs(runtime, Float32Array, 10, 1), [555]);
  const large = new Float32Array(3e6).map((_, i) => i);
  await execute(runtime, new Block().upload(500, 0, large));
  const [back, small] = await Promise.all([
    runtime.readAsync(500, 0, 12e6),
    readAs(runtime, Float32Array, 500, 2, 400),
  ]);
  assert.deepEqual(new Float32Array(back.buffer), large);
  assert.deepEqual(small, [100, 101]);
  runtime.destroy();
});

test("what the GPU refuses comes back with the operation's name", async () => {
  const runtime = await ready();
  // one buffer read and written by the same dispatch
  const plan = {
    name: "scribble",
    slots: 1,
    steps: [{ kernel: 1, bind: [0, 0], words: [0, 0, 4, 0], grid: [1, 1, 1] }],
  };
  runtime.execute(new Block().plan(2, plan).run(2, [1]).bytes());
  await runtime.readAsync(1, 0, 4);
  const found = errors(runtime);
  assert.equal(found.length, 1, JSON.stringify(found));
  assert.deepEqual([found[0].kind, found[0].operation], ["validation", "scribble"]);
  assert.deepEqual(errors(runtime), []);
  await execute(runtime, new Block().run(1, [1, 2], [1, 1]));
  runtime.destroy();
});

test("what ran before, on buffers that it had before, needs no error scopes; what goes wrong all the same is told", async () => {
  const runtime = await ready();
  const { prototype } = GPUDevice;
  const { pushErrorScope, createBindGroup } = prototype;
  let scopes = 0;
  prototype.pushErrorScope = function (filter) {
    scopes++;
    return pushErrorScope.call(this, filter);
  };
  try {
    const turn = async () => {
      await execute(runtime, new Block().run(1, [1, 2], [2, 1]));
      const before = scopes;
      const value = await readAs(runtime, Float32Array, 2, 4);
      runtime.execute(new Block().free(2).bytes());
      return [value, before];
    };
    await turn();
    await turn();
    scopes = 0;
    assert.deepEqual(await turn(), [[3, 3, 3, 3], 0]);
    await execute(runtime, new Block().upload(3, 0, ones(4)).alias(4, 3, 0, 16).free(4));
    assert.equal(scopes, 0);
    await execute(runtime, new Block().run(1, [3, 2], [2, 1])); // another buffer: a bind group is made
    assert.notEqual(scopes, 0);
    // From here on a kernel would be given what it cannot take.
    let broken = null;
    prototype.createBindGroup = function (what) {
      const made = createBindGroup.call(this, what);
      broken ??= what.entries[1].resource.buffer;
      return made;
    };
    await execute(
      runtime,
      new Block()
        .upload(5, 0, ones(1 << 12))
        .run(1, [5, 6], [2, 1])
        .free(6),
    );
    scopes = 0;
    broken.destroy();
    runtime.execute(new Block().run(1, [5, 6], [2, 1]).bytes());
    await runtime.readAsync(6, 0, 4); // and is known when a read of it is over
    const found = errors(runtime);
    const [{ kind, operation }] = found;
    assert.deepEqual([scopes, found.length, kind, operation], [0, 1, "validation", "plan1"], JSON.stringify(found));
  } finally {
    Object.assign(prototype, { pushErrorScope, createBindGroup });
    runtime.destroy();
  }
});

test("plans that cannot work are refused when they are defined", async () => {
  const runtime = await ready();
  const step = { kernel: 1, bind: [0, 1], words: [0, 0, 4, 0], grid: [1, 1, 1], label: "mul" };
  const refuse = (change, message) => {
    const plan = { slots: 2, outputs: { 1: 16 }, scalars: ["f32"], steps: [{ ...step, ...change }] };
    assert.equal(runtime.execute(new Block().plan(2, plan).bytes()), 1);
    assert.match(errors(runtime)[0].message, message);
  };
  refuse({ grid: [70000, 1, 1] }, /mul: a grid of 70000/);
  refuse({ bind: [0] }, /binds 2 buffers, its step 1/);
  refuse({ bind: [0, 7] }, /slot that is not there/);
  refuse({ patch: [[9, 0, "f32"]] }, /bad patch/);
  refuse({ patch: [[0, 1, "f32"]] }, /bad patch/);
  assert.equal(runtime.execute(new Block().alias(9, 1, 4, 4).bytes()), 1);
  assert.match(errors(runtime)[0].message, /not aligned/);
  runtime.destroy();
});

test("a buffer larger than any: out of memory, and only what needs it fails", async () => {
  const runtime = await ready();
  const plan = scaleAddPlan(0, 1, 4);
  plan.name = "enlarge";
  plan.outputs = { 1: 0xfffffff0 };
  const block = new Block().plan(2, plan).run(1, [1, 2], [2, 0]).run(2, [1, 3], [1, 1]).run(1, [3, 4], [1, 1]);
  assert.equal(runtime.execute(block.run(1, [2, 5], [2, 0]).bytes()), 1);
  const [error] = errors(runtime);
  assert.deepEqual([error.kind, error.operation], ["out-of-memory", "enlarge"]);
  assert.match(error.message, /tried to allocate 4096\.0 MiB/);
  assert.deepEqual(await readAs(runtime, Float32Array, 5, 4), [4, 4, 4, 4]);
  await assert.rejects(runtime.readAsync(4, 0, 4), /tried to allocate/);
  // not silently, at any later use either
  assert.equal(runtime.execute(new Block().run(1, [4, 6], [1, 1]).copy(7, 0, 3, 4).alias(8, 3, 0, 4).bytes()), 1);
  errors(runtime);
  assert.equal(runtime.execute(new Block().free(2, 3, 4, 5, 6, 7, 8).bytes()), 0);
  assert.equal(stats(runtime).gpuBuffers, 1);
  assert.equal(stats(runtime).gpuBytes, 256);
  runtime.destroy();
});

test("memory that the device turns out not to have", async (t) => {
  const runtime = await ready();
  const plan = scaleAddPlan(0, 1, 4);
  plan.name = "grow";
  plan.outputs = { 1: 2 ** 30 };
  const ids = [];
  let failed = null;
  for (let i = 0; i < 24 && failed === null; i++) {
    ids.push(100 + i);
    // what else is in the block must come through: before, between and after
    const block = new Block()
      .plan(2, plan)
      .run(1, [1, 10], [2, 0])
      .run(2, [10, 100 + i], [1, 1]);
    runtime.execute(
      block
        .run(1, [10, 11], [2, 0])
        .run(1, [100 + i, 12], [1, 1])
        .run(1, [11, 13], [2, 0])
        .bytes(),
    );
    await runtime.synchronize();
    const found = errors(runtime);
    if (found.length > 0) failed = found;
    assert.deepEqual(await readAs(runtime, Float32Array, 11, 4), [4, 4, 4, 4]);
    assert.deepEqual(await readAs(runtime, Float32Array, 13, 4), [8, 8, 8, 8]);
    runtime.execute(new Block().free(10, 11, 12, 13).bytes());
  }
  if (failed === null) {
    t.skip("this device has more than 24 GiB");
  } else {
    assert.equal(failed.length, 1, JSON.stringify(failed));
    assert.deepEqual([failed[0].kind, failed[0].operation], ["out-of-memory", "grow"]);
    await assert.rejects(runtime.readAsync(ids.at(-1), 0, 4), /tried to allocate 1024\.0 MiB/);
    await execute(runtime, new Block().free(...ids).run(1, [1, 2], [1, 1]));
    assert.equal(stats(runtime).gpuBytes, 512);
  }
  runtime.destroy();
});

test("memory goes back when it is no longer needed", async () => {
  const runtime = await ready();
  const block = new Block();
  for (let i = 0; i < 10; i++) block.upload(10 + i, 0, new Uint8Array(12 * 2 ** 20));
  await execute(runtime, block);
  assert.ok(stats(runtime).gpuBytes >= 120 * 2 ** 20);
  await execute(runtime, new Block().free(...Array.from({ length: 10 }, (_, i) => 10 + i)));
  assert.ok(stats(runtime).gpuPooledBytes >= 120 * 2 ** 20);
  for (let i = 0; i < 300; i++) runtime.execute(new Block().run(1, [1, 2], [1, 1]).free(2).bytes());
  const now = stats(runtime);
  assert.ok(now.gpuPooledBytes <= 65 * 2 ** 20, `${now.gpuPooledBytes} bytes`);
  assert.ok(now.buffersDestroyed > 0);
  assert.deepEqual(errors(runtime), []);
  runtime.destroy();
});

test("a lost device: pending reads reject, every command says so, a new runtime works", async () => {
  const runtime = await ready();
  const pending = assert.rejects(runtime.readAsync(1, 0, 16), /GPU device was lost.*what it held is gone/);
  runtime.loseDevice();
  await pending;
  assert.match(await runtime.deviceLost, /lost/);
  errors(runtime);
  assert.equal(runtime.execute(new Block().upload(2, 0, ones(4)).run(1, [2, 3], [1, 1]).free(2, 3).bytes()), 1);
  assert.equal(errors(runtime)[0].kind, "lost");
  await assert.rejects(runtime.readAsync(1, 0, 16), /lost/);
  await assert.rejects(runtime.synchronize(), /lost/);
  errors(runtime);
  // the other device is not concerned
  assert.equal(runtime.execute(new Block().upload(4, 1, ones(2)).bytes()), 0);
  assert.deepEqual([...runtime.read(4, 0, 8)], [0, 0, 128, 63, 0, 0, 128, 63]);
  runtime.destroy();
  const again = await ready();
  await execute(again, new Block().run(1, [1, 2], [1, 1]));
  assert.deepEqual(await readAs(again, Float32Array, 2, 1), [2]);
  again.destroy();
});

test("after a lost device another one: kernels, plans and ids go on, what was lost says so", async () => {
  const runtime = await ready();
  await execute(runtime, new Block().run(1, [1, 2], [1, 1]));
  runtime.loseDevice();
  await runtime.deviceLost;
  errors(runtime);
  assert.equal(runtime.execute(new Block().upload(3, 0, ones(4)).run(1, [3, 4], [1, 1]).bytes()), 1);
  assert.equal(errors(runtime)[0].kind, "lost");
  await Promise.all([runtime.revive(), runtime.revive()]);
  for (const id of [1, 2, 3, 4]) await assert.rejects(runtime.readAsync(id, 0, 4), /device which has been lost/);
  assert.equal(runtime.execute(new Block().run(1, [2, 5], [1, 1]).bytes()), 1);
  const [error] = errors(runtime);
  assert.equal(error.kind, "gone");
  assert.notEqual(error.operation, "");
  await execute(runtime, new Block().free(1, 2, 3, 4, 5).upload(1, 0, ones(4)).run(1, [1, 2], [1, 1]));
  assert.deepEqual(await readAs(runtime, Float32Array, 2, 1), [2]);
  assert.deepEqual(errors(runtime), []);
  runtime.destroy();
});

test("the adapter is asked for until it is there", async () => {
  let asked = 0;
  const slow = { requestAdapter: async (options) => (++asked < 3 ? null : gpu.requestAdapter(options)) };
  const runtime = await start({ gpu: slow, patience: 5000 });
  assert.equal(asked, 3);
  const { webgpu } = JSON.parse(runtime.info());
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  assert.equal(webgpu.limits.maxStorageBufferBindingSize, adapter.limits.maxStorageBufferBindingSize);
  assert.equal(webgpu.exact, /swiftshader|llvmpipe/i.test(adapter.info.description), "a processor's quotients");
  if (/swiftshader/i.test(adapter.info.description)) assert.equal(webgpu.fused, false, "a product and a sum");
  for (const feature of ["shader-f16", "subgroups", "timestamp-query"])
    assert.equal(webgpu.features.includes(feature), adapter.features.has(feature), feature);
  runtime.destroy();
  const none = await start({ gpu: { requestAdapter: async () => null }, patience: 50 }).catch((error) => error);
  assert.match(none.message, /no WebGPU adapter/);
});
