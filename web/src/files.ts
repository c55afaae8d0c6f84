/** Files from the disk, and to it: a button, and whatever is dropped on the page. */
import type { Notice } from "./notice";

/** Bytes of a script. */
const LARGEST = 1 << 20;
/** Of a notebook, which has outputs in it. */
const LARGEST_NOTEBOOK = 1 << 26;

export interface FileHandlers {
  notice: Notice;
  /** A script. */
  open(name: string, text: string): void;
  /** A notebook. */
  notebook(name: string, json: string): unknown;
  /** Any other file. */
  keep(file: File): unknown;
}

export function acceptFiles(button: HTMLElement, field: HTMLInputElement, handlers: FileHandlers): void {
  button.addEventListener("click", () => field.click());
  field.addEventListener("change", () => {
    void openFiles([...(field.files ?? [])], handlers);
    field.value = ""; // the same file may be chosen again
  });
  // Before the editor, which would put a file's text where it was dropped.
  const options = { capture: true };
  addEventListener("dragover", (event) => void takesFiles(event), options);
  addEventListener(
    "drop",
    (event) => {
      if (takesFiles(event)) void openFiles([...(event.dataTransfer?.files ?? [])], handlers);
    },
    options,
  );
}

export function download(name: string, text: string, type = "text/x-python"): void {
  saveAs(name, new Blob([text], { type }));
}

export function saveAs(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // browsers read it some time after the click
}

function takesFiles(event: DragEvent): boolean {
  if (!event.dataTransfer?.types.includes("Files")) return false;
  event.preventDefault();
  event.stopPropagation();
  return true;
}

async function openFiles(files: File[], { notice, open, notebook, keep }: FileHandlers): Promise<void> {
  for (const file of files) {
    const isNotebook = file.name.endsWith(".ipynb");
    const most = isNotebook ? LARGEST_NOTEBOOK : LARGEST;
    if (!isNotebook && !file.name.endsWith(".py")) keep(file);
    else if (file.size > most)
      notice.tell(`${file.name} is larger than ${most >> 20} MiB: no script is opened from it.`);
    else {
      try {
        await (isNotebook ? notebook : open)(
          file.name,
          new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()),
        );
      } catch {
        notice.tell(`${file.name} is not text in UTF-8: no script is opened from it.`);
      }
    }
  }
}
