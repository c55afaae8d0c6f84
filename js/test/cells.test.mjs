// Cells of a script: where they begin and end, whatever strings and comments hold.
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const { outputFiles } = await build({
  entryPoints: [join(dirname(fileURLToPath(import.meta.url)), "../../web/src/cells.ts")],
  bundle: true,
  format: "esm",
  write: false,
});
const text = Buffer.from(outputFiles[0].contents).toString("base64");
const { cellAt, markerLine, splitCells } = await import(`data:text/javascript;base64,${text}`);

const lines = (source) => splitCells(source).map(({ first, last }) => [first, last]);

test("cells are what lies between markers", () => {
  assert.deepEqual(lines("x = 1\ny = 2\n"), []);
  assert.deepEqual(lines("# %%\nx = 1\n# %%\ny = 2"), [
    [1, 2],
    [3, 4],
  ]);
  assert.deepEqual(lines("import a\n\n#%% one\n# %% two\n"), [
    [1, 2],
    [3, 3],
    [4, 5],
  ]);
  assert.deepEqual(lines("\n\n# %%\nx"), [[3, 4]], "empty lines before the first are no cell");
  assert.equal(cellAt(splitCells("import a\n# %%\nx"), 3), 1);
  assert.equal(cellAt(splitCells("\n# %%\nx"), 1), -1);
});

test("a marker is a comment that begins a line", () => {
  for (const source of [
    "# %%time\n",
    " # %%\n",
    "x = 1 # %%\n",
    "'''\n# %%\n'''\n",
    '"""a\\"""\n# %%\n"""\n',
    'f"""{x}\n# %%\n',
    "x = '\\\n# %%\n'\n",
  ])
    assert.deepEqual(lines(source), [], source);
  for (const source of ['"it\'s" # """\n# %%', '\'"""\'\n# %%', "# it's\n# %%", "x = 'open\n# %%", '""""""\n# %%'])
    assert.deepEqual(lines(source).at(-1), [2, 2], source);
});

test("a marker has a title, a kind, and what jupytext writes there", () => {
  const read = (line) => {
    const [{ kind, title, metadata }] = splitCells(line);
    return [kind, title, metadata];
  };
  assert.deepEqual(read("# %%"), ["code", "", {}]);
  assert.deepEqual(read("# %% A title = 3"), ["code", "A title = 3", {}]);
  assert.deepEqual(read("# %% [markdown]"), ["markdown", "", {}]);
  assert.deepEqual(read("# %% About [md]"), ["markdown", "About", {}]);
  assert.deepEqual(read('# %%%% [raw] format="text/html"'), ["raw", "", { format: "text/html" }]);
  assert.deepEqual(read('# %% T tags=["a", "b"] hide=true'), ["code", "T", { tags: ["a", "b"], hide: true }]);
  for (const line of ["# %%", "# %% T", "# %% T [markdown]", '# %% T tags=["a","b"] n=3'])
    assert.equal(markerLine(splitCells(line)[0]), line);
});

test("a long script is split at once", () => {
  const source = `${"x = '''a string''' # and a comment\n".repeat(30_000)}'''${"long\n".repeat(100_000)}'''\n# %%\n`;
  const begin = performance.now();
  assert.equal(splitCells(source).length, 2);
  assert.ok(performance.now() - begin < 2000);
});
