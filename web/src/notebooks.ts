/** Notebooks opened and written: what of it needs the page. The conversion is in notebook.ts, and loaded when it is wanted. */
import { fromBase64, toBase64 } from "./base64";
import type { Cells } from "./cellrun";
import { resultsOf } from "./cellview";
import type { Editor } from "./editor";
import { download } from "./files";
import { CONTROL } from "./links";
import type { Bundle, CellOutputs, NotebookOutput } from "./notebook";
import type { Notice } from "./notice";
import type { Output } from "./output";
import type { Metadata, Rich } from "./rich";
import type { Workspace } from "./workspace";

/** Colab opens what lies on GitHub or Drive, or what is uploaded: it takes no notebook from a page. */
const COLAB = "https://colab.research.google.com/#upload=true";

export interface NotebookParts {
  editor: Editor;
  workspace: Workspace;
  cells: Cells;
  notice: Notice;
}

/** Open a notebook as a script, with its outputs below their cells. */
export async function openNotebook(name: string, json: string, { editor, workspace, cells, notice }: NotebookParts) {
  const { readNotebook } = await import("./notebook");
  let read: ReturnType<typeof readNotebook>;
  try {
    read = readNotebook(json);
  } catch (error) {
    notice.tell(`${name} could not be read as a notebook: ${(error as Error).message}.`);
    return;
  }
  workspace.create(read.script, name.replace(/(\.ipynb)?$/, ".py"));
  for (const { first, number, outputs } of read.outputs) {
    if (!outputs.length && number === null) continue;
    const result = cells.restore(editor.view, first, number);
    for (const output of outputs) show(result.output, output);
  }
}

/** The open script as a notebook, with the outputs of its cells. */
export async function downloadNotebook({ editor, workspace }: NotebookParts, before = ""): Promise<string> {
  const { writeNotebook } = await import("./notebook");
  const results = resultsOf(editor.view.state);
  const outputs = (index: number): CellOutputs => {
    const result = results.get(index);
    return { number: result?.number ?? null, outputs: result ? written(result.output) : [] };
  };
  const name = workspace.name.replace(/(\.py)?$/, ".ipynb");
  download(name, writeNotebook(editor.text, outputs, before), "application/x-ipynb+json");
  return name;
}

export async function openInColab(parts: NotebookParts): Promise<void> {
  const usesOwn = /^\s*(import|from)\s+tabtorch\b/m.test(parts.editor.text);
  const name = await downloadNotebook(parts, usesOwn ? "%pip install tabtorch" : "");
  const open = () => window.open(COLAB, "_blank", "noopener");
  parts.notice.tell(`${name} was downloaded. Colab takes it from your disk: choose Upload there, then this file.`, [
    { label: "Go to Colab", act: open },
  ]);
}

function show(output: Output, shown: NotebookOutput): void {
  if (shown.output_type === "stream") {
    output.write(shown.name, shown.text);
    return;
  }
  try {
    const bundle = Object.fromEntries(Object.entries(shown.data).map(([type, value]) => [type, content(type, value)]));
    output.display({
      event: "display",
      bundle,
      metadata: ofImages(shown.metadata as Metadata),
      id: undefined,
      mode: "new",
    });
  } catch {
    output.line("note", "An output of the notebook is damaged.");
  }
}

/** Pictures are bytes, all else is text. */
function content(type: string, value: unknown): string | Uint8Array {
  if (typeof value !== "string") return JSON.stringify(value);
  if (!isBinary(type)) return value;
  return fromBase64(value.replace(/\s/g, ""));
}

function isBinary(type: string): boolean {
  return /^image\/(?!svg)|^application\/vnd\.tabtorch\.points$/.test(type);
}

/** What is shown, as a notebook holds it. */
function written(output: Output): NotebookOutput[] {
  const all: NotebookOutput[] = [];
  for (const { text, rich } of output.shown()) {
    const last = all.at(-1);
    if (rich) all.push({ output_type: "display_data", ...writtenRich(rich) });
    else if (last?.output_type === "stream" && last.name === text?.stream) last.text += text.text;
    else if (text) all.push({ output_type: "stream", name: text.stream, text: text.text });
  }
  return all;
}

/** With a picture of what only this page draws. A canvas is nothing but that: who was to draw on it is gone. */
function writtenRich({ bundle, metadata, picture }: Rich): { data: Bundle; metadata: Metadata } {
  const data = Object.fromEntries(
    Object.entries(bundle).map(([type, value]) => {
      if (value instanceof Uint8Array) return [type, toBase64(value)];
      return [type, /[/+]json$/.test(type) ? JSON.parse(value) : value];
    }),
  );
  if (!picture) return { data, metadata: ofImages(metadata) };
  delete data[CONTROL];
  data["image/png"] = picture.canvas.toDataURL("image/png").replace(/^.*,/, "");
  return { data, metadata: { "image/png": picture.metadata } };
}

/** What is said of them, such as their size; of other things it is for this page alone. */
function ofImages(metadata: Metadata): Metadata {
  return Object.fromEntries(Object.entries(metadata).filter(([type]) => type.startsWith("image/")));
}
