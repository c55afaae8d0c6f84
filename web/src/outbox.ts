/**
 * What Python has said and the page has not yet drawn. A loop that prints is faster than any page draws: what comes on top
 * of a few hundred lines that the page has not answered for waits here, and only the newest of that is kept.
 */
import { MOST_CHARACTERS, MOST_LINES } from "./lines";
import type { Bundle, Shown } from "./rich";

export type Stream = "stdout" | "stderr" | "note";

export type Item = { event: "output"; stream: Stream; text: string } | Shown | { event: "clear" };

/** Items in their order; before them, so much of what was said is gone. */
export interface Batch {
  event: "batch";
  number: number;
  items: Item[];
  dropped: { lines: number; characters: number };
}

/** How many lines, and characters, go out as they come, before the page has drawn any of them. */
const WINDOW = { lines: 1000, size: 1 << 18 };
const PIECE = 1 << 14;
const LONGEST_PIECE = 1 << 18;
/** Of an element. */
const LEAST_SIZE = 4096;
/** Where nothing tells what the page has drawn, a window is opened so often. */
const BLIND_MS = { bounded: 250, unbounded: 50 };

interface Held {
  item: Item;
  lines: number;
  size: number;
}

export class Outbox {
  #held: Held[] = [];
  #lines = 0;
  #size = 0;
  #dropped = { lines: 0, characters: 0 };
  #number = 0;
  #open = { lines: 0, size: 0, since: 0 }; // what has gone out of this window
  #waiting = false;
  #clears = false; // as soon as something comes

  /**
   * bounded: what the page would not keep is dropped here. drawn: shared memory in which the page writes the number of the
   * last batch that it has drawn; Python need not yield for it to be seen.
   */
  constructor(
    private readonly post: (batch: Batch) => void,
    private readonly bounded: boolean,
    private readonly drawn: Int32Array | undefined,
  ) {}

  text(stream: Stream, text: string): void {
    if (!text) return;
    if (this.#clears) this.#clear();
    const lines = countLines(text);
    const last = this.#held.at(-1);
    const joins = last?.item.event === "output" && last.item.stream === stream && !isFull(last);
    if (last && joins && last.item.event === "output") {
      last.item.text += text;
      last.lines += lines;
      last.size += text.length;
    } else {
      this.#held.push({ item: { event: "output", stream, text }, lines, size: text.length });
    }
    this.#added(lines, text.length);
  }

  /** An update that waits is overtaken by a newer one of the same id. */
  show(item: Shown): void {
    if (this.#clears && item.mode !== "update") this.#clear();
    const size = weigh(item.bundle);
    const waiting = this.#held.findLast((held) => held.item.event === "display" && held.item.id === item.id);
    const before = waiting?.item.event === "display" ? waiting.item.mode : "new";
    if (!waiting || item.id === undefined || before === "new" || item.mode === "new") {
      this.#held.push({ item, lines: 1, size });
      this.#added(1, size);
    } else {
      const grown = size - waiting.size;
      waiting.item = before === "put" ? { ...item, mode: before } : item;
      waiting.size = size;
      this.#added(0, grown);
    }
  }

  /** Nothing of what was said before is shown; if this waits, then only once something is said again. */
  clear(waits: boolean): void {
    this.#clears = waits;
    if (waits) return;
    this.#clear();
    this.#added(0, 0);
  }

  /** Send what waits, whether or not the page can draw it soon. */
  flush(): void {
    if (!this.#held.length) return;
    const batch: Batch = {
      event: "batch",
      number: ++this.#number,
      items: this.#held.map(({ item }) => item),
      dropped: this.#dropped,
    };
    this.#open.lines += this.#lines;
    this.#open.size += this.#size;
    this.#held = [];
    this.#lines = this.#size = 0;
    this.#dropped = { lines: 0, characters: 0 };
    this.post(batch);
  }

  #clear(): void {
    this.#clears = false;
    this.#held = [{ item: { event: "clear" }, lines: 0, size: 0 }];
    this.#lines = this.#size = 0;
    this.#dropped = { lines: 0, characters: 0 };
  }

  #added(lines: number, size: number): void {
    this.#lines += lines;
    this.#size += size;
    while (this.bounded && this.#held.length > 1 && this.#beyond(this.#held[0] as Held)) {
      const { lines, size } = this.#held.shift() as Held;
      this.#lines -= lines;
      this.#size -= size;
      this.#dropped.lines += lines;
      this.#dropped.characters += size;
    }
    if (this.#mayGo()) this.flush();
    else this.#later();
  }

  /** Whether the page would drop this as soon as it had drawn what came after. */
  #beyond({ lines, size }: Held): boolean {
    return this.#lines - lines >= MOST_LINES || this.#size - size >= MOST_CHARACTERS;
  }

  #mayGo(): boolean {
    const now = performance.now();
    const blind = this.bounded ? BLIND_MS.bounded : BLIND_MS.unbounded;
    const done = this.drawn ? Atomics.load(this.drawn, 0) === this.#number : now - this.#open.since > blind;
    if (done) this.#open = { lines: 0, size: 0, since: now };
    return this.#open.lines < WINDOW.lines && this.#open.size < WINDOW.size;
  }

  /** Python may wait now for something else, or have nothing more to say. */
  #later(): void {
    if (this.#waiting) return;
    this.#waiting = true;
    setTimeout(() => {
      this.#waiting = false;
      if (!this.#held.length) return;
      if (this.#mayGo()) this.flush();
      else this.#later();
    }, 20);
  }
}

/** As many characters as cost the page about the same: an element is dear however small, and bytes need no layout. */
export function weigh(bundle: Bundle): number {
  const sizes = Object.values(bundle).map((content) => content.length / (typeof content === "string" ? 1 : 8));
  return sizes.reduce((sum, size) => sum + Math.ceil(size), LEAST_SIZE);
}

function isFull({ item, size }: Held): boolean {
  const ended = item.event !== "output" || item.text.endsWith("\n");
  return size > (ended ? PIECE : LONGEST_PIECE);
}

function countLines(text: string): number {
  let count = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count++;
  return count;
}
