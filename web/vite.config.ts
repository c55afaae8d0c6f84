/** The site: static files that any server can hand out, from any path, with no special headers. */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { marked } from "marked";
import { defineConfig, type Plugin } from "vite";
import { brotli } from "./brotli.ts";
import { guides } from "./guides.ts";
import { excerpt } from "./library.ts";
import { models } from "./models.ts";
import { packages } from "./packages.ts";
import { policy } from "./policy.ts";
import type { Manifest } from "./src/manifest.ts";

const here = import.meta.dirname;
const root = resolve(here, "..");
const pyodide = join(root, "node_modules", "pyodide");

/** The newest wheel for a tab of build_wheel.py, or the one that TABTORCH_WHEEL names. */
function findWheel(): string {
  const named = process.env.TABTORCH_WHEEL;
  if (named) return resolve(named);
  const dist = join(root, "dist");
  const wheels = existsSync(dist) ? readdirSync(dist).filter((name) => /^tabtorch-.*\.whl$/.test(name)) : [];
  const newest = wheels.sort((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1);
  if (!newest) throw new Error("no wheel in dist/: run `python build_wheel.py` first");
  return join(dist, newest);
}

/**
 * What Python is made of, by its path in the site, and that the manifest names: Pyodide's core, the wheel, the demos' data.
 * And what the pages without Python have: the npm package, and models.
 */
async function collect(): Promise<Map<string, Buffer>> {
  const files = new Map<string, Buffer>();
  for (const name of ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"]) {
    files.set(`pyodide/${name}`, readFileSync(join(pyodide, name)));
  }
  const own = packages(root, readFileSync(join(pyodide, "pyodide-lock.json"), "utf8"));
  files.set("pyodide/pyodide-lock.json", Buffer.from(own.lock));
  for (const [path, bytes] of own.files) files.set(path, bytes);
  const wheel = findWheel();
  const bytes = readFileSync(wheel);
  files.set(`wheel/${basename(wheel)}`, bytes);
  const extras = basename(wheel).replace("tabtorch-", "tabtorch_extras-");
  files.set(`wheel/${extras}`, readFileSync(join(dirname(wheel), extras)));
  files.set("pyodide/python_start.zip", await excerpt(bytes));
  const data = join(here, "demos", "data");
  for (const name of readdirSync(data)) files.set(`data/${name}`, readFileSync(join(data, name)));
  for (const [path, bytes] of await models(root)) files.set(path, bytes);
  return files;
}

/** The same with the manifest and the service worker, which know `built`, the rest of the site, too. */
async function complete(built: Map<string, Buffer>): Promise<Map<string, Buffer>> {
  const files = await collect();
  const all = new Map([...files, ...built]);
  const hash = Object.fromEntries([...all].map(([path, bytes]) => [path, sha256(bytes)]));
  const version = sha256(JSON.stringify(hash));
  const [wheel, extras] = [...files.keys()].filter((path) => path.startsWith("wheel/")) as [string, string];
  const manifest: Manifest = {
    version,
    pyodide: JSON.parse(readFileSync(join(pyodide, "package.json"), "utf8")).version,
    wheel,
    extras,
    data: [...files.keys()].filter((path) => path.startsWith("data/") && !path.endsWith(".md")),
    bytes: Object.fromEntries([...all].map(([path, bytes]) => [path, bytes.length])),
    hash,
  };
  files.set("manifest.json", Buffer.from(JSON.stringify(manifest)));
  const worker = readFileSync(join(here, "offline.js"), "utf8");
  files.set("offline.js", Buffer.from(worker.replace('VERSION = "VERSION"', `VERSION = "${version}"`)));
  return files;
}

function sha256(bytes: string | Buffer): string {
  return createHash("sha256").update(bytes).digest("hex").slice(0, 12);
}

/** What is copied into the site as it is. */
function publicFiles(): Map<string, Buffer> {
  const folder = join(here, "public");
  return new Map(readdirSync(folder).map((name) => [name, readFileSync(join(folder, name))]));
}

const types: Record<string, string> = {
  js: "text/javascript",
  mjs: "text/javascript",
  wasm: "application/wasm",
  json: "application/json",
};

/** Puts the collected files into the built site, and serves them in development. */
function siteFiles(): Plugin {
  return {
    name: "tabtorch-site-files",
    generateBundle: {
      order: "post", // the pages are there
      async handler(_, bundle) {
        const built = publicFiles();
        for (const [path, made] of Object.entries(bundle))
          built.set(path, Buffer.from(made.type === "chunk" ? made.code : made.source));
        const files = await complete(built);
        const packed = await brotli(new Map([...built, ...files]), root);
        for (const [fileName, source] of [...files, ...packed]) this.emitFile({ type: "asset", fileName, source });
      },
    },
    configureServer(server) {
      server.middlewares.use(async (request, response, next) => {
        const path = (request.url ?? "").split("?")[0]?.slice(1) ?? "";
        if (!/^(pyodide|packages|wheel|data|npm|models)\/|^(manifest\.json|offline\.js)$/.test(path)) return next();
        const file = (await complete(new Map())).get(path);
        if (!file) return next();
        response.setHeader("Content-Type", types[path.split(".").at(-1) ?? ""] ?? "application/octet-stream");
        response.end(file);
      });
    },
  };
}

/** Puts its policy into each page that is built. In development Vite writes scripts into the page. */
function contentPolicy(): Plugin {
  return {
    name: "tabtorch-policy",
    apply: "build",
    transformIndexHtml: (_, { path }) => [
      {
        tag: "meta",
        attrs: { "http-equiv": "Content-Security-Policy", content: policy(basename(path)) },
        injectTo: "head-prepend",
      },
    ],
  };
}

/** Puts what `make conformance` and `make bench-gpu` write, COMPATIBILITY.md and BENCHMARKS.md, into the pages of those names. */
function written(): Plugin {
  return {
    name: "tabtorch-written",
    transformIndexHtml: (html) =>
      html.replace(/<!-- ([A-Z]+\.md) -->/, (_, file) =>
        marked
          .parse(readFileSync(join(root, file), "utf8"), { async: false })
          .split(/(?=<h2>)/)
          .map(section)
          .join(""),
      ),
  };
}

/** The pages of docs/: docs/template.html, which is built as the other pages are, with each guide's text in it. */
function documentation(): Plugin {
  return {
    name: "tabtorch-docs",
    generateBundle: {
      order: "post", // the template is there
      handler(_, bundle) {
        const template = bundle[TEMPLATE];
        if (template?.type !== "asset") throw new Error(`${TEMPLATE} was not built`);
        for (const [fileName, source] of guides(String(template.source)))
          this.emitFile({ type: "asset", fileName, source });
        delete bundle[TEMPLATE];
      },
    },
    configureServer(server) {
      server.middlewares.use(async (request, response, next) => {
        const path = (request.url ?? "").split("?")[0]?.slice(1) ?? "";
        if (!path.startsWith("docs/")) return next();
        const source = await server.transformIndexHtml(`/${TEMPLATE}`, readFileSync(join(here, TEMPLATE), "utf8"));
        const made = guides(source).get(path === "docs/" ? "docs/index.html" : path);
        if (made === undefined) return next();
        response.setHeader("Content-Type", path.endsWith(".json") ? "application/json" : "text/html");
        response.end(made);
      });
    },
  };
}

/** Programs that show a link with a picture want the whole address of that: TABTORCH_ADDRESS says where the site will be. */
function preview(): Plugin {
  const address = process.env.TABTORCH_ADDRESS?.replace(/\/?$/, "/");
  return {
    name: "tabtorch-preview",
    transformIndexHtml: {
      order: "pre",
      handler: (html) =>
        html.replace(/("og:image" content=")(\.\.?\/)/, (_, before, here) => before + (address ?? here)),
    },
  };
}

/** A heading with what is below it. Its tables scroll by themselves, by keyboard too: they are wider than a phone. */
function section(html: string): string {
  const title = /<h[12]>(.*?)<\/h[12]>/.exec(html)?.[1] ?? "";
  let count = 0;
  const region = () => {
    const name = ++count === 1 ? "table" : `table ${count}`;
    return `<div class="table" role="region" tabindex="0" aria-label="${title}: ${name}"><table>`;
  };
  const tables = html.replaceAll("<table>", region).replaceAll("</table>", "</table></div>");
  return `<section>${tables}</section>`;
}

const TEMPLATE = "docs/template.html";
const PAGES = ["index", "embed", "cells", "run", "compatibility", "benchmarks", "draw", "write", "chat"];
const TAG = "tabtorch-cell";

export default defineConfig({
  root: here,
  base: "./",
  plugins: [documentation(), siteFiles(), written(), preview(), contentPolicy()],
  worker: { format: "es" },
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // light-dark() as it is: a page that has a cell of ours chooses
    outDir: "dist",
    emptyOutDir: true,
    rollupOptions: {
      checks: { pluginTimings: false }, // most of a build is our own packing of what Python is made of
      input: {
        ...Object.fromEntries(PAGES.map((name) => [name, join(here, `${name}.html`)])),
        docs: join(here, TEMPLATE),
        [TAG]: join(here, "src", `${TAG}.ts`),
      },
      // other people's pages name it: without a hash, beside the pages
      output: { entryFileNames: ({ name }) => (name === TAG ? "[name].js" : "assets/[name]-[hash].js") },
    },
  },
});
