/** The table of a run's kernels, and all that is known of one. */
import { copy } from "../share";
import { button, bytes, make, short, time } from "./make";
import type { Kernel } from "./recording";

interface Column {
  title: string;
  explained: string;
  value(kernel: Kernel): number | string;
  words(kernel: Kernel): string;
}

const UNKNOWN = "not known";

const COLUMNS: Column[] = [
  {
    title: "Kernel",
    explained: "Named after the operations that were fused into it",
    value: ({ name }) => name,
    words: ({ name }) => name,
  },
  {
    title: "Calls",
    explained: "How often it was dispatched",
    value: ({ calls }) => calls,
    words: (k) => short(k.calls),
  },
  {
    title: "GPU time",
    explained: "Of all calls, by the GPU's own clock",
    value: ({ us }) => us ?? -1,
    words: ({ us }) => (us === null ? "not measured" : time(us)),
  },
  {
    title: "Fused",
    explained: "How many operations are in it",
    value: ({ operations }) => operations?.length ?? 0,
    words: ({ operations }) => (operations ? String(operations.length) : UNKNOWN),
  },
  {
    title: "Read",
    explained: "Bytes that all calls read, each element of an input counted once a call",
    value: ({ read }) => read ?? -1,
    words: ({ read }) => (read === null ? UNKNOWN : bytes(read)),
  },
  {
    title: "Written",
    explained: "Bytes that all calls wrote",
    value: ({ written }) => written ?? -1,
    words: ({ written }) => (written === null ? UNKNOWN : bytes(written)),
  },
  {
    title: "Workgroups",
    explained: "Of a call",
    value: ({ workgroups }) => workgroups[1],
    words: ({ workgroups: [least, most] }) => (least === most ? short(most) : `${short(least)}–${short(most)}`),
  },
  {
    title: "Compiled",
    explained:
      "Whether it was compiled in this run, and how long after it was asked for the browser said so: kernels are compiled one after another",
    value: ({ compiled, fresh }) => (fresh ? (compiled ?? 0) : -1),
    words: ({ compiled, fresh }) =>
      fresh ? (compiled === undefined ? "in this run" : `after ${time(compiled * 1000)}`) : "before",
  },
];

/** The kernels, sorted by a column; a click on a heading sorts by it, another one the other way round. */
export class KernelTable {
  readonly element: HTMLElement;
  readonly #body = make("tbody");
  readonly #heads: HTMLTableCellElement[];
  readonly #rows: Map<Kernel, HTMLTableRowElement>;
  #by = 2;
  #down = true;

  constructor(
    private readonly kernels: Kernel[],
    choose: (kernel: Kernel) => void,
  ) {
    if (kernels.every(({ us }) => us === null)) this.#by = 1;
    this.#heads = COLUMNS.map(({ title, explained }, index) =>
      make(
        "th",
        { scope: "col", title: explained },
        button(title, () => this.#sort(index)),
      ),
    );
    this.#rows = new Map(
      kernels.map((kernel) => {
        const open = button(kernel.name, () => choose(kernel), { title: kernel.name });
        const cells = COLUMNS.slice(1).map((column) => make("td", {}, column.words(kernel)));
        return [kernel, make("tr", {}, make("th", { scope: "row" }, open), ...cells)];
      }),
    );
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...this.#heads)), this.#body);
    this.element = make("div", { className: "kernels", role: "region", tabIndex: 0, ariaLabel: "Kernels" }, table);
    this.#draw();
  }

  mark(chosen: Kernel | undefined): void {
    for (const [kernel, row] of this.#rows) row.classList.toggle("chosen", kernel === chosen);
  }

  #sort(index: number): void {
    this.#down = this.#by === index ? !this.#down : index > 0;
    this.#by = index;
    this.#draw();
  }

  #draw(): void {
    const { value } = COLUMNS[this.#by] as Column;
    const order = (a: Kernel, b: Kernel) => {
      const [x, y] = [value(a), value(b)];
      return typeof x === "number" ? x - Number(y) : x.localeCompare(String(y));
    };
    const sorted = [...this.kernels].sort((a, b) => (this.#down ? order(b, a) : order(a, b)));
    this.#body.replaceChildren(...sorted.map((kernel) => this.#rows.get(kernel) as HTMLElement));
    for (const [index, head] of this.#heads.entries()) {
      if (index === this.#by) head.ariaSort = this.#down ? "descending" : "ascending";
      else head.removeAttribute("aria-sort");
    }
  }
}

/** All that is known of a kernel. */
export function kernelWords(kernel: Kernel): HTMLElement[] {
  const { operations, apart, us, read, written, calls } = kernel;
  const parts: HTMLElement[] = [make("h3", {}, kernel.name)];
  if (us && read !== null && written !== null)
    parts.push(make("p", {}, `${time(us / calls)} a call, ${bytes(((read + written) / us) * 1e6)} a second.`));
  if (operations?.length !== 0)
    parts.push(make("h4", {}, operations?.length === 1 ? "Operation" : "Operations fused into it"));
  if (operations?.length)
    parts.push(
      make(
        "ol",
        {},
        ...operations.map(([name, shape, dtype, again]) =>
          make(
            "li",
            {},
            make("b", {}, name),
            ` → ${dtype} (${shape.join(", ")})${again ? ", computed again here rather than stored" : ""}`,
          ),
        ),
      ),
    );
  else parts.push(make("p", {}, "Its plan was made before this run: what went into it was not recorded."));
  if (apart.length)
    parts.push(
      make("h4", {}, "Why it stands by itself"),
      make("ul", {}, ...apart.map((words) => make("li", {}, `It ${words}.`))),
    );
  parts.push(...sourceOf(kernel));
  return parts;
}

function sourceOf({ source, device }: Kernel): HTMLElement[] {
  const what = device === "cpu" ? "JavaScript" : "WGSL";
  const field = make("textarea", {
    className: "source",
    value: source,
    readOnly: true,
    ariaLabel: what,
    wrap: "off",
    rows: 16,
  });
  const pressed = button(`Copy ${what}`, async () => {
    pressed.textContent = (await copy(source, field)) ? "Copied" : "Selected: copy it";
  });
  return [make("div", { className: "inspector-head" }, make("h4", {}, what), pressed), field];
}
