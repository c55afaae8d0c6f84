// A plugin of esbuild: the module "devices" is the list of what the files of js/src/devices export, so that a device is one file.
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const FOLDER = join(dirname(fileURLToPath(import.meta.url)), "src/devices");

/** more: files besides, for tests */
export const devices = (more = []) => ({
  name: "devices",
  setup(build) {
    build.onResolve({ filter: /^devices$/ }, () => ({ path: "devices", namespace: "devices" }));
    build.onLoad({ filter: /^devices$/, namespace: "devices" }, () => {
      const files = [...readdirSync(FOLDER).map((name) => join(FOLDER, name)), ...more].sort();
      const imports = files.map((path, i) => `import kind${i} from ${JSON.stringify(path)};`).join("\n");
      return { contents: `${imports}\nexport default [${files.map((_, i) => `kind${i}`)}];`, resolveDir: FOLDER };
    });
  },
});
