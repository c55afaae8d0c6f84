/**
 * The files of the reader in Python's working folder, kept in this browser (IndexedDB): what a script writes, or was dropped
 * on the page, is there again after a reload and in the next Python. What the page itself lays there is not theirs.
 */
import { type DBSchema, type IDBPDatabase, openDB } from "idb";
import type { PyodideAPI } from "pyodide";

type FileSystem = PyodideAPI["FS"];
export type Bytes = Uint8Array<ArrayBuffer>;

export interface FolderFile {
  /** Below the working folder. */
  path: string;
  size: number;
  /** Why it will be gone with this Python, or nothing. */
  problem: string;
}

export interface FolderEvent {
  event: "folder";
  files: FolderFile[];
}

interface Schema extends DBSchema {
  files: { key: string; value: { path: string; bytes: Blob } };
}

const NAME = "tabtorch.folder";
const LEAST_PAUSE_MS = 1000;
/** So many times as long as the last look took, the next one waits: a script gets most of the time. */
const PATIENCE = 20;

export class Folder {
  #database: IDBPDatabase<Schema> | undefined; // none where the browser refuses: files last as long as this Python then
  #refusal = "";
  readonly #ours = new Map<string, string>(); // path -> stamp of what the page has laid there
  readonly #kept = new Map<string, string>(); // path -> stamp of what is in the database
  readonly #unkept = new Map<string, { stamp: string; problem: string }>();
  #queue: Promise<unknown> = Promise.resolve();
  #told = "";

  private constructor(
    private readonly fs: FileSystem,
    private readonly root: string,
    private readonly tell: (event: FolderEvent) => void,
  ) {}

  /** Lay out what was kept. `own`: absolute paths of what the page has laid there before. */
  static async open(fs: FileSystem, root: string, own: string[], tell: (event: FolderEvent) => void): Promise<Folder> {
    const folder = new Folder(fs, root, tell);
    own.forEach((path) => {
      folder.own(path);
    });
    try {
      folder.#database = await openDB<Schema>(NAME, 1, {
        upgrade: (database) => void database.createObjectStore("files", { keyPath: "path" }),
      });
      for (const { path, bytes } of await folder.#database.getAll("files")) {
        folder.#write(path, new Uint8Array(await bytes.arrayBuffer()));
        folder.#kept.set(path, folder.#stamp(path));
      }
    } catch (error) {
      folder.#refusal = `This browser keeps no files here (${error}).`;
    }
    folder.#list();
    return folder;
  }

  /** What lies there at this absolute path is the page's own, as long as nobody changes it. */
  own(path: string): void {
    if (path.startsWith(`${this.root}/`)) {
      const name = path.slice(this.root.length + 1);
      this.#ours.set(name, this.#stamp(name));
    }
  }

  /** Write what has changed into the database, as far as that has room. */
  keep(): Promise<void> {
    return this.#enqueue(() => this.#keep(true));
  }

  /** Keep what changes while `work` goes on, wherever it lets anything else happen. */
  async keeping<T>(work: Promise<T>): Promise<T> {
    let goes = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      const begun = performance.now();
      await this.#enqueue(() => this.#keep(false));
      if (goes) timer = setTimeout(look, Math.max(LEAST_PAUSE_MS, PATIENCE * (performance.now() - begun)));
    };
    timer = setTimeout(look, LEAST_PAUSE_MS);
    try {
      return await work;
    } finally {
      goes = false;
      clearTimeout(timer);
      void this.keep();
    }
  }

  /** Put a file into the folder. The result is what it replaces. */
  async put(path: string, file: Blob): Promise<Bytes | undefined> {
    const bytes = new Uint8Array(await file.arrayBuffer());
    const before = this.#files().includes(path) ? this.read(path) : undefined;
    this.#ours.delete(path);
    this.#write(path, bytes);
    await this.keep();
    return before;
  }

  read(path: string): Bytes {
    return this.fs.readFile(`${this.root}/${path}`) as Bytes;
  }

  /** Delete a file. The result is what was in it. */
  async remove(path: string): Promise<Bytes> {
    const before = this.read(path);
    this.fs.unlink(`${this.root}/${path}`);
    await this.keep();
    return before;
  }

  #enqueue(work: () => Promise<void>): Promise<void> {
    const done = this.#queue.then(work);
    this.#queue = done.catch(() => {});
    return done;
  }

  async #keep(again: boolean): Promise<void> {
    const files = this.#files();
    for (const path of [...this.#kept.keys()].filter((each) => !files.includes(each))) {
      await this.#database?.delete("files", path);
      this.#kept.delete(path);
    }
    for (const path of files) {
      const stamp = this.#stamp(path);
      if (this.#kept.get(path) === stamp || (!again && this.#unkept.get(path)?.stamp === stamp)) continue;
      this.#unkept.delete(path);
      try {
        await this.#store(path);
        this.#kept.set(path, stamp);
      } catch (error) {
        this.#unkept.set(path, { stamp, problem: whyNot(error) });
      }
    }
    this.#list();
  }

  async #store(path: string): Promise<void> {
    if (!this.#database) throw new Error(this.#refusal);
    const transaction = this.#database.transaction("files", "readwrite");
    transaction.store.put({ path, bytes: new Blob([this.read(path)]) }).catch(() => {}); // the transaction says why
    await transaction.done;
  }

  #list(): void {
    const files = this.#files().map((path) => ({
      path,
      size: this.fs.stat(`${this.root}/${path}`).size as number,
      problem: this.#unkept.get(path)?.problem ?? "",
    }));
    const told = JSON.stringify(files);
    if (told !== this.#told) this.tell({ event: "folder", files });
    this.#told = told;
  }

  /** The reader's files, by name. Caches and settings, whose names begin with a dot, are none. */
  #files(): string[] {
    return filesBelow(this.fs, this.root)
      .map((path) => path.slice(this.root.length + 1))
      .filter((path) => !/(^|\/)(\.|__pycache__\/)/.test(path) && this.#ours.get(path) !== this.#stamp(path))
      .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  }

  /** What tells whether a file was written since. */
  #stamp(path: string): string {
    const { mtime, size } = this.fs.stat(`${this.root}/${path}`) as { mtime: Date; size: number };
    return `${mtime.getTime()}:${size}`;
  }

  #write(path: string, bytes: Uint8Array): void {
    const whole = `${this.root}/${path}`;
    this.fs.mkdirTree(whole.slice(0, whole.lastIndexOf("/")));
    this.fs.writeFile(whole, bytes);
  }
}

/** Absolute paths of the files in a folder and in those below it. */
export function filesBelow(fs: FileSystem, folder: string): string[] {
  const names = (fs.readdir(folder) as string[]).filter((name) => name !== "." && name !== "..");
  return names.flatMap((name) => {
    const path = `${folder}/${name}`;
    const { mode } = fs.lstat(path);
    return fs.isDir(mode) ? filesBelow(fs, path) : fs.isFile(mode) ? [path] : [];
  });
}

function whyNot(error: unknown): string {
  const full = error instanceof DOMException && error.name === "QuotaExceededError";
  return full
    ? "This browser's storage is full: it is not kept."
    : `It is not kept: ${error instanceof Error ? error.message : error}`;
}
