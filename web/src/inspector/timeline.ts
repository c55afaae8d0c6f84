/** What a run did, over time: operations in Python above, by depth, and kernels below, where the GPU ran them or where they were sent. */
import { button, make, short, time } from "./make";
import type { Recording } from "./recording";

interface Box {
  lane: number;
  start: number;
  us: number;
  name: string;
  /** Which of the kernels it is, or -1. */
  kernel: number;
}

const ROW = 20;
const AXIS = 18;
/** Lanes of Python: what is called deeper stands in the last. */
const DEPTHS = 3;
const LEFT = 52;
/** µs. */
const CLOSEST = 5;
const MONO = "11px ui-monospace, Menlo, Consolas, monospace";

export class Timeline {
  readonly element: HTMLElement;
  readonly #canvas = make("canvas", { tabIndex: 0 });
  readonly #words = make("p", { className: "hint readout" });
  readonly #boxes: Box[];
  readonly #end: number;
  readonly #lanes: string[];
  #from = 0;
  #to = 1;
  #drag: { x: number; from: number; to: number; moved: boolean } | undefined;

  /** choose: a kernel was clicked, by its place in the recording. */
  constructor(
    recording: Recording,
    private readonly choose: (kernel: number) => void,
  ) {
    const depth = Math.min(DEPTHS, 1 + Math.max(0, ...recording.calls.map(([, , , each]) => each)));
    this.#lanes = ["Python", ...Array(depth - 1).fill(""), recording.timed ? "GPU" : "Sent"];
    this.#boxes = [...callsOf(recording, depth), ...kernelsOf(recording, depth)];
    this.#end = Math.max(1, recording.duration, ...this.#boxes.map(({ start, us }) => start + us));
    this.#canvas.setAttribute("role", "img");
    this.#canvas.ariaLabel = `Timeline of ${time(this.#end)}: ${short(recording.calls.length)} calls of operations, ${short(recording.dispatches.length)} dispatches. Plus and minus zoom, the arrow keys move, Home shows all.`;
    this.#canvas.style.height = `${AXIS + ROW * this.#lanes.length + 4}px`;
    const act = (label: string, name: string, work: () => void) =>
      button(label, work, { ariaLabel: name, title: name });
    this.element = make(
      "div",
      { className: "timeline" },
      make(
        "div",
        { className: "inspector-head", role: "toolbar", ariaLabel: "Timeline" },
        act("+", "Zoom in", () => this.#zoom(0.5)),
        act("−", "Zoom out", () => this.#zoom(2)),
        act("◀", "Earlier", () => this.#move(-0.3)),
        act("▶", "Later", () => this.#move(0.3)),
        act("All", "Show all", () => this.fit()),
        this.#words,
      ),
      this.#canvas,
    );
    this.#listen();
  }

  /** Show all of it. */
  fit(): void {
    this.#show(0, this.#end * 1.01);
  }

  #listen(): void {
    const canvas = this.#canvas;
    new ResizeObserver(() => this.draw()).observe(canvas);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
        this.#move((event.deltaX || event.deltaY) / 1000);
      else this.#zoom(1.2 ** Math.sign(event.deltaY), this.#at(event.offsetX));
    });
    canvas.addEventListener("keydown", (event) => {
      const keys: Record<string, () => void> = {
        "+": () => this.#zoom(0.5),
        "=": () => this.#zoom(0.5),
        "-": () => this.#zoom(2),
        ArrowLeft: () => this.#move(-0.1),
        ArrowRight: () => this.#move(0.1),
        Home: () => this.fit(),
      };
      const act = keys[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.#drag = { x: event.offsetX, from: this.#from, to: this.#to, moved: false };
    });
    canvas.addEventListener("pointermove", (event) => this.#onMove(event));
    canvas.addEventListener("pointerup", (event) => {
      const box = this.#drag?.moved ? undefined : this.#find(event.offsetX, event.offsetY);
      this.#drag = undefined;
      if (box) this.#tell(box);
      if (box && box.kernel >= 0) this.choose(box.kernel);
    });
    canvas.addEventListener("pointercancel", () => {
      this.#drag = undefined;
    });
  }

  #onMove(event: PointerEvent): void {
    const drag = this.#drag;
    if (!drag) {
      const box = this.#find(event.offsetX, event.offsetY);
      if (box) this.#tell(box);
      return;
    }
    const by = event.offsetX - drag.x;
    if (Math.abs(by) > 3) drag.moved = true;
    const shift = (by / this.#width) * (drag.to - drag.from);
    if (drag.moved) this.#show(drag.from - shift, drag.to - shift);
  }

  #tell({ name, start, us }: Box): void {
    this.#words.textContent = `${name} · ${us ? `${time(us)}, ` : ""}at ${time(start)}`;
  }

  get #width(): number {
    return Math.max(1, this.#canvas.clientWidth - LEFT);
  }

  #at(x: number): number {
    return this.#from + ((x - LEFT) / this.#width) * (this.#to - this.#from);
  }

  #x(at: number): number {
    return LEFT + ((at - this.#from) / (this.#to - this.#from)) * this.#width;
  }

  #zoom(factor: number, around = (this.#from + this.#to) / 2): void {
    const span = Math.min(this.#end * 1.01, Math.max(CLOSEST, (this.#to - this.#from) * factor));
    const part = (around - this.#from) / (this.#to - this.#from);
    this.#show(around - part * span, around + (1 - part) * span);
  }

  #move(part: number): void {
    const by = part * (this.#to - this.#from);
    this.#show(this.#from + by, this.#to + by);
  }

  #show(from: number, to: number): void {
    const span = to - from;
    this.#from = Math.max(0, Math.min(from, this.#end * 1.01 - span));
    this.#to = this.#from + span;
    this.draw();
  }

  /** The innermost box there; a little beside it will do, for what is thinner than a finger. */
  #find(x: number, y: number): Box | undefined {
    const lane = Math.floor((y - AXIS) / ROW);
    const slack = (this.#to - this.#from) * (4 / this.#width);
    const at = this.#at(x);
    let found: Box | undefined;
    for (const box of this.#boxes)
      if (box.lane === lane && box.start - slack <= at && at <= box.start + box.us + slack)
        if (!found || distance(box, at) <= distance(found, at)) found = box;
    return found;
  }

  draw(): void {
    const canvas = this.#canvas;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width) return;
    const scale = devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d");
    if (!context) throw new Error("this browser gives no canvas to draw on");
    const style = getComputedStyle(canvas);
    context.scale(scale, scale);
    context.font = MONO;
    context.textBaseline = "middle";
    this.#drawAxis(context, style, width);
    context.save();
    context.beginPath();
    context.rect(LEFT, AXIS, width - LEFT, height);
    context.clip();
    const dark = isDark(style);
    const last = new Map<number, number>(); // up to which pixel a lane is full
    for (const box of this.#boxes) {
      const x = this.#x(box.start);
      const right = Math.max(x + 1, this.#x(box.start + box.us));
      if (right < LEFT || x > width || right <= (last.get(box.lane) ?? 0)) continue;
      last.set(box.lane, right);
      drawBox(context, box, x, right, dark);
    }
    context.restore();
  }

  #drawAxis(context: CanvasRenderingContext2D, style: CSSStyleDeclaration, width: number): void {
    context.fillStyle = style.color;
    for (const [lane, words] of this.#lanes.entries()) context.fillText(words, 0, AXIS + ROW * (lane + 0.5));
    const rough = (this.#to - this.#from) / Math.max(2, this.#width / 90);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 5].find((each) => each * power >= rough) ?? 10);
    context.strokeStyle = style.borderColor;
    for (let at = Math.ceil(this.#from / step) * step; at <= this.#to; at += step) {
      const x = Math.round(this.#x(at)) + 0.5;
      context.beginPath();
      context.moveTo(x, AXIS - 4);
      context.lineTo(x, AXIS + ROW * this.#lanes.length);
      context.stroke();
      if (x + 40 < width) context.fillText(at ? time(at) : "0", x + 3, AXIS / 2);
    }
  }
}

function callsOf({ calls, names }: Recording, depths: number): Box[] {
  return calls.map(([name, start, us, depth]) => ({
    lane: Math.min(depth, depths - 1),
    start,
    us,
    name: names[name] ?? "",
    kernel: -1,
  }));
}

function kernelsOf({ dispatches, kernels }: Recording, depths: number): Box[] {
  return dispatches.map(([kernel, sent, begin, us]) => ({
    lane: depths,
    start: begin ?? sent,
    us: us ?? 0,
    name: kernels[kernel]?.name ?? "",
    kernel,
  }));
}

function distance({ start, us }: Box, at: number): number {
  return Math.max(start - at, at - start - us, 0);
}

/** Of the same name always the same colour. */
function drawBox(context: CanvasRenderingContext2D, box: Box, x: number, right: number, dark: boolean): void {
  let hash = 0;
  for (const each of box.name) hash = (hash * 31 + each.charCodeAt(0)) % 360;
  const y = AXIS + ROW * box.lane + 2;
  context.fillStyle = dark ? `hsl(${hash} 45% 34%)` : `hsl(${hash} 65% 82%)`;
  context.fillRect(x, y, right - x, ROW - 3);
  const from = Math.max(x, LEFT);
  const room = Math.floor((right - from - 6) / 6.7);
  if (room < 3) return;
  context.fillStyle = dark ? "#fff" : "#1f2328";
  const words = box.name.length > room ? `${box.name.slice(0, room - 1)}…` : box.name;
  context.fillText(words, from + 4, y + (ROW - 3) / 2);
}

function isDark({ colorScheme }: CSSStyleDeclaration): boolean {
  return colorScheme === "dark" || (colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}
