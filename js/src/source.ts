/**
 * Bytes from elsewhere, a piece at a time: a URL, read as a stream, or a file that the user has chosen.
 *
 * What comes over the network goes into a file of the origin's own file system (OPFS) where there is one, so that the next
 * time nothing is fetched, and what broke off goes on where it was. Without one, only what has not been read yet is held.
 */

const FOLDER = "tabtorch";
/** room for the header of a kept file: JSON, then spaces */
const HEADER = 1024;
/** bytes of chunks after which they become a Blob, which a browser may put on disk */
const GATHER = 16 * 2 ** 20;

type Chunk = Uint8Array<ArrayBuffer>;

/** Where bytes lie between the network and the reader. `length`: where the next chunk goes. */
interface Store {
  length: number;
  append(chunk: Chunk): void;
  read(at: number, nbytes: number): Promise<Chunk>;
  close(): void;
}

class BlobStore implements Store {
  length: number;
  constructor(private readonly blob: Blob) {
    this.length = blob.size;
  }
  append(): void {}
  async read(at: number, nbytes: number): Promise<Chunk> {
    return new Uint8Array(await this.blob.slice(at, at + nbytes).arrayBuffer());
  }
  close(): void {}
}

/** In memory: what lies before the last place read is dropped, unless all is kept, as Blobs. */
class MemoryStore implements Store {
  peak = 0;
  private chunks: Chunk[] = [];
  private held = 0;
  private base: number;
  private done = new Blob([]);

  constructor(
    public length: number,
    private readonly keep: boolean,
  ) {
    this.base = length;
  }

  append(chunk: Chunk): void {
    this.chunks.push(chunk);
    this.length += chunk.byteLength;
    this.held += chunk.byteLength;
    this.peak = Math.max(this.peak, this.held);
    if (this.keep && this.held >= GATHER) this.gather();
  }

  async read(at: number, nbytes: number): Promise<Chunk> {
    if (this.keep) {
      this.gather();
      return new Uint8Array(await this.done.slice(at - this.base, at - this.base + nbytes).arrayBuffer());
    }
    if (at < this.base) throw new Error(`byte ${at} has been read already, and nothing keeps the file`);
    this.drop(at - this.base);
    const taken = new Uint8Array(Math.min(nbytes, this.held));
    let to = 0;
    for (const chunk of this.chunks) {
      const part = chunk.subarray(0, taken.byteLength - to);
      taken.set(part, to);
      to += part.byteLength;
      if (to === taken.byteLength) break;
    }
    this.drop(to);
    return taken;
  }

  close(): void {
    this.chunks = [];
  }

  private gather(): void {
    this.done = new Blob([this.done, ...this.chunks]);
    this.chunks = [];
    this.held = 0;
  }

  private drop(nbytes: number): void {
    this.base += nbytes;
    this.held -= nbytes;
    for (let rest = nbytes; rest > 0; ) {
      const chunk = this.chunks[0] as Chunk;
      if (chunk.byteLength > rest) {
        this.chunks[0] = chunk.subarray(rest);
        return;
      }
      rest -= chunk.byteLength;
      this.chunks.shift();
    }
  }
}

/** What TypeScript's library does not know yet. */
interface SyncHandle {
  getSize(): number;
  read(into: Uint8Array, options: { at: number }): number;
  write(from: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  flush(): void;
  close(): void;
}

interface Meta {
  url: string;
  /** bytes of the whole file; -1: not known */
  size: number;
  /** what the server said that tells one version from another */
  tag: string;
}

/** A file of the origin: a header, then the bytes so far. */
class KeptFile implements Store {
  length = 0;
  meta: Meta | null = null;

  constructor(private readonly handle: SyncHandle) {
    const size = handle.getSize();
    if (size < HEADER) return;
    const head = new Uint8Array(HEADER);
    handle.read(head, { at: 0 });
    try {
      this.meta = JSON.parse(new TextDecoder().decode(head)) as Meta;
      this.length = size - HEADER;
    } catch {
      this.start(null);
    }
  }

  /** Empties it; with `meta`, for what is to come. */
  start(meta: Meta | null): void {
    this.handle.truncate(0);
    this.length = 0;
    this.meta = meta;
    if (meta !== null) this.describe(meta);
  }

  describe(meta: Meta): void {
    this.meta = meta;
    const head = new Uint8Array(HEADER).fill(32);
    const { read, written } = new TextEncoder().encodeInto(JSON.stringify(meta), head);
    if (read === 0 || written >= HEADER) throw new Error("the header has no room");
    if (this.handle.write(head, { at: 0 }) < HEADER) throw new Error("no room");
    this.handle.flush();
  }

