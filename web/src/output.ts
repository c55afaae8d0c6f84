/** The output below the editor: streamed text with ANSI colours, and what else is shown. Text is drawn once a frame. */
import { AnsiUp } from "ansi_up";
import { dropped, type Line, LineBuffer, MOST_CHARACTERS, MOST_LINES } from "./lines";
import { weigh } from "./outbox";
import { Rich, type Shown } from "./rich";
import "./rich.css";

/** Lines that come and go together. */
const BLOCK = 200;

export type Kind = "stdout" | "stderr" | "echo" | "note";

interface Block {
  element: HTMLElement;
  lines: number;
  size: number;
  rich?: Rich;
}

export class Output {
  readonly #element: HTMLElement;
  readonly #scroller: HTMLElement;
  readonly #buffer = new LineBuffer();
  readonly #current: HTMLElement;
  readonly #gap: HTMLElement; // says what is no longer there
  #field: HTMLInputElement | undefined; // where a script waits for an answer
  #dropped = { lines: 0, characters: 0 };
  #blocks: Block[] = [];
  #lines = 0;
  #size = 0;
  #scheduled = false;

  constructor(element: HTMLElement, scroller: HTMLElement) {
    this.#element = element;
    this.#scroller = scroller;
    this.#current = document.createElement("span");
    this.#gap = document.createElement("span");
    this.#gap.className = "note";
    element.append(this.#gap, this.#current);
    scroller.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = scroller;
      this.#atEnd = scrollHeight - scrollTop - clientHeight < 40;
    });
    new ResizeObserver(() => this.#follow()).observe(element); // an image has come, say
  }

  write(kind: Kind, text: string): void {
    this.#buffer.write(kind, text);
    this.#schedule();
  }

  /** A line of its own. */
  line(kind: Kind, text: string): void {
    this.#buffer.break();
    this.write(kind, `${text}\n`);
  }

  /** Show something, or change what was shown before. */
  display(shown: Shown): void {
    const there = shown.mode === "new" ? [] : Rich.withId(shown.id);
    for (const rich of there) rich.show(shown.bundle, shown.metadata);
    if (there.length || shown.mode === "update") return;
    this.#buffer.break();
    this.#draw();
    const rich = new Rich(shown);
    this.#place({ element: rich.element, lines: 1, size: weigh(shown.bundle), rich });
    this.#follow();
  }

  /** Something to press, on a line of its own. */
  element(element: HTMLElement): void {
    this.#buffer.break();
    this.#draw();
    this.#place({ element, lines: 1, size: 0 });
    this.#follow();
  }

  /** So much came that what is here already, and this besides, is not among what is kept. */
  dropped(lines: number, characters: number): void {
    const { lines: waiting, dropped } = this.#buffer.take();
    this.#buffer.clear();
    while (this.#blocks.some(mayGo)) this.#drop();
    this.#count(lines + dropped + waiting.length, characters + waiting.reduce((sum, line) => sum + lengthOf(line), 0));
  }

  /** A field at the end of the output. Enter answers with its line, Ctrl+D in an empty one with the end of the file. */
  ask(answer: (line: string | undefined) => void): void {
    this.#draw();
    const field = document.createElement("input");
    field.className = "ask";
    field.setAttribute("aria-label", "Input for the script");
    field.autocomplete = "off";
    field.dir = "auto";
    field.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      const ends = event.ctrlKey && event.key === "d" && !field.value;
      if (event.key !== "Enter" && !ends) return;
      event.preventDefault();
      const line = ends ? undefined : `${field.value}\n`;
      this.endAsking();
      this.write("echo", line ?? "\n");
      answer(line);
    });
    this.#field = field;
    this.#element.append(field);
    field.focus();
    this.#follow();
  }

  endAsking(): void {
    this.#field?.remove();
    this.#field = undefined;
  }

  /** What is there, in its order: text of one stream, or something else. */
  *shown(): Generator<{ text?: { stream: "stdout" | "stderr"; text: string }; rich?: Rich }> {
    this.#draw();
    for (const { element, rich } of [...this.#blocks, { element: this.#current, rich: undefined }]) {
      if (rich) yield { rich };
      else yield* texts(element);
    }
  }

  clear(): void {
    this.#buffer.clear();
    this.#blocks.forEach(remove);
    this.#blocks = [];
    this.#lines = this.#size = 0;
    this.#dropped = { lines: 0, characters: 0 };
    this.#gap.textContent = "";
    this.#current.replaceChildren();
    this.#atEnd = true;
  }

  #count(lines: number, characters: number): void {
    if (!lines && !characters) return;
    const gone = this.#dropped;
    gone.lines += lines;
    gone.characters += characters;
    this.#gap.textContent = `… ${dropped(gone.lines, gone.characters)}\n`;
  }

  #drop(): void {
    const [block] = this.#blocks.splice(this.#blocks.findIndex(mayGo), 1) as [Block];
    const { lines, size } = block;
    remove(block);
    this.#lines -= lines;
    this.#size -= size;
    this.#count(lines, size);
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    const draw = () => {
      if (!this.#scheduled) return;
      this.#scheduled = false;
      this.#draw();
    };
    requestAnimationFrame(draw);
    setTimeout(draw, 100); // a hidden tab has no frames
  }

  #draw(): void {
    const { lines, dropped } = this.#buffer.take();
    let size = 0;
    let first = lines.length;
    while (first > 0 && size < MOST_CHARACTERS) size += lengthOf(lines[--first] as Line);
    this.#count(dropped + first, 0);
    for (; first < lines.length; first += BLOCK) {
      const some = lines.slice(first, first + BLOCK);
      const element = document.createElement("span");
      element.innerHTML = allHtml(some);
      this.#place({ element, lines: some.length, size: some.reduce((sum, line) => sum + lengthOf(line), 0) });
    }
    this.#current.innerHTML = toHtml(this.#buffer.current, "");
    this.#follow();
  }

  #place(block: Block): void {
    this.#element.insertBefore(block.element, this.#current);
    this.#blocks.push(block);
    this.#lines += block.lines;
    this.#size += block.size;
    while ((this.#lines > MOST_LINES || this.#size > MOST_CHARACTERS) && this.#blocks.slice(0, -1).some(mayGo))
      this.#drop();
  }

  #atEnd = true;

  /** Stay at the end, unless the reader has scrolled up. */
  #follow(): void {
    if (this.#atEnd) this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }
}

/** The text in an element, by stream; the end of a line, which is of none, belongs to what is before it. */
function* texts(element: HTMLElement): Generator<{ text: { stream: "stdout" | "stderr"; text: string } }> {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let stream: "stdout" | "stderr" = "stdout";
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const kind = node.parentElement?.closest(".stdout, .stderr, .echo, .note");
    if (kind) stream = kind.className === "stderr" ? "stderr" : "stdout";
    yield { text: { stream, text: node.textContent ?? "" } };
  }
}

