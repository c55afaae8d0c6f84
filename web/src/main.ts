/** The page: editor, output, prompt and buttons around one Session. */

import { advice, thisBrowser } from "./advice";
import { assist } from "./assist";
import "./toembed";
import { Cells } from "./cellrun";
import { cellsOf } from "./cellview";
import { Compiling } from "./compiling";
import { allowed, question } from "./consent";
import { deviceWords, lacksGpu } from "./device";
import { createEditor } from "./editor";
import { element } from "./element";
import { acceptFiles } from "./files";
import { FilesPanel } from "./filespanel";
import { gallery } from "./gallery";
import { Inspect } from "./inspect";
import type { PageEvent, RunResult } from "./interpreter";
import { listDemos, listDocuments } from "./list";
import { fileMenu } from "./menu";
import { downloadNotebook, openInColab, openNotebook } from "./notebooks";
import { Notice } from "./notice";
import { Output } from "./output";
import { HOME } from "./places";
import { Prompt } from "./prompt";
import { isAsked, tell } from "./request";
import { reveal } from "./reveal";
import { endControls } from "./rich";
import { describe, Session, type State, Stopped } from "./session";
import { Sharing } from "./sharing";
import { resetStages, showStage } from "./stages";
import { stopKeys } from "./stopkeys";
import { Version } from "./version";
import { Workspace } from "./workspace";
import "./style.css";
import "./workspace.css";
import "./folder.css";

const runButton = element<HTMLButtonElement>("run");
const stopButton = element<HTMLButtonElement>("stop");
const stateWords = element("state");
const loading = element("loading");
const notice = new Notice(element("notice"));

const version = new Version(element("build"));
const output = new Output(element("output"), element("scroller"));
let queued = false;
let outcome = ""; // what the last run came to
let again: () => unknown = () => {}; // does the last thing once more
let lastError = ""; // the last line that a script wrote on standard error

const cells = new Cells({
  get session() {
    return session;
  },
  pane: output,
  name: () => workspace.name,
  perform(work) {
    void workspace.documents.keep(workspace.open);
    return perform(work);
  },
  restart: () => void restart(),
  onCells,
});
const editor = createEditor(
  element("editor"),
  () => void run(),
  () => workspace.edited(),
  [
    cells.extension,
    assist({
      ready: () => session.state === "ready",
      complete: (text) => session.complete(text),
      about: (text) => session.about(text),
    }),
  ],
);
const workspace = new Workspace({ editor, notice, onShown });

const notebooks = { editor, workspace, cells, notice };

const session = new Session(
  {
    base: new URL("./", document.baseURI).href,
    device: new URLSearchParams(location.search).get("device") ?? undefined,
    get packages() {
      return allowed();
    },
  },
  {
    onEvent,
    onState,
    onDevice(device) {
      const { short, long, good } = deviceWords(device);
      const chip = element("device");
      chip.textContent = short;
      chip.title = long;
      chip.className = `device ${good ? "good" : "bad"}`;
      inspect.onDevice(device);
      if (lacksGpu(device)) output.line("note", advice(thisBrowser()));
    },
  },
);

const files = new FilesPanel(
  element("files"),
  element("folder"),
  {
    home: HOME,
    put: (path, file) => session.putFile(path, file),
    read: (path) => session.readFile(path),
    remove: (path) => session.removeFile(path),
  },
  notice,
);

const compiling = new Compiling((counts) => {
  const words = counts ? `Compiling ${counts.ready} of ${counts.asked}` : "Running";
  if (session.state === "busy") stateWords.textContent = words;
});

const inspect = new Inspect(element("inspect"), {
  session,
  run: () => run(),
  runCell: () => cells.runCurrent(editor.view),
});

const prompt = new Prompt(element("repl"), element("marks"), {
  ready: () => session.state === "ready",
  needsMore: (source) => session.needsMore(source),
  complete: (text) => session.complete(text),
  submit,
});

async function submit(source: string): Promise<void> {
  again = () => submit(source);
  const lines = source.trimEnd().split("\n");
  output.line("echo", lines.map((line, index) => `${index ? "..." : ">>>"} ${line}`).join("\n"));
  outcome = "";
  await session.evaluate(source).catch(reportLoss);
}

/** Install a package, and do again what has missed it. */
async function install(name: string): Promise<void> {
  const repeat = again;
  if (session.state !== "ready") return;
  const status = await session.evaluate(`%pip install ${name}`).catch(reportLoss);
  if (status === 0) await repeat();
}

async function run(): Promise<void> {
  if (session.state === "busy") return;
  void workspace.documents.keep(workspace.open);
  if (session.state === "loading") {
    queued = true;
    onState("loading");
    return;
  }
  if (session.state === "failed") return restart();
  output.clear();
  if (cellsOf(editor.view.state).length) return perform(() => cells.runAll(editor.view), run);
  reveal(element("result"));
  return perform(async () => {
    const source = editor.text;
    const { status, line } = await session.run(source, workspace.name);
    return { status, line: editor.text === source ? line : 0 };
  }, run);
}

/** Whether the script has cells: then the keys that run it run one of them. */
function onCells(any: boolean): void {
  document.documentElement.toggleAttribute("data-cells", any);
  runButton.title = `${any ? "All cells." : "Shift+Enter, or Ctrl/Cmd+Enter."} Each Run starts clean: of the one before only files stay.`;
  runButton.setAttribute("aria-keyshortcuts", any ? "" : "Shift+Enter Control+Enter Meta+Enter");
}

