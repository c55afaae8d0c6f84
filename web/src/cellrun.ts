/** Runs cells: one after another, in the order in which they were asked for, and each with its own output. */
import type { EditorState, Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { CellResult } from "./cellresult";
import type { Cell } from "./cells";
import { adding, type CellAct, cellsOf, cellText, cellView, forgetting, goingTo, placing, resultsOf } from "./cellview";
import type { RunResult } from "./interpreter";
import type { Output } from "./output";
import type { Session } from "./session";

/** Whether outputs of cells go below them. */
const STORE = "tabtorch.cells.below";

export interface CellParts {
  session: Session;
  pane: Output;
  /** The script's file name. */
  name(): string;
  /** Do this, and say how it ended. */
  perform(work: () => Promise<RunResult>): Promise<void>;
  /** Python could not start: start it again. */
  restart(): void;
  /** Whether the script has cells has changed. */
  onCells(any: boolean): void;
}

interface Job {
  view: EditorView;
  result: CellResult;
}

export class Cells {
  readonly extension: Extension;
  readonly #parts: CellParts;
  #queue: Job[] = [];
  #runs: CellResult[] = []; // what Python was asked to run
  #now: CellResult | undefined;
  #count = 0;
  #below = localStorage.getItem(STORE) !== "no";

  constructor(parts: CellParts) {
    this.#parts = parts;
    this.extension = cellView((view, act, index) => this.#act(view, act, index), parts.onCells);
  }

  /** Where what Python says now belongs. */
  get output(): Output {
    return this.#now && this.#below ? this.#now.output : this.#parts.pane;
  }

  get below(): boolean {
    return this.#below;
  }

  /** Where outputs go from now on. */
  set below(below: boolean) {
    this.#below = below;
    try {
      localStorage.setItem(STORE, below ? "yes" : "no");
    } catch {
      // storage is full or not allowed: it holds as long as the page
    }
  }

  /** Run all cells in a fresh namespace. */
  runAll(view: EditorView): Promise<RunResult> {
    this.#count = 0;
    this.#queue = [];
    this.#forgetAll(view);
    return this.#run(this.#jobs(view, indices(view.state)), true);
  }

  /** Run the cell that the cursor is in; false where it is in none that has code. */
  runCurrent(view: EditorView): boolean {
    const line = view.state.doc.lineAt(view.state.selection.main.head).number;
    const index = cellsOf(view.state).findIndex((cell) => cell.first <= line && line <= cell.last);
    if (cellsOf(view.state)[index]?.kind !== "code") return false;
    this.#act(view, "run", index);
    return true;
  }

  /** A result of before, with the cell that begins at this line: it is filled by who asks. */
  restore(view: EditorView, first: number, number: number | null): CellResult {
    const cells = cellsOf(view.state);
    const index = cells.findIndex((cell) => cell.first === first);
    this.#count = Math.max(this.#count, number ?? this.#count + 1);
    const cell = cells[index];
    const result = new CellResult(number ?? this.#count, cell ? cellText(view.state.doc, cell) : "", first);
    result.progress = "done";
    if (cell) view.dispatch(placing(view.state, index, result));
    return result;
  }

  /** Run what waits, if Python can. */
  goOn(): void {
    const { session, perform, restart } = this.#parts;
    if (!this.#queue.length || session.state === "busy" || session.state === "loading") return;
    if (session.state === "failed") restart();
    else void perform(() => this.#run(this.#queue.splice(0), false));
  }

  /** Python announces a run. */
  begin(number: number): void {
    if (this.#now) this.#now.progress = "done";
    this.#now = this.#runs.find((result) => result.number === number);
    if (!this.#now) return;
    this.#now.progress = "running";
    if (!this.#below) this.#parts.pane.line("echo", `[${number}] ${this.#now.text.split("\n")[0]}`);
  }

  /** What waits is not run after all. */
  forget(): void {
    for (const { result } of this.#queue.splice(0)) result.progress = "not run";
  }

  /** Take all output away, but for what the running cell will still say. */
  clear(view: EditorView): void {
    if (this.#runs.length || this.#queue.length)
      for (const result of resultsOf(view.state).values()) result.output.clear();
    else this.#forgetAll(view);
  }

  /** Bring the cell that runs into sight: it asks for something. */
  reveal(view: EditorView): void {
    const found = [...resultsOf(view.state)].find(([, result]) => result === this.#now);
    const cell = found && cellsOf(view.state)[found[0]];
    if (cell) view.dispatch({ effects: EditorView.scrollIntoView(view.state.doc.line(cell.last).to, { y: "center" }) });
  }

  #act(view: EditorView, act: CellAct, index: number): void {
    if (act === "add") {
      view.dispatch(adding(view.state, index));
      view.focus();
      return;
    }
    if (act === "edit") {
      view.dispatch(goingTo(view.state.doc, cellsOf(view.state)[index] as Cell));
      view.focus();
      return;
    }
    const wanted = act === "run" ? [index] : indices(view.state).filter((each) => each < index);
    this.#queue.push(...this.#jobs(view, wanted));
    this.goOn();
  }

  #forgetAll(view: EditorView): void {
    for (const result of resultsOf(view.state).values()) result.output.clear();
    view.dispatch(forgetting);
  }

  /** Results that wait to be filled, in place of the ones before. */
  #jobs(view: EditorView, wanted: number[]): Job[] {
    return wanted
      .filter((index) => cellsOf(view.state)[index]?.kind === "code")
      .map((index) => {
        const cell = cellsOf(view.state)[index] as Cell;
        resultsOf(view.state).get(index)?.output.clear();
        const result = new CellResult(++this.#count, cellText(view.state.doc, cell), cell.first);
        view.dispatch(placing(view.state, index, result));
        return { view, result };
      });
  }

  async #run(jobs: Job[], clean: boolean): Promise<RunResult> {
    const { session, name } = this.#parts;
    const view = jobs[0]?.view;
    if (!view) return { status: 0, line: 0 };
    this.#runs = jobs.map(({ result }) => result);
    let status = 1;
    try {
      const runs = this.#runs.map(({ number, first, text }) => ({ number, first, text }));
      const ended = await session.runCells(runs, view.state.doc.toString(), name(), clean);
      status = ended.status;
      return { status, line: lineNow(view.state, ended.number, ended.line) };
    } finally {
      if (this.#now) this.#now.progress = status === 0 ? "done" : status === 130 ? "stopped" : "failed";
      for (const result of this.#runs) if (result.progress === "waiting") result.progress = "not run";
      if (status) this.forget();
      this.#now = undefined;
      this.#runs = [];
    }
  }
}

/** Where in the script a line is by now that was in the text of this run; 0 if that is not there any more. */
function lineNow(state: EditorState, number: number, line: number): number {
  for (const [index, result] of resultsOf(state)) {
    if (result.number === number && !result.stale) return (cellsOf(state)[index] as Cell).first + line - result.first;
  }
  return 0;
}

function indices(state: EditorState): number[] {
  return [...cellsOf(state).keys()];
}
