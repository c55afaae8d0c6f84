/** The part of Python's library that a page starts with: what is loaded once tabtorch is, found by loading it here. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { loadPyodide } from "pyodide";
import type { PyProxy } from "pyodide/ffi";

const here = import.meta.dirname;
const own = join(here, "src", "python");
const made = new Map<string, Promise<Buffer>>();

/** The archive, for a site with this wheel. It is the same each time, and made once. */
export function excerpt(wheel: Buffer): Promise<Buffer> {
  const key = createHash("sha256").update(wheel).digest("hex");
  const archive = made.get(key) ?? make(wheel);
  made.set(key, archive);
  return archive;
}

async function make(wheel: Buffer): Promise<Buffer> {
  const pyodide = await loadPyodide();
  const site = pyodide.runPython("import site; site.getsitepackages()[0]") as string;
  pyodide.unpackArchive(Uint8Array.from(wheel), "whl", { extractDir: site });
  const sources = readdirSync(own).filter((name) => name.endsWith(".py"));
  for (const path of [...sources.map((name) => join(own, name)), join(here, "excerpt.py")])
    pyodide.FS.writeFile(`${site}/${path.slice(path.lastIndexOf("/") + 1)}`, readFileSync(path));
  const archive = (await pyodide.runPythonAsync("import excerpt; await excerpt.excerpt()")) as PyProxy;
  return Buffer.from(archive.toJs() as Uint8Array);
}