  append(chunk: Chunk): void {
    if (this.handle.write(chunk, { at: HEADER + this.length }) < chunk.byteLength) throw new Error("no room");
    this.length += chunk.byteLength;
  }

  async read(at: number, nbytes: number): Promise<Chunk> {
    const bytes = new Uint8Array(Math.max(0, Math.min(nbytes, this.length - at)));
    if (this.handle.read(bytes, { at: HEADER + at }) < bytes.byteLength) throw new Error("the kept file is cut off");
    return bytes;
  }

  close(): void {
    this.handle.flush();
    this.handle.close();
  }
}

export interface SourceOptions {
  /** keep what is fetched for the next time; default true */
  cache?: boolean;
  /** the reader will go back and forth: nothing may be dropped; default false */
  random?: boolean;
  /** how often to ask again when the network fails, and the first pause in ms */
  tries?: number;
  pause?: number;
  /** ends it: what waits rejects with its reason */
  signal?: AbortSignal | undefined;
}

type Folder = FileSystemDirectoryHandle & { removeEntry(name: string): Promise<void> };

async function folder(): Promise<Folder> {
  const root = await navigator.storage.getDirectory();
  return (await root.getDirectoryHandle(FOLDER, { create: true })) as Folder;
}

async function nameOf(url: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The kept file of a URL, or null: no such file system here, not in a worker, or another tab has the file open. */
async function keptFile(url: string): Promise<KeptFile | null> {
  try {
    const file = await (await folder()).getFileHandle(await nameOf(url), { create: true });
    const open = file as unknown as { createSyncAccessHandle(): Promise<SyncHandle> };
    return new KeptFile(await open.createSyncAccessHandle());
  } catch {
    return null;
  }
}

/** Forgets the kept file of `url`, or all of them. */
export async function forget(url?: string): Promise<void> {
  try {
    if (url !== undefined) return await (await folder()).removeEntry(await nameOf(url));
    await (await navigator.storage.getDirectory()).removeEntry(FOLDER, { recursive: true });
  } catch {
    // nothing was kept
  }
}

export class Source {
  /** bytes of the whole; -1 until it is known */
  size = -1;
  /** bytes that came over the network */
  fetched = 0;
  private tag = "";
  private stream: ReadableStreamDefaultReader<Chunk> | null = null;
  private ended = false;
  private failures = 0;
  /** where the last read ended: bytes before are not needed again, unless all are */
  private consumed = 0;

  private constructor(
    readonly url: string,
    private store: Store,
    private readonly options: SourceOptions,
  ) {}

  static async open(from: string | Blob, options: SourceOptions = {}): Promise<Source> {
    if (typeof from !== "string") {
      const source = new Source("", new BlobStore(from), options);
      source.size = from.size;
      source.ended = true;
      return source;
    }
    const kept = options.cache === false ? null : await keptFile(from);
    const source = new Source(from, kept ?? new MemoryStore(0, options.random === true), options);
    if (kept?.meta) {
      source.size = kept.meta.size;
      source.tag = kept.meta.tag;
      source.ended = kept.length === source.size;
    }
    try {
      if (!source.ended) await source.connect();
    } catch (error) {
      source.close();
      throw error;
    }
    return source;
  }

  /** The most bytes that were waiting in memory to be read. */
  get peak(): number {
    return this.store instanceof MemoryStore ? this.store.peak : 0;
  }

  /** Bytes [offset, offset + nbytes), fewer where the file ends. Forwards only, unless it is `random` or kept. */
  async read(offset: number, nbytes: number): Promise<Chunk> {
    while (!this.ended && this.store.length < offset + nbytes) await this.pull();
    const bytes = await this.store.read(offset, nbytes);
    this.consumed = offset + bytes.byteLength;
    return bytes;
  }

  /** Fetches all of it; then `size` is known. */
  async whole(): Promise<void> {
    while (!this.ended) await this.pull();
  }

  close(): void {
    void this.stream?.cancel().catch(() => {});
    this.stream = null;
    this.store.close();
  }

  /** Asks for the bytes from the end of the store on. */
  private async connect(): Promise<void> {
    const start = this.store.length;
    const response = await this.ask(start);
    const { headers } = response;
    const tag = headers.get("etag") ?? headers.get("last-modified") ?? "";
    const changed = start > 0 && tag !== this.tag;
    if (changed && this.consumed > 0) throw new Error(`${this.url} changed while it was read`);
    const length = headers.has("content-encoding") ? null : headers.get("content-length");
    this.stream = (response.body as ReadableStream<Chunk>).getReader();
    if (start > 0 && !changed && response.status === 206) return;
    if (changed && response.status === 206) {
      await this.stream.cancel();
      this.restart();
      return this.connect();
    }
    // All of it comes: from the start, or over again what is here already.
    this.size = length === null ? -1 : Number(length);
    this.tag = tag;
    if (start === 0 || changed) {
      this.restart();
      return;
    }
    for (let rest = start; rest > 0; ) {
      const { value } = await this.stream.read();
      if (value === undefined) throw new Error(`${this.url} is shorter than it was`);
      if (value.byteLength > rest) this.append(value.subarray(rest));
      rest -= value.byteLength;
    }
  }

  private restart(): void {
    const meta = { url: this.url, size: this.size, tag: this.tag };
    if (this.store instanceof KeptFile) this.orElse(() => (this.store as KeptFile).start(meta));
  }

  private async ask(start: number): Promise<Response> {
    const { tries = 5, pause = 250, signal = null } = this.options;
    for (;;) {
      let wrong: string;
      signal?.throwIfAborted();
      try {
        const headers: Record<string, string> = start > 0 ? { Range: `bytes=${start}-` } : {};
        const response = await fetch(this.url, { headers, signal });
        if (response.ok) return response;
        wrong = `HTTP ${response.status} ${response.statusText}`.trim();
        if (response.status === 416 && start > 0) {
          this.store = new MemoryStore(0, this.options.random === true);
          return this.ask(0);
        }
        if (response.status < 500 && response.status !== 429) this.failures = tries;
      } catch (error) {
        signal?.throwIfAborted();
        wrong = (error as Error).message;
      }
      if (++this.failures >= tries) throw new Error(`${this.url} cannot be fetched: ${wrong}`);
      await new Promise((resolve) => setTimeout(resolve, pause * 2 ** this.failures));
    }
  }

  private async pull(): Promise<void> {
    let chunk: Chunk | undefined;
    try {
      if (this.stream === null) await this.connect();
      chunk = (await (this.stream as ReadableStreamDefaultReader<Chunk>).read()).value;
    } catch (error) {
      this.stream = null;
      this.options.signal?.throwIfAborted();
      if (++this.failures >= (this.options.tries ?? 5)) throw error;
      return;
    }
    if (chunk !== undefined) {
      this.failures = 0;
      this.append(chunk);
      return;
    }
    this.stream = null;
    const { length } = this.store;
    if (length < this.size) {
      // The connection ended early: the next pull asks for the rest.
      if (++this.failures >= (this.options.tries ?? 5))
        throw new Error(`${this.url} ended after ${length} of ${this.size} bytes`);
      return;
    }
    this.ended = true;
    if (this.size !== length) {
      this.size = length;
      const { store } = this;
      const meta = { url: this.url, size: length, tag: this.tag };
      if (store instanceof KeptFile) this.orElse(() => store.describe(meta));
    }
  }

  private append(chunk: Chunk): void {
    this.fetched += chunk.byteLength;
    if (this.size >= 0 && this.store.length + chunk.byteLength > this.size) this.size = -1; // it was compressed on its way
    if (this.store instanceof KeptFile) this.orElse(() => this.store.append(chunk), chunk);
    else this.store.append(chunk);
  }

  /** Does what the kept file is asked; where it has no room, goes on without it. */
  private orElse(act: () => void, chunk?: Chunk): void {
    try {
      act();
    } catch {
      this.store = new Spilled(this.store as KeptFile, this.options.random);
      if (chunk) this.store.append(chunk);
    }
  }
}

/** A kept file that had no more room: its bytes, and what came after in memory. */
class Spilled implements Store {
  private readonly rest: MemoryStore;
  private readonly split: number;

  constructor(
    private readonly file: KeptFile,
    keep = false,
  ) {
    this.split = file.length;
    this.rest = new MemoryStore(file.length, keep);
  }

  get length(): number {
    return this.rest.length;
  }

  append(chunk: Chunk): void {
    this.rest.append(chunk);
  }

  async read(at: number, nbytes: number): Promise<Chunk> {
    if (at >= this.split) return this.rest.read(at, nbytes);
    const head = await this.file.read(at, Math.min(nbytes, this.split - at));
    if (head.byteLength === nbytes) return head;
    const tail = await this.rest.read(this.split, nbytes - head.byteLength);
    const both = new Uint8Array(head.byteLength + tail.byteLength);
    both.set(head);
    both.set(tail, head.byteLength);
    return both;
  }

  close(): void {
    this.file.start(null); // half a file that there was no room for is no use to keep
    this.file.close();
    this.rest.close();
  }
}
