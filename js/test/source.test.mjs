// Bytes from a URL, a piece at a time: what is held, what is kept, and what happens when the connection breaks.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { after, before, beforeEach, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const { outputFiles } = await build({
  entryPoints: [join(dirname(fileURLToPath(import.meta.url)), "../src/source.ts")],
  bundle: true,
  format: "esm",
  write: false,
});
const text = Buffer.from(outputFiles[0].contents).toString("base64");
const { Source, forget } = await import(`data:text/javascript;base64,${text}`);

const SIZE = 3_000_000;
const data = Uint8Array.from({ length: SIZE }, (_, i) => (i * 7919) % 251);

/** An origin's file system, as far as a worker uses it. */
class Folder {
  files = new Map();
  room = Number.POSITIVE_INFINITY;
  open = 0;
  async getDirectoryHandle() {
    return this;
  }
  async removeEntry(name) {
    if (name === "tabtorch") this.files.clear();
    else if (!this.files.delete(name)) throw new Error("not found");
  }
  async getFileHandle(name) {
    if (!this.files.has(name)) this.files.set(name, new Uint8Array(0));
    return {
      createSyncAccessHandle: async () => {
        if (this.open > 0) throw new Error("the file is open");
        this.open++;
        return this.handle(name);
      },
    };
  }
  handle(name) {
    const now = () => this.files.get(name);
    return {
      getSize: () => now().byteLength,
      read: (into, { at }) => {
        const part = now().subarray(at, at + into.byteLength);
        into.set(part);
        return part.byteLength;
      },
      write: (from, { at }) => {
        const end = Math.min(at + from.byteLength, this.room);
        if (end > now().byteLength) {
          const longer = new Uint8Array(end);
          longer.set(now());
          this.files.set(name, longer);
        }
        now().set(from.subarray(0, Math.max(0, end - at)), at);
        return Math.max(0, end - at);
      },
      truncate: (size) => this.files.set(name, now().slice(0, size)),
      flush: () => {},
      close: () => {
        this.open--;
      },
    };
  }
}

let asked;
let breaks;
let ranges;
let tag;
let failing;
let server;
let url;

