// The commands, one by one, on both devices.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Block, errors, execute, readAs, scaleAdd, scaleAddPlan, start, stats } from "./block.mjs";

for (const dev of [0, 1]) {
  describe(dev === 0 ? "webgpu" : "cpu", () => {
    let runtime;
    let next = 1;
    const id = () => next++;
    const f32 = (...values) => Float32Array.from(values);

    before(async () => {
      runtime = await start();
      await execute(runtime, new Block().kernel(1, scaleAdd(dev)).plan(1, scaleAddPlan(dev, 1, 4)));
    });
    after(() => runtime.destroy());

    test("upload and read, also of nothing and of bytes", async () => {
      const [a, b, c] = [id(), id(), id()];
      const block = new Block().upload(a, dev, f32(1, 2, 3)).upload(b, dev, f32());
      await execute(runtime, block.upload(c, dev, Uint8Array.of(1, 2, 3, 4, 5)));
      assert.deepEqual(await readAs(runtime, Float32Array, a, 3), [1, 2, 3]);
      assert.deepEqual(await readAs(runtime, Float32Array, a, 1, 4), [2]);
      assert.deepEqual(await readAs(runtime, Float32Array, b, 0), []);
      assert.deepEqual(await readAs(runtime, Uint8Array, c, 5), [1, 2, 3, 4, 5]);
      assert.deepEqual(await readAs(runtime, Uint8Array, c, 3, 1), [2, 3, 4]);
    });

    test("pieces are written into a buffer, after the work before and ahead of the work behind", async () => {
      const [a, b, c, d] = [id(), id(), id(), id()];
      const block = new Block().alloc(a, dev, 16).write(a, 0, f32(1, 2)).write(a, 8, f32(3, 4)).run(1, [a, b], [10, 0]);
      await execute(runtime, block.write(a, 4, f32(9)).run(1, [a, c], [1, 0]).alloc(d, dev, 7));
      assert.deepEqual(await readAs(runtime, Float32Array, b, 4), [10, 20, 30, 40]);
      assert.deepEqual(await readAs(runtime, Float32Array, c, 4), [1, 9, 3, 4]);
      const bytes = Uint8Array.of(1, 2, 3, 4, 5, 6, 7);
      await execute(runtime, new Block().write(d, 0, bytes.slice(0, 4)).write(d, 4, bytes.slice(4)));
      assert.deepEqual(await readAs(runtime, Uint8Array, d, 7), [...bytes]);
      runtime.execute(new Block().write(a, 12, f32(1, 2)).bytes());
      assert.match(errors(runtime)[0].message, /bytes 12 to 20 of a buffer of 16/);
      runtime.execute(new Block().write(9999, 0, f32(1)).bytes());
      assert.match(errors(runtime)[0].message, /no buffer 9999/);
      await execute(runtime, new Block().free(a, b, c, d));
    });

    test("a run patches its scalars, and the template stays as it was", async () => {
      const [a, b, c] = [id(), id(), id()];
      const block = new Block().upload(a, dev, f32(1, 2, 3, 4));
      await execute(runtime, block.run(1, [a, b], [10, -3]).run(1, [b, c], [0.5, 1]));
      assert.deepEqual(await readAs(runtime, Float32Array, b, 4), [7, 17, 27, 37]);
      assert.deepEqual(await readAs(runtime, Float32Array, c, 4), [4.5, 9.5, 14.5, 19.5]);
    });

    test("every kind of patch", async () => {
      const wgsl = `@group(0) @binding(0) var<uniform> P: array<vec4<u32>, 256>;
        @group(0) @binding(1) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(1) fn main() { for (var i = 0u; i < 16u; i++) { o[i] = P[i / 4u][i % 4u]; } }`;
      const kernel = {
        name: "dump",
        device: dev,
        bindings: [{ type: "u32", access: "rw" }],
        source: dev === 0 ? wgsl : "for (let i = 0; i < 16; i++) b0[i] = P[i];",
      };
      const patch = [
        [0, 0, "f32"],
        [1, 0, "i32"],
        [2, 1, "u32"],
        [4, 0, "f64"],
        [6, 0, "i64"],
        [8, 2, "i64"],
        [10, 2, "f32"],
        [11, 2, "i32"],
        [12, 2, "f64"],
        [14, 2, "u32"],
      ];
      const plan = {
        device: dev,
        slots: 1,
        outputs: { 0: 64 },
        scalars: ["f32", "u32", "i64"],
        steps: [{ kernel: 2, bind: [0], words: new Array(16).fill(77), patch, grid: [1, 1, 1] }],
      };
      const out = id();
      const big = -(2n ** 40n) + 5n;
      const block = new Block().kernel(2, kernel).plan(2, plan).run(2, [out], [-2.75, 4e9, big]);
      await execute(runtime, block);
      const bytes = await runtime.readAsync(out, 0, 64);
      const view = new DataView(bytes.buffer, bytes.byteOffset);
      assert.equal(view.getFloat32(0, true), -2.75);
      assert.equal(view.getInt32(4, true), -2);
      assert.equal(view.getUint32(8, true), 4e9);
      assert.equal(view.getUint32(12, true), 77);
      assert.equal(view.getFloat64(16, true), -2.75);
      assert.equal(view.getBigInt64(24, true), -2n);
      assert.equal(view.getBigInt64(32, true), big);
      assert.equal(view.getFloat32(40, true), Math.fround(Number(big)));
      assert.equal(view.getInt32(44, true), 5);
      assert.equal(view.getFloat64(48, true), Number(big));
      assert.equal(view.getUint32(56, true), 5);
      assert.equal(view.getUint32(60, true), 77);
    });

    test("scalars lie right with an odd and an even number of slots, in a block at any address", async () => {
      const plan = scaleAddPlan(dev, 1, 4);
      plan.slots = 3;
      const [a, b, c] = [id(), id(), id()];
      const block = new Block()
        .plan(3, plan)
        .upload(a, dev, f32(1, 1, 1, 1))
        .run(3, [a, b, a], [3, 4]);
      const bytes = block.run(1, [b, c], [1, 1]).bytes();
      const shifted = new Uint8Array(bytes.byteLength + 4).subarray(4);
      shifted.set(bytes);
      assert.equal(runtime.execute(shifted), 0);
      assert.deepEqual(await readAs(runtime, Float32Array, b, 4), [7, 7, 7, 7]);
      assert.deepEqual(await readAs(runtime, Float32Array, c, 4), [8, 8, 8, 8]);
    });

    test("steps in order: dispatch, copy, clear, temps", async () => {
      const n = 4;
      const step = (from, to) => ({ kernel: 1, bind: [from, to], words: [0x40000000, 1, n, 0], grid: [1, 1, 1] });
      const plan = {
        device: dev,
        slots: 4,
        outputs: { 1: 4 * n, 2: 4 * n, 3: 4 * n },
        temps: [4 * n, 4 * n],
        // temps: slots 4 and 5; each step doubles and adds one
        steps: [
          step(0, 4),
          step(4, 5),
          { copy: [5, 1, 4 * n] },
          step(5, 4),
          { copy: [4, 2, 4 * n] },
          step(4, 3),
          { clear: [2] },
        ],
      };
      const [a, b, c, d] = [id(), id(), id(), id()];
      const block = new Block()
        .plan(4, plan)
        .upload(a, dev, f32(0, 1, 2, 3))
        .run(4, [a, b, c, d]);
      await execute(runtime, block);
      assert.deepEqual(await readAs(runtime, Float32Array, b, n), [3, 7, 11, 15]);
      assert.deepEqual(await readAs(runtime, Float32Array, c, n), [0, 0, 0, 0]);
      assert.deepEqual(await readAs(runtime, Float32Array, d, n), [15, 31, 47, 63]);
    });

    test("an upload does not overtake work recorded before it", async () => {
      const ids = [];
      const block = new Block();
      // The buffer freed after each run is the one that a careless pool would give to the next upload.
      for (let i = 0; i < 20; i++) {
        const [a, b] = [id(), id()];
        block
          .upload(a, dev, f32(i, i, i, i))
          .run(1, [a, b], [1, 100])
          .free(a);
        ids.push(b);
      }
      await execute(runtime, block);
      for (const [i, b] of ids.entries())
        assert.deepEqual(await readAs(runtime, Float32Array, b, 4), new Array(4).fill(100 + i));
      await execute(runtime, new Block().free(...ids));
    });

    test("alloc is zeros, also in memory used before", async () => {
      const block = new Block();
      const used = [id(), id(), id()];
      for (const a of used) block.upload(a, dev, new Float32Array(100).fill(7));
      block.free(...used);
      const again = [id(), id(), id()];
      for (const a of again) block.alloc(a, dev, 400);
      await execute(runtime, block);
      for (const a of again) assert.deepEqual(await readAs(runtime, Float32Array, a, 100), new Array(100).fill(0));
    });

    test("copy is a copy, of what was there then", async () => {
      const [a, b, c, d] = [id(), id(), id(), id()];
      const plan = {
        device: dev,
        slots: 2,
        steps: [{ kernel: 1, bind: [0, 1], words: [0x40000000, 0, 4, 0], grid: [1, 1, 1] }],
      };
      // plan 5 writes into a buffer that is there already
      const block = new Block()
        .plan(5, plan)
        .upload(a, dev, f32(1, 2, 3, 4))
        .upload(d, dev, f32(5, 5, 5, 5));
      block.copy(b, dev, a, 16).run(5, [d, a]).copy(c, dev, a, 8);
      await execute(runtime, block);
      assert.deepEqual(await readAs(runtime, Float32Array, a, 4), [10, 10, 10, 10]);
      assert.deepEqual(await readAs(runtime, Float32Array, b, 4), [1, 2, 3, 4]);
      assert.deepEqual(await readAs(runtime, Float32Array, c, 2), [10, 10]);
    });

    test("an alias is a window: reads, binds, writes, and outlives its base's id", async () => {
      const [base, window, inner, out] = [id(), id(), id(), id()];
      const data = Float32Array.from({ length: 256 }, (_, i) => i);
      const block = new Block().upload(base, dev, data).alias(window, base, 256, 768).alias(inner, window, 256, 16);
      await execute(runtime, block.free(base).run(1, [inner, out], [2, 1]));
      assert.deepEqual(await readAs(runtime, Float32Array, inner, 4), [128, 129, 130, 131]);
      assert.deepEqual(await readAs(runtime, Float32Array, out, 4), [257, 259, 261, 263]);
      const live = stats(runtime).bytes;
      await execute(runtime, new Block().free(window));
      assert.equal(stats(runtime).bytes, live);
      await execute(runtime, new Block().free(inner));
      assert.equal(stats(runtime).bytes, live - 1024);
    });

    test("a step copies from one window of a buffer to another", async () => {
      const [base, low, high] = [id(), id(), id()];
      const data = Float32Array.from({ length: 128 }, (_, i) => i);
      const block = new Block().plan(7, { device: dev, slots: 2, steps: [{ copy: [0, 1, 200] }] });
      block.upload(base, dev, data).alias(low, base, 0, 256).alias(high, base, 256, 256);
      await execute(runtime, block.run(7, [low, high]));
      const expected = [...data.subarray(0, 64), ...data.subarray(0, 50), ...data.subarray(114)];
      assert.deepEqual(await readAs(runtime, Float32Array, base, 128), expected);
    });

    test("freed memory is used again, and comes to nothing more", async () => {
      const at = stats(runtime);
      for (let turn = 0; turn < 50; turn++) {
        const block = new Block();
        const [a, b, c] = [id(), id(), id()];
        block
          .upload(a, dev, f32(1, 2, 3, 4))
          .run(1, [a, b], [1, 1])
          .run(1, [b, c], [1, 1])
          .free(a, b, c);
        runtime.execute(block.bytes());
      }
      const now = stats(runtime);
      assert.equal(now.bytes, at.bytes);
      assert.equal(now.buffers, at.buffers);
      assert.ok(now.buffersCreated - at.buffersCreated <= 6, `${now.buffersCreated - at.buffersCreated} buffers made`);
      assert.deepEqual(errors(runtime), []);
    });

    test("a failing command says so, and the next ones are carried out", async () => {
      const [a, b, c] = [id(), id(), id()];
      const block = new Block()
        .run(1, [9999, b], [1, 1])
        .upload(a, dev, f32(1, 2, 3, 4))
        .run(1, [a, c], [1, 1]);
      assert.equal(runtime.execute(block.bytes()), 1);
      const [error] = errors(runtime);
      assert.equal(error.kind, "internal");
      assert.equal(error.operation, "plan1");
      assert.match(error.message, /9999/);
      assert.deepEqual(await readAs(runtime, Float32Array, c, 4), [2, 3, 4, 5]);
      // What it should have made fails every use, each time with the same words.
      assert.equal(runtime.execute(new Block().run(1, [b, id()], [1, 1]).bytes()), 1);
      assert.match(errors(runtime)[0].message, /9999/);
      await assert.rejects(runtime.readAsync(b, 0, 16), /9999/);
      assert.equal(runtime.execute(new Block().free(b).bytes()), 0);
    });

    test("a run that failed half way leaves nothing behind in its plan", async () => {
      const [a, b, out] = [id(), id(), id()];
      const steps = [{ kernel: 1, bind: [0, 1], words: [0x3f800000, 0, 4, 0], grid: [1, 1, 1] }];
      const block = new Block().plan(6, { device: dev, slots: 3, steps }).upload(a, dev, f32(1, 1, 1, 1));
      await execute(
        runtime,
        block
          .upload(b, dev, f32(2, 2, 2, 2))
          .alloc(out, dev, 16)
          .run(6, [a, out, a]),
      );
      assert.equal(runtime.execute(new Block().run(6, [b, out, 9999]).bytes()), 1);
      errors(runtime);
      await execute(runtime, new Block().run(6, [b, out, a]));
      assert.deepEqual(await readAs(runtime, Float32Array, out, 4), [2, 2, 2, 2]);
    });

    test("a plan is bound to other sizes, and outlives the one it was made from", async () => {
      const [a, b, c, d] = [id(), id(), id(), id()];
      // scales and adds by way of two temporaries; places: piece, begin, bytes of each
      const steps = [
        { kernel: 1, bind: [0, 2], words: [0x40000000, 0, 2, 0], grid: [1, 1, 1] },
        { copy: [2, 3, 8] },
        { kernel: 1, bind: [3, 1], words: [0x3f800000, 1, 2, 0], grid: [1, 1, 1] },
      ];
      const spec = { device: dev, slots: 2, outputs: { 1: 8 }, temps: [264, 8], places: [1, 0, 8, 0, 256, 8], steps };
      const block = new Block().plan(20, spec).upload(a, dev, f32(1, 2, 3, 4));
      const words = (n) => [1, 0x40400000, 0, n, 0, 1, 1, 1, 4 * n, 0x3f800000, 1, n, 0, 1, 1, 1, 4 * n];
      await execute(
        runtime,
        block
          .bind(21, 20, ...words(4), 0, 0, 16, 1, 256, 16, 16, 272)
          .run(20, [a, b])
          .run(21, [a, c]),
      );
      assert.deepEqual(await readAs(runtime, Float32Array, b, 2), [3, 5]);
      assert.deepEqual(await readAs(runtime, Float32Array, c, 4), [4, 7, 10, 13]);
      await execute(runtime, new Block().forget(20).run(21, [a, d]));
      assert.deepEqual(await readAs(runtime, Float32Array, d, 4), [4, 7, 10, 13]);
      assert.equal(runtime.execute(new Block().bind(22, 20, 1).bytes()), 1);
      assert.match(errors(runtime)[0].message, /plan 20 is not defined/);
      await execute(runtime, new Block().plan(23, spec));
      assert.equal(runtime.execute(new Block().bind(24, 23, 1, 2, 3).bytes()), 1);
      assert.match(errors(runtime)[0].message, /too few numbers/);
      const beyond = new Block().bind(25, 23, ...words(4), 0, 0, 16, 1, 256, 16, 16, 264);
      assert.equal(runtime.execute(beyond.bytes()), 1);
      assert.match(errors(runtime)[0].message, /temporary 1 lies outside of its memory/);
      await execute(runtime, new Block().free(a, b, c, d).forget(21, 23));
    });

    test("unknown plans, buffers and commands, short reads", async () => {
      const block = new Block().run(777, [1]).free(8888).command(55, []).alias(id(), 8888, 0, 4);
      assert.equal(runtime.execute(block.bytes()), 4);
      assert.deepEqual(
        errors(runtime).map((e) => e.message),
        ["plan 777 is not defined", "no buffer 8888", "unknown command 55", "no buffer 8888"],
      );
      const a = id();
      await execute(runtime, new Block().upload(a, dev, f32(1)));
      await assert.rejects(runtime.readAsync(a, 0, 8), /a buffer of 4/);
    });

    test("forgotten plans are gone, and a plan needs its kernels", async () => {
      const block = new Block().kernel(9, scaleAdd(dev)).plan(9, scaleAddPlan(dev, 9, 4));
      const [a, b] = [id(), id()];
      await execute(runtime, block.upload(a, dev, f32(1, 2, 3, 4)).run(9, [a, b], [1, 0]));
      assert.deepEqual(await readAs(runtime, Float32Array, b, 4), [1, 2, 3, 4]);
      assert.equal(runtime.execute(new Block().forget(9).run(9, [a, id()], [1, 0]).bytes()), 1);
      assert.match(errors(runtime)[0].message, /plan 9 is not defined/);
      assert.equal(runtime.execute(new Block().plan(9, scaleAddPlan(dev, 999, 4)).bytes()), 1);
      assert.match(errors(runtime)[0].message, /kernel 999 is not defined/);
      // its runs fail with these words, and what they should have made is there to be freed
      const c = id();
      assert.equal(runtime.execute(new Block().run(9, [a, c], [1, 0]).bytes()), 1);
      assert.match(errors(runtime)[0].message, /kernel 999 is not defined/);
      assert.equal(runtime.execute(new Block().free(c).bytes()), 0);
    });

    test("a kernel that does not compile is named, at its run too", async () => {
      const kernel = { ...scaleAdd(dev), name: "broken", source: "this is ( no program" };
      const [a, b] = [id(), id()];
      const block = new Block()
        .kernel(10, kernel)
        .plan(10, scaleAddPlan(dev, 10, 4))
        .upload(a, dev, f32(1, 2, 3, 4));
      runtime.execute(block.run(10, [a, b], [1, 1]).bytes());
      await runtime.synchronize();
      const found = errors(runtime);
      assert.equal(found[0].kind, "compile");
      assert.equal(found[0].operation, "broken");
      assert.match(found[0].message, /broken did not compile: .+/);
      assert.equal(found.filter((e) => e.kind === "validation").length, 0, JSON.stringify(found));
      // and again, because the plan may be kept
      const d = id();
      assert.equal(runtime.execute(new Block().run(10, [a, d], [1, 1]).bytes()), 1);
      assert.match(errors(runtime)[0].message, /broken did not compile/);
      await execute(runtime, new Block().free(b, d));
      const c = id();
      await execute(runtime, new Block().run(1, [a, c], [1, 1]));
      assert.deepEqual(await readAs(runtime, Float32Array, c, 4), [2, 3, 4, 5]);
    });
  });
}

