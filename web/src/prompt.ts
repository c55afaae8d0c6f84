/** The `>>>` prompt: blocks of several lines, history with the arrows, completion with Tab. */

export interface PromptHandlers {
  /** Whether Python can answer now. */
  ready(): boolean;
  needsMore(source: string): Promise<boolean>;
  complete(text: string): Promise<{ replace: number; names: string[] }>;
  /** Run the source; resolves when Python is done with it. */
  submit(source: string): Promise<void>;
  /** Show names to choose from. */
  suggest(names: string[]): void;
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

  constructor(input: HTMLTextAreaElement, marks: HTMLElement, handlers: PromptHandlers) {
    this.#input = input;
    this.#marks = marks;
    this.#handlers = handlers;
    input.addEventListener("input", () => this.#fit());
    input.addEventListener("keydown", (event) => this.#key(event));
    this.#fit();
  }

  #key(event: KeyboardEvent): void {
    if (event.isComposing || event.altKey || event.metaKey) return;
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
    const { replace, names } = await this.#handlers.complete(before);
    if (!names.length || this.#input.value.slice(0, start) !== before) return;
    const shared = commonStart(names);
    if (shared.length > replace) {
      this.#input.setRangeText(shared, start - replace, start, "end");
      this.#fit();
    } else if (names.length > 1) {
      this.#handlers.suggest(names);
    }
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
