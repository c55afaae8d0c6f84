// The child process of CPython, spoken to in frames.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { bundle } from "../build.mjs";
import { Block, scaleAdd, scaleAddPlan } from "./block.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const folder = mkdtempSync(join(here, ".host-")); // here, so that it finds node_modules as the package does
const file = join(folder, "host.mjs");
await bundle(folder);
after(() => rmSync(folder, { recursive: true }));

const [EXECUTE, READ, INFO, STATS, RESET, SYNCHRONIZE, ERRORS, INIT, LOSE] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

/** What READ takes: a block, which may be empty, and what is read after it. */
function reading(wanted, block = new Uint8Array(0)) {
  const text = Buffer.from(JSON.stringify([wanted].flat()));
  const head = Buffer.alloc(8);
  head.writeUInt32LE(block.byteLength, 0);
  return Buffer.concat([head, block, text]);
}

class Host {
  constructor() {
    this.child = spawn(process.execPath, [file], { stdio: ["pipe", "pipe", "ignore"] });
    this.exited = new Promise((resolve) => this.child.on("exit", resolve));
    this.input = Buffer.alloc(0);
    this.waiting = [];
    this.child.stdout.on("data", (data) => {
      this.input = Buffer.concat([this.input, data]);
      while (this.input.length >= 8) {
        const length = this.input.readUInt32LE(0);
        if (this.input.length < 8 + length) break;
        const payload = this.input.subarray(8, 8 + length);
        this.waiting.shift()({ status: this.input.readUInt32LE(4), payload, text: payload.toString() });
        this.input = this.input.subarray(8 + length);
      }
    });
  }

  send(kind, payload = new Uint8Array(0)) {
    const data = typeof payload === "string" ? Buffer.from(payload) : Buffer.from(payload);
    const head = Buffer.alloc(8);
    head.writeUInt32LE(data.length, 0);
    head.writeUInt32LE(kind, 4);
    // in two writes, the second split: frames need not come in one piece
    this.child.stdin.write(Buffer.concat([head, data.subarray(0, 3)]));
    this.child.stdin.write(data.subarray(3));
  }

  ask(kind, payload) {
    const reply = new Promise((resolve) => this.waiting.push(resolve));
    this.send(kind, typeof payload === "object" && !ArrayBuffer.isView(payload) ? JSON.stringify(payload) : payload);
    return reply;
  }
}

for (const device of ["webgpu", "cpu"]) {
  test(`a conversation, on ${device}`, async () => {
    const dev = device === "webgpu" ? 0 : 1;
    const host = new Host();
    assert.equal((await host.ask(STATS)).status, 1); // not yet
    const info = JSON.parse((await host.ask(INIT, { device })).text);
    assert.equal(info.webgpu === null, device === "cpu");
    assert.deepEqual(JSON.parse((await host.ask(INFO)).text), info);

    const block = new Block().kernel(1, scaleAdd(dev)).plan(1, scaleAddPlan(dev, 1, 4));
    host.send(EXECUTE, block.upload(1, dev, Float32Array.of(1, 2, 3, 4)).bytes());
    host.send(EXECUTE, new Block().run(1, [1, 2], [2, 1]).bytes());
    // sent at once, answered in order
    const [read, stats, reset] = await Promise.all([
      host.ask(READ, reading({ id: 2, offset: 4, nbytes: 8 })),
      host.ask(STATS),
      host.ask(RESET),
    ]);
    assert.equal(read.status, 0);
    assert.deepEqual([...new Float32Array(read.payload.buffer.slice(read.payload.byteOffset).slice(0, 8))], [5, 7]);
    assert.equal(JSON.parse(stats.text).runs, 1);
    assert.equal(reset.status, 0);
    assert.equal(JSON.parse((await host.ask(STATS)).text).runs, 0);

    // errors wait for the next read or synchronize, or to be taken
    host.send(EXECUTE, new Block().free(77).bytes());
    const failed = await host.ask(SYNCHRONIZE);
    assert.equal(failed.status, 1);
    assert.match(JSON.parse(failed.text)[0].message, /no buffer 77/);
    assert.equal((await host.ask(SYNCHRONIZE)).status, 0);
    host.send(EXECUTE, new Block().free(78).bytes());
    assert.equal(JSON.parse((await host.ask(STATS)).text).executes, 2);
    assert.match((await host.ask(ERRORS)).text, /no buffer 78/);
    assert.equal((await host.ask(ERRORS)).text, "[]");
    assert.match(
      JSON.parse((await host.ask(READ, reading({ id: 79, offset: 0, nbytes: 4 }))).text)[0].message,
      /no buffer 79/,
    );

    if (dev === 0) {
      assert.equal((await host.ask(LOSE)).status, 0);
      assert.equal(JSON.parse((await host.ask(READ, reading({ id: 2, offset: 0, nbytes: 4 }))).text)[0].kind, "lost");
      assert.notEqual(JSON.parse((await host.ask(INIT, { device })).text).webgpu, null);
      host.send(EXECUTE, new Block().upload(1, 0, Uint8Array.of(1, 2, 3, 4)).bytes());
      assert.deepEqual([...(await host.ask(READ, reading({ id: 1, offset: 0, nbytes: 4 }))).payload], [1, 2, 3, 4]);
    }
    host.child.stdin.end();
    assert.equal(await host.exited, 0);
  });
}

test("large blocks and large reads", async () => {
  const host = new Host();
  await host.ask(INIT, { device: "auto" });
  const data = Float32Array.from({ length: 5e6 }, (_, i) => i);
  host.send(EXECUTE, new Block().upload(1, 0, data).bytes());
  const { payload } = await host.ask(READ, reading({ id: 1, offset: 0, nbytes: data.byteLength }));
  assert.deepEqual(payload.compare(Buffer.from(data.buffer)), 0);
  host.child.stdin.end();
  assert.equal(await host.exited, 0);
});
