/**
 * A small WASI (preview 1): what a guest needs to read files of the page, and to say what it found.
 *
 * Arguments, environment, standard streams, clocks, random numbers, and folders that are objects in memory and can only be
 * read. No sockets, no writing: a guest that wants more takes a shim of its own (`run(wasm, { wasi })`).
 */

export type FileContent = Uint8Array | ArrayBuffer | string;
/** the content of a file, or another folder, by name */
export interface Folder {
  [name: string]: FileContent | Folder;
}

export interface Preview1Options {
  args?: readonly string[];
  env?: Readonly<Record<string, string>>;
  /** folders by the path that the guest knows them by: `{ "/models": { "a.bin": bytes } }` */
  preopens?: Readonly<Record<string, Folder>>;
  stdin?: FileContent;
  /** whole lines, without their ends */
  stdout?: (line: string) => void;
  stderr?: (line: string) => void;
}

/** Thrown through the guest by `proc_exit`. */
export class Exit extends Error {
  override readonly name = "Exit";
  constructor(readonly code: number) {
    super(`the guest ended with ${code}`);
  }
}

const OK = 0;
const BADF = 8;
const FAULT = 21;
const INVAL = 28;
const ISDIR = 31;
const NOENT = 44;
const NOSYS = 52;
const NOTDIR = 54;
const ROFS = 69;
const SPIPE = 70;
const NOTCAPABLE = 76;

const CHARACTER_DEVICE = 2;
const DIRECTORY = 3;
const REGULAR_FILE = 4;
const O_CREAT = 1;
const O_DIRECTORY = 2;
const O_EXCL = 4;
const O_TRUNC = 8;
/** fd_datasync, fd_write, …: what nobody has here */
const RIGHT_READ = 1n << 1n;
const RIGHT_WRITE = 1n << 6n;

interface OpenFile {
  kind: "file";
  bytes: Uint8Array;
  at: number;
}
interface OpenFolder {
  kind: "folder";
  folder: Folder;
  /** the name it was opened under at the beginning */
  preopen: string | null;
}
interface Lines {
  kind: "lines";
  say: (line: string) => void;
  decoder: TextDecoder;
  rest: string;
}
type Open = OpenFile | OpenFolder | Lines;

class WasiError extends Error {
  constructor(readonly errno: number) {
    super(`errno ${errno}`);
  }
}
const stop = (errno: number): never => {
  throw new WasiError(errno);
};

const encoder = new TextEncoder();
/** characters after which a line is given out though it has no end */
const LONGEST_LINE = 65536;

function contentOf(content: FileContent): Uint8Array {
  if (typeof content === "string") return encoder.encode(content);
  return content instanceof Uint8Array ? content : new Uint8Array(content);
}

function isFolder(entry: FileContent | Folder): entry is Folder {
  return typeof entry !== "string" && !(entry instanceof ArrayBuffer) && !ArrayBuffer.isView(entry);
}

/** The functions of `wasi_snapshot_preview1`, over the memory of a guest. */
export class Preview1 {
  readonly wasiImport: Record<string, (...args: never[]) => number>;
  private memory: WebAssembly.Memory | null = null;
  private readonly open = new Map<number, Open>();
  private next = 3;
  private readonly args: Uint8Array[];
  private readonly env: Uint8Array[];

  constructor(options: Preview1Options = {}) {
    const words = (list: readonly string[]) => list.map((text) => encoder.encode(`${text}\0`));
    this.args = words(options.args ?? ["guest"]);
    this.env = words(Object.entries(options.env ?? {}).map(([name, value]) => `${name}=${value}`));
    const lines = (say: (line: string) => void): Lines => ({
      kind: "lines",
      say,
      decoder: new TextDecoder(),
      rest: "",
    });
    this.open.set(0, { kind: "file", bytes: contentOf(options.stdin ?? ""), at: 0 });
    this.open.set(1, lines(options.stdout ?? ((line) => console.log(line))));
    this.open.set(2, lines(options.stderr ?? ((line) => console.error(line))));
    for (const [path, folder] of Object.entries(options.preopens ?? {}))
      this.open.set(this.next++, { kind: "folder", folder, preopen: path });
    const functions: Record<string, (...args: never[]) => number> = {};
    for (const name of NAMES) functions[name] = this.answering(name);
    for (const name of UNSUPPORTED) functions[name] = () => NOSYS;
    for (const name of WRITING) functions[name] = () => ROFS;
    this.wasiImport = functions;
  }

