// Builds the npm package into dist/npm (or the folder that is named): one module for pages, workers, bundlers and Node, with types.
//   node js/package/build.mjs [folder]
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { argv } from "node:process";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { devices } from "../devices.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "..", "..");
const source = join(root, "js", "src");

/** module of the package -> its source */
const ENTRIES = { tabtorch: "model/index.ts", "wasi-nn": "wasi-nn/index.ts" };
/** Modules of threads, each whole by itself: a bundler copies the file that a URL names, and nothing with it. */
const THREADS = { "wasi-nn-worker": "wasi-nn/thread.ts", "wasi-nn-python": "wasi-nn/python.ts" };
const PATHS = { tabtorch: ".", "wasi-nn": "./wasi-nn" };

/** A page has one of these, and loads no other. */
const LAZY = {
  webgpu: { number: 0, name: "webgpu", prefix: "gpu", accelerator: true },
  cpu: { number: 1, name: "cpu", prefix: "cpu", accelerator: false },
};

/** What a page of Python shows and measures: this package has no canvas of its own and no profiler. See absent.ts. */
const absent = {
  name: "absent",
  setup(builder) {
    builder.onResolve({ filter: /^\.\/(canvas|screen|timer)$/ }, ({ importer }) =>
      importer.includes("webgpu") ? { path: join(source, "model", "absent.ts") } : undefined,
    );
  },
};

/** The declarations that `entries` lead to; tsc writes one for each file of the runtime. */
function reached(folder, entries) {
  const seen = new Set();
  const visit = (file) => {
    if (seen.has(file) || !existsSync(file)) return;
    seen.add(file);
    for (const [, name] of readFileSync(file, "utf8").matchAll(/(?:from|import\()\s*"(\.[^"]+)"/g))
      visit(`${resolve(dirname(file), name).replace(/\.js$/, "")}.d.ts`);
  };
  for (const entry of entries) visit(join(folder, entry));
  return seen;
}

function types(out, entries) {
  const folder = join(out, "types");
  const options = "--declaration --emitDeclarationOnly --noEmit false --stripInternal --rootDir js/src".split(" ");
  execFileSync(
    join(root, "node_modules", ".bin", "tsc"),
    ["-p", join(here, "tsconfig.json"), ...options, "--outDir", folder],
    {
      cwd: root,
      stdio: "inherit",
    },
  );
  const wanted = reached(folder, entries);
  for (const file of readdirSync(folder, { recursive: true }).map((name) => join(folder, name)))
    if (file.endsWith(".d.ts") && !wanted.has(file)) rmSync(file);
  // Node resolves a relative import by its whole name.
  for (const file of wanted) {
    const text = readFileSync(file, "utf8");
    writeFileSync(file, text.replace(/((?:from|import\()\s*"\.[^"]+?)(?:\.js)?"/g, '$1.js"'));
  }
}

/** Writes the package into `out`; returns its files. */
export async function pack(out = join(root, "dist", "npm"), withTypes = true) {
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  const entries = Object.entries(ENTRIES);
  const points = (files) => Object.fromEntries(Object.entries(files).map(([name, file]) => [name, join(source, file)]));
  const common = {
    outdir: out,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    legalComments: "none",
    logLevel: "warning",
    external: ["node:*"],
    plugins: [devices([], LAZY), absent],
  };
  await build({ ...common, entryPoints: points(ENTRIES), splitting: true, chunkNames: "[name]-[hash]" });
  await build({ ...common, entryPoints: points(THREADS) });
  for (const name of readdirSync(out)) {
    // What is only there in Node is not to be looked for by bundlers; the comments that say so are not left by esbuild.
    const text = readFileSync(join(out, name), "utf8");
    writeFileSync(
      join(out, name),
      text.replace(/\bimport\((?=[^"'])/g, "import(/* webpackIgnore: true *//* @vite-ignore */"),
    );
  }
  const [, version] = /^version = "(.*)"$/m.exec(readFileSync(join(root, "pyproject.toml"), "utf8"));
  const description = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));
  for (const [name, file] of entries)
    description.exports[PATHS[name]] = { types: `./types/${file.replace(/\.ts$/, ".d.ts")}`, default: `./${name}.js` };
  writeFileSync(join(out, "package.json"), `${JSON.stringify({ ...description, version }, null, 2)}\n`);
  copyFileSync(join(here, "README.md"), join(out, "README.md"));
  copyFileSync(join(root, "LICENSE"), join(out, "LICENSE"));
  if (withTypes)
    types(
      out,
      entries.map(([, file]) => file.replace(/\.ts$/, ".d.ts")),
    );
  return readdirSync(out, { recursive: true }).map((name) => relative(out, join(out, name)));
}

if (argv[1] === fileURLToPath(import.meta.url)) await pack(argv[2] && resolve(argv[2]));
