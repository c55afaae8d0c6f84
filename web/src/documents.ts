/**
 * Scripts with names, kept in this browser (IndexedDB). What is typed is written at once, tab by tab: a write never
 * covers what another tab wrote since this one read, and what is replaced stays in a history for a while.
 */
import { type DBSchema, type IDBPDatabase, type IDBPObjectStore, openDB, type StoreNames } from "idb";
import { thin } from "./versions";

export interface Document {
  /** `demo-NAME` for an edited demo, `link-HASH` for what came with a link, else random. */
  id: string;
  /** The file's name, with `.py`. */
  name: string;
  text: string;
  /** When the text was last changed: milliseconds since 1970. */
  changed: number;
  /** How often it was written, and which page wrote it last: so a page sees what another wrote in between. */
  revision: number;
  writer: string;
  /** `changed` of its newest version, or when the document began. */
  kept: number;
}

export interface Version {
  document: string;
  time: number;
  text: string;
}

export interface DocumentHandlers {
  /** Another tab changed a document, or deleted it: there is none with the id then. `before`: as it was here. */
  onOther(id: string, before: Document | undefined): void;
  /** Another tab wrote a document that has unsaved edits here. Nothing is written until `settle`. */
  onContest(id: string): void;
  /** Nothing can be kept, and why. */
  onTrouble(error: unknown): void;
}

interface Schema extends DBSchema {
  documents: { key: string; value: Document };
  versions: { key: [string, number]; value: Version };
}

const NAME = "tabtorch.documents";
/** Where a page that closes leaves what IndexedDB did not take in time: it has no time to wait for it. */
const RESCUE = "tabtorch.unsaved.";
/** A pause, or a stretch of typing, after which the text before is worth a version. */
const STRETCH_MS = 60_000;

export class Documents {
  readonly #handlers: DocumentHandlers;
  readonly #writer = randomId();
  readonly #channel = new BroadcastChannel(NAME);
  readonly #documents = new Map<string, Document>();
  readonly #unsaved = new Set<string>();
  readonly #contested = new Map<string, Document>();
  #database: IDBPDatabase<Schema> | undefined; // none where the browser refuses: documents last as long as the page then
  #queue: Promise<unknown> = Promise.resolve();

  constructor(handlers: DocumentHandlers) {
    this.#handlers = handlers;
    this.#channel.onmessage = ({ data }: MessageEvent<string>) => void this.#hear(data);
    addEventListener("pagehide", () => this.#leave());
  }

  /** Read what is kept. */
  async load(): Promise<void> {
    try {
      this.#database = await openDB<Schema>(NAME, 1, {
        upgrade(database) {
          database.createObjectStore("documents", { keyPath: "id" });
          database.createObjectStore("versions", { keyPath: ["document", "time"] });
        },
      });
      for (const each of await this.#database.getAll("documents")) this.#documents.set(each.id, each);
    } catch (error) {
      this.#handlers.onTrouble(error);
    }
    for (const rescued of leftBehind()) {
      this.#documents.set(rescued.id, rescued);
      this.#save(rescued.id);
    }
  }

  get(id: string): Document | undefined {
    return this.#documents.get(id);
  }

  /** All of them, by name. */
  list(): Document[] {
    const stem = ({ name }: Document) => name.replace(/\.py$/, "");
    return [...this.#documents.values()].sort((a, b) => stem(a).localeCompare(stem(b), "en", { numeric: true }));
  }

  add(name: string, text: string, id = randomId()): Document {
    const now = Date.now();
    const document = { id, name, text, changed: now, revision: 0, writer: this.#writer, kept: now - 1 };
    this.#documents.set(id, document);
    this.#save(id);
    return document;
  }

  /** Give a document other text, or another name. */
  update(id: string, { text, name }: { text?: string; name?: string }): void {
    const document = this.#documents.get(id);
    if (!document) return;
    if (text !== undefined && text !== document.text) {
      document.text = text;
      document.changed = Math.max(Date.now(), document.changed + 1);
    }
    if (name !== undefined) document.name = name;
    document.writer = this.#writer;
    this.#save(id);
  }

  /** Make the text as it is a version, however young it is: it ran, or is about to be replaced as a whole. */
  async keep(id: string): Promise<void> {
    const document = this.#documents.get(id);
    if (!document || document.kept === document.changed) return;
    const { text, changed: time } = document;
    document.kept = time;
    await this.#enqueue((database) => addVersion(versionsIn(database), { document: id, time, text }));
  }

  /** Delete a document with its history. The result brings both back. */
  async remove(id: string): Promise<() => Promise<void>> {
    const removed = this.#documents.get(id);
    this.#documents.delete(id);
    this.#unsaved.delete(id);
    this.#contested.delete(id);
    const versions = await this.#enqueue(async (database) => {
      const transaction = database.transaction(["documents", "versions"], "readwrite");
      const found = await transaction.objectStore("versions").getAll(versionsOf(id));
      await transaction.objectStore("versions").delete(versionsOf(id));
      await transaction.objectStore("documents").delete(id);
      localStorage.removeItem(RESCUE + id);
      this.#channel.postMessage(id);
      return found;
    });
    return async () => {
      await this.adopt(id, versions ?? []);
      if (!removed) return;
      if (this.#documents.has(id)) {
        await this.keep(id);
        return this.update(id, { text: removed.text });
      }
      this.#documents.set(id, { ...removed, revision: 0 });
      this.#save(id);
    };
  }

