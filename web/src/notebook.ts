/** Jupyter notebooks as scripts in jupytext's percent format, and back. nbformat 4; written as 4.5. */
import { type Cell, type CellKind, commented, markerLine, oneCell, splitCells, uncommented } from "./cells";

/** By kind: `text/plain`, `image/png` (base64), … */
export type Bundle = Record<string, unknown>;

export type NotebookOutput =
  | { output_type: "stream"; name: "stdout" | "stderr"; text: string }
  | { output_type: "display_data"; data: Bundle; metadata: Bundle };

/** What a cell has come to. */
export interface CellOutputs {
  number: number | null;
  outputs: NotebookOutput[];
}

interface ReadCell {
  cell_type: CellKind;
  source: string | string[];
  metadata?: Record<string, unknown>;
  execution_count?: number | null;
  outputs?: Record<string, unknown>[];
}

/** What programs keep with a cell for themselves. */
const NOT_KEPT =
  /^(id|colab|outputId|executionInfo|collapsed|scrolled|ExecuteTime|execution|title|jupyter|vscode|trusted)$/;

/** A notebook's script; and the outputs of its cells, each with the line its cell begins at. Throws what is wrong. */
export function readNotebook(json: string): { script: string; outputs: (CellOutputs & { first: number })[] } {
  let script = "";
  let first = 1;
  const outputs = parse(json).map((cell) => {
    const text = cellScript(cell);
    const read = { first, number: cell.execution_count ?? null, outputs: (cell.outputs ?? []).flatMap(readOutput) };
    script += `${script && "\n"}${text}\n`;
    first += text.split("\n").length + 1;
    return read;
  });
  return { script, outputs };
}

function cellScript({ cell_type: kind, source, metadata }: ReadCell): string {
  const kept = Object.entries(metadata ?? {}).filter(([key]) => !NOT_KEPT.test(key));
  const text = joined(source).replace(/\r\n?/g, "\n").trimEnd();
  const marker = markerLine({ kind, title: oneLine(metadata?.title), metadata: Object.fromEntries(kept) });
  if (!text) return marker;
  return `${marker}\n${kind === "code" ? oneCell(text) : commented(text)}`;
}

/** A script as a notebook. `outputs`: of the cell with this index. `before`: code that a first cell is to hold. */
export function writeNotebook(script: string, outputs: (index: number) => CellOutputs, before = ""): string {
  const lines = script.split("\n");
  const split = splitCells(script);
  const whole: Cell = { kind: "code", title: "", metadata: {}, first: 1, last: lines.length, marked: false };
  const cells = (split.length ? split : [whole]).map((cell, index) => {
    const body = lines.slice(cell.first - (cell.marked ? 0 : 1), cell.last);
    return writtenCell(cell, body.join("\n").replace(/^\n+|\s+$/g, ""), outputs(index));
  });
  if (before) cells.unshift(writtenCell(whole, before, { number: null, outputs: [] }));
  const notebook = {
    cells: cells.map((cell, index) => ({ id: `cell-${index + 1}`, ...cell })),
    metadata: {
      kernelspec: { display_name: "Python 3", language: "python", name: "python3" },
      language_info: { name: "python", file_extension: ".py", mimetype: "text/x-python" },
      accelerator: "GPU", // what Colab is to run it on
    },
    nbformat: 4,
    nbformat_minor: 5,
  };
  return `${JSON.stringify(notebook, null, 1)}\n`;
}

function parse(json: string): ReadCell[] {
  let read: { nbformat?: unknown; cells?: unknown };
  try {
    read = Object(JSON.parse(json.replace(/^\ufeff/, "")));
  } catch {
    throw new Error("it is not JSON");
  }
  if (typeof read.nbformat === "number" && read.nbformat < 4)
    throw new Error(`its format is ${read.nbformat}, and 4 is read: Jupyter converts it when it opens and saves it`);
  if (!Array.isArray(read.cells)) throw new Error("it has no list of cells");
  return (read.cells as ReadCell[]).filter(({ cell_type }) => ["code", "markdown", "raw"].includes(cell_type));
}

function writtenCell({ kind, title, metadata }: Cell, text: string, { number, outputs }: CellOutputs) {
  const common = { cell_type: kind, metadata: { ...metadata, ...(title ? { title } : {}) } };
  if (kind !== "code") return { ...common, source: inLines(uncommented(text)) };
  const written = outputs.map((output) =>
    output.output_type === "stream" ? { ...output, text: inLines(output.text) } : output,
  );
  return { ...common, source: inLines(text), execution_count: number, outputs: written };
}

/** Of a display, what this page can show: pictures, text. */
function readOutput(output: Record<string, unknown>): NotebookOutput[] {
  const { output_type: type } = output;
  if (type === "stream")
    return [{ output_type: type, name: output.name === "stderr" ? "stderr" : "stdout", text: joined(output.text) }];
  if (type === "error") {
    const text = `${joined((output.traceback as string[] | undefined)?.map((line) => `${line}\n`)).trimEnd()}\n`;
    return [{ output_type: "stream", name: "stderr", text }];
  }
  const data = Object.entries(Object(output.data)).map(([kind, value]) => [
    kind,
    isText(value) ? joined(value) : value,
  ]);
  if (!data.length) return [];
  return [{ output_type: "display_data", data: Object.fromEntries(data), metadata: Object(output.metadata) }];
}

function isText(value: unknown): boolean {
  return Array.isArray(value) && value.every((line) => typeof line === "string");
}

/** Text is written in one piece, or as a list of lines. */
function joined(text: unknown): string {
  return Array.isArray(text) ? text.join("") : typeof text === "string" ? text : "";
}

function inLines(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function oneLine(title: unknown): string {
  return typeof title === "string" ? title.replace(/\s+/g, " ").trim() : "";
}
