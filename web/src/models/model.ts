/** Models of the npm package in a page of the site: opened, with what is said meanwhile; kept as files. */
import type * as Package from "../../../js/src/model/index";
import { element } from "../element";
import { describe } from "../session";

export type Model<M extends object> = Package.Model & M;

/** The package as it is published, which the site serves beside its pages. Nothing else of tabtorch is in them. */
export const tabtorch: Promise<typeof Package> = import(
  /* @vite-ignore */ new URL("npm/tabtorch.js", document.baseURI).href
);

/** A method with its inputs by name, and the shapes that they have to have. */
export type Shapes = Record<string, Record<string, readonly number[]>>;

/**
 * Opens a model, and tells in #device where it runs. `where` is a path of the site, or a file that the reader has chosen, which
 * has to have these methods: else it is an Error for readers.
 */
export async function open<M extends object>(where: string | File, shapes: Shapes): Promise<Model<M>> {
  const progress = element<HTMLProgressElement>("progress");
  progress.hidden = false;
  try {
    const { load } = await tabtorch;
    const from = typeof where === "string" ? new URL(where, document.baseURI).href : where;
    const parts = { bytes: 0, kernels: 0 };
    const model = await load<M>(from, {
      onProgress: (done, total, what) => {
        parts[what] = total ? done / total : 1;
        progress.value = (parts.bytes + parts.kernels) / 2;
      },
    });
    const lack = difference(model, shapes);
    if (lack) {
      model.dispose();
      throw new Error(`This file is of another model: ${lack}`);
    }
    tellDevice(model);
    watch(model);
    return model;
  } catch (error) {
    if (typeof where === "string") throw error;
    throw new Error(`“${where.name}” cannot be opened here. ${describe(error)}`);
  } finally {
    progress.hidden = true;
  }
}

/** What a file lacks for this page, or "". */
function difference(model: Package.Model, shapes: Shapes): string {
  for (const [name, inputs] of Object.entries(shapes)) {
    const method = model.methods[name];
    if (!method) return `it has no method “${name}”.`;
    for (const [input, shape] of Object.entries(inputs)) {
      const found = method.inputs.find((each) => each.name === input)?.shape;
      if (found?.join() !== shape.join())
        return `its ${name}() takes ${found ? `[${found.join(", ")}]` : "no"} “${input}”, not [${shape.join(", ")}].`;
    }
  }
  return "";
}

function tellDevice({ device, deviceReason }: Package.Model): void {
  const words = element("device");
  const onGpu = device === "webgpu";
  words.textContent = onGpu ? "webgpu: on your GPU" : `cpu: ${deviceReason}`;
  words.title = deviceReason;
  words.className = `device ${onGpu ? "good" : "bad"}`;
}

/** A GPU can go away, when a laptop sleeps: another one takes its place, with what was kept last. */
function watch(model: Package.Model): void {
  void model.lost.then(async () => {
    try {
      await model.revive();
      tell("The GPU was lost. The model goes on from where it was opened, or saved last.");
      watch(model);
    } catch (error) {
      tell(`The GPU was lost, and there is no other. ${describe(error)}`);
    }
  });
}

/** What went wrong, in words; "" for nothing. */
export function tell(problem: unknown): void {
  const place = element("problem");
  place.textContent = problem ? describe(problem) : "";
  place.hidden = !problem;
}

/** Does what a reader asked for; what goes wrong is told. */
export async function attempt(work: () => Promise<void>): Promise<void> {
  tell("");
  try {
    await work();
  } catch (error) {
    tell(error);
  }
}

/** Hands the reader a file. */
export function keep(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** A button that opens the reader's file. */
export function chooser(button: HTMLElement, input: HTMLInputElement, chosen: (file: File) => void): void {
  button.addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    const [file] = input.files ?? [];
    input.value = ""; // the same one can be chosen again
    if (file) chosen(file);
  });
}

/** Lets the page draw, and hear the reader. */
export function breathe(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve));
}

let last: Promise<unknown> = Promise.resolve();

/** One thing after another: a model is not put away while it works. */
export function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const result = last.then(work);
  last = result.catch(() => {}); // said to who waits for it
  return result;
}
