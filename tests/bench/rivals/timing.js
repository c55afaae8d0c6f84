// How a row is timed in another library: as timing.py does.

const ROUNDS = 5;
const WARM = 500;
const LONG_WARM = 2000;
const STEADY = 0.04;
const LONG_ENOUGH = 100;
const TOO_LONG = 1000;
const SEVERAL = 10;
const MOST = 200;
const COMPARED = 16;

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

/** Of each input its numbers: those of a large one may be the same ones again and again, and come once. */
async function fetched(inputs) {
  const bytes = await (await fetch("/inputs")).arrayBuffer();
  const found = {};
  for (const { name, shape, type, at, count } of inputs) {
    const once = type === "int" ? new Int32Array(bytes, at, count) : new Float32Array(bytes, at, count);
    const size = shape.reduce((a, b) => a * b, 1);
    const data = new once.constructor(size);
    for (let i = 0; i < size; i += count) data.set(size - i < count ? once.subarray(0, size - i) : once, i);
    found[name] = { shape, data };
  }
  return found;
}

/**
 * Offers `rows`, which make steps, to the page that this runs in. Whether a step gives its result or a promise of it, it is awaited.
 *
 * library: `start()`; `send(result)`, so that the GPU has what was called; `free(result)`; `wait()`, until the GPU is done;
 * `numbers(result)`, all of them in a flat array.
 */
export function offer(library, rows) {
  globalThis.names = Object.keys(rows);

  globalThis.measure = async (name, sizes, inputs) => {
    await library.start();
    const step = await rows[name](await fetched(inputs), sizes);
    const result = await step();
    library.send(result);
    const all = await library.numbers(result);
    library.free(result);
    const stride = Math.max(1, Math.floor(all.length / COMPARED));
    const numbers = Array.from({ length: Math.min(COMPARED, all.length) }, (_, i) => all[i * stride]);

    const milliseconds = async (n) => {
      let kept = null;
      const begin = performance.now();
      for (let i = 0; i < n; i++) {
        const fresh = await step();
        library.send(fresh);
        if (kept !== null) library.free(kept);
        kept = fresh;
      }
      const called = performance.now();
      await library.wait();
      const done = performance.now();
      library.free(kept);
      return { called: called - begin, done: done - begin };
    };

    for (let i = 0; i < 3; i++) await milliseconds(1);
    let once = Infinity;
    for (let i = 0; i < 3; i++) once = Math.min(once, (await milliseconds(1)).done);
    const fit = (ms) => Math.floor(ms / Math.max(once, 1e-3));
    const n = Math.max(1, Math.min(MOST, fit(LONG_ENOUGH)), Math.min(SEVERAL, fit(TOO_LONG)));
    const begin = performance.now();
    for (let passed = 0, last = Infinity; passed < LONG_WARM; passed = performance.now() - begin) {
      const now = (await milliseconds(n)).done;
      if (passed > WARM && Math.abs(now - last) < STEADY * now) break;
      last = now;
    }
    const times = [];
    for (let i = 0; i < ROUNDS; i++) times.push(await milliseconds(n));
    return {
      done: median(times.map((t) => t.done)) / n,
      best: Math.min(...times.map((t) => t.done)) / n,
      called: median(times.map((t) => t.called)) / n,
      gpu: null,
      numbers,
    };
  };
}
