// Size classes and the pool, with no device.
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const source = join(dirname(fileURLToPath(import.meta.url)), "../src");
const contents = `export * from "./pool"; export * from "./sizes";`;
const bundle = await build({
  stdin: { contents, resolveDir: source },
  bundle: true,
  format: "esm",
  write: false,
});
const code = Buffer.from(bundle.outputFiles[0].contents).toString("base64");
const { CLASS_COUNT, classCapacity, Pool, sizeClass } = await import(`data:text/javascript;base64,${code}`);

test("a class holds what is put into it, and wastes little", () => {
  for (let index = 0; index < CLASS_COUNT; index++) {
    const capacity = classCapacity(index);
    assert.equal(capacity % 64, 0);
    if (capacity < 2 ** 32) {
      assert.equal(sizeClass(capacity), index);
      assert.equal(sizeClass(capacity + 1), index + 1);
    }
    if (index > 0)
      assert.ok((capacity - classCapacity(index - 1) - 1) / capacity < (capacity > 2 ** 24 ? 0.125 : 0.25));
  }
  assert.equal(sizeClass(0), 0);
  assert.equal(classCapacity(CLASS_COUNT - 1), 2 ** 32);
});

const block = (nbytes) => {
  const classIndex = sizeClass(nbytes);
  return { classIndex, capacity: classCapacity(classIndex), poolIndex: -1 };
};

test("blocks come back, last in first out, or by name", () => {
  const pool = new Pool();
  const [a, b, c] = [block(300), block(300), block(300)];
  for (const each of [a, b, c]) pool.give(each);
  assert.equal(pool.bytes, 3 * a.capacity);
  pool.claim(a);
  assert.equal(a.poolIndex, -1);
  assert.equal(
    pool.find(b.classIndex, (each) => each !== c),
    b,
  );
  assert.equal(pool.take(c.classIndex), c);
  assert.equal(pool.take(c.classIndex), undefined);
  assert.equal(pool.bytes, 0);
});

test("trim drops just enough, large ones first, and what stays can be claimed", () => {
  const pool = new Pool();
  const small = [block(300), block(300)];
  const large = [block(5000), block(5000), block(5000)];
  for (const each of [...small, ...large]) pool.give(each);
  const dropped = [];
  pool.trim(pool.bytes - 6000, (each) => dropped.push(each));
  assert.deepEqual(dropped, large.slice(0, 2));
  pool.claim(large[2]);
  assert.equal(pool.bytes, 2 * small[0].capacity);
  pool.trim(0, (each) => dropped.push(each));
  assert.equal(dropped.length, 4);
  assert.equal(pool.bytes, 0);
});
