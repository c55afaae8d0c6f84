// Other devices that compile. What a pipeline takes is made up here: each device makes two at a time, and what one has made the
// others have from a cache, if there is one.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Block, errors, readAs, scaleAdd, scaleAddPlan, start, withDevices } from "./block.mjs";

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** ms: what a pipeline takes; cached: whether what was made once takes next to nothing. */
function driver({ ms = 40, cached = true, devices = 99 } = {}) {
  const known = new Set();
  const made = [];
  const gpu = withDevices((device) => {
    if (made.length >= devices) throw new Error("no more");
    const own = { label: device.label, compiled: 0, loaded: 0, gone: false };
    made.push(own);
    device.lost.then(() => {
      own.gone = true;
    });
    const { createComputePipelineAsync, createShaderModule } = device;
    const codes = new Map();
    device.createShaderModule = (spec) => {
      const module = createShaderModule.call(device, spec);
      codes.set(module, spec.code);
      return module;
    };
    const lanes = [Promise.resolve(), Promise.resolve()];
    let next = 0;
    device.createComputePipelineAsync = (spec) => {
      const code = codes.get(spec.compute.module);
      const lane = next++ % 2;
      const turn = lanes[lane].then(async () => {
        const hit = cached && known.has(code);
        await sleep(hit ? 1 : ms);
        known.add(code);
        own[hit ? "loaded" : "compiled"]++;
        return createComputePipelineAsync.call(device, spec);
      });
      lanes[lane] = turn.catch(() => {});
      return turn;
    };
  });
  return { gpu, made };
}

/** Runs `count` kernels of different texts; each adds 1. */
async function chain(runtime, count) {
  const block = new Block().upload(1, 0, Float32Array.of(0));
  for (let id = 1; id <= count; id++)
    block.kernel(id, { ...scaleAdd(0), source: `${scaleAdd(0).source}\n// ${id}` }).plan(id, scaleAddPlan(0, id, 1));
  for (let id = 1; id <= count; id++) block.run(id, [id, id + 1], [1, 1]);
  runtime.execute(block.bytes());
  const [value] = await readAs(runtime, Float32Array, count + 1, 1);
  return value;
}

const options = { sideBySide: true, processors: 8 };

test("where many wait, other devices compile, and the first has it from the cache", async () => {
  const { gpu, made } = driver();
  const runtime = await start({ gpu, ...options });
  assert.equal(await chain(runtime, 40), 40);
  assert.deepEqual(
    made.map(({ label }) => label),
    ["tabtorch", "tabtorch: compiler", "tabtorch: compiler", "tabtorch: compiler"],
  );
  const [first, ...others] = made;
  assert.equal(first.compiled + first.loaded, 40);
  assert.ok(first.loaded >= 30, `${first.loaded} of 40`);
  assert.ok(others.every(({ compiled }) => compiled > 5));
  assert.deepEqual(runtime.compiling, { asked: 40, ready: 40 });
  assert.deepEqual(errors(runtime), []);
  assert.ok(others.every(({ gone }) => !gone));
  await sleep(5200);
  assert.ok(!first.gone && others.every(({ gone }) => gone), "when there is nothing more for them, they go");
  runtime.destroy();
});

test("without a cache they are let go, and the first compiles what is left", async () => {
  const { gpu, made } = driver({ cached: false });
  const runtime = await start({ gpu, ...options });
  assert.equal(await chain(runtime, 40), 40);
  const [first, ...others] = made;
  assert.equal(first.compiled, 40);
  assert.ok(others.length > 0 && others.every(({ gone, compiled }) => gone && compiled < 10));
  const { length } = made;
  assert.equal(await chain(await start({ gpu: driver().gpu, ...options, processors: 2 }), 10), 10);
  assert.equal(made.length, length, "and are not asked for again");
  runtime.destroy();
});

test("they are not asked for where pipelines are soon there, where few wait, or where there are few processors", async () => {
  for (const [made, count, processors] of [
    [driver({ ms: 3 }), 40, 8],
    [driver(), 5, 8],
    [driver(), 40, 3],
  ]) {
    const runtime = await start({ gpu: made.gpu, ...options, processors });
    assert.equal(await chain(runtime, count), count);
    assert.equal(made.made.length, 1);
    runtime.destroy();
  }
});

test("where there are no more devices, the first does it alone", async () => {
  const { gpu, made } = driver({ devices: 1 });
  const runtime = await start({ gpu, ...options });
  assert.equal(await chain(runtime, 30), 30);
  assert.deepEqual([made.length, made[0].compiled], [1, 30]);
  assert.deepEqual(errors(runtime), []);
  runtime.destroy();
});

test("what does not compile is told of once", async () => {
  const { gpu, made } = driver();
  const runtime = await start({ gpu, ...options });
  const bad = { ...scaleAdd(0), name: "bad", source: scaleAdd(0).source.replace("P[0].z", "Q[0].z") };
  const block = new Block().upload(1, 0, Float32Array.of(0));
  for (let id = 100; id < 120; id++) block.kernel(id, { ...scaleAdd(0), source: `${scaleAdd(0).source}\n// ${id}` });
  block
    .kernel(99, bad)
    .plan(99, scaleAddPlan(0, 99, 1))
    .run(99, [1, 90], [1, 1]);
  runtime.execute(block.bytes());
  await assert.rejects(runtime.readAsync(90, 0, 4), /kernel bad did not compile/);
  assert.ok(made.length > 1);
  assert.ok(errors(runtime).every(({ kind, operation }) => kind === "compile" && operation === "bad"));
  runtime.destroy();
});

test("they go with the first", async () => {
  const { gpu, made } = driver({ ms: 200 });
  const runtime = await start({ gpu, ...options });
  const running = chain(runtime, 40).catch((error) => error);
  while (made.length < 3) await sleep(5);
  runtime.loseDevice();
  assert.match((await running).message, /lost/);
  await sleep(50);
  assert.ok(made.every(({ gone }) => gone));
  runtime.destroy();
});