/** Whether it makes room for what comes: a control does not, which its script may still read. */
function mayGo({ rich }: Block): boolean {
  return !rich?.stays;
}

function remove({ element, rich }: Block): void {
  if (rich) rich.dispose();
  else element.remove();
}

function lengthOf(line: Line): number {
  return line.reduce((sum, { text }) => sum + text.length, 1);
}

/** Block characters, which pictures are made of. */
const BLOCKS = /[\u2580-\u259f]/;

/** A line whose first letter is of a script that is written from right to left. */
const LEFTWARDS = /^\P{L}*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are made of them
const COLOURS = /\x1b\[[\d;]*m/g;

/** Upper half blocks in two colours: drawn as such, since fonts leave gaps between them. */
const HALVES = /<span style="color:(rgb\([\d,]+\));background-color:(rgb\([\d,]+\))">(\u2580+)<\/span>/g;

/** Lines as HTML. Those that follow each other with nothing to colour are one piece of text: thousands are drawn so in a frame. */
function allHtml(lines: Line[]): string {
  let html = "";
  for (let at = 0; at < lines.length; ) {
    const kind = plainKind(lines[at] as Line);
    if (kind === undefined) {
      html += toHtml(lines[at++] as Line, "\n");
      continue;
    }
    let text = "";
    for (; at < lines.length && plainKind(lines[at] as Line) === kind; at++) text += `${lines[at]?.[0]?.text ?? ""}\n`;
    html += `<span class="${kind}">${escaped(text)}</span>`;
  }
  return html;
}

/** The kind of a line that is all of one kind, without colours or drawing; else undefined. */
function plainKind(line: Line): string | undefined {
  if (line.length > 1) return undefined;
  const { kind, text } = line[0] ?? { kind: "stdout", text: "" };
  return text.includes("\x1b") || BLOCKS.test(text) || LEFTWARDS.test(text) ? undefined : kind;
}

function escaped(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function leftwards(line: Line): boolean {
  return LEFTWARDS.test(line.map(({ text }) => text.replace(COLOURS, "")).join(""));
}

/** A line as HTML, with its end. Escaped by ansi_up, so text from a script never becomes markup. */
function toHtml(line: Line, end: string): string {
  const ansi = new AnsiUp();
  ansi.use_classes = true;
  const html = line.map(({ kind, text }) => `<span class="${kind}">${ansi.ansi_to_html(text)}</span>`).join("");
  if (leftwards(line)) return `<span class="line" dir="rtl">${html}${end}</span>`;
  if (!line.some(({ text }) => BLOCKS.test(text))) return html + end;
  const drawn = html.replace(HALVES, '<span class="half" style="background:linear-gradient($1 50%,$2 50%)">$3</span>');
  return `<span class="art">${drawn}${end}</span>`;
}
