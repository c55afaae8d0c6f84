// Notebooks as scripts, and back: what is in them stays.
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const { outputFiles } = await build({
  entryPoints: [join(dirname(fileURLToPath(import.meta.url)), "../../web/src/notebook.ts")],
  bundle: true,
  format: "esm",
  write: false,
});
const text = Buffer.from(outputFiles[0].contents).toString("base64");
const { readNotebook, writeNotebook } = await import(`data:text/javascript;base64,${text}`);

const none = () => ({ number: null, outputs: [] });
const code = (source, rest = {}) => ({
  cell_type: "code",
  metadata: {},
  source,
  execution_count: null,
  outputs: [],
  ...rest,
});
const notebook = (...cells) => JSON.stringify({ nbformat: 4, nbformat_minor: 4, metadata: {}, cells });

test("a notebook is a script in percent format", () => {
  const { script, outputs } = readNotebook(
    notebook(
      { cell_type: "markdown", metadata: {}, source: ["# Title\n", "\n", "%% text\n"] },
      code(["import torch\n", "x = 1"], { metadata: { title: "A", tags: ["b"], colab: { x: 1 } } }),
      code("", { execution_count: 3 }),
      code("# %% no cell\ns = '''\n# %%\n'''"),
    ),
  );
  assert.equal(
    script,
    "# %% [markdown]\n# # Title\n#\n#  %% text\n\n" +
      '# %% A tags=["b"]\nimport torch\nx = 1\n\n# %%\n\n' +
      "# %%\n#  %% no cell\ns = '''\n# %%\n'''\n",
  );
  assert.deepEqual(
    outputs.map(({ first, number }) => [first, number]),
    [
      [1, null],
      [6, null],
      [10, 3],
      [12, null],
    ],
  );
});

test("outputs are read in each form they are written in", () => {
  const { outputs } = readNotebook(
    notebook(
      code("x", {
        outputs: [
          { output_type: "stream", name: "stdout", text: ["a\n", "b"] },
          { output_type: "execute_result", data: { "text/plain": ["1\n", "2"], "application/json": { a: [1] } } },
          { output_type: "display_data", data: { "image/png": "AAAA" } },
          { output_type: "error", ename: "E", evalue: "v", traceback: ["\u001b[31mE", "v"] },
          { output_type: "of the future" },
        ],
      }),
    ),
  );
  assert.deepEqual(outputs[0].outputs, [
    { output_type: "stream", name: "stdout", text: "a\nb" },
    {
      output_type: "display_data",
      data: { "text/plain": "1\n2", "application/json": { a: [1] } },
      metadata: {},
    },
    { output_type: "display_data", data: { "image/png": "AAAA" }, metadata: {} },
    { output_type: "stream", name: "stderr", text: "\u001b[31mE\nv\n" },
  ]);
});

test("a script that was a notebook is that notebook", () => {
  const script =
    '"""Doc."""\n\n# %% [markdown]\n# Some *text*\n#\n# more\n\n# %% T tags=["a"]\nx = 1\n\ny = 2\n\n# %% [raw]\n# raw\n';
  const shown = [{ output_type: "stream", name: "stdout", text: "1\n2" }];
  const json = writeNotebook(
    script,
    (index) => (index === 2 ? { number: 7, outputs: shown } : none()),
    "%pip install x",
  );
  const written = JSON.parse(json);
  assert.deepEqual(
    written.cells.map((cell) => [cell.cell_type, cell.source.join("")]),
    [
      ["code", "%pip install x"],
      ["code", '"""Doc."""'],
      ["markdown", "Some *text*\n\nmore"],
      ["code", "x = 1\n\ny = 2"],
      ["raw", "raw"],
    ],
  );
  assert.deepEqual(written.cells[3].outputs, [{ output_type: "stream", name: "stdout", text: ["1\n", "2"] }]);
  const read = readNotebook(json);
  assert.equal(read.script, `# %%\n%pip install x\n\n# %%\n${script}`);
  assert.deepEqual(read.outputs[3], { first: 12, number: 7, outputs: shown });
  assert.equal(readNotebook(writeNotebook(read.script, none)).script, read.script);
});

test("a script without cells is one; text may be a string", () => {
  assert.deepEqual(JSON.parse(writeNotebook("\nx = 1\n", none)).cells[0].source, ["x = 1"]);
  const [cell] = JSON.parse(writeNotebook('# %% [markdown]\n"""\n# Title\ntext\n"""\n', none)).cells;
  assert.equal(cell.source.join(""), "# Title\ntext");
});

test("what is no notebook says so", () => {
  for (const [json, words] of [
    ["{", /not JSON/],
    ["3", /no list of cells/],
    ['{"nbformat": 3, "worksheets": []}', /format is 3/],
  ])
    assert.throws(() => readNotebook(json), words);
});
