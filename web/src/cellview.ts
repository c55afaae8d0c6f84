/** Cells in the editor: a bar above each, its output below, keys. They are found in the text alone: see cells.ts. */
import {
  type ChangeSet,
  type EditorState,
  type Extension,
  Facet,
  Prec,
  type Range,
  StateEffect,
  StateField,
  type Text,
  type TransactionSpec,
} from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, keymap, WidgetType } from "@codemirror/view";
import type { CellResult } from "./cellresult";
import { type Cell, type CellKind, cellAt, splitCells, uncommented } from "./cells";
import { Rich } from "./rich";
import "./cells.css";

export type CellAct = "run" | "above" | "add" | "edit";

/** Carries out what was asked of the cell with this index. */
export type OnCell = (view: EditorView, act: CellAct, index: number) => void;

/** A result, at a position in its cell: where that begins, as long as nobody writes there. */
interface Placed {
  at: number;
  result: CellResult;
}

interface Book {
  cells: Cell[];
  active: number; // the index of the cell with the cursor
  touched: boolean; // whether the reader put the cursor there
  results: Placed[];
  decorations: DecorationSet;
}

/** What the reader does where the cursor is. */
const TOUCH = ["select", "input", "delete", "undo", "redo"];

const place = StateEffect.define<Placed>();
const forgetAll = StateEffect.define<null>();

/** The cells of the script; none if it has no marker. */
export function cellsOf(state: EditorState): Cell[] {
  return state.field(book, false)?.cells ?? [];
}

export function activeCell(state: EditorState): number {
  return state.field(book, false)?.active ?? -1;
}

export function cellText(doc: Text, { first, last }: Cell): string {
  return doc.sliceString(doc.line(first).from, doc.line(last).to);
}

/** The results that are shown, by the index of their cell. */
export function resultsOf(state: EditorState): Map<number, CellResult> {
  const { cells, results } = state.field(book);
  return shownOf(state.doc, cells, results);
}

/** Shows a result with the cell of this index, in place of the one before. */
export function placing(state: EditorState, index: number, result: CellResult): TransactionSpec {
  return { effects: place.of({ at: startOf(state.doc, cellsOf(state)[index] as Cell), result }) };
}

/** Takes all results away. */
export const forgetting: TransactionSpec = { effects: forgetAll.of(null) };

/** Puts the cursor into a cell: below its marker. */
export function goingTo(doc: Text, { first, last, marked }: Cell): TransactionSpec {
  const line = doc.line(marked ? Math.min(first + 1, last) : first);
  const anchor = marked && first === last ? line.to : line.from;
  return {
    selection: { anchor },
    userEvent: "select",
    effects: EditorView.scrollIntoView(anchor, { y: "nearest", yMargin: 80 }),
  };
}

/** A new cell after the one of this index. */
export function adding(state: EditorState, index: number): TransactionSpec {
  const { to } = state.doc.line((cellsOf(state)[index] as Cell).last);
  const insert = `${state.doc.sliceString(to - 1, to) === "\n" || !to ? "" : "\n"}\n# %%\n`;
  return {
    changes: { from: to, insert },
    selection: { anchor: to + insert.length },
    scrollIntoView: true,
    userEvent: "input",
  };
}

const book = StateField.define<Book>({
  create: (state) => build(state, splitCells(state.doc.toString()), [], false),
  update(before, transaction) {
    const { state, startState, docChanged, changes, effects } = transaction;
    let { results } = before;
    if (docChanged && results.length)
      results = results
        .filter(({ at }) => !isGone(startState.doc, before.cells, at, changes))
        .map(({ at, result }) => ({ at: changes.mapPos(at, 1), result }));
    const cells = docChanged ? splitCells(state.doc.toString()) : before.cells;
    for (const effect of effects) {
      if (effect.is(forgetAll)) results = [];
      if (!effect.is(place)) continue;
      const index = indexAt(state.doc, cells, effect.value.at);
      results = [...results.filter(({ at }) => indexAt(state.doc, cells, at) !== index), effect.value];
    }
    const touched = before.touched || TOUCH.some((event) => transaction.isUserEvent(event));
    const moved = touched !== before.touched || indexAt(state.doc, cells, state.selection.main.head) !== before.active;
    return docChanged || moved || results !== before.results ? build(state, cells, results, touched) : before;
  },
  provide: (field) => EditorView.decorations.from(field, ({ decorations }) => decorations),
});

function startOf(doc: Text, { first }: Cell): number {
  return doc.line(first).from;
}

function indexAt(doc: Text, cells: Cell[], position: number): number {
  return cells.length ? cellAt(cells, doc.lineAt(position).number) : -1;
}

