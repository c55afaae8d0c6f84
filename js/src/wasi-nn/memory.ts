/**
 * A guest's memory. Every address is checked before it is used, and every view is made anew: the guest's memory may have
 * grown, and its buffer be another, since the last look at it.
 */

import { fail } from "./errno";

export class GuestMemory {
  private memory: WebAssembly.Memory | null = null;

  attach(memory: WebAssembly.Memory): void {
    this.memory = memory;
  }

  private get buffer(): ArrayBufferLike {
    return (this.memory ?? fail("missingMemory", "the guest exports no memory")).buffer;
  }

  private check(address: number, nbytes: number, what: string): void {
    if (address + nbytes > this.buffer.byteLength)
      fail("invalidArgument", `${what}: ${nbytes} bytes at ${address} lie outside the guest's memory`);
  }

  /** `nbytes` bytes at `address`, which can be used without being copied as long as the guest does not go on */
  view(address: number, nbytes: number, what: string): Uint8Array<ArrayBufferLike> {
    this.check(address, nbytes, what);
    return new Uint8Array(this.buffer, address, nbytes);
  }

  /** a copy, which no thread of the guest can change */
  bytes(address: number, nbytes: number, what: string): Uint8Array<ArrayBuffer> {
    const copy = new Uint8Array(nbytes);
    copy.set(this.view(address, nbytes, what));
    return copy;
  }

  /** `count` little-endian words. Addresses need not be multiples of 4: a guest may pack its records. */
  words(address: number, count: number, what: string): number[] {
    this.check(address, 4 * count, what);
    const view = new DataView(this.buffer, address, 4 * count);
    return Array.from({ length: count }, (_, index) => view.getUint32(4 * index, true));
  }

  text(address: number, nbytes: number, what: string): string {
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(this.bytes(address, nbytes, what));
    } catch (error) {
      if (error instanceof TypeError) fail("invalidArgument", `${what} is not UTF-8`);
      throw error;
    }
  }

  writeWord(address: number, value: number, what: string): void {
    this.check(address, 4, what);
    new DataView(this.buffer, address, 4).setUint32(0, value, true);
  }
}
