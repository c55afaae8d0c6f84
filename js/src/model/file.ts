/** The bytes of a file, wherever it is: a URL, a file of the user's, a path in Node, memory, an answer of a server. */

/** A URL or a path (in Node) as text, or what holds the bytes. */
export type FileLike = string | URL | Blob | ArrayBuffer | ArrayBufferView | Response;

export interface FileOptions {
  /** Keep what is fetched in the origin's file system, which workers have (OPFS). Default true. */
  cache?: boolean;
  /** Ends it: what was begun rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

type Bytes = Uint8Array<ArrayBuffer>;

export interface ReadFile {
  /** bytes of the whole; -1 until that is known */
  readonly size: number;
  /** Fewer than `nbytes` where the file ends. */
  read(at: number, nbytes: number): Promise<Bytes>;
  close(): void;
}

class MemoryFile implements ReadFile {
  constructor(private readonly bytes: Bytes) {}
  get size(): number {
    return this.bytes.byteLength;
  }
  async read(at: number, nbytes: number): Promise<Bytes> {
    return this.bytes.subarray(at, at + nbytes);
  }
  close(): void {}
}

class BlobFile implements ReadFile {
  constructor(private readonly blob: Blob) {}
  get size(): number {
    return this.blob.size;
  }
  async read(at: number, nbytes: number): Promise<Bytes> {
    return new Uint8Array(await this.blob.slice(at, at + nbytes).arrayBuffer());
  }
  close(): void {}
}

type Fs = typeof import("node:fs");

const nodeFs = (): Fs | undefined => globalThis.process?.getBuiltinModule?.("node:fs") as Fs | undefined;

class NodeFile implements ReadFile {
  readonly size: number;
  private readonly handle: number;

  constructor(
    private readonly fs: Fs,
    path: string | URL,
  ) {
    this.handle = fs.openSync(path, "r");
    this.size = fs.fstatSync(this.handle).size;
  }
  async read(at: number, nbytes: number): Promise<Bytes> {
    const bytes = new Uint8Array(Math.max(0, Math.min(nbytes, this.size - at)));
    const got = this.fs.readSync(this.handle, bytes, 0, bytes.byteLength, at);
    return bytes.subarray(0, got);
  }
  close(): void {
    this.fs.closeSync(this.handle);
  }
}

/** An answer's body comes once, and a file may be read again: it is gathered. */
async function whole(response: Response, signal?: AbortSignal): Promise<Blob> {
  if (!response.ok) throw new Error(`${response.url || "the model"} cannot be fetched: HTTP ${response.status}`);
  return unlessAborted(response.blob(), signal);
}

/** What is waited for, or the signal's reason, whichever comes first. */
export async function unlessAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (signal === undefined) return promise;
  const ended = new AbortController();
  const aborted = new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { signal: ended.signal });
  });
  try {
    signal.throwIfAborted();
    return await Promise.race([promise, aborted]);
  } finally {
    ended.abort();
    promise.catch(() => {}); // nobody waits for it any more
  }
}

/** Also of what another window or context of Node made, whose classes are others. */
const isA = (x: unknown, ...names: string[]): boolean => names.includes(Object.prototype.toString.call(x).slice(8, -1));

/** Of a file that can be opened again and again: an answer's body is taken now. */
export async function lasting(from: FileLike, signal?: AbortSignal): Promise<Exclude<FileLike, Response>> {
  return isA(from, "Response") ? whole(from as Response, signal) : (from as never);
}

/** Opens it to be read from the beginning to the end. */
export async function openFile(from: Exclude<FileLike, Response>, options: FileOptions = {}): Promise<ReadFile> {
  if (ArrayBuffer.isView(from))
    return new MemoryFile(new Uint8Array(from.buffer as ArrayBuffer, from.byteOffset, from.byteLength));
  if (isA(from, "ArrayBuffer")) return new MemoryFile(new Uint8Array(from as ArrayBuffer));
  if (isA(from, "Blob", "File")) return new BlobFile(from as Blob);
  if (typeof from !== "string" && !isA(from, "URL"))
    throw new TypeError(
      "load() takes a URL, a File or Blob, an ArrayBuffer, a Uint8Array, a Response, or a path in Node",
    );
  const address = String(from);
  const fs = nodeFs();
  if (fs !== undefined) {
    const url = /^[a-z][a-z\d+.-]+:/i.test(address) ? new URL(address) : null;
    if (url === null || url.protocol === "file:") return new NodeFile(fs, url ?? address);
  }
  const base = globalThis.location?.href;
  const { cache = true, signal } = options;
  const { Source } = await import("../source"); // what resumes and keeps: only who fetches needs it
  return Source.open(new URL(address, base).href, { cache, signal });
}
