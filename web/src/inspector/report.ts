/** What the page runs on, to be read here and pasted into an issue. */
import { advice, thisBrowser } from "../advice";
import { deviceWords, lacksGpu } from "../device";
import type { Manifest } from "../manifest";
import { copy } from "../share";
import { manifest } from "../version";
import { button, bytes, make } from "./make";
import type { Around, View } from "./panel";

type Row = [name: string, value: string];

/** Features that scripts gain by, and what for. */
const FEATURES: Row[] = [
  ["shader-f16", "float16"],
  ["subgroups", "Subgroups"],
  ["timestamp-query", "GPU clock"],
];
const COPIED_MS = 2000;

export class Report implements View {
  readonly title = "Device";
  readonly element = make("div", { className: "report" });
  #site: Manifest | undefined; // once it is known

  constructor(private readonly around: Around) {
    this.draw();
    void around.attempt(this, async () => {
      this.#site = await manifest;
      this.draw();
    });
  }

  draw(): void {
    const { device } = this.around;
    if (!device) {
      this.element.replaceChildren(make("p", { className: "hint" }, "Python is loading; the device is known then."));
      return;
    }
    const { long, short } = deviceWords(device);
    const copyButton = button("Copy report", () => void this.#copy(copyButton));
    this.element.replaceChildren(
      make("div", { className: "inspector-head" }, make("h3", { title: long }, short), copyButton),
      ...(lacksGpu(device) ? [make("p", {}, advice(thisBrowser()))] : []),
      make(
        "div",
        { className: "columns" },
        group("Backend", this.#backend()),
        group("Browser", this.#browser()),
        group("Versions", this.#versions()),
      ),
      folded(`Limits (${this.#limits().length})`, this.#limits()),
      folded("WebGPU features", [["Enabled", device.info.webgpu?.features?.join(", ") || "none"]]),
    );
  }

  #versions(): Row[] {
    const { wheel = "", pyodide = "", version = "" } = this.#site ?? {};
    return [
      ["tabtorch", /tabtorch-([^-]+)/.exec(wheel)?.[1] ?? "not known"],
      ["Build of the site", version],
      ["torch API", this.around.device?.version ?? ""],
      ["Pyodide", pyodide],
      ["Python", this.around.device?.python ?? ""],
    ];
  }

  #backend(): Row[] {
    const { device, info, error } = this.around.device ?? { device: "", info: {} };
    const { adapter, features } = info.webgpu ?? {};
    const named: Row[] = [
      ["Vendor", adapter?.vendor ?? ""],
      ["Architecture", adapter?.architecture ?? ""],
      ["Device", adapter?.device ?? ""],
      ["Description", adapter?.description ?? ""],
    ];
    const has: Row[] = FEATURES.map(([name, words]) => [words, yes(features?.includes(name), name)]);
    return [
      ["Tensors are made on", device || `no device: ${error}`],
      ["WebGPU", info.webgpu ? "yes" : `no: ${info.reason ?? "not known why"}`],
      ...(info.webgpu
        ? [...named.filter(([, value]) => value), ["Software adapter", yes(adapter?.isFallback)] as Row, ...has]
        : []),
    ];
  }

  #browser(): Row[] {
    const { hardwareConcurrency, userAgent, language } = navigator;
    return [
      ["Browser", userAgent],
      ["Language", language],
      ["Processors", String(hardwareConcurrency)],
      ["Cross-origin isolated", yes(crossOriginIsolated, "Stop reaches loops that never wait")],
      ["Promise integration (JSPI)", yes("Suspending" in WebAssembly, "values are read without await")],
    ];
  }

  #limits(): Row[] {
    return Object.entries(this.around.device?.info.webgpu?.limits ?? {})
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([name, value]) => [name, `${value}${/Size$/.test(name) && value >= 4096 ? ` (${bytes(value)})` : ""}`]);
  }

  /** All of it as text. */
  get text(): string {
    const { device } = this.around;
    const part = (title: string, rows: Row[]) => [
      `### ${title}`,
      ...rows.map(([name, value]) => `- ${name}: ${value}`),
    ];
    return [
      ...part("Backend", this.#backend()),
      ...part("Browser", this.#browser()),
      ...part("Versions", this.#versions()),
      ...part("WebGPU", [["features", device?.info.webgpu?.features?.join(", ") || "none"], ...this.#limits()]),
    ].join("\n");
  }

  async #copy(pressed: HTMLButtonElement): Promise<void> {
    const field = make("textarea", { value: this.text, ariaLabel: "The report", readOnly: true, rows: 8 });
    this.element.append(field);
    if (!(await copy(this.text, field))) {
      pressed.textContent = "Select it below, and copy";
      field.focus();
      return;
    }
    field.remove();
    pressed.focus();
    pressed.textContent = "Copied";
    setTimeout(() => {
      pressed.textContent = "Copy report";
    }, COPIED_MS);
  }
}

function yes(is: boolean | undefined, why = ""): string {
  return is ? `yes${why && `: ${why}`}` : "no";
}

function list(rows: Row[]): HTMLElement {
  return make("dl", {}, ...rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

function group(title: string, rows: Row[]): HTMLElement {
  return make("section", {}, make("h4", {}, title), list(rows));
}

function folded(title: string, rows: Row[]): HTMLElement {
  return make("details", {}, make("summary", {}, title), list(rows));
}
