/** Writes a block of commands, as protocol.ts reads it: what py/tabtorch/bridge/block.py is for Python. */

import { Op } from "../protocol";

const INITIAL = 1 << 14;
/** A block that one large upload made larger than this is given back. */
const SHRINK_ABOVE = 1 << 22;

const encoder = new TextEncoder();

export class Block {
  private bytes = new Uint8Array(INITIAL);
  private view = new DataView(this.bytes.buffer);
  private at = 0;

  /** A command: its words, then bytes, padded to 8. */
  command(op: number, words: ArrayLike<number>, data: Uint8Array = NOTHING): void {
    const head = 8 + 4 * words.length;
    const size = (head + data.byteLength + 7) & ~7;
    const at = this.room(size);
    this.view.setUint32(at, op, true);
    this.view.setUint32(at + 4, size, true);
    for (let i = 0; i < words.length; i++) this.view.setUint32(at + 8 + 4 * i, words[i] as number, true);
    this.bytes.set(data, at + head);
    this.bytes.fill(0, at + head + data.byteLength, at + size);
  }

  /** KERNEL or PLAN. */
  define(op: number, id: number, spec: object): void {
    const text = encoder.encode(JSON.stringify(spec));
    this.command(op, [id, text.byteLength], text);
  }

  /** scalars: numbers, or whole ones of 64 bits, as the plan's `types` say. */
  run(plan: number, ids: readonly number[], types: readonly string[], scalars: readonly (number | bigint)[]): void {
    const words = [plan, ids.length, ...ids];
    if (words.length % 2) words.push(0);
    const data = new DataView(new ArrayBuffer(8 * types.length));
    types.forEach((type, i) => {
      const x = scalars[i] as number | bigint;
      if (type === "i64") data.setBigInt64(8 * i, BigInt(typeof x === "bigint" ? x : Math.trunc(x)), true);
      else data.setFloat64(8 * i, Number(x), true);
    });
    this.command(Op.RUN, words, new Uint8Array(data.buffer));
  }

  bind(id: number, template: number, numbers: readonly number[]): void {
    const data = Uint32Array.from(numbers);
    this.command(Op.BIND, [id, template, data.byteLength], new Uint8Array(data.buffer));
  }

  /** What was written, in memory that is written over with the next command. */
  take(): Uint8Array {
    const taken = this.bytes.subarray(0, this.at);
    this.at = 0;
    if (this.bytes.byteLength > SHRINK_ABOVE) this.grow(INITIAL, 0);
    return taken;
  }

  private room(size: number): number {
    const at = this.at;
    if (at + size > this.bytes.byteLength) this.grow(Math.max(2 * this.bytes.byteLength, at + size), at);
    this.at = at + size;
    return at;
  }

  private grow(size: number, kept: number): void {
    const bytes = new Uint8Array(size);
    bytes.set(this.bytes.subarray(0, kept));
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer);
  }
}

const NOTHING = new Uint8Array(0);
