/** The output below the editor: streamed text with ANSI colours, and images. Drawn once a frame. */
import { AnsiUp } from "ansi_up";
import { type Line, LineBuffer, MOST_LINES } from "./lines";

/** Characters that are kept: with `MOST_LINES`, so that a loop that prints for ever does not fill the page. */
const MOST_CHARACTERS = 4_000_000;

export type Kind = "stdout" | "stderr" | "echo" | "note";

export class Output {
  readonly #element: HTMLElement;
  readonly #scroller: HTMLElement;
  readonly #buffer = new LineBuffer();
  readonly #current: HTMLElement;
  #blocks: { element: HTMLElement; lines: number; size: number }[] = [];
  #lines = 0;
  #size = 0;
  #scheduled = false;

  constructor(element: HTMLElement, scroller: HTMLElement) {
    this.#element = element;
    this.#scroller = scroller;
    this.#current = document.createElement("span");
    element.append(this.#current);
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

  image(data: Uint8Array, width: number, height: number): void {
    this.#buffer.break();
    this.#draw();
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Image, ${width} by ${height}`);
    const pixels = new ImageData(new Uint8ClampedArray(data), width, height);
    canvas.getContext("2d")?.putImageData(pixels, 0, 0);
    this.#place(canvas, 1, width * height);
  }

  clear(): void {
    this.#buffer.clear();
    for (const { element } of this.#blocks) element.remove();
    this.#blocks = [];
    this.#lines = this.#size = 0;
    this.#current.replaceChildren();
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
    const lines = this.#buffer.take().slice(-MOST_LINES);
    let size = 0;
    let first = lines.length;
    while (first > 0 && size < MOST_CHARACTERS) size += lengthOf(lines[--first] as Line);
    if (lines.length) {
      const block = document.createElement("span");
      block.innerHTML = lines
        .slice(first)
        .map((line) => toHtml(line, "\n"))
        .join("");
      this.#place(block, lines.length - first, size);
    }
    this.#current.innerHTML = toHtml(this.#buffer.current, "");
    this.#follow();
  }

  #place(element: HTMLElement, lines: number, size: number): void {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    this.#atEnd = scrollHeight - scrollTop - clientHeight < 40;
    this.#element.insertBefore(element, this.#current);
    this.#blocks.push({ element, lines, size });
    this.#lines += lines;
    this.#size += size;
    while ((this.#lines > MOST_LINES || this.#size > MOST_CHARACTERS) && this.#blocks.length > 1) {
      const oldest = this.#blocks.shift();
      oldest?.element.remove();
      this.#lines -= oldest?.lines ?? 0;
      this.#size -= oldest?.size ?? 0;
    }
    this.#follow();
  }

  #atEnd = true;

  /** Stay at the end, unless the reader has scrolled up. */
  #follow(): void {
    if (this.#atEnd) this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }
}

function lengthOf(line: Line): number {
  return line.reduce((sum, { text }) => sum + text.length, 1);
}

/** Upper half blocks in two colours: drawn as such, since fonts leave gaps between them. */
const HALVES = /<span style="color:(rgb\([\d,]+\));background-color:(rgb\([\d,]+\))">(\u2580+)<\/span>/g;

/** A line as HTML, with its end. Escaped by ansi_up, so text from a script never becomes markup. */
function toHtml(line: Line, end: string): string {
  const ansi = new AnsiUp();
  ansi.use_classes = true;
  const html = line.map(({ kind, text }) => `<span class="${kind}">${ansi.ansi_to_html(text)}</span>`).join("");
  if (!line.some(({ text }) => /[\u2580-\u259f]/.test(text))) return html + end;
  const drawn = html.replace(HALVES, '<span class="half" style="background:linear-gradient($1 50%,$2 50%)">$3</span>');
  return `<span class="art">${drawn}${end}</span>`;
}