test("copies between cpu and webgpu are ordered", async () => {
  const runtime = await start();
  const block = new Block()
    .kernel(1, scaleAdd(0))
    .plan(1, scaleAddPlan(0, 1, 4))
    .upload(1, 1, Float32Array.of(1, 2, 3, 4));
  await execute(runtime, block.copy(2, 0, 1, 16).run(1, [2, 3], [10, 0]));
  assert.deepEqual(await readAs(runtime, Float32Array, 3, 4), [10, 20, 30, 40]);
  const both = new Block()
    .kernel(2, scaleAdd(1))
    .plan(2, scaleAddPlan(1, 2, 4))
    .copy(4, 1, 3, 16);
  const later = both.write(3, 0, Float32Array.of(9)).free(3).run(2, [4, 5], [2, 1]).free(4).copy(6, 0, 5, 16);
  runtime.execute(later.run(1, [6, 7], [1, 1]).bytes());
  assert.deepEqual(await readAs(runtime, Float32Array, 7, 4), [22, 42, 62, 82]);
  assert.deepEqual(await readAs(runtime, Float32Array, 5, 4), [21, 41, 61, 81]);
  assert.deepEqual(errors(runtime), []);
  runtime.destroy();
});

/** A runtime with `n` copies from webgpu, buffers 1 to n of cpu, and what lets each of them come, or fail with an error. */
async function copiesOnTheirWay(n, nbytes = 16) {
  const runtime = await start();
  const block = new Block().upload(100, 0, Float32Array.of(1, 2, 3, 4));
  const arrive = [];
  const device = runtime.devices.get(0);
  const read = device.read.bind(device);
  device.read = (...what) => {
    const bytes = read(what[0], what[1], 16);
    return new Promise((resolve, reject) => {
      arrive.push((error) => (error === undefined ? resolve(bytes) : reject(error)));
    });
  };
  for (let id = 1; id <= n; id++) block.copy(id, 1, 100, nbytes);
  runtime.execute(
    block
      .kernel(1, scaleAdd(1))
      .plan(1, scaleAddPlan(1, 1, 4))
      .bytes(),
  );
  device.read = read;
  return { runtime, arrive, seen: (promise) => Promise.race([promise, turns()]) };
}