/** Whether the whole cell at this position was deleted, or written over. */
function isGone(doc: Text, cells: Cell[], at: number, changes: ChangeSet): boolean {
  const cell = cells[indexAt(doc, cells, at)];
  if (!cell) return false;
  let gone = false;
  changes.iterChangedRanges((from, to) => {
    gone ||= from <= startOf(doc, cell) && to >= doc.line(cell.last).to;
  });
  return gone;
}

/** Where two cells became one, there are two results: the one of the present text is shown, or the later one. */
function shownOf(doc: Text, cells: Cell[], results: Placed[]): Map<number, CellResult> {
  const shown = new Map<number, CellResult>();
  for (const { at, result } of results) {
    const index = indexAt(doc, cells, at);
    const cell = cells[index];
    if (!cell) continue;
    result.compare(cellText(doc, cell));
    if (!result.stale || (shown.get(index)?.stale ?? true)) shown.set(index, result);
  }
  return shown;
}

const markerLook = Decoration.line({ class: "cell-marker" });
const activeLook = Decoration.line({ class: "cell-active" });

function build(state: EditorState, cells: Cell[], results: Placed[], touched: boolean): Book {
  const { doc } = state;
  const active = indexAt(doc, cells, state.selection.main.head);
  const shown = shownOf(doc, cells, results);
  const found = cells.flatMap((cell, index) => {
    const result = shown.get(index);
    const from = startOf(doc, cell);
    const bar = new Bar(cell.title, index, cell.kind, index === active, result);
    const all: Range<Decoration>[] = [Decoration.widget({ widget: bar, block: true, side: -1 }).range(from)];
    if (cell.kind === "markdown" && cell.first < cell.last && !(touched && index === active)) {
      const widget = new Prose(uncommented(cellText(doc, { ...cell, first: cell.first + 1 })));
      return [...all, Decoration.replace({ widget, block: true }).range(from, doc.line(cell.last).to)];
    }
    if (cell.marked) all.push(markerLook.range(from));
    if (index === active)
      for (let line = cell.first; line <= cell.last; line++) all.push(activeLook.range(doc.line(line).from));
    if (result) {
      const below = new Below(result);
      all.push(Decoration.widget({ widget: below, block: true, side: 1 }).range(doc.line(cell.last).to));
    }
    return all;
  });
  return { cells, active, touched, results, decorations: Decoration.set(found, true) };
}

/** The line above a cell: its buttons, and what its last run came to. */
class Bar extends WidgetType {
  constructor(
    readonly title: string,
    readonly index: number,
    readonly kind: CellKind,
    readonly active: boolean,
    readonly result: CellResult | undefined,
  ) {
    super();
  }

  override eq(other: Bar): boolean {
    const { title, index, kind, active, result } = this;
    return (
      title === other.title &&
      index === other.index &&
      kind === other.kind &&
      active === other.active &&
      result === other.result
    );
  }

  #offers(act: CellAct): boolean {
    if (act === "above") return this.index > 0;
    return act === "run" ? this.kind === "code" : act !== "edit" || this.kind === "markdown";
  }

  override get estimatedHeight(): number {
    return 34;
  }

  override ignoreEvent(): boolean {
    return true;
  }

  override toDOM(view: EditorView): HTMLElement {
    const bar = document.createElement("div");
    bar.setAttribute("role", "group");
    bar.append(
      actButton(view, bar, "run", "▶", "Run", "Shift+Enter runs the cell and goes to the next, Ctrl/Cmd+Enter stays"),
      actButton(view, bar, "edit", "✎", "Edit", "Shows the text of the cell; Shift+Enter shows it as it reads"),
      actButton(view, bar, "above", "▲", "Run above", "Runs the cells before this one: Ctrl/Cmd+Shift+Enter"),
      actButton(view, bar, "add", "+", "Cell", "A new cell below: Alt+Enter runs this one before"),
    );
    this.updateDOM(bar);
    return bar;
  }

  /** The buttons stay: one of them may have the focus. */
  override updateDOM(bar: HTMLElement): boolean {
    bar.className = `cell-bar${this.active ? " cell-active" : ""}`;
    bar.dataset.index = String(this.index);
    const name = `cell ${this.index + 1}${this.title ? `: ${this.title}` : ""}`;
    bar.ariaLabel = name;
    const words: Record<string, string> = {
      run: `Run ${name}`,
      edit: `Edit ${name}`,
      above: `Run above ${name}`,
      add: `Cell below ${name}: add`,
    };
    for (const button of bar.querySelectorAll("button")) {
      const act = button.dataset.act as CellAct;
      button.ariaLabel = words[act] ?? "";
      button.hidden = !this.#offers(act);
      button.tabIndex = this.active ? 0 : -1; // Tab goes through the cell with the cursor, not through all
    }
    const status = bar.querySelector(".cell-status");
    if (status !== (this.result?.status ?? null)) status?.remove();
    if (this.result) bar.append(this.result.status);
    return true;
  }
}

