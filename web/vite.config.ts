/** The site: static files that any server can hand out, from any path, with no special headers. */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { marked } from "marked";
import { defineConfig, type Plugin } from "vite";
import type { Manifest } from "./src/manifest";

const here = import.meta.dirname;
const root = resolve(here, "..");
const pyodide = join(root, "node_modules", "pyodide");

/** The newest wheel of build_wheel.py, or the one that TABTORCH_WHEEL names. */
function findWheel(): string {
  const named = process.env.TABTORCH_WHEEL;
  if (named) return resolve(named);
  const dist = join(root, "dist");
  const wheels = existsSync(dist) ? readdirSync(dist).filter((name) => /^tabtorch-.*\.whl$/.test(name)) : [];
  const newest = wheels.sort((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1);
  if (!newest) throw new Error("no wheel in dist/: run `python build_wheel.py` first");
  return join(dist, newest);
}

/** What the page fetches as it starts, by its path in the site: Pyodide's core, the wheel, the demos' data. */
function collect(): Map<string, Buffer> {
  const files = new Map<string, Buffer>();
  for (const name of ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"]) {
    files.set(`pyodide/${name}`, readFileSync(join(pyodide, name)));
  }
  const wheel = findWheel();
  files.set(`wheel/${basename(wheel)}`, readFileSync(wheel));
  const data = join(here, "demos", "data");
  for (const name of readdirSync(data)) files.set(`data/${name}`, readFileSync(join(data, name)));
  const manifest: Manifest = {
    pyodide: JSON.parse(readFileSync(join(pyodide, "package.json"), "utf8")).version,
    wheel: `wheel/${basename(wheel)}`,
    data: [...files.keys()].filter((path) => path.startsWith("data/") && !path.endsWith(".md")),
    bytes: Object.fromEntries([...files].map(([path, bytes]) => [path, bytes.length])),
    hash: Object.fromEntries(
      [...files].map(([path, bytes]) => [path, createHash("sha256").update(bytes).digest("hex").slice(0, 12)]),
    ),
  };
  files.set("manifest.json", Buffer.from(JSON.stringify(manifest)));
  return files;
}

const types: Record<string, string> = {
  mjs: "text/javascript",
  wasm: "application/wasm",
  json: "application/json",
};

/** Puts the collected files into the built site, and serves them in development. */
function siteFiles(): Plugin {
  return {
    name: "tabtorch-site-files",
    generateBundle() {
      for (const [fileName, source] of collect()) this.emitFile({ type: "asset", fileName, source });
    },
    configureServer(server) {
      server.middlewares.use((request, response, next) => {
        const path = (request.url ?? "").split("?")[0]?.slice(1) ?? "";
        if (!/^(pyodide|wheel|data)\/|^manifest\.json$/.test(path)) return next();
        const file = collect().get(path);
        if (!file) return next();
        response.setHeader("Content-Type", types[path.split(".").at(-1) ?? ""] ?? "application/octet-stream");
        response.end(file);
      });
    },
  };
}

/** Puts COMPATIBILITY.md, which `make conformance` writes, into the page of that name. */
function compatibility(): Plugin {
  return {
    name: "tabtorch-compatibility",
    transformIndexHtml: (html) =>
      html.replace("<!-- COMPATIBILITY.md -->", () =>
        marked
          .parse(readFileSync(join(root, "COMPATIBILITY.md"), "utf8"), { async: false })
          .split(/(?=<h2>)/)
          .map(section)
          .join(""),
      ),
  };
}

/** A heading with what is below it. Its table scrolls by itself, by keyboard too: it is wider than a phone. */
function section(html: string): string {
  const title = /<h[12]>(.*?)<\/h[12]>/.exec(html)?.[1] ?? "";
  const tables = html
    .replace("<table>", `<div class="table" role="region" tabindex="0" aria-label="${title}: table"><table>`)
    .replace("</table>", "</table></div>");
  return `<section>${tables}</section>`;
}

export default defineConfig({
  root: here,
  base: "./",
  plugins: [siteFiles(), compatibility()],
  worker: { format: "es" },
  build: {
    target: "es2022",
    outDir: "dist",
    emptyOutDir: true,
    rollupOptions: {
      input: Object.fromEntries(["index", "run", "compatibility"].map((name) => [name, join(here, `${name}.html`)])),
    },
  },
});