  attach(memory: WebAssembly.Memory): void {
    this.memory = memory;
  }

  /** Says what has no end of line yet. */
  flush(): void {
    for (const file of this.open.values()) {
      if (file.kind !== "lines") continue;
      const rest = file.rest + file.decoder.decode();
      file.rest = "";
      if (rest) file.say(rest);
    }
  }

  private answering(name: (typeof NAMES)[number]): (...args: never[]) => number {
    const body = this[name] as (...args: (number | bigint)[]) => number;
    return (...args) => {
      try {
        // Pointers and file numbers are unsigned
        return body.apply(
          this,
          (args as (number | bigint)[]).map((arg) => (typeof arg === "number" ? arg >>> 0 : arg)),
        );
      } catch (error) {
        if (error instanceof WasiError) return error.errno;
        if (error instanceof RangeError) return FAULT; // an address outside of the memory
        throw error;
      }
    };
  }

  private get view(): DataView {
    return new DataView((this.memory as WebAssembly.Memory).buffer);
  }

  private bytes(address: number, length: number): Uint8Array {
    return new Uint8Array((this.memory as WebAssembly.Memory).buffer, address, length);
  }

  private file(fd: number): Open {
    return this.open.get(fd) ?? stop(BADF);
  }

  private list(words: readonly Uint8Array[], pointers: number, at: number): number {
    for (const [index, word] of words.entries()) {
      this.view.setUint32(pointers + 4 * index, at, true);
      this.bytes(at, word.length).set(word);
      at += word.length;
    }
    return OK;
  }

  private listSizes(words: readonly Uint8Array[], count: number, size: number): number {
    this.view.setUint32(count, words.length, true);
    this.view.setUint32(
      size,
      words.reduce((sum, word) => sum + word.length, 0),
      true,
    );
    return OK;
  }

  args_get(pointers: number, at: number): number {
    return this.list(this.args, pointers, at);
  }
  args_sizes_get(count: number, size: number): number {
    return this.listSizes(this.args, count, size);
  }
  environ_get(pointers: number, at: number): number {
    return this.list(this.env, pointers, at);
  }
  environ_sizes_get(count: number, size: number): number {
    return this.listSizes(this.env, count, size);
  }

  clock_res_get(_clock: number, result: number): number {
    this.view.setBigUint64(result, 1000n, true);
    return OK;
  }
  clock_time_get(clock: number, _precision: bigint, result: number): number {
    const milliseconds = clock === 0 ? Date.now() : performance.now();
    this.view.setBigUint64(result, BigInt(Math.round(milliseconds * 1e6)), true);
    return OK;
  }
  random_get(address: number, length: number): number {
    // Not into the guest's memory itself, which may be shared; 65536 bytes are allowed at a time
    for (let at = 0; at < length; at += 65536) {
      const piece = new Uint8Array(Math.min(65536, length - at));
      this.bytes(address + at, piece.length).set(crypto.getRandomValues(piece));
    }
    return OK;
  }
  sched_yield(): number {
    return OK;
  }
  proc_exit(code: number): number {
    throw new Exit(code);
  }

  /** The buffers of a vector: address and length of each. */
  private buffers(address: number, count: number): Uint8Array[] {
    const { view } = this;
    return Array.from({ length: Math.min(count, 1024) }, (_, index) =>
      this.bytes(view.getUint32(address + 8 * index, true), view.getUint32(address + 8 * index + 4, true)),
    );
  }

  fd_write(fd: number, vectors: number, count: number, written: number): number {
    const file = this.file(fd);
    if (file.kind !== "lines") return file.kind === "folder" ? ISDIR : BADF;
    let total = 0;
    for (const buffer of this.buffers(vectors, count)) {
      file.rest += file.decoder.decode(buffer.slice(), { stream: true });
      total += buffer.length;
    }
    const lines = file.rest.split("\n");
    file.rest = lines.pop() as string;
    for (const line of lines) file.say(line);
    if (file.rest.length > LONGEST_LINE) {
      file.say(file.rest);
      file.rest = "";
    }
    this.view.setUint32(written, total, true);
    return OK;
  }

