/** The `>>>` prompt: blocks of several lines, history with the arrows and Ctrl+R, completion with Tab. */
import { type Choice, Choices } from "./choices";
import type { Completion } from "./interpreter";

export interface PromptHandlers {
  /** Whether Python can answer now. */
  ready(): boolean;
  needsMore(source: string): Promise<boolean>;
  complete(text: string): Promise<Completion>;
  /** Run the source; resolves when Python is done with it. */
  submit(source: string): Promise<void>;
}

const STORE = "tabtorch.history";
const KEEP = 200;

export class Prompt {
  readonly #input: HTMLTextAreaElement;
  readonly #marks: HTMLElement;
  readonly #handlers: PromptHandlers;
  #history = read();
  #at = this.#history.length;
  #draft = "";
  #asking = false;
  #again = false; // Enter was pressed while the last one was being carried out
  readonly #choices: Choices;
  /** What the open list is of: with names, how many characters they replace. */
  #listed: { kind: "names"; names: string[]; replace: number } | { kind: "history"; found: string[] } | undefined;

  constructor(input: HTMLTextAreaElement, marks: HTMLElement, handlers: PromptHandlers) {
    this.#input = input;
    this.#marks = marks;
    this.#handlers = handlers;
    this.#choices = new Choices(input, marks.parentElement ?? input, (index) => this.#take(index));
    input.addEventListener("input", () => {
      this.#fit();
      this.#narrow();
    });
    input.addEventListener("blur", () => this.#closeList());
    input.addEventListener("keydown", (event) => {
      if (!event.isComposing && !this.#listKey(event)) this.#key(event);
    });
    this.#fit();
  }

  /** Keys that the list takes while it is open; whether it has. */
  #listKey(event: KeyboardEvent): boolean {
    const { key, shiftKey, ctrlKey, altKey, metaKey } = event;
    if (ctrlKey && !altKey && !metaKey && key.toLowerCase() === "r") {
      event.preventDefault(); // also while nothing is found: it would reload the page
      if (this.#listed?.kind === "history") this.#choices.move(1);
      else this.#search();
      return true;
    }
    if (!this.#choices.open || altKey || metaKey || ctrlKey) return false;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Tab: shiftKey ? -1 : 1 }[key];
    if (step) this.#choices.move(step);
    else if (key === "Enter" && !shiftKey) this.#take(this.#choices.chosen);
    else if (key === "Escape") this.#closeList();
    else {
      if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(key)) this.#closeList();
      return false;
    }
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  #key(event: KeyboardEvent): void {
    if (event.altKey || event.metaKey) return;
    const { value, selectionStart, selectionEnd } = this.#input;
    if (event.key === "Enter") {
      event.preventDefault();
      if (event.shiftKey) this.#insert("\n");
      else void this.#enter(event.ctrlKey);
    } else if (event.key === "Tab" && !event.shiftKey && value && selectionStart === selectionEnd) {
      event.preventDefault(); // an empty prompt lets Tab go on to the next control
      void this.#tab();
    } else if (event.key === "Backspace" && selectionStart === selectionEnd && this.#inIndent(4)) {
      event.preventDefault();
      this.#input.setRangeText("", selectionStart - 4, selectionStart, "end");
    } else if (event.key === "ArrowUp" && !value.slice(0, selectionStart).includes("\n")) {
      event.preventDefault();
      this.#recall(-1);
    } else if (event.key === "ArrowDown" && !value.slice(selectionEnd).includes("\n")) {
      event.preventDefault();
      this.#recall(1);
    } else if (event.key === "Escape") {
      this.#set("");
    }
  }

  async #enter(now: boolean): Promise<void> {
    if (this.#asking) {
      this.#again = true;
      return;
    }
    if (!this.#handlers.ready()) return;
    const source = this.#input.value.replace(/\n[ \t]+$/, "\n"); // a blank line ends a block, indented or not
    if (!source.trim()) return;
    this.#asking = true;
    try {
      const atEnd = this.#input.selectionStart >= source.trimEnd().length;
      if (!now && (!atEnd || (await this.#handlers.needsMore(source)))) {
        this.#insert(`\n${atEnd ? indentAfter(source) : ""}`);
        return;
      }
      this.#remember(source.trimEnd());
      this.#set("");
      await this.#handlers.submit(source);
    } finally {
      this.#asking = false;
      const again = this.#again;
      this.#again = false;
      if (again) void this.#enter(false);
    }
  }

  async #tab(): Promise<void> {
    const start = this.#input.selectionStart;
    const before = this.#input.value.slice(0, start);
    if (/(^|\n)\s*$/.test(before)) return this.#insert("    ");
    if (!this.#handlers.ready()) return;
    await this.#complete(before, true);
  }

  /** List what can stand at the cursor. If it was asked for, what is sure is put there. */
  async #complete(before: string, asked: boolean): Promise<void> {
    const start = before.length;
    const { replace, names, hints } = await this.#handlers.complete(before);
    const { value, selectionStart } = this.#input;
    if (selectionStart !== start || value.slice(0, start) !== before) return;
    if (!names.length) return this.#closeList();
    const shared = commonStart(names);
    if (asked && shared.length > replace) this.#replace(replace, shared);
    if (asked && names.length === 1) {
      if (shared.length <= replace) this.#replace(replace, shared); // the same letters, in another case
      return this.#closeList();
    }
    const typed = asked ? Math.max(replace, shared.length) : replace;
    this.#listed = { kind: "names", names, replace: typed };
    this.#choices.show(
      "Completions",
      names.map((text, index): Choice => ({ text, detail: hints[index]?.[0], summary: hints[index]?.[1] })),
    );
  }

  /** What was typed goes on: so does the list. */
  #narrow(): void {
    if (!this.#listed) return;
    if (this.#listed.kind === "history") {
      this.#search();
      return;
    }
    const before = this.#input.value.slice(0, this.#input.selectionStart);
    if (this.#handlers.ready() && /[\w.]$/.test(before)) void this.#complete(before, false);
    else this.#closeList();
  }

  /** Earlier entries that hold what is typed, the latest first. */
  #search(): void {
    const found = [...new Set([...this.#history].reverse())].filter((entry) => entry.includes(this.#input.value));
    this.#listed = { kind: "history", found };
    this.#choices.show(
      "History",
      found.map((entry): Choice => ({ text: entry.split("\n")[0] ?? "", detail: entry.includes("\n") ? " …" : "" })),
    );
  }

  #take(index: number): void {
    const listed = this.#listed;
    this.#closeList();
    if (listed?.kind === "history") this.#set(listed.found[index] ?? this.#input.value);
    const name = listed?.kind === "names" && listed.names[index];
    if (listed?.kind === "names" && name) this.#replace(listed.replace, name);
    this.#input.focus();
  }

  #closeList(): void {
    this.#listed = undefined;
    this.#choices.close();
  }

  /** Put `text` in place of the `count` characters before the cursor. */
  #replace(count: number, text: string): void {
    const at = this.#input.selectionStart;
    this.#input.setRangeText(text, at - count, at, "end");
    this.#fit();
  }

  #recall(step: number): void {
    const next = this.#at + step;
    if (next < 0 || next > this.#history.length) return;
    if (this.#at === this.#history.length) this.#draft = this.#input.value;
    this.#at = next;
    this.#set(this.#history[next] ?? this.#draft, next);
  }

  #remember(source: string): void {
    if (this.#history.at(-1) !== source) this.#history = [...this.#history, source].slice(-KEEP);
    try {
      localStorage.setItem(STORE, JSON.stringify(this.#history));
    } catch {
      // storage is full or not allowed: the history lasts as long as the page
    }
  }

  /** Whether at least `width` spaces, and nothing else, stand before the cursor in its line. */
  #inIndent(width: number): boolean {
    const line = this.#input.value.slice(0, this.#input.selectionStart).split("\n").at(-1) ?? "";
    return line.length >= width && !line.trim();
  }

  #insert(text: string): void {
    const { selectionStart, selectionEnd } = this.#input;
    this.#input.setRangeText(text, selectionStart, selectionEnd, "end");
    this.#fit();
  }

  #set(text: string, at = this.#history.length): void {
    this.#at = at;
    this.#input.value = text;
    this.#input.setSelectionRange(text.length, text.length);
    this.#fit();
  }

  #fit(): void {
    const rows = this.#input.value.split("\n").length;
    this.#input.rows = rows;
    this.#marks.textContent = [">>>", ...Array<string>(rows - 1).fill("...")].join("\n");
  }
}

function read(): string[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(STORE) ?? "[]");
    return Array.isArray(stored) ? stored.filter((entry) => typeof entry === "string") : [];
  } catch {
    return [];
  }
}

/** The indentation of the last line, one step deeper after a colon. */
function indentAfter(source: string): string {
  const last = source.split("\n").at(-1) ?? "";
  const indent = /^\s*/.exec(last)?.[0] ?? "";
  return /:\s*(#.*)?$/.test(last) ? `${indent}    ` : indent;
}

function commonStart(names: string[]): string {
  let shared = names[0] ?? "";
  for (const name of names) while (!name.startsWith(shared)) shared = shared.slice(0, -1);
  return shared;
}
