/** What the pages without Python load: the npm package, as it is published, and the files of their models, which models.py writes. */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { python } from "./guides.ts";

/** Path in the site -> file: `npm/tabtorch.js` with its chunks, and `models/NAME.safetensors`. */
export async function models(root: string): Promise<Map<string, Buffer>> {
  const made = join(root, "dist", "pages");
  const builder = join(root, "js", "package", "build.mjs");
  const { pack } = (await import(builder)) as { pack(out: string, withTypes: boolean): Promise<string[]> };
  await pack(join(made, "npm"), false);
  execFileSync(python(root), [join(import.meta.dirname, "models.py"), join(made, "models")], { stdio: "pipe" });
  const files = new Map<string, Buffer>();
  for (const [folder, wanted] of [
    ["npm", ".js"],
    ["models", ".safetensors"],
  ] as const)
    for (const name of readdirSync(join(made, folder)).sort())
      if (name.endsWith(wanted)) files.set(`${folder}/${name}`, readFileSync(join(made, folder, name)));
  return files;
}