  /** A document's history, the newest first. */
  async versions(id: string): Promise<Version[]> {
    const found = await this.#enqueue((database) => database.getAll("versions", versionsOf(id)));
    return (found ?? []).reverse();
  }

  /** Give a document a history. */
  async adopt(id: string, versions: Version[]): Promise<void> {
    await this.#enqueue((database) =>
      Promise.all(versions.map((version) => database.put("versions", { ...version, document: id }))),
    );
  }

  /** End a contest with this tab's text or with the other's. The one that loses becomes a version. */
  async settle(id: string, mine: boolean): Promise<void> {
    const theirs = this.#contested.get(id);
    const document = this.#documents.get(id);
    if (!theirs || !document) return;
    this.#contested.delete(id);
    const { text, changed: time } = mine ? theirs : document;
    await this.#enqueue((database) => addVersion(versionsIn(database), { document: id, time, text }));
    if (mine) {
      document.revision = theirs.revision;
      this.#save(id);
    } else {
      this.#unsaved.delete(id);
      this.#documents.set(id, theirs);
      this.#handlers.onOther(id, document);
    }
  }

  #save(id: string): void {
    this.#unsaved.add(id);
    void this.#enqueue((database) => this.#write(database, id));
  }

  /** One after the other, so that nothing is written after it was deleted. Undefined where it failed, which is told. */
  #enqueue<T>(work: (database: IDBPDatabase<Schema>) => Promise<T>): Promise<T | undefined> {
    const done = this.#queue
      .then(() => this.#database && work(this.#database))
      .catch((error: unknown) => {
        this.#handlers.onTrouble(error);
        return undefined;
      });
    this.#queue = done;
    return done;
  }

  async #write(database: IDBPDatabase<Schema>, id: string): Promise<void> {
    const document = this.#documents.get(id);
    if (!document || !this.#unsaved.has(id)) return;
    if (this.#contested.has(id)) return this.#handlers.onContest(id);
    const transaction = database.transaction(["documents", "versions"], "readwrite");
    const stored = await transaction.objectStore("documents").get(id);
    if (stored && stored.revision !== document.revision && stored.writer !== document.writer) {
      if (stored.text !== document.text) {
        this.#contested.set(id, stored);
        return this.#handlers.onContest(id);
      }
    }
    const written = { ...document, revision: Math.max(document.revision, stored?.revision ?? 0) + 1 };
    if (stored && isVersion(stored, document)) {
      written.kept = stored.changed;
      await addVersion(transaction.objectStore("versions"), { document: id, time: stored.changed, text: stored.text });
    }
    await transaction.objectStore("documents").put(written);
    transaction.commit();
    await transaction.done;
    document.revision = written.revision;
    document.kept = Math.max(document.kept, written.kept);
    localStorage.removeItem(RESCUE + id);
    if (document.text === written.text && document.name === written.name) this.#unsaved.delete(id);
    else this.#save(id);
    this.#channel.postMessage(id);
  }

  /** Another tab wrote the document, or deleted it. One with unsaved edits here meets that as it is written. */
  async #hear(id: string): Promise<void> {
    const stored = await this.#enqueue((database) => database.get("documents", id));
    if (this.#unsaved.has(id)) return;
    const before = this.#documents.get(id);
    if (stored) this.#documents.set(id, stored);
    else this.#documents.delete(id);
    this.#handlers.onOther(id, before);
  }

  #leave(): void {
    for (const id of this.#unsaved) {
      try {
        localStorage.setItem(RESCUE + id, JSON.stringify(this.#documents.get(id)));
      } catch {
        // storage is full or not allowed
      }
    }
  }
}

/** What pages that closed could not write. */
function leftBehind(): Document[] {
  try {
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(RESCUE));
    return keys.map((key) => JSON.parse(localStorage.getItem(key) ?? ""));
  } catch {
    return []; // storage is not allowed
  }
}

/** Whether a text that is replaced goes into the history: it stood for a while, or was long in the making. */
function isVersion(stored: Document, next: Document): boolean {
  if (stored.text === next.text || stored.kept === stored.changed) return false;
  return next.changed - stored.changed > STRETCH_MS || stored.changed - stored.kept > STRETCH_MS;
}

type Versions = IDBPObjectStore<Schema, StoreNames<Schema>[], "versions", "readwrite">;

function versionsIn(database: IDBPDatabase<Schema>): Versions {
  return database.transaction(["versions"], "readwrite").objectStore("versions") as Versions;
}

async function addVersion(versions: Versions, version: Version): Promise<void> {
  await versions.put(version);
  const times = (await versions.getAllKeys(versionsOf(version.document))).map(([, time]) => time);
  await Promise.all(thin(times, Date.now()).map((time) => versions.delete([version.document, time])));
}

function versionsOf(id: string): IDBKeyRange {
  return IDBKeyRange.bound([id, 0], [id, Number.POSITIVE_INFINITY]);
}

function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(36).padStart(2, "0")).join("");
}
