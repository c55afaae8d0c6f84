// How far Python may run ahead, on a device whose work is done when the test says.
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const source = join(dirname(fileURLToPath(import.meta.url)), "../src/webgpu/backlog.ts");
const bundle = await build({ entryPoints: [source], bundle: true, format: "esm", write: false });
const code = Buffer.from(bundle.outputFiles[0].contents).toString("base64");
const { Backlog } = await import(`data:text/javascript;base64,${code}`);

/** A queue that takes `ms(work)` for what it was given. */
function device(backlog, ms) {
  const queue = { time: 0, onSubmittedWorkDone: () => new Promise((done) => setTimeout(done, queue.time - now())) };
  const now = () => performance.now();
  const submit = (work) => {
    queue.time = Math.max(queue.time, now()) + ms(work);
    backlog().submitted(work);
  };
  return { queue, submit };
}

test("software begins with little, and no more than that is ever in flight", async () => {
  let backlog;
  const { queue, submit } = device(
    () => backlog,
    (work) => work / 2 ** 21,
  );
  backlog = new Backlog({ queue }, true);
  let waits = 0;
  for (let i = 0; i < 40; i++) {
    submit(backlog.portion);
    assert.ok(queue.time - performance.now() < 400);
    if (!backlog.behind) continue;
    waits++;
    await backlog.caughtUp();
    assert.ok(!backlog.behind);
  }
  assert.ok(waits > 5);
});

test("who has waited finds the GPU busy still, though all was sent in one turn of the event loop", async () => {
  let backlog;
  const { queue, submit } = device(
    () => backlog,
    (work) => work / 2 ** 21,
  );
  backlog = new Backlog({ queue }, true);
  for (let round = 0; round < 4; round++) {
    while (!backlog.behind) submit(2 ** 23); // 4 ms each, 100 in all
    await backlog.caughtUp();
    assert.ok(!backlog.behind);
    const left = queue.time - performance.now();
    assert.ok(left > 20, `${left} ms are left`);
  }
});

test("a fast GPU is soon given more, and is waited for seldom", async () => {
  let backlog;
  const { queue, submit } = device(
    () => backlog,
    () => 0,
  );
  backlog = new Backlog({ queue }, false);
  const { portion } = backlog;
  let waits = 0;
  for (let i = 0; i < 4000; i++) {
    submit(2 ** 32);
    if (!backlog.behind) continue;
    waits++;
    await backlog.caughtUp();
  }
  assert.ok(waits > 3 && waits < 60, `${waits}`);
  assert.ok(backlog.portion > 16 * portion);
});

test("small work is never waited for; a lost device has nothing in flight", async () => {
  const backlog = new Backlog({ queue: { onSubmittedWorkDone: () => Promise.reject(new Error("lost")) } }, true);
  for (let i = 0; i < 1000; i++) backlog.submitted(64);
  assert.ok(!backlog.behind);
  backlog.submitted(2 ** 40);
  assert.ok(backlog.behind);
  await backlog.caughtUp();
  assert.ok(!backlog.behind);
});
