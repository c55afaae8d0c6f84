/** Cells of a script: what lies between lines that start with `# %%`, as in VS Code, Spyder and jupytext's percent format. */

export type CellKind = "code" | "markdown" | "raw";

export interface Cell {
  kind: CellKind;
  title: string;
  /** What jupytext writes after the title: `key="value"`. */
  metadata: Record<string, unknown>;
  /** Its lines, from 1; the first is the one with the marker, where there is one. */
  first: number;
  last: number;
  marked: boolean;
}

const MARKER = /^# ?%%+(?:[ \t]+(.*?))?[ \t]*$/;
const KIND = /(?:^|\s)\[(markdown|md|raw)\](?=\s|$)/;
const PAIR = /(?:^|\s)([A-Za-z_][\w.-]*)=("(?:[^"\\]|\\.)*"|\[[^\]]*\]|\{[^}]*\}|-?[\d.]+|true|false|null)(?=\s|$)/g;
/** Comments, and strings, in which no line is a marker. A string that is not closed goes on to the end. */
const TOKEN = /#[^\n]*|("""|''')(?:\\[\s\S]|(?!\1)[\s\S])*(?:\1|$)|(["'])(?:\\[\s\S]|(?!\2)[^\n\\])*\2?/g;

/** The cells of a script; none if no line is a marker. What comes before the first of those is a cell, if it is anything. */
export function splitCells(text: string): Cell[] {
  const markers = [...text.matchAll(TOKEN)].filter(
    ({ 0: token, index }) => (index === 0 || text[index - 1] === "\n") && MARKER.test(token.trimEnd()),
  );
  if (!markers.length) return [];
  const cells: Cell[] = [];
  let line = 1;
  let at = 0;
  if (text.slice(0, markers[0]?.index).trim())
    cells.push({ kind: "code", title: "", metadata: {}, first: 1, last: 0, marked: false });
  for (const { 0: token, index } of markers) {
    line += countLines(text, at, index);
    at = index;
    const before = cells.at(-1);
    if (before) before.last = line - 1;
    cells.push({ ...parseMarker(token), first: line, last: 0, marked: true });
  }
  (cells.at(-1) as Cell).last = line + countLines(text, at, text.length);
  return cells;
}

/** The line with which such a cell starts. */
export function markerLine({ kind, title, metadata }: Pick<Cell, "kind" | "title" | "metadata">): string {
  const pairs = Object.entries(metadata)
    .map(([key, value]) => `${key}=${JSON.stringify(value)}`)
    .filter((pair) => pair.replace(PAIR, "") === ""); // what could not be read back is left out
  return ["# %%", title, kind === "code" ? "" : `[${kind}]`, ...pairs].filter(Boolean).join(" ");
}

/** The index of the cell that this line is in, or -1. */
export function cellAt(cells: Cell[], line: number): number {
  return cells.findIndex(({ first, last }) => first <= line && line <= last);
}

/** Code of one cell: a line in it that would begin another gets a space more. */
export function oneCell(text: string): string {
  const markers = new Set(splitCells(text).flatMap(({ marked, first }) => (marked ? [first] : [])));
  const lines = text.split("\n");
  return lines.map((line, index) => (markers.has(index + 1) ? line.replace(/^# ?/, "#  ") : line)).join("\n");
}

/** Text that is no code, as lines of a script. */
export function commented(text: string): string {
  return text
    .split("\n")
    .map((line) => (line ? `#${line.startsWith("%%") ? "  " : " "}${line}` : "#")) // a marker has one space at most
    .join("\n");
}

/** The text of a cell that is no code: its lines are comments, or it is all one string. */
export function uncommented(text: string): string {
  const string = /^r?("""|''')\n?([\s\S]*?)\n?\1\s*$/.exec(text);
  if (string) return string[2] ?? "";
  return text
    .split("\n")
    .map((line) => line.replace(/^# ?/, ""))
    .join("\n");
}

function parseMarker(token: string): Pick<Cell, "kind" | "title" | "metadata"> {
  let title = MARKER.exec(token.trimEnd())?.[1] ?? "";
  const named = KIND.exec(title)?.[1];
  const metadata: Record<string, unknown> = {};
  title = title.replace(KIND, "").replace(PAIR, (all, key: string, value: string) => {
    try {
      metadata[key] = JSON.parse(value);
    } catch {
      return all;
    }
    return "";
  });
  return {
    kind: named === "md" ? "markdown" : ((named as CellKind | undefined) ?? "code"),
    title: title.trim(),
    metadata,
  };
}

function countLines(text: string, from: number, to: number): number {
  let count = 0;
  for (let at = text.indexOf("\n", from); at >= 0 && at < to; at = text.indexOf("\n", at + 1)) count++;
  return count;
}