/** Resolves with undefined when all that can go on has gone on. */
const turns = () => new Promise((resolve) => setImmediate(resolve));

const early = ({ record }) => record.kind === "early";

test("who uses a copy that is on its way waits for it, and not for others", async () => {
  const { runtime, arrive, seen } = await copiesOnTheirWay(2);
  runtime.execute(new Block().upload(3, 1, Float32Array.of(7)).bytes());
  assert.deepEqual(await readAs(runtime, Float32Array, 3, 1), [7]);
  assert.equal(new Float32Array(runtime.read(3, 0, 4).buffer)[0], 7);
  assert.throws(() => runtime.read(1, 0, 4), early);
  assert.ok(runtime.holding);
  const reads = [1, 2].map((id) => readAs(runtime, Float32Array, id, 4));
  runtime.execute(new Block().run(1, [2, 4], [1, 1]).bytes());
  assert.throws(() => runtime.read(3, 0, 4), early, "its turn comes after what waits");
  assert.equal(await seen(reads[0]), undefined);
  arrive[0]();
  assert.deepEqual(await reads[0], [1, 2, 3, 4]);
  assert.equal(await seen(reads[1]), undefined);
  stats(runtime); // carries out what it can, and no more
  arrive[1]();
  assert.deepEqual(await reads[1], [1, 2, 3, 4]);
  assert.deepEqual(await readAs(runtime, Float32Array, 4, 4), [2, 3, 4, 5]);
  assert.ok(!runtime.holding);
  assert.deepEqual(errors(runtime), []);
  runtime.destroy();
});

