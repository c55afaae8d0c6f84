// What the page is told of the runtime: nothing while nobody looks and nothing compiles, and not too often else.
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const { outputFiles } = await build({
  entryPoints: [join(dirname(fileURLToPath(import.meta.url)), "../../web/src/watch.ts")],
  bundle: true,
  format: "esm",
  write: false,
});
const text = Buffer.from(outputFiles[0].contents).toString("base64");
const { Watch } = await import(`data:text/javascript;base64,${text}`);

/** A runtime that does nothing, a watch over it, and a clock. */
function start(t, flag) {
  let now = 1e6;
  t.mock.timers.enable({ apis: ["setInterval"] });
  t.mock.method(performance, "now", () => now);
  const runtime = { observer: null, compiling: { asked: 0, ready: 0 }, asked: 0 };
  runtime.stats = () => {
    runtime.asked++;
    return '{"dispatches":7}';
  };
  const events = [];
  const watch = new Watch(
    runtime,
    (event) => events.push(event),
    () => 1000,
    flag,
  );
  const pass = (ms) => {
    for (let i = 0; i < ms; i += 10) {
      now += 10;
      t.mock.timers.tick(10);
    }
  };
  /** A loop that never waits: blocks of commands, and no timer's turn. */
  const work = (ms) => {
    for (let i = 0; i < ms; i += 10) {
      now += 10;
      runtime.observer();
    }
  };
  const counts = () => events.splice(0).map(({ event, ready, asked }) => [event, ready, asked]);
  return { runtime, watch, events, pass, work, counts };
}

test("nobody looks: nothing is asked and nothing told", (t) => {
  const { runtime, events, pass, work } = start(t);
  work(2000);
  pass(2000);
  assert.deepEqual([events, runtime.asked], [[], 0]);
});

test("while somebody looks: four times a second, whether Python waits or works", (t) => {
  const { runtime, watch, events, pass, work } = start(t);
  watch.on = true;
  assert.deepEqual(events, [{ event: "figures", at: 1e6, counters: { dispatches: 7 }, heap: 1000 }]);
  pass(1000);
  const waited = events.length;
  work(1000);
  assert.ok(waited >= 4 && waited <= 5 && events.length - waited === 4, `${waited}, ${events.length}`);
  watch.on = false;
  pass(1000);
  work(1000);
  assert.equal(runtime.asked, events.length);
  assert.equal(events.length, waited + 4);
});

test("a loop that never waits learns from shared memory that somebody looks, and that nobody does", (t) => {
  const flag = new Int32Array(new SharedArrayBuffer(4));
  const { events, pass, work } = start(t, flag);
  work(1000);
  flag[0] = 1;
  work(1000);
  const told = events.length;
  assert.equal(told, 4);
  flag[0] = 0;
  work(1000);
  pass(1000);
  assert.equal(events.length, told);
});

test("pipelines are counted from when all were ready", (t) => {
  const { runtime, pass, work, counts } = start(t);
  runtime.compiling = { asked: 10, ready: 0 };
  work(10);
  assert.deepEqual(counts(), [["compiling", 0, 10]]);
  runtime.compiling = { asked: 12, ready: 4 };
  pass(100);
  assert.deepEqual(counts(), [["compiling", 4, 12]]);
  runtime.compiling = { asked: 12, ready: 12 };
  pass(1000);
  assert.deepEqual(counts(), [["compiling", 12, 12]], "once, and then no more");
  runtime.compiling = { asked: 15, ready: 12 };
  work(10);
  assert.deepEqual(counts(), [["compiling", 12, 15]], "soon after: it goes on");
  runtime.compiling = { asked: 15, ready: 15 };
  pass(5000);
  counts();
  runtime.compiling = { asked: 16, ready: 15 };
  work(10);
  assert.deepEqual(counts(), [["compiling", 0, 1]], "long after: it begins anew");
});
