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

/** What is kept: more lines than that, or more of a line, are the older ones, and the end of it, dropped. */
export const MOST_LINES = 5000;
const LONGEST_LINE = 100_000;

/** Takes text in any pieces; `take()` hands out the lines that have ended, `current` is the one that has not. */
export class LineBuffer {
  current: Line = [];
  #length = 0;
  #done: Line[] = [];
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

  take(): Line[] {
    const lines = this.#done;
    this.#done = [];
    return lines;
  }

  /** End the current line if there is anything on it. */
  break(): void {
    if (this.current.length) this.#end();
  }

  clear(): void {
    this.current = [];
    this.#length = 0;
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
      this.#length = 0;
      this.#push(kind, text + tail);
    } else {
      this.#push(kind, text);
    }
  }

  #push(kind: string, all: string): void {
    const text = all.slice(0, Math.max(0, LONGEST_LINE - this.#length));
    this.#length += text.length;
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
    this.#done.push(this.current);
    if (this.#done.length > 2 * MOST_LINES) this.#done.splice(0, MOST_LINES);
    this.current = [];
    this.#length = 0;
    this.#returned = false;
  }
}