test("a copy of what a broken kernel made has no value, also when the error has been told", async () => {
  const runtime = await start();
  const kernel = { ...scaleAdd(0), name: "broken", source: "this is ( no program" };
  const block = new Block()
    .upload(1, 0, Float32Array.of(1, 2, 3, 4))
    .copy(2, 1, 1, 16)
    .kernel(1, kernel);
  runtime.execute(
    block
      .plan(1, scaleAddPlan(0, 1, 4))
      .run(1, [1, 3], [1, 1])
      .copy(4, 1, 3, 16)
      .bytes(),
  );
  await runtime.synchronize();
  assert.equal(errors(runtime)[0].kind, "compile");
  await assert.rejects(runtime.readAsync(4, 0, 16), /broken did not compile/);
  runtime.execute(new Block().copy(5, 1, 1, 16).bytes());
  assert.deepEqual(await readAs(runtime, Float32Array, 5, 4), [1, 2, 3, 4], "what is copied later is fine");
  runtime.destroy();
});

test("blocks that come after a use of a copy are held, and Python is told to wait", async () => {
  const { runtime, arrive } = await copiesOnTheirWay(1);
  runtime.execute(new Block().run(1, [1, 2], [1, 1]).bytes());
  for (let id = 3; id < 20; id++) runtime.execute(new Block().run(1, [id - 1, id], [1, 1]).bytes());
  assert.ok(runtime.behind);
  setTimeout(arrive[0]);
  await runtime.caughtUp();
  assert.ok(!runtime.behind && !runtime.holding);
  assert.equal(new Float32Array(runtime.read(19, 0, 4).buffer)[0], 19);
  runtime.destroy();
});