async function perform(work: () => Promise<RunResult>, repeat: () => unknown = () => perform(work)): Promise<void> {
  editor.mark(0);
  notice.hide();
  outcome = lastError = "";
  again = repeat;
  const started = performance.now();
  try {
    const { status, line } = await work();
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    outcome = status === 0 ? `Done in ${seconds} s` : `Ended with status ${status} after ${seconds} s`;
    if (line) editor.mark(line, lastError);
  } catch (error) {
    outcome = "";
    reportLoss(error);
  }
  onState(session.state);
}

/** Python went away before it answered, or broke. */
function reportLoss(error: unknown): void {
  if (!(error instanceof Stopped)) output.line("stderr", `Python failed: ${describe(error)}. Restart starts it again.`);
}

async function restart(): Promise<void> {
  output.line("note", "Python was started again; its variables are gone.");
  queued = false;
  await session.restart().catch(() => {}); // said by onState
}

function onEvent(event: PageEvent): void {
  tell(event);
  const { output } = cells;
  if (event.event === "output") {
    if (event.stream === "stderr") lastError = event.text.trimEnd().split("\n").at(-1) || lastError;
    output.write(event.stream, event.text);
  } else if (event.event === "display") output.display(event);
  else if (event.event === "clear") output.clear();
  else if (event.event === "input" && isAsked()) session.answer(undefined);
  else if (event.event === "input") {
    cells.reveal(editor.view);
    output.ask((line) => session.answer(line));
  } else if (event.event === "cell") cells.begin(event.number);
  else if (event.event === "missing") output.element(question(event.name, event.from, () => void install(event.name)));
  else if (event.event === "dropped") output.dropped(event.lines, event.characters);
  else if (event.event === "folder") files.show(event.files);
  else if (event.event === "stage") showStage(loading, event);
  else if (event.event === "compiling") compiling.hear(event);
  inspect.hear(event);
}

function onState(state: State, problem?: string): void {
  document.documentElement.dataset.state = state;
  stopButton.disabled = state !== "busy" && !queued;
  if (state !== "busy") output.endAsking();
  if (state === "loading") endControls();
  if (state !== "busy") compiling.end();
  runButton.disabled = state === "busy";
  element("prompt").classList.toggle("busy", state !== "ready");
  const words = { loading: queued ? "Runs when loaded" : "Loading", ready: outcome || "Ready", busy: "Running" };
  stateWords.textContent = state === "failed" ? "Failed" : words[state];
  if (state === "failed") output.line("stderr", `Python could not start: ${problem}. Restart tries again.`);
  if (state === "loading" && loading.hidden) resetStages(loading);
  loading.hidden = state === "ready" || state === "busy";
  if (state === "ready") void version.keep();
  if (state === "ready" && queued) {
    queued = false;
    queueMicrotask(() => void run());
  } else if (state === "ready") setTimeout(() => cells.goOn());
  inspect.onState(state);
}

function onShown(): void {
  element("file").textContent = workspace.name;
  document.title = `${workspace.name} · tabtorch`;
  listDocuments(element("documents"), workspace.documents.list(), workspace.open);
  listDemos(element("demos"), workspace.open);
}

runButton.addEventListener("click", () => void run());
stopButton.addEventListener("click", stop);
stopKeys(element("repl"), () => !stopButton.disabled, stop);

function stop(): void {
  if (queued) {
    queued = false;
    onState(session.state);
  } else {
    cells.forget();
    void session.stop().then((kept) => {
      if (!kept)
        output.line("note", "The script did not answer: Python was started again, and its variables are gone.");
    });
  }
}

element("restart").addEventListener("click", () => {
  cells.forget();
  void restart();
});
new Sharing({ text: () => editor.text, name: () => workspace.name }, notice);
element("clear").addEventListener("click", () => {
  output.clear();
  cells.clear(editor.view);
});
const below = element("below");
below.ariaPressed = String(cells.below);
below.addEventListener("click", () => {
  cells.below = !cells.below;
  below.ariaPressed = String(cells.below);
});
element("scroller").addEventListener("click", (event) => {
  if (event.target === event.currentTarget) element("repl").focus();
});
gallery(element("gallery-open"), element<HTMLDialogElement>("gallery"), () => workspace.open);
element("new").addEventListener("click", () => workspace.create());
acceptFiles(element("open"), element("chosen"), {
  notice,
  open: (name, text) => workspace.create(text, name),
  keep: (file) => files.add(file),
  notebook: (name, json) => openNotebook(name, json, notebooks),
});
fileMenu(element("menu"), element("actions"), workspace, editor, {
  notebook: () => downloadNotebook(notebooks),
  colab: () => openInColab(notebooks),
});
void prompt;
const started = workspace.start();
session.restart().catch(() => {}); // said by onState

// `tabtorch run --screenshot`: the script is opened here, and run with what it finds where it lies.
window.tabtorchRun = async (request) => {
  await started;
  workspace.create(request.source, request.filename?.split("/").at(-1));
  output.clear();
  const reply = await session.carryOut(request);
  outcome = reply.status === 0 ? "Done" : `Ended with status ${reply.status}`;
  onState(session.state);
  return reply;
};
