/** A run under the profiler: when what was done, and a table of its kernels. */
import type { State } from "../session";
import { KernelTable, kernelWords } from "./kernels";
import { button, make, short, time } from "./make";
import type { Around, View } from "./panel";
import type { Kernel, Recording } from "./recording";
import source from "./tabinspect.py?raw";
import { Timeline } from "./timeline";

export class Profile implements View {
  readonly title = "Profile";
  readonly element = make("div", { className: "profile" });
  readonly #start: HTMLButtonElement;
  readonly #startCell: HTMLButtonElement;
  readonly #words = make("p", { className: "hint", role: "status" });
  readonly #result = make("div");
  #timeline: Timeline | undefined;
  #armed = false;

  constructor(private readonly around: Around) {
    this.#start = button("Run with profile", () => this.#run(() => around.run() !== undefined), {
      className: "primary",
    });
    this.#startCell = button("Profile this cell", () => this.#run(() => around.runCell()), { className: "when-cells" });
    this.#words.textContent = "Runs the script that is open, and records its operations and kernels.";
    this.element.append(
      make("div", { className: "inspector-head" }, this.#start, this.#startCell, this.#words),
      this.#result,
    );
    this.onState(around.session.state);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#timeline?.draw());
  }

  onState(state: State): void {
    for (const each of [this.#start, this.#startCell]) each.disabled = state !== "ready";
    if (!this.#armed || state === "busy") return;
    this.#armed = false;
    if (state === "ready") void this.around.attempt(this, () => this.#take());
    else this.#words.textContent = "Python was started again: nothing was recorded.";
  }

  /** begin: start it; false if there is nothing to be run. */
  #run(begin: () => boolean): void {
    void this.around.attempt(this, async () => {
      const { session } = this.around;
      await session.inspect(source, "arm");
      this.#armed = true;
      this.#words.textContent = "Recording…";
      if (begin()) return;
      this.#armed = false;
      this.#words.textContent = "The cursor is in no cell that has code.";
      await session.inspect(source, "take");
    });
  }

  async #take(): Promise<void> {
    const { session } = this.around;
    this.#words.textContent = "Adding up…";
    const recording = JSON.parse((await session.inspect(source, "take")) as string) as Recording | null;
    if (!recording) {
      this.#words.textContent = "Nothing was recorded: the code did not run.";
      return;
    }
    const compiled = new Map(await session.compileTimes());
    for (const kernel of recording.kernels)
      if (kernel.fresh && kernel.device === "webgpu") kernel.compiled = compiled.get(kernel.kernel);
    this.#show(recording);
  }

  #show(recording: Recording): void {
    this.#words.textContent = summary(recording);
    const detail = make("section", { className: "kernel", ariaLabel: "The chosen kernel", hidden: true });
    const choose = (kernel: Kernel | undefined) => {
      detail.hidden = !kernel;
      table.mark(kernel);
      const close = button("✕", () => choose(undefined), { ariaLabel: "Close the kernel", className: "close" });
      detail.replaceChildren(...(kernel ? [close, ...kernelWords(kernel)] : []));
      if (kernel) detail.scrollIntoView({ block: "nearest" });
      else table.element.focus();
    };
    const table = new KernelTable(recording.kernels, choose);
    const timeline = new Timeline(recording, (index) => choose(recording.kernels[index]));
    const both = make("div", { className: "table-and-kernel" }, table.element, detail);
    this.#result.replaceChildren(timeline.element, ...notes(recording), both);
    timeline.fit();
    this.#timeline = timeline;
  }
}

function summary({ duration, dispatches, dispatches_left_out, kernels, timed }: Recording): string {
  const count = dispatches.length + dispatches_left_out;
  const gpu = kernels.reduce((sum, { us }) => sum + (us ?? 0), 0);
  const fresh = kernels.filter((kernel) => kernel.fresh).length;
  return [
    time(duration),
    `${short(count)} ${count === 1 ? "dispatch" : "dispatches"} of ${kernels.length} ${kernels.length === 1 ? "kernel" : "kernels"}`,
    ...(timed ? [`GPU busy ${time(gpu)}`] : []),
    `${fresh} compiled`,
  ].join(" · ");
}

/** What one has to know to read the figures. */
function notes({ timed, dispatches, kernels, calls_left_out, dispatches_left_out }: Recording): HTMLElement[] {
  const said: string[] = [];
  if (!timed && kernels.some(({ device }) => device === "webgpu"))
    said.push(
      "GPU times are not measured on this adapter (it has no timestamp-query): kernels stand where they were sent.",
    );
  if (!timed && kernels.some(({ device }) => device === "cpu"))
    said.push("Kernels of the cpu device have no clock of their own: they stand where they were sent.");
  const step = timed ? granularity(dispatches.map(([, , , us]) => Math.round((us ?? 0) * 1000))) : 0;
  if (step >= 1000) said.push(`This browser rounds GPU times to ${time(step / 1000)}.`);
  if (calls_left_out) said.push(`${short(calls_left_out)} later calls of operations are not drawn.`);
  if (dispatches_left_out)
    said.push(`${short(dispatches_left_out)} later dispatches are not drawn; the table counts all.`);
  return said.map((words) => make("p", { className: "hint" }, words));
}

/** What all of these are multiples of. */
function granularity(values: number[]): number {
  let all = 0;
  for (let value of values) while (value) [all, value] = [value, all % value];
  return all;
}