test("where too much is on its way, Python is told to wait", async () => {
  const { runtime, arrive, seen } = await copiesOnTheirWay(2, 300 * 2 ** 20);
  assert.ok(runtime.behind);
  const caughtUp = runtime.caughtUp().then(() => true);
  arrive[0]();
  assert.equal(await seen(caughtUp), undefined);
  assert.ok(!runtime.behind);
  runtime.execute(new Block().free(2).bytes());
  arrive[1]();
  assert.equal(await caughtUp, true);
  assert.ok(!runtime.behind && !runtime.holding);
  assert.deepEqual(await readAs(runtime, Float32Array, 1, 4), [1, 2, 3, 4]);
  runtime.destroy();
});

test("to synchronize is to wait for copies", async () => {
  const { runtime, arrive, seen } = await copiesOnTheirWay(2);
  const synchronized = runtime.synchronize().then(() => true);
  arrive[0]();
  await runtime.devices.get(0).synchronize();
  assert.equal(await seen(synchronized), undefined);
  arrive[1]();
  assert.equal(await synchronized, true);
  assert.equal(runtime.read(2, 0, 16).byteLength, 16);
  runtime.destroy();
});

test("a copy that is freed before it comes comes nowhere, and one that fails fails its uses", async () => {
  const { runtime, arrive } = await copiesOnTheirWay(3);
  runtime.execute(new Block().free(1).upload(1, 1, Float32Array.of(7)).bytes());
  for (const each of arrive.slice(0, 2)) each();
  const error = Object.assign(new Error("it broke"), {
    record: { kind: "lost", operation: "read", message: "it broke" },
  });
  arrive[2](error);
  await runtime.synchronize();
  assert.deepEqual(await readAs(runtime, Float32Array, 1, 1), [7]);
  assert.deepEqual(errors(runtime), []);
  await assert.rejects(runtime.readAsync(3, 0, 4), /it broke/);
  assert.equal(runtime.execute(new Block().run(1, [3, 4], [1, 1]).bytes()), 1);
  assert.equal(errors(runtime)[0].kind, "gone", "it was lost then, and may be there now");
  const { cpuBuffers } = stats(runtime);
  runtime.execute(new Block().free(1, 2, 3, 4).bytes());
  assert.equal(stats(runtime).cpuBuffers, cpuBuffers - 4);
  assert.deepEqual(errors(runtime), []);
  runtime.destroy();
});

