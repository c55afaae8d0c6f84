// Bundles the runtime into the Python package: one script for the browser, one module for Node.
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "py", "tabtorch", "bridge");
const common = { bundle: true, minify: true, target: "es2022", legalComments: "none", logLevel: "warning" };

await Promise.all([
  build({ ...common, entryPoints: [join(here, "src/global.ts")], format: "iife", outfile: join(out, "runtime.js") }),
  build({
    ...common,
    entryPoints: [join(here, "src/host-node.ts")],
    format: "esm",
    platform: "node",
    outfile: join(out, "host.mjs"),
  }),
]);
