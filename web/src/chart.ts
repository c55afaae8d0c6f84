/** A line chart that grows: axes, legend, values under the pointer or by arrow keys, a switch for the logarithm. */
import uPlot from "uplot";
import { chartPicture } from "./chartpicture";
import { type Bundle, type Picture, textOf } from "./rich";
import "uplot/dist/uPlot.min.css";
import "./chart.css";

/** See Chart.bundle in py/tabtorch/display/charts.py. */
interface About {
  name: string;
  log: boolean;
  xlabel: string;
  ylabel: string;
  lines: { name: string; count: number; stride: number }[];
}

type Points = [xs: number[], ys: (number | null | undefined)[]];

const HEIGHT = 260;
const MOST_WIDTH = 720;
const COLOURS = 6; // of lines, in chart.css

export class Chart {
  readonly #element: HTMLElement;
  readonly #plot = document.createElement("div");
  readonly #switch = document.createElement("button");
  readonly #said = document.createElement("p");
  readonly #probe = document.createElement("span");
  readonly #dark = matchMedia("(prefers-color-scheme: dark)");
  readonly #redraw = () => this.#uplot?.redraw();
  readonly #sizes = new ResizeObserver(() => this.#uplot?.setSize(this.#size()));
  #uplot: uPlot | undefined;
  #about!: About;
  #points: Points[] = [];
  #drawn = ""; // what the uPlot is for: other lines, another scale need another one
  #log: boolean | undefined; // as the reader wants it