before(async () => {
  server = createServer((request, response) => {
    const { range } = request.headers;
    asked.push(range ?? "");
    if (request.url === "/no" || failing-- > 0) {
      response.writeHead(request.url === "/no" ? 404 : 503).end();
      return;
    }
    const start = range && ranges ? Number(/=(\d+)-/.exec(range)[1]) : 0;
    response.writeHead(start > 0 ? 206 : 200, { "Content-Length": SIZE - start, ETag: tag });
    const end = breaks.shift() ?? SIZE;
    if (end >= SIZE) response.end(data.subarray(start));
    else response.write(data.subarray(start, end), () => setTimeout(() => response.destroy(), 20));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${server.address().port}/m`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

const options = { pause: 1 };

async function all(source, piece = 400_001) {
  for (let at = 0; ; ) {
    const part = await source.read(at, piece);
    assert.deepEqual(part, data.subarray(at, at + piece));
    at += part.byteLength;
    if (part.byteLength < piece) {
      assert.equal(at, SIZE);
      assert.equal(source.size, SIZE);
      return;
    }
  }
}

function storage(folder) {
  const value = folder && { storage: { getDirectory: async () => folder } };
  Object.defineProperty(globalThis, "navigator", { value, configurable: true });
}

describe("source", () => {
  beforeEach(() => {
    asked = [];
    breaks = [];
    ranges = true;
    tag = '"1"';
    failing = 0;
    storage(undefined);
  });

  test("only what is not read yet is held", async () => {
    const source = await Source.open(url, options);
    await all(source);
    assert.ok(source.peak < 400_001 + 2 ** 18, `${source.peak} bytes`);
    await assert.rejects(source.read(0, 1), /has been read already/);
    source.close();
  });

  test("a connection that breaks off goes on where it was, with ranges and without", async () => {
    for (ranges of [true, false]) {
      asked = [];
      breaks = [1_000_000, 2_000_000];
      const source = await Source.open(url, options);
      await all(source);
      assert.equal(asked.length, 3);
      assert.equal(asked[0], "");
      for (const range of asked.slice(1)) assert.match(range, /^bytes=\d+-$/);
      source.close();
    }
  });

  test("a server that is busy is asked again, one that has nothing is not", async () => {
    failing = 2;
    const source = await Source.open(url, options);
    await all(source);
    source.close();
    assert.equal(asked.length, 3);
    await assert.rejects(Source.open(url.replace("/m", "/no"), options), /cannot be fetched: HTTP 404/);
    assert.equal(asked.length, 4);
    breaks = new Array(9).fill(0);
    const broken = await Source.open(url, { ...options, tries: 3 });
    await assert.rejects(broken.read(0, SIZE));
  });

  test("a file that changes while it is read is an error", async () => {
    breaks = [1_000_000];
    const source = await Source.open(url, options);
    await source.read(0, 1000);
    tag = '"2"';
    await assert.rejects(source.read(1000, SIZE), /changed while it was read/);
    source.close();
  });

  test("what was fetched is kept, and read from anywhere", async () => {
    const folder = new Folder();
    storage(folder);
    const first = await Source.open(url, options);
    await all(first);
    assert.equal(first.peak, 0);
    first.close();
    const second = await Source.open(url, options);
    assert.equal(second.size, SIZE);
    await all(second);
    assert.deepEqual(await second.read(5, 3), data.subarray(5, 8));
    second.close();
    assert.equal(asked.length, 1);
    assert.equal(second.fetched, 0);
    await forget(url);
    assert.equal(folder.files.size, 0);
    await forget(url);
    assert.equal(folder.open, 0);
  });

  test("half a file is gone on with the next time, unless it has changed", async () => {
    for (const changed of [false, true]) {
      storage(new Folder());
      tag = '"1"';
      asked = [];
      const first = await Source.open(url, options);
      await first.read(0, 1_000_000);
      first.close();
      if (changed) tag = '"2"';
      const second = await Source.open(url, options);
      await all(second);
      second.close();
      assert.match(asked[1], /^bytes=\d{7}-$/);
      assert.equal(asked.length, changed ? 3 : 2);
      assert.equal(second.fetched === SIZE, changed);
    }
  });

  test("where there is no room it goes on without", async () => {
    for (const random of [false, true]) {
      const folder = new Folder();
      folder.room = 1_500_000;
      storage(folder);
      const source = await Source.open(url, { ...options, random });
      if (random) {
        await source.whole();
        assert.deepEqual(await source.read(2_999_000, 1000), data.subarray(2_999_000));
        assert.deepEqual(await source.read(1_400_000, 200_000), data.subarray(1_400_000, 1_600_000));
      }
      await all(source);
      source.close();
      assert.ok([...folder.files.values()].every((file) => file.byteLength === 0));
    }
  });

  test("another tab has the file: nothing is kept", async () => {
    const folder = new Folder();
    storage(folder);
    const one = await Source.open(url, options);
    const other = await Source.open(url, options);
    await Promise.all([all(one), all(other)]);
    one.close();
    other.close();
    assert.equal(asked.length, 2);
  });

  test("back and forth without a file system", async () => {
    const source = await Source.open(url, { ...options, random: true });
    await source.whole();
    assert.deepEqual(await source.read(2_000_000, 10), data.subarray(2_000_000, 2_000_010));
    assert.deepEqual(await source.read(10, 10), data.subarray(10, 20));
    source.close();
  });

  test("a file that the user has chosen", async () => {
    const source = await Source.open(new Blob([data]));
    await all(source);
    assert.deepEqual(await source.read(10, 10), data.subarray(10, 20));
    source.close();
  });
});
