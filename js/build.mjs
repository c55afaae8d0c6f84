// Bundles the runtime into the Python package: one script for the browser, and the module for Node that loads that script.
import { dirname, join } from "node:path";
import { argv } from "node:process";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { devices } from "./devices.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const common = { bundle: true, minify: true, target: "es2022", legalComments: "none", logLevel: "warning" };

/** more: files of other devices, see devices.mjs */
export function bundle(out, more = []) {
  return Promise.all([
    build({
      ...common,
      entryPoints: [join(here, "src/global.ts")],
      format: "iife",
      plugins: [devices(more)],
      outfile: join(out, "runtime.js"),
    }),
    build({
      ...common,
      entryPoints: [join(here, "src/host-node.ts")],
      format: "esm",
      platform: "node",
      external: ["./runtime.js"],
      outfile: join(out, "host.mjs"),
    }),
  ]);
}

if (argv[1] === fileURLToPath(import.meta.url)) await bundle(join(here, "..", "py", "tabtorch", "bridge"));