  constructor(element: HTMLElement, bundle: Bundle) {
    this.#element = element;
    element.className = "chart";
    element.setAttribute("aria-live", "off"); // a reader is not told of every step
    this.#plot.tabIndex = 0;
    this.#plot.setAttribute("role", "img");
    this.#plot.addEventListener("keydown", (event) => this.#key(event));
    this.#said.className = "said";
    this.#said.setAttribute("aria-live", "polite");
    this.#switch.type = "button";
    this.#switch.textContent = "Log scale";
    this.#switch.addEventListener("click", () => {
      this.#log = !this.#isLog;
      this.#draw();
    });
    element.append(this.#switch, this.#plot, this.#said, this.#probe);
    this.#dark.addEventListener("change", this.#redraw);
    this.#sizes.observe(element);
    this.show(bundle);
  }

  show(bundle: Bundle): void {
    this.#about = JSON.parse(textOf(bundle["application/vnd.tabtorch.chart+json"])) as About;
    const bytes = bundle["application/vnd.tabtorch.points"] as Uint8Array;
    const numbers = new Float64Array(bytes.slice().buffer);
    let at = 0;
    this.#points = this.#about.lines.map(({ count }) => {
      const xs = numbers.subarray(at, at + count);
      const ys = numbers.subarray(at + count, at + 2 * count);
      at += 2 * count;
      return inOrder(xs, ys);
    });
    this.#plot.setAttribute("aria-label", inWords(this.#about, this.#points));
    this.#draw();
  }

  dispose(): void {
    this.#dark.removeEventListener("change", this.#redraw);
    this.#sizes.disconnect();
    this.#uplot?.destroy();
  }

  get picture(): Picture | undefined {
    const plot = this.#uplot?.ctx.canvas;
    if (!plot) return undefined;
    const scale = plot.width / this.#size().width;
    const canvas = chartPicture(plot, scale, {
      title: this.#about.name,
      lines: this.#about.lines.map(({ name }, index) => ({ name, colour: this.#colour(lineColour(index)) })),
      text: this.#colour("--text"),
      ground: this.#colour("--card"),
    });
    const metadata = { width: canvas.width / scale, height: canvas.height / scale, alt: this.#plot.ariaLabel };
    return { canvas, metadata };
  }

  get #isLog(): boolean {
    return this.#log ?? this.#about.log;
  }

  #draw(): void {
    const { name, xlabel, ylabel, lines } = this.#about;
    const log = this.#isLog;
    this.#switch.setAttribute("aria-pressed", String(log));
    const data = joined(log ? this.#points.map(([xs, ys]): Points => [xs, ys.map(positive)]) : this.#points);
    const kind = JSON.stringify([log, name, xlabel, ylabel, lines.map(({ name, stride }) => [name, stride])]);
    if (this.#uplot && kind === this.#drawn) {
      this.#uplot.setData(data, !this.#zoomed);
    } else {
      this.#uplot?.destroy();
      this.#uplot = new uPlot(this.#options(log), data, this.#plot);
      this.#drawn = kind;
    }
    this.#showLast();
  }

  #options(log: boolean): uPlot.Options {
    const { name, xlabel, ylabel, lines } = this.#about;
    const axis = { stroke: () => this.#colour("--soft"), font: "12px system-ui, sans-serif" };
    const ticks = { stroke: () => this.#colour("--line"), width: 1 };
    const grid = { ...ticks, ...(log && { filter: powersOfTen }) };
    const values = (_: uPlot, splits: (number | null)[]) => splits.map((v) => (v === null ? "" : short(v)));
    return {
      ...this.#size(),
      title: name,
      scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
      axes: [
        { ...axis, grid: ticks, ticks, values, size: 34, ...(xlabel && { label: xlabel, labelSize: 20 }) },
        {
          ...axis,
          grid,
          ticks: grid,
          values,
          size: (_, labels) => 18 + 7 * Math.max(2, ...(labels ?? []).map((label) => label.length)),
          ...(ylabel && { label: ylabel, labelSize: 20 }),
        },
      ],
      series: [
        { label: xlabel || "x", value: (_, v) => shown(v) },
        ...lines.map(
          ({ name, stride }, index): uPlot.Series => ({
            label: stride > 1 ? `${name} (1 point of ${stride})` : name,
            stroke: () => this.#colour(lineColour(index)),
            width: 1.75,
            ...(index >= COLOURS && { dash: [6, 4] }),
            points: { show: (u) => (u.data[0]?.length ?? 0) < 40 },
            value: (_, v) => shown(v),
          }),
        ),
      ],
      hooks: { setCursor: [(u) => u.cursor.idx ?? this.#showLast()] },
    };
  }

  #size(): { width: number; height: number } {
    return { width: Math.max(200, Math.min(this.#element.clientWidth, MOST_WIDTH)), height: HEIGHT };
  }

  /** A part is enlarged, by dragging over it. */
  get #zoomed(): boolean {
    const { min, max } = this.#uplot?.scales.x ?? {};
    const [xs] = this.#uplot?.data ?? [];
    return (
      min !== undefined && xs !== undefined && xs.length > 1 && (min > (xs[0] ?? 0) || (max ?? 0) < (xs.at(-1) ?? 0))
    );
  }

  /** The legend shows where the lines have come to, while it shows no other place. */
  #showLast(): void {
    const u = this.#uplot;
    if (!u || (u.cursor.idx ?? undefined) !== undefined) return;
    const last = (values: ArrayLike<unknown>) => Array.from(values).findLastIndex((v) => v !== null && v !== undefined);
    u.setLegend({ idxs: u.data.map(last) }, false);
  }

  #key(event: KeyboardEvent): void {
    const u = this.#uplot;
    const xs = u?.data[0];
    if (!u || !xs?.length || event.altKey || event.ctrlKey || event.metaKey) return;
    const at = u.cursor.idx ?? xs.length;
    const step = Math.max(1, Math.round(xs.length / 100));
    const to = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: xs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const index = Math.min(Math.max(to, 0), xs.length - 1);
    u.setCursor({ left: u.valToPos(xs[index] as number, "x"), top: 10 });
    const parts = this.#about.lines.map(({ name }, k) => `${name} ${shown(u.data[k + 1]?.[index])}`);
    this.#said.textContent = `${short(xs[index] as number)}: ${parts.join(", ")}`;
  }

  /** A colour of the page, as a canvas takes it. */
  #colour(name: string): string {
    this.#probe.style.color = `var(${name})`;
    return getComputedStyle(this.#probe).color;
  }
}

function lineColour(index: number): string {
  return `--line-${index % COLOURS}`;
}

/** Without what is not a number, from left to right. A y that is none leaves a gap. */
function inOrder(xs: Float64Array, ys: Float64Array): Points {
  let order = Array.from(xs.keys()).filter((k) => Number.isFinite(xs[k]));
  const falls = order.some((k, at) => at > 0 && (xs[order[at - 1] as number] as number) > (xs[k] as number));
  if (falls) order = order.sort((a, b) => (xs[a] as number) - (xs[b] as number));
  return [order.map((k) => xs[k] as number), order.map((k) => (Number.isFinite(ys[k]) ? (ys[k] as number) : null))];
}

/** For who does not see it. */
function inWords({ name, lines }: About, points: Points[]): string {
  const parts = points.map(([xs, ys], k) => {
    const numbers = ys.filter((y) => typeof y === "number");
    const [least, greatest] = numbers.reduce(([a, b], y) => [Math.min(a, y), Math.max(b, y)], [Infinity, -Infinity]);
    const line = lines[k]?.name === name ? "" : `${lines[k]?.name} `;
    const gaps = ys.length - numbers.length;
    return [
      `${line}${shown(ys.at(-1))} at ${short(xs.at(-1) ?? 0)}`,
      `${ys.length} point${ys.length === 1 ? "" : "s"}`,
      ...(numbers.length ? [`from ${short(least)} to ${short(greatest)}`] : []),
      ...(gaps ? [`${gaps} not finite`] : []),
    ].join(", ");
  });
  return `Chart ${name}: ${parts.join("; ")}`;
}

/** All lines over one x: where another line has a point and this one has none it goes on. */
function joined(points: Points[]): uPlot.AlignedData {
  return points.length === 1 ? (points[0] as uPlot.AlignedData) : uPlot.join(points as uPlot.AlignedData[]);
}

/** Nine lines to each power would be a wall. */
function powersOfTen(_: uPlot, splits: number[]): (number | null)[] {
  return splits.map((v) => (Math.abs(Math.log10(v) % 1) < 1e-9 ? v : null));
}

/** What has a logarithm. */
function positive(y: number | null | undefined): number | null | undefined {
  return typeof y === "number" && y <= 0 ? null : y;
}

function short(value: number): string {
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6)
    ? value.toExponential(2).replace(/\.?0+e/, "e")
    : `${+value.toPrecision(5)}`;
}

function shown(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : short(value);
}
