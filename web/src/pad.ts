/** An area to draw in, with a pointer or by keyboard. Its numbers go from 0, where nothing is drawn, to 1. */
import type { About, Control, Parts } from "./controls";

/** CSS pixels of its longer side. */
const SIDE = 224;

const STEPS: Record<string, [x: number, y: number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

interface Point {
  x: number;
  y: number;
}

/** What is drawn on: `numbers` has its pixels, row by row, and `changed` is called when they are others. */
export type Surface = Pick<Control, "element" | "numbers" | "changed">;

export function pad(
  control: Surface,
  { label, height, width }: Pick<About, "label" | "height" | "width">,
): Required<Pick<Parts, "clear" | "live">> {
  const drawing = new Drawing(control, height, width);
  const { element } = drawing;
  const hint = "Arrow keys move, with Shift they draw, Space draws a dot, and Delete clears.";
  element.tabIndex = 0;
  element.setAttribute("role", "application");
  element.ariaLabel = `${label}: an area to draw in. ${hint}`;
  element.title = hint;
  const name = document.createElement("span");
  name.textContent = label;
  const clear = document.createElement("button");
  clear.type = "button";
  clear.textContent = "Clear";
  clear.ariaLabel = `Clear ${label}`;
  clear.addEventListener("click", () => drawing.clear());
  const head = document.createElement("div");
  head.append(name, clear);
  control.element.append(head, element);
  return {
    clear: () => drawing.clear(),
    live: (live) => {
      drawing.live = live;
      element.ariaDisabled = String(!live);
    },
  };
}

class Drawing {
  readonly element = document.createElement("canvas");
  live = true;
  readonly #context: CanvasRenderingContext2D;
  readonly #image: ImageData;
  readonly #radius: number;
  #pen: Point; // where the keyboard is
  #last: Point | undefined; // where the pointer was, while it is down

  constructor(
    private readonly control: Surface,
    private readonly height: number,
    private readonly width: number,
  ) {
    const { element } = this;
    Object.assign(element, { height, width });
    element.style.width = `${(SIDE * width) / Math.max(height, width)}px`;
    this.#context = element.getContext("2d") as CanvasRenderingContext2D;
    this.#image = new ImageData(width, height);
    this.#radius = Math.max(0.8, Math.min(height, width) / 28);
    this.#pen = { x: width / 2, y: height / 2 };
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      this.#last = this.#at(event);
      this.#line(this.#last, this.#last);
    });
    element.addEventListener("pointermove", (event) => this.#move(event));
    for (const kind of ["pointerup", "pointercancel"]) {
      element.addEventListener(kind, () => {
        this.#last = undefined;
      });
    }
    element.addEventListener("keydown", (event) => this.#key(event));
    for (const kind of ["focus", "blur"]) element.addEventListener(kind, () => this.#show());
    this.#show();
  }

  clear(): void {
    this.control.numbers.fill(0);
    this.#changed();
  }

  #move(event: PointerEvent): void {
    if (!this.#last) return;
    const passed = event.getCoalescedEvents();
    for (const each of passed.length ? passed : [event]) {
      const to = this.#at(each);
      this.#line(this.#last, to);
      this.#last = to;
    }
  }

  #key(event: KeyboardEvent): void {
    const step = STEPS[event.key];
    const from = this.#pen;
    if (!step && event.key !== " " && event.key !== "Delete") return;
    event.preventDefault();
    if (event.key === "Delete" && this.live) this.clear();
    if (step) {
      const x = Math.min(Math.max(from.x + step[0], 0.5), this.width - 0.5);
      const y = Math.min(Math.max(from.y + step[1], 0.5), this.height - 0.5);
      this.#pen = { x, y };
    }
    if (event.key === " " || (step && event.shiftKey)) this.#line(from, this.#pen);
    this.#show();
  }

  /** In pixels of the picture, not whole ones. */
  #at({ clientX, clientY }: PointerEvent): Point {
    const box = this.element.getBoundingClientRect();
    return {
      x: ((clientX - box.left) / box.width) * this.width,
      y: ((clientY - box.top) / box.height) * this.height,
    };
  }

  /** A line with a soft edge. */
  #line(from: Point, to: Point): void {
    if (!this.live) return;
    const { numbers } = this.control;
    const reach = Math.ceil(this.#radius + 1);
    const [left, right] = span(from.x, to.x, reach, this.width);
    const [top, bottom] = span(from.y, to.y, reach, this.height);
    for (let y = top; y < bottom; y++) {
      for (let x = left; x < right; x++) {
        const level = this.#radius + 0.5 - distance({ x: x + 0.5, y: y + 0.5 }, from, to);
        const at = y * this.width + x;
        numbers[at] = Math.max(numbers[at] as number, Math.min(Math.max(level, 0), 1));
      }
    }
    this.#changed();
  }

  #changed(): void {
    this.#show();
    this.control.changed();
  }

  #show(): void {
    const { data } = this.#image;
    for (let at = 0; at < this.width * this.height; at++) {
      const level = 255 * (this.control.numbers[at] as number);
      data.set([level, level, level, 255], 4 * at);
    }
    if (this.element.matches(":focus-visible")) {
      const at = Math.floor(this.#pen.y) * this.width + Math.floor(this.#pen.x);
      data.set([255, 120, 40, 255], 4 * at);
    }
    this.#context.putImageData(this.#image, 0, 0);
  }
}

/** Of the pixels from one to the other, and so many around. */
function span(a: number, b: number, reach: number, size: number): [number, number] {
  return [Math.max(0, Math.floor(Math.min(a, b) - reach)), Math.min(size, Math.ceil(Math.max(a, b) + reach))];
}

/** From a point to a line. */
function distance(point: Point, from: Point, to: Point): number {
  const [x, y] = [to.x - from.x, to.y - from.y];
  const length = x * x + y * y;
  const along = length ? Math.min(Math.max(((point.x - from.x) * x + (point.y - from.y) * y) / length, 0), 1) : 0;
  return Math.hypot(point.x - from.x - along * x, point.y - from.y - along * y);
}