function actButton(view: EditorView, bar: HTMLElement, act: CellAct, sign: string, words: string, title: string) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.act = act;
  button.title = title;
  const mark = document.createElement("span");
  mark.ariaHidden = "true";
  mark.textContent = `${sign} `;
  button.append(mark, words);
  button.addEventListener("mousedown", (event) => event.preventDefault()); // the cursor stays where it is
  button.addEventListener("click", () => view.state.facet(onCell)(view, act, Number(bar.dataset.index)));
  return button;
}

/** The output below a cell. Its element is the result's own, so that it is kept while it is out of sight. */
class Below extends WidgetType {
  #sizes: ResizeObserver | undefined;

  constructor(readonly result: CellResult) {
    super();
  }

  override eq(other: Below): boolean {
    return this.result === other.result;
  }

  override get estimatedHeight(): number {
    return this.result.element.offsetHeight || -1;
  }

  override ignoreEvent(): boolean {
    return true;
  }

  override toDOM(view: EditorView): HTMLElement {
    this.#sizes = new ResizeObserver(() => view.requestMeasure());
    this.#sizes.observe(this.result.element);
    return this.result.element;
  }

  override destroy(): void {
    this.#sizes?.disconnect();
  }
}

/** A cell of text as it reads, in place of its source. */
class Prose extends WidgetType {
  #sizes: ResizeObserver | undefined;

  constructor(readonly text: string) {
    super();
  }

  override eq(other: Prose): boolean {
    return this.text === other.text;
  }

  override ignoreEvent(): boolean {
    return true;
  }

  override toDOM(view: EditorView): HTMLElement {
    const bundle = { "text/markdown": this.text };
    const { element } = new Rich({ event: "display", bundle, metadata: {}, id: undefined, mode: "new" });
    element.classList.add("cell-prose");
    element.addEventListener("click", (event) => {
      if (event.composedPath().some((each) => each instanceof HTMLAnchorElement)) return;
      const at = view.posAtDOM(element);
      view.state.facet(onCell)(view, "edit", indexAt(view.state.doc, cellsOf(view.state), at));
    });
    this.#sizes = new ResizeObserver(() => view.requestMeasure());
    this.#sizes.observe(element);
    return element;
  }

  override destroy(): void {
    this.#sizes?.disconnect();
  }
}

const onCell = Facet.define<OnCell, OnCell>({ combine: ([first]) => first ?? (() => {}) });

/** `handler` carries out what buttons and keys ask for; `onCells` hears whether the script has cells. */
export function cellView(handler: OnCell, onCells: (any: boolean) => void): Extension {
  const key = (work: (view: EditorView, index: number) => void) => (view: EditorView) => {
    const index = activeCell(view.state);
    if (index < 0) return false;
    work(view, index);
    return true;
  };
  const stay = key((view, index) => handler(view, "run", index));
  const above = key((view, index) => handler(view, "above", index));
  const next = key((view, index) => {
    handler(view, "run", index);
    go(view, index + 1);
  });
  const keys = [
    { key: "Shift-Enter", run: next },
    { key: "Mod-Enter", run: stay },
    { key: "Ctrl-Enter", run: stay },
    { key: "Mod-Shift-Enter", run: above },
    { key: "Ctrl-Shift-Enter", run: above },
    {
      key: "Alt-Enter",
      run: key((view, index) => {
        handler(view, "run", index);
        handler(view, "add", index);
      }),
    },
    { key: "Alt-PageDown", run: key((view, index) => go(view, index + 1)) },
    { key: "Alt-PageUp", run: key((view, index) => go(view, index - 1)) },
  ];
  let had: boolean | undefined;
  const listener = EditorView.updateListener.of(({ view, state, geometryChanged }) => {
    if (geometryChanged) view.requestMeasure(widths);
    const has = cellsOf(state).length > 0;
    if (has !== had) onCells(has);
    had = has;
  });
  return [onCell.of(handler), book, Prec.high(keymap.of(keys)), listener];
}

/** Tells the style sheet how wide the line numbers are, and how much is seen beside them. */
const widths = {
  key: "widths",
  read: ({ contentDOM, scrollDOM }: EditorView) => [contentDOM.offsetLeft, scrollDOM.clientWidth] as const,
  write([gutter, all]: readonly [number, number], { dom }: EditorView) {
    dom.style.setProperty("--gutter", `${gutter}px`);
    dom.style.setProperty("--seen", `${all - gutter}px`);
  },
};

function go(view: EditorView, index: number): void {
  const cell = cellsOf(view.state)[index];
  if (cell) view.dispatch(goingTo(view.state.doc, cell));
}
