/**
 * The child process of CPython: the runtime behind a pipe.
 *
 * Frames, little endian. Request on standard input: `[u32 length of the payload][u32 kind][payload]`;
 * reply on standard output: `[u32 length of the payload][u32 status][payload]`, status 0 = the answer,
 * 1 = an error: JSON `[{kind, operation, message}]`. Requests are carried out strictly in order.
 *
 *   1 execute       payload: a block of commands. No reply; its errors are kept for the next read or synchronize
 *   2 read          payload: `[u32 length of a block][u32 0][block][JSON]`, a list of {id, offset, nbytes}: carries the block
 *                   out, and reads after it. Reply: the bytes, one after the other, or the errors so far
 *   3 info          reply: JSON, see Runtime.info
 *   4 stats         reply: JSON, see Runtime.stats
 *   5 resetStats    reply: empty
 *   6 synchronize   reply: empty, or the errors so far
 *   7 takeErrors    reply: JSON list
 *   8 init          payload: JSON {device: "webgpu" | "cpu" | "auto"}. Starts a runtime (anew, where there was one).
 *                   Reply: info; with no GPU it says `webgpu: null` and the `reason`
 *   9 loseDevice    reply: empty, once the device is gone
 *  10 startTimes    reply: see Runtime.startTimes
 *  11 takeTimes     reply: JSON, see Runtime.takeTimes
 *  13 heap          reply: JSON of the bytes of the JavaScript heap after a collection
 *  12 fault         payload: JSON, see FaultSpec. Reply: JSON of the counts so far
 *
 * Standard output carries frames only. The process ends when its standard input does.
 */