  private read(file: OpenFile, at: number, vectors: number, count: number, result: number): number {
    let total = 0;
    for (const buffer of this.buffers(vectors, count)) {
      const piece = file.bytes.subarray(at + total, at + total + buffer.length);
      buffer.set(piece);
      total += piece.length;
    }
    this.view.setUint32(result, total, true);
    return total;
  }
  private readable(fd: number): OpenFile {
    const file = this.file(fd);
    return file.kind === "file" ? file : stop(file.kind === "folder" ? ISDIR : BADF);
  }
  fd_read(fd: number, vectors: number, count: number, result: number): number {
    const file = this.readable(fd);
    file.at += this.read(file, file.at, vectors, count, result);
    return OK;
  }
  fd_pread(fd: number, vectors: number, count: number, offset: bigint, result: number): number {
    this.read(this.readable(fd), Number(BigInt.asUintN(64, offset)), vectors, count, result);
    return OK;
  }
  fd_seek(fd: number, offset: bigint, whence: number, result: number): number {
    const file = this.file(fd);
    if (file.kind !== "file" || fd === 0) return SPIPE;
    const from = [0, file.at, file.bytes.length][whence] ?? stop(INVAL);
    const at = from + Number(offset);
    if (!(at >= 0 && Number.isSafeInteger(at))) return INVAL;
    file.at = at;
    this.view.setBigUint64(result, BigInt(at), true);
    return OK;
  }
  fd_tell(fd: number, result: number): number {
    const file = this.file(fd);
    if (file.kind !== "file" || fd === 0) return SPIPE;
    this.view.setBigUint64(result, BigInt(file.at), true);
    return OK;
  }
  fd_close(fd: number): number {
    this.file(fd);
    this.open.delete(fd);
    return OK;
  }
  fd_renumber(from: number, to: number): number {
    const file = this.file(from);
    this.file(to);
    this.open.set(to, file);
    this.open.delete(from);
    return OK;
  }
  fd_advise(fd: number): number {
    this.readable(fd);
    return OK;
  }
  fd_sync(fd: number): number {
    this.file(fd);
    return OK;
  }
  fd_datasync(fd: number): number {
    return this.fd_sync(fd);
  }
  fd_fdstat_set_flags(fd: number): number {
    return this.fd_sync(fd);
  }

  private typeOf(file: Open): number {
    return file.kind === "folder" ? DIRECTORY : file.kind === "lines" ? CHARACTER_DEVICE : REGULAR_FILE;
  }
  fd_fdstat_get(fd: number, result: number): number {
    const file = this.file(fd);
    const { view } = this;
    view.setBigUint64(result, 0n, true);
    view.setUint8(result, fd === 0 ? CHARACTER_DEVICE : this.typeOf(file));
    const rights = BigInt.asUintN(64, file.kind === "lines" ? RIGHT_WRITE : ~RIGHT_WRITE);
    view.setBigUint64(result + 8, rights, true);
    view.setBigUint64(result + 16, BigInt.asUintN(64, ~RIGHT_WRITE), true);
    return OK;
  }

  private filestat(type: number, size: number, result: number): number {
    const { view } = this;
    for (let at = 0; at < 64; at += 8) view.setBigUint64(result + at, 0n, true);
    view.setUint8(result + 16, type);
    view.setBigUint64(result + 24, 1n, true); // names of it
    view.setBigUint64(result + 32, BigInt(size), true);
    return OK;
  }
  fd_filestat_get(fd: number, result: number): number {
    const file = this.file(fd);
    return this.filestat(this.typeOf(file), file.kind === "file" ? file.bytes.length : 0, result);
  }
  path_filestat_get(fd: number, _flags: number, path: number, length: number, result: number): number {
    const entry = this.resolve(fd, path, length);
    if (isFolder(entry)) return this.filestat(DIRECTORY, 0, result);
    return this.filestat(REGULAR_FILE, contentOf(entry).length, result);
  }

  fd_prestat_get(fd: number, result: number): number {
    const file = this.file(fd);
    if (file.kind !== "folder" || file.preopen === null) return BADF;
    this.view.setUint32(result, 0, true);
    this.view.setUint32(result + 4, encoder.encode(file.preopen).length, true);
    return OK;
  }
  fd_prestat_dir_name(fd: number, address: number, length: number): number {
    const file = this.file(fd);
    if (file.kind !== "folder" || file.preopen === null) return BADF;
    this.bytes(address, length).set(encoder.encode(file.preopen).subarray(0, length));
    return OK;
  }

