// Tiered compilation. Here the two texts of a kernel do different things, so that one sees which runs.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Block, errors, execute, readAs, start, stats } from "./block.mjs";

const text = (value) => `@group(0) @binding(0) var<uniform> P: array<vec4<u32>, 1>;
  @group(0) @binding(1) var<storage, read_write> o: array<u32>;
  @compute @workgroup_size(1) fn main() { o[0] = ${value} + min(P[0].x, 0u); }`;
const kernel = (source, baseline) => ({
  name: "tiers",
  device: 0,
  source,
  baseline,
  bindings: [{ type: "u32", access: "rw" }],
});
const plan = (id) => ({
  name: `plan ${id}`,
  device: 0,
  slots: 1,
  outputs: { 0: 4 },
  steps: [{ kernel: id, bind: [0], words: [0], grid: [1] }],
});

for (const sideBySide of [false, true])
  describe(`tiers, kernels ${sideBySide ? "side by side" : "one by one"}`, () => {
    let runtime;
    let next = 1;
    before(async () => {
      runtime = await start({ sideBySide });
    });
    after(() => runtime.destroy());

    const run = async (planId) => {
      const id = 1000 + next++;
      await execute(runtime, new Block().run(planId, [id]));
      const [value] = await readAs(runtime, Uint32Array, id, 1);
      return value;
    };
    const settled = async () => {
      while (stats(runtime).optimizing > 0) await new Promise((resolve) => setTimeout(resolve, 5));
    };

    test("the baseline runs first, the full text after the second run", async () => {
      const { kernels } = stats(runtime);
      await execute(runtime, new Block().kernel(1, kernel(text("7u"), text("3u"))).plan(1, plan(1)));
      assert.equal(await run(1), 3);
      await settled();
      assert.equal(await run(1), 3); // asks for the other
      await settled();
      assert.equal(await run(1), 7);
      assert.equal(stats(runtime).kernels - kernels, 1); // counted once
    });

    test("another kernel of the same text has what is compiled", async () => {
      await execute(runtime, new Block().kernel(2, kernel(text("7u"), text("3u"))).plan(2, plan(2)));
      assert.equal(await run(2), 7);
    });

    test("a kernel without a baseline stays as it is", async () => {
      await execute(runtime, new Block().kernel(3, kernel(text("5u"))).plan(3, plan(3)));
      for (let i = 0; i < 3; i++) assert.equal(await run(3), 5);
      assert.equal(stats(runtime).optimizing, 0);
    });

    test("a full text that does not compile is told of", async () => {
      await execute(runtime, new Block().kernel(4, kernel(text("nothing"), text("4u"))).plan(4, plan(4)));
      assert.equal(await run(4), 4);
      runtime.execute(new Block().run(4, [999]).bytes());
      await settled();
      assert.match(errors(runtime)[0].message, /kernel tiers did not compile: .*nothing/s);
    });
  });