test("with the cpu alone, info says why and webgpu commands fail clearly", async () => {
  const runtime = await start({ preferCpu: true });
  const info = JSON.parse(runtime.info());
  assert.equal(info.webgpu, null);
  assert.match(info.reason, /cpu/);
  assert.equal(runtime.execute(new Block().alloc(1, 0, 16).bytes()), 1);
  assert.match(errors(runtime)[0].message, /no webgpu device/);
});

test("cpu kernels have all the views, the grid, and every element type", async () => {
  const runtime = await start({ preferCpu: true });
  const types = ["f32", "f64", "i32", "u32", "i64", "u8", "i8", "i16", "u16"];
  const kernel = {
    name: "types",
    device: 1,
    bindings: [...types, "f64"].map((type) => ({ type, access: "rw" })),
    source: `[b0, b1, b2, b3, b4, b5, b6, b7, b8].forEach((b) => { b[0] = typeof b[0] === "bigint" ? -1n : -1; });
      b9.set([P[0], I[1], F[2], D[2], Number(Q[3]), G[0], G[1], G[2], P.length]);`,
  };
  const words = [7, 0xffffffff, 0x3fc00000, 0, 0, 0x3ff80000, 9, 0];
  const slots = types.map((_, i) => i + 1);
  const steps = [{ kernel: 1, bind: [...slots.map((i) => i - 1), 9], words, grid: [4, 5, 6] }];
  const outputs = Object.fromEntries([...slots.map((i) => [i - 1, 8]), [9, 72]]);
  const block = new Block()
    .kernel(1, kernel)
    .plan(1, { device: 1, slots: 10, outputs, steps })
    .run(1, [...slots, 10]);
  await execute(runtime, block);
  assert.deepEqual(await readAs(runtime, Float64Array, 10, 9), [7, -1, 1.5, 1.5, 9, 4, 5, 6, 8]);
  const arrays = [
    Float32Array,
    Float64Array,
    Int32Array,
    Uint32Array,
    BigInt64Array,
    Uint8Array,
    Int8Array,
    Int16Array,
  ];
  for (const [i, Type] of [...arrays, Uint16Array].entries()) {
    const expected = Type === BigInt64Array ? -1n : new Type([-1])[0];
    assert.deepEqual(await readAs(runtime, Type, i + 1, 1), [expected], Type.name);
  }
});

test("a cpu kernel that throws is named by its label", async () => {
  const runtime = await start({ preferCpu: true });
  const kernel = { ...scaleAdd(1), source: "throw new Error('no such row');" };
  const block = new Block()
    .kernel(1, kernel)
    .plan(1, scaleAddPlan(1, 1, 4))
    .upload(1, 1, new Float32Array(4));
  assert.equal(runtime.execute(block.run(1, [1, 2], [1, 1]).bytes()), 1);
  const [error] = errors(runtime);
  assert.equal(error.operation, "mul, add");
  assert.match(error.message, /no such row/);
});
