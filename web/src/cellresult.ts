/** What a run of a cell came to: how it ended, and its output, which is shown below the cell. */
import { Output } from "./output";

export type Progress = "waiting" | "running" | "done" | "failed" | "stopped" | "not run";

const WORDS: Record<Progress, string> = {
  waiting: "waits",
  running: "running …",
  done: "",
  failed: "failed",
  stopped: "stopped",
  "not run": "not run",
};

export class CellResult {
  /** Another one for each run. */
  readonly number: number;
  /** The cell as it ran: its text, and the line of the script that this began at. */
  readonly text: string;
  readonly first: number;
  readonly element = document.createElement("div");
  readonly status = document.createElement("span");
  readonly output: Output;
  #progress: Progress = "waiting";
  #started = 0;
  #seconds = 0;
  #stale = false;

  constructor(number: number, text: string, first: number) {
    this.number = number;
    this.text = text;
    this.first = first;
    const log = document.createElement("pre");
    log.setAttribute("role", "log");
    log.ariaLabel = `Output of run ${number}`;
    this.element.className = "cell-output output";
    this.element.tabIndex = 0; // what is long is scrolled by keyboard, too
    this.element.append(log);
    this.output = new Output(log, this.element);
    this.status.className = "cell-status";
    this.#describe();
  }

  get stale(): boolean {
    return this.#stale;
  }

  get progress(): Progress {
    return this.#progress;
  }

  set progress(progress: Progress) {
    if (progress === "running") this.#started = performance.now();
    else if (this.#progress === "running") this.#seconds = (performance.now() - this.#started) / 1000;
    if (progress !== "running") this.output.endAsking();
    this.#progress = progress;
    this.#describe();
  }

  /** Whether the cell has by now another text than the one that ran. */
  compare(text: string): void {
    const stale = code(text) !== code(this.text);
    if (stale === this.#stale) return;
    this.#stale = stale;
    this.element.classList.toggle("stale", stale);
    this.#describe();
  }

  #describe(): void {
    const took = this.#seconds ? `${this.#seconds.toFixed(1)} s` : "";
    const parts = [`[${this.number}]`, WORDS[this.#progress], took, this.#stale ? "changed since" : ""];
    this.status.textContent = parts.filter(Boolean).join(" · ");
    this.status.dataset.progress = this.#progress;
  }
}

/** What a cell does: its title, and empty lines after it, change nothing. */
function code(text: string): string {
  return text.replace(/^# ?%%.*/, "").trimEnd();
}
