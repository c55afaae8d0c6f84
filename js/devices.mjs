// A plugin of esbuild: the module "devices" is the list of what the files of js/src/devices export, so that a device is one file.
import { readdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const FOLDER = join(dirname(fileURLToPath(import.meta.url)), "src/devices");

/** more: files besides, for tests. lazy: by its file's name, what is known of a device whose file is loaded when it is opened */
export const devices = (more = [], lazy = {}) => ({
  name: "devices",
  setup(build) {
    build.onResolve({ filter: /^devices$/ }, () => ({ path: "devices", namespace: "devices" }));
    build.onLoad({ filter: /^devices$/, namespace: "devices" }, () => {
      const files = [...readdirSync(FOLDER).map((name) => join(FOLDER, name)), ...more].sort();
      const imports = files.map((path, i) => {
        const [name, file] = [basename(path, ".ts"), JSON.stringify(path)];
        if (!(name in lazy)) return `import kind${i} from ${file};`;
        return `const kind${i} = { ...${JSON.stringify(lazy[name])}, open: async (h) => (await import(${file})).default.open(h) };`;
      });
      return {
        contents: `${imports.join("\n")}\nexport default [${files.map((_, i) => `kind${i}`)}];`,
        resolveDir: FOLDER,
      };
    });
  },
});
