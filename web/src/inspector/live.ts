/** What the runtime has and does now: memory, and commands a second, told four times a second while this is in sight. */
import type { State } from "../session";
import { bytes, make, short, svg } from "./make";
import type { Around, Figures, Progress, View } from "./panel";

interface Gauge {
  name: string;
  title: string;
  words(n: number): string;
  /** Of these figures, and of those before for what happens in a second. */
  value(now: Figures, before: Figures): number;
  /** Whether a curve of it is drawn. */
  curve?: boolean;
}

const GAUGES: Gauge[] = [
  level("In use", "Bytes of the buffers of live tensors, on the GPU and on the cpu device", (c) => c.bytes, true),
  rate("Dispatches", "Kernels started", (c) => c.dispatches, true),
  level("Pool", "Bytes of free buffers that are kept, to be used again", (c) => c.pooledBytes),
  level("Peak", "The most that was in use since Python started", (c) => (c.gpuPeakBytes ?? 0) + (c.cpuPeakBytes ?? 0)),
  {
    name: "Python's memory",
    title: "The WebAssembly heap: it grows, and never shrinks",
    words: bytes,
    value: ({ heap }) => heap,
  },
  rate("Submits", "Times that work was handed to the GPU", (c) => c.submits),
  rate("Reads", "Times that values were read back", (c) => c.reads),
  rate("Uploaded", "Bytes that went to the device", (c) => c.uploadBytes, false, bytes),
  {
    name: "Kernels compiled",
    title: "Pipelines, or functions of the cpu device, made since Python started",
    words: short,
    value: ({ counters }) => counters.kernels ?? 0,
  },
];
/** Of a curve: a minute. */
const POINTS = 240;
/** Python that says nothing for so long does not let the page look. */
const SILENT_MS = 1500;

export class Live implements View {
  readonly title = "Live";
  readonly element = make("div", { className: "live" });
  readonly #values = GAUGES.map(() => make("dd", {}, "–"));
  readonly #curves = GAUGES.map((gauge) => (gauge.curve ? new Curve(`${gauge.name}, the last minute`) : undefined));
  readonly #words = make("p", { className: "hint", role: "status" }, "Waiting for the first figures…");
  readonly #compiling = make("p", { className: "hint" });
  #before: Figures | undefined;
  #heard = 0;
  #clock: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly around: Around) {
    const tiles = GAUGES.map((gauge, index) => {
      const curve = this.#curves[index];
      const name = make("dt", { title: gauge.title }, gauge.name);
      return make(
        "div",
        { className: curve ? "gauge wide" : "gauge" },
        name,
        this.#values[index] as HTMLElement,
        ...(curve ? [make("dd", {}, curve.element)] : []),
      );
    });
    this.element.append(make("dl", { className: "gauges" }, ...tiles), this.#compiling, this.#words);
  }

  show(shown: boolean): void {
    clearInterval(this.#clock);
    this.#clock = shown ? setInterval(() => this.#say(), 500) : undefined;
    this.#heard = performance.now();
    this.#say();
  }

  onState(state: State): void {
    if (state === "loading") this.#before = undefined; // another runtime, which counts anew
    this.#say();
  }

  add(now: Figures): void {
    const before = this.#before && this.#before.at < now.at ? this.#before : now;
    this.#before = now;
    this.#heard = performance.now();
    for (const [index, gauge] of GAUGES.entries()) {
      const value = gauge.value(now, before);
      (this.#values[index] as HTMLElement).textContent = gauge.words(value);
      this.#curves[index]?.add(value);
    }
    this.#say();
  }

  compiling({ ready, asked }: Progress): void {
    this.#compiling.textContent = ready < asked ? `Compiling: ${ready} of ${asked} pipelines are ready.` : "";
  }

  /** Say why nothing changes, if so. */
  #say(): void {
    if (!this.#clock) return;
    const silent = performance.now() - this.#heard > SILENT_MS;
    const { state } = this.around.session;
    const words =
      state === "loading" || state === "failed"
        ? "Python is not running."
        : silent
          ? "Python is busy, and sends the device nothing: the figures are the last that it told."
          : "Told four times a second, while this panel is open.";
    if (this.#words.textContent !== words) this.#words.textContent = words;
  }
}

type Of = (counters: Record<string, number>) => number | undefined;

function level(name: string, title: string, of: Of, curve = false): Gauge {
  return { name, title, words: bytes, curve, value: ({ counters }) => of(counters) ?? 0 };
}

function rate(name: string, title: string, of: Of, curve = false, words: (n: number) => string = short): Gauge {
  return {
    name: `${name} a second`,
    title,
    words,
    curve,
    value(now, before) {
      const seconds = (now.at - before.at) / 1000;
      // counters that were set back have counted this many since
      const was = of(before.counters) ?? 0;
      const is = of(now.counters) ?? 0;
      return seconds > 0 ? (is >= was ? is - was : is) / seconds : 0;
    },
  };
}

/** The last values of a gauge, drawn. */
class Curve {
  readonly #line = svg("polyline", { class: "curve-line" });
  readonly #area = svg("polygon", { class: "curve-area" });
  readonly element: SVGSVGElement;
  #values: number[] = [];

  constructor(title: string) {
    const box = { viewBox: `0 0 ${POINTS} 40`, preserveAspectRatio: "none", role: "img", "aria-label": title };
    this.element = svg("svg", { class: "curve", ...box }, this.#area, this.#line);
  }

  add(value: number): void {
    this.#values = [...this.#values, value].slice(-POINTS);
    const most = Math.max(...this.#values, 1);
    const first = POINTS - this.#values.length;
    const points = this.#values.map((each, index) => `${first + index},${(39 - (37 * each) / most).toFixed(1)}`);
    this.#line.setAttribute("points", points.join(" "));
    this.#area.setAttribute("points", `${first},40 ${points.join(" ")} ${POINTS - 1},40`);
  }
}
