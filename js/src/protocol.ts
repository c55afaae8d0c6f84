/**
 * The commands that Python sends: one block of little-endian bytes, read in place.
 *
 * Every command starts 4-aligned with two words: its opcode and its length in bytes, header
 * included. `RUN` scalars are 8-aligned relative to the start of the block.
 */

export const Op = {
  KERNEL: 1,
  PLAN: 2,
  RUN: 3,
  FREE: 4,
  UPLOAD: 5,
  COPY: 6,
  ALIAS: 7,
  ALLOC: 8,
  FORGET: 9,
  WRITE: 10,
  BIND: 11,
  /** never sent: what was carried out before its turn */
  DONE: 12,
} as const;

export type Access = "r" | "rw";
export type ElementType = "f32" | "f64" | "i32" | "u32" | "i64" | "u8" | "i8" | "i16" | "u16";
export type PatchType = "f32" | "i32" | "u32" | "i64" | "f64";

export interface KernelSpec {
  name: string;
  device: number;
  source: string;
  /** another text that does the same, bit for bit, and compiles sooner: a GPU runs it until `source` is compiled */
  baseline?: string | undefined;
  bindings: { type: ElementType; access: Access }[];
  constants?: Record<string, number>;
}

export interface DispatchSpec {
  kernel: number;
  bind: number[];
  words: ArrayLike<number>;
  patch?: [word: number, scalar: number, type: PatchType][] | undefined;
  grid: number[];
  label?: string | undefined;
}

export type StepSpec = DispatchSpec | { copy: [src: number, dst: number, nbytes: number] } | { clear: [slot: number] };

export interface PlanSpec {
  name: string;
  device: number;
  slots: number;
  /** slot -> bytes, for the slots that RUN allocates */
  outputs: Record<string, number>;
  /** bytes of the pieces of memory in which temporaries lie */
  temps?: number[];
  /** of each temporary, which are slots from `slots` on: its piece, where it begins there, and its bytes; by default each has a piece */
  places?: number[] | undefined;
  scalars?: string[];
  /** roughly, in elements that its kernels compute, or read, in turn */
  work?: number | undefined;
  steps: StepSpec[];
}

const decoder = new TextDecoder();

/** A cursor over one block. The views span the whole underlying memory and are kept between blocks. */
export class BlockReader {
  words: Uint32Array = new Uint32Array(0);
  doubles: Float64Array = new Float64Array(0);
  private bytes: Uint8Array = new Uint8Array(0);
  /** word index of the command at hand; its arguments start two words later */
  at = 0;
  private next = 0;
  private end = 0;

  open(block: Uint8Array): void {
    let { buffer, byteOffset } = block;
    if (byteOffset % 8 !== 0) {
      // Scalars are 8-aligned relative to the block, so the block itself has to be.
      buffer = block.slice().buffer;
      byteOffset = 0;
    }
    if (this.words.buffer !== buffer) {
      this.words = new Uint32Array(buffer, 0, Math.floor(buffer.byteLength / 4));
      this.doubles = new Float64Array(buffer, 0, Math.floor(buffer.byteLength / 8));
      this.bytes = new Uint8Array(buffer);
    }
    this.next = byteOffset / 4;
    this.end = this.next + Math.floor(block.byteLength / 4);
  }

  /** Moves to the next command and returns its opcode, or 0 at the end. */
  advance(): number {
    const at = this.next;
    if (at + 2 > this.end) return 0;
    const size = this.words[at + 1] as number;
    if (size < 8 || size % 4 !== 0 || at + size / 4 > this.end) {
      this.next = this.end;
      throw new Error(`malformed command block: opcode ${this.words[at]} with length ${size}`);
    }
    this.at = at;
    this.next = at + size / 4;
    return this.words[at] as number;
  }

  /** The command at hand and what comes after it, in the same memory. */
  rest(): Uint8Array {
    return this.bytes.subarray(this.at * 4, this.end * 4);
  }

  /** The command at hand is not to be carried out again. Only of memory that is the runtime's own. */
  done(): void {
    this.words[this.at] = Op.DONE;
  }

  /** Argument `i` of the command at hand. */
  arg(i: number): number {
    return this.words[this.at + 2 + i] as number;
  }

  /** `nbytes` of data that start at argument `i`, padded to 4 where `padded`. */
  data(i: number, nbytes: number): Uint8Array<ArrayBuffer> {
    const start = (this.at + 2 + i) * 4;
    if (start + nbytes > this.next * 4) throw new Error("malformed command block: data runs past its command");
    return this.bytes.subarray(start, start + nbytes) as Uint8Array<ArrayBuffer>;
  }

  /** The same as numbers, in memory of their own. */
  numbers(i: number, nbytes: number): Uint32Array {
    const start = this.at + 2 + i;
    if (start + nbytes / 4 > this.next) throw new Error("malformed command block: data runs past its command");
    return this.words.slice(start, start + nbytes / 4);
  }

  json(i: number, nbytes: number): unknown {
    // slice: TextDecoder refuses views on shared memory
    return JSON.parse(decoder.decode(this.data(i, nbytes).slice()));
  }

  /** Lets go of the memory, which may be a WebAssembly heap that has since grown. */
  close(): void {
    this.next = this.end = 0;
  }
}