import { execFileSync } from "node:child_process";
import { writeSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { recordOf } from "./errors";
// Not bundled: the very file the browser runs, which lies beside this one (see build.mjs). It sets globalThis.tabtorchRuntime.
import "./runtime.js";
import type { createRuntime as Create, ReadSpec, Runtime } from "./runtime";

const { createRuntime } = (globalThis as unknown as { tabtorchRuntime: { createRuntime: typeof Create } })
  .tabtorchRuntime;

console.log = console.info = console.debug = console.error;

const Kind = {
  EXECUTE: 1,
  READ: 2,
  INFO: 3,
  STATS: 4,
  RESET_STATS: 5,
  SYNCHRONIZE: 6,
  TAKE_ERRORS: 7,
  INIT: 8,
  LOSE_DEVICE: 9,
  START_TIMES: 10,
  TAKE_TIMES: 11,
  FAULT: 12,
  HEAP: 13,
} as const;

interface Dawn {
  create(options: string[]): GPU;
  globals: Record<string, unknown>;
}

let runtime: Runtime | null = null;
/** Dawn ends with the object that `create` returned: keep it. */
let gpu: GPU | undefined;

/** Where npm's `webgpu` may lie: named by the user, beside or above this file, in the working directory, installed globally. */
function* places(): Generator<string> {
  const named = process.env.TABTORCH_NODE_MODULES;
  if (named) yield resolve(named);
  for (const start of [dirname(fileURLToPath(import.meta.url)), process.cwd()]) {
    for (let dir = start; ; dir = dirname(dir)) {
      yield join(dir, "node_modules");
      if (dir === dirname(dir)) break;
    }
  }
  yield join(dirname(process.execPath), "..", "lib", "node_modules");
  try {
    yield execFileSync("npm", ["root", "-g"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    // no npm: there was nothing global to find
  }
}

/** Timestamps as they are, for profiles: rounded to 65 µs, as for pages that are not trusted, they say nothing of most kernels. */
const FINE_TIMES = "disable-dawn-features=timestamp_quantization";

async function openDawn(): Promise<{ gpu?: GPU; reason?: string }> {
  if (gpu !== undefined) return { gpu };
  let reason = "npm's `webgpu` (Dawn) is not installed: `npm install webgpu`, or set TABTORCH_NODE_MODULES";
  for (const place of places()) {
    try {
      const dawn = (await import(pathToFileURL(join(place, "webgpu", "index.js")).href)) as Dawn;
      Object.assign(globalThis, dawn.globals);
      const more = process.env.TABTORCH_DAWN_FEATURES;
      gpu = dawn.create([FINE_TIMES, ...(more ? [`enable-dawn-features=${more}`] : [])]);
      return { gpu };
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (code !== "ERR_MODULE_NOT_FOUND") reason = `Dawn in ${place} does not start: ${message}`;
    }
  }
  return { reason };
}

async function init(device: string): Promise<Runtime> {
  runtime?.destroy();
  if (device === "cpu") return createRuntime({ preferCpu: true });
  const dawn = await openDawn();
  // Dawn is in this process: an adapter that is not there at once will not come.
  return createRuntime({ patience: 0, ...dawn });
}

const text = (payload: string) => new TextEncoder().encode(payload);
const nothing = new Uint8Array(0);

class Failure extends Error {
  constructor(readonly records: string) {
    super(records);
  }
}

/** Throws the errors so far, if any. */
function check(of: Runtime): void {
  const records = of.takeErrors();
  if (records !== "[]") throw new Failure(records);
}

const decoder = new TextDecoder();

function readRequest(payload: Uint8Array): { block: Uint8Array; wanted: ReadSpec[] } {
  const end = 8 + new DataView(payload.buffer, payload.byteOffset).getUint32(0, true);
  const wanted = JSON.parse(decoder.decode(payload.subarray(end))) as ReadSpec[];
  return { block: payload.subarray(8, end), wanted };
}

function joined(parts: Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0] as Uint8Array;
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.byteLength, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.byteLength;
  }
  return all;
}

async function answer(kind: number, payload: Uint8Array): Promise<Uint8Array | null> {
  if (kind === Kind.INIT) {
    const { device } = JSON.parse(new TextDecoder().decode(payload)) as { device: string };
    runtime = await init(device);
    return text(runtime.info());
  }
  if (runtime === null) throw new Error("the first request must be init");
  await runtime.revive();
  switch (kind) {
    case Kind.EXECUTE:
      runtime.execute(payload);
      if (runtime.behind) await runtime.caughtUp(); // the pipe fills, and who writes to it waits
      return null;
    case Kind.READ: {
      const { block, wanted } = readRequest(payload);
      let bytes: Uint8Array;
      try {
        bytes = joined(await runtime.executeAndRead(block, wanted));
      } catch (error) {
        check(runtime); // what came before explains it best
        throw error;
      }
      check(runtime);
      return bytes;
    }
    case Kind.INFO:
      return text(runtime.info());
    case Kind.STATS:
      return text(runtime.stats());
    case Kind.RESET_STATS:
      runtime.resetStats();
      return nothing;
    case Kind.SYNCHRONIZE:
      try {
        await runtime.synchronize();
      } catch (error) {
        check(runtime);
        throw error;
      }
      check(runtime);
      return nothing;
    case Kind.TAKE_ERRORS:
      return text(runtime.takeErrors());
    case Kind.LOSE_DEVICE:
      runtime.loseDevice();
      if (JSON.parse(runtime.info()).webgpu !== null) await runtime.deviceLost;
      return nothing;
    case Kind.START_TIMES:
      return text(runtime.startTimes());
    case Kind.TAKE_TIMES:
      return text(runtime.takeTimes());
    case Kind.HEAP:
      return text(JSON.stringify(heap()));
    case Kind.FAULT:
      return text(runtime.fault(new TextDecoder().decode(payload)));
    default:
      throw new Error(`unknown request ${kind}`);
  }
}

let collect: (() => void) | undefined;

/** Bytes of JavaScript objects that something still refers to. */
function heap(): number {
  if (collect === undefined) {
    setFlagsFromString("--expose_gc");
    collect = runInNewContext("gc") as () => void;
  }
  collect();
  return process.memoryUsage().heapUsed;
}

/** Answers of at most so many bytes go in one piece: who waits for them wakes once. */
const TOGETHER = 1 << 16;

function send(status: number, payload: Uint8Array): void {
  const { byteLength } = payload;
  const together = byteLength <= TOGETHER;
  const head = new Uint8Array(together ? 8 + byteLength : 8);
  const view = new DataView(head.buffer);
  view.setUint32(0, byteLength, true);
  view.setUint32(4, status, true);
  if (together) head.set(payload, 8);
  write(head);
  if (!together) write(payload);
}

const pause = new Int32Array(new SharedArrayBuffer(4));

function write(bytes: Uint8Array): void {
  for (let at = 0; at < bytes.byteLength; ) {
    try {
      at += writeSync(1, bytes, at);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") process.exit(0); // nobody listens any more
      Atomics.wait(pause, 0, 0, 1);
    }
  }
}

async function serve(kind: number, payload: Uint8Array): Promise<void> {
  try {
    const reply = await answer(kind, payload);
    if (reply !== null) send(0, reply);
  } catch (error) {
    const records = error instanceof Failure ? error.records : JSON.stringify([recordOf(error, "")]);
    if (kind !== Kind.EXECUTE) send(1, text(records));
    else console.error(error);
  }
}

/** Bytes off standard input; false from `need` when it has ended. */
class Input {
  private chunks: Buffer[] = [];
  private size = 0;
  private readonly source = process.stdin[Symbol.asyncIterator]() as AsyncIterator<Buffer>;

  async need(nbytes: number): Promise<boolean> {
    while (this.size < nbytes) {
      const { value, done } = await this.source.next();
      if (done) return false;
      this.chunks.push(value);
      this.size += value.byteLength;
    }
    return true;
  }

  /** The next bytes, in memory of their own that starts 8-aligned. */
  take(nbytes: number): Uint8Array {
    const taken = new Uint8Array(nbytes);
    for (let at = 0; at < nbytes; ) {
      const chunk = this.chunks[0] as Buffer;
      const part = chunk.subarray(0, nbytes - at);
      taken.set(part, at);
      at += part.byteLength;
      if (part.byteLength === chunk.byteLength) this.chunks.shift();
      else this.chunks[0] = chunk.subarray(part.byteLength);
    }
    this.size -= nbytes;
    return taken;
  }
}

async function main(): Promise<void> {
  const input = new Input();
  while (await input.need(8)) {
    const head = new DataView(input.take(8).buffer);
    const length = head.getUint32(0, true);
    if (!(await input.need(length))) break;
    await serve(head.getUint32(4, true), input.take(length));
  }
  process.exit(0);
}

void main();
