/** The wheels of packages.txt, which the site serves: `make site` has fetched them into dist/packages. */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

interface Pin {
  name: string;
  version: string;
  sha256: string;
}

const LINE = /^(?<name>[\w.-]+)==(?<version>\S+) --hash=sha256:(?<sha256>\w{64})$/;

/** Path in the site -> wheel, and Pyodide's lock file with the wheels in it: there they are as any other of its packages. */
export function packages(root: string, lock: string): { files: Map<string, Buffer>; lock: string } {
  const folder = join(root, "dist", "packages");
  const there = existsSync(folder) ? readdirSync(folder) : [];
  const known = JSON.parse(lock);
  const files = new Map<string, Buffer>();
  for (const { name, version, sha256 } of pins(readFileSync(join(root, "web", "packages.txt"), "utf8"))) {
    const file = there.find((each) => each.startsWith(`${name}-${version}-`) && each.endsWith(".whl"));
    const bytes = file && readFileSync(join(folder, file));
    if (!bytes || createHash("sha256").update(bytes).digest("hex") !== sha256)
      throw new Error(`dist/packages has no ${name} ${version} as web/packages.txt pins it: run \`make site\``);
    files.set(`packages/${file}`, bytes);
    known.packages[name] = { ...known.packages[name], name, version, sha256, file_name: `packages/${file}` };
  }
  return { files, lock: JSON.stringify(known) };
}

function pins(text: string): Pin[] {
  const lines = text.split("\n").filter((line) => line && !line.startsWith("#"));
  return lines.map((line) => {
    const found = LINE.exec(line)?.groups;
    if (!found) throw new Error(`web/packages.txt: not NAME==VERSION --hash=sha256:…: ${line}`);
    return found as unknown as Pin;
  });
}