  /** What is at a path below an open folder; none leads out of it. */
  private resolve(fd: number, path: number, length: number): FileContent | Folder {
    const file = this.file(fd);
    if (file.kind !== "folder") return stop(NOTDIR);
    const above: Folder[] = [];
    let entry: FileContent | Folder = file.folder;
    for (const name of new TextDecoder().decode(this.bytes(path, length).slice()).split("/")) {
      if (!isFolder(entry)) return stop(NOTDIR);
      if (name === "" || name === ".") continue;
      if (name === "..") entry = above.pop() ?? stop(NOTCAPABLE);
      else {
        above.push(entry);
        entry = Object.hasOwn(entry, name) ? (entry[name] as FileContent | Folder) : stop(NOENT);
      }
    }
    return entry;
  }
  path_open(
    fd: number,
    _lookup: number,
    path: number,
    length: number,
    flags: number,
    rights: bigint,
    _inherited: bigint,
    _fdflags: number,
    result: number,
  ): number {
    let entry: FileContent | Folder;
    try {
      entry = this.resolve(fd, path, length);
    } catch (error) {
      if (error instanceof WasiError && error.errno === NOENT && flags & O_CREAT) return ROFS;
      throw error;
    }
    if (flags & (O_EXCL | O_TRUNC)) return ROFS;
    const folder = isFolder(entry);
    if (flags & O_DIRECTORY && !folder) return NOTDIR;
    // Who opens a folder asks for every right; who opens a file to write it does not get as far as writing
    if (!folder && rights & RIGHT_WRITE && !(rights & RIGHT_READ)) return ROFS;
    this.open.set(
      this.next,
      isFolder(entry)
        ? { kind: "folder", folder: entry, preopen: null }
        : { kind: "file", bytes: contentOf(entry), at: 0 },
    );
    this.view.setUint32(result, this.next++, true);
    return OK;
  }

  fd_readdir(fd: number, address: number, length: number, cookie: bigint, result: number): number {
    const file = this.file(fd);
    if (file.kind !== "folder") return NOTDIR;
    const names = Object.keys(file.folder);
    let at = 0;
    for (let index = Number(cookie); index < names.length && at < length; index++) {
      const name = encoder.encode(names[index]);
      const entry = new Uint8Array(24 + name.length);
      const view = new DataView(entry.buffer);
      view.setBigUint64(0, BigInt(index + 1), true);
      view.setUint32(16, name.length, true);
      view.setUint8(
        20,
        isFolder(file.folder[names[index] as string] as FileContent | Folder) ? DIRECTORY : REGULAR_FILE,
      );
      entry.set(name, 24);
      // What does not fit is cut off, and the guest asks again with more room
      const piece = entry.subarray(0, length - at);
      this.bytes(address + at, piece.length).set(piece);
      at += piece.length;
    }
    this.view.setUint32(result, at, true);
    return OK;
  }
}

const NAMES = [
  "args_get",
  "args_sizes_get",
  "environ_get",
  "environ_sizes_get",
  "clock_res_get",
  "clock_time_get",
  "random_get",
  "sched_yield",
  "proc_exit",
  "fd_write",
  "fd_read",
  "fd_pread",
  "fd_seek",
  "fd_tell",
  "fd_close",
  "fd_renumber",
  "fd_advise",
  "fd_sync",
  "fd_datasync",
  "fd_fdstat_set_flags",
  "fd_fdstat_get",
  "fd_filestat_get",
  "path_filestat_get",
  "fd_prestat_get",
  "fd_prestat_dir_name",
  "path_open",
  "fd_readdir",
] as const;
const WRITING = [
  "fd_allocate",
  "fd_filestat_set_size",
  "fd_filestat_set_times",
  "fd_pwrite",
  "path_create_directory",
  "path_filestat_set_times",
  "path_link",
  "path_remove_directory",
  "path_rename",
  "path_symlink",
  "path_unlink_file",
];
const UNSUPPORTED = [
  "fd_fdstat_set_rights",
  "path_readlink",
  "poll_oneoff",
  "proc_raise",
  "sock_accept",
  "sock_recv",
  "sock_send",
  "sock_shutdown",
];
