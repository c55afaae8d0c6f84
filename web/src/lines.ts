/** Text as a terminal would show it: lines, ANSI colours that carry over, and `\r` that starts a line again. */

export interface Segment {
  kind: string;
  text: string;
}

export type Line = Segment[];

// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are made of them
const COLOUR = /\x1b\[([\d;]*)m/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: as above; sequences that move the cursor are dropped
const OTHER = /\x1b\[[\d;?]*[A-LN-Za-ln-z]/g;

/** What the page keeps: of more lines or characters than that the older ones are dropped, of a longer line its end. */
export const MOST_LINES = 5000;
export const MOST_CHARACTERS = 2_000_000;
export const LONGEST_LINE = 100_000;

/** Takes text in any pieces; `take()` hands out the lines that have ended, `current` is the one that has not. */
export class LineBuffer {
  current: Line = [];
  #length = 0;
  #cut = 0; // characters of this line that are dropped
  #done: Line[] = [];
  #dropped = 0;
  #returned = false;
  #colour = "";

  write(kind: string, text: string): void {
    const clean = text.replace(OTHER, "");
    let from = 0;
    for (let at = 0; at <= clean.length; at++) {
      const char = clean[at];
      if (char !== undefined && char !== "\n" && char !== "\r") continue;
      if (at > from) this.#add(kind, clean.slice(from, at));
      if (char === "\n") this.#end();
      else if (char === "\r") this.#returned = true;
      from = at + 1;
    }
  }

  /** The newest of the lines that have ended, and how many older ones are dropped. */
  take(): { lines: Line[]; dropped: number } {
    const lines = this.#done.slice(-MOST_LINES);
    const dropped = this.#dropped + this.#done.length - lines.length;
    this.#done = [];
    this.#dropped = 0;
    return { lines, dropped };
  }

  /** End the current line if there is anything on it. */
  break(): void {
    if (this.current.length) this.#end();
  }

  clear(): void {
    this.current = [];
    this.#length = this.#cut = this.#dropped = 0;
    this.#done = [];
    this.#returned = false;
    this.#colour = "";
  }

  #add(kind: string, text: string): void {
    if (this.#returned) {
      this.#returned = false;
      const old = this.current.map((segment) => segment.text).join("");
      // What is longer than the new text stays, as on a terminal. Colours make columns hard to count: then all goes.
      const tail = (old + text).includes("\x1b") ? "" : old.slice(text.length);
      this.current = [];
      this.#length = this.#cut = 0;
      this.#push(kind, text + tail);
    } else {
      this.#push(kind, text);
    }
  }

  #push(kind: string, all: string): void {
    const text = all.slice(0, Math.max(0, LONGEST_LINE - this.#length));
    this.#length += text.length;
    this.#cut += all.length - text.length;
    if (!text) return;
    const last = this.current.at(-1);
    if (last?.kind === kind) last.text += text;
    else this.current.push({ kind, text: this.#colour && !this.current.length ? this.#colour + text : text });
  }

  #end(): void {
    for (const { text } of this.current) {
      for (const [sequence, codes] of text.matchAll(COLOUR)) {
        this.#colour = /^0?$|(^|;)0$/.test(codes ?? "") ? "" : this.#colour + sequence;
      }
    }
    if (this.#colour.length > 200) this.#colour = this.#colour.slice(this.#colour.lastIndexOf("\x1b"));
    if (this.#cut) this.current.push({ kind: "note", text: ` … ${dropped(0, this.#cut)}` });
    this.#done.push(this.current);
    if (this.#done.length > 2 * MOST_LINES) this.#dropped += this.#done.splice(0, MOST_LINES).length;
    this.current = [];
    this.#length = this.#cut = 0;
    this.#returned = false;
  }
}

/** What is not shown, in words. */
export function dropped(lines: number, characters: number): string {
  const [count, what] = lines ? [lines, "line"] : [characters, "character"];
  return `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"} dropped`;
}
