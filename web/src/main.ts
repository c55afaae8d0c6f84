/** The page: editor, output, prompt and buttons around one Session. */

import { demos } from "./demos";
import { deviceWords } from "./device";
import { createEditor } from "./editor";
import type { PageEvent, Stage } from "./interpreter";
import { Output } from "./output";
import { Prompt } from "./prompt";
import { describe, Session, type State, Stopped } from "./session";
import { copy, sharedCode, shareLink } from "./share";
import "./style.css";

const SAVED = "tabtorch.script";

function element<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element #${id}`);
  return found as T;
}

const runButton = element<HTMLButtonElement>("run");
const stopButton = element<HTMLButtonElement>("stop");
const stateWords = element("state");
const loading = element("loading");
const notice = element("notice");

const output = new Output(element("output"), element("scroller"));
let fileName = "main.py";
let setting = false; // the editor's text is being set by the page, not by the reader
let queued = false;
let outcome = ""; // what the last run came to

const editor = createEditor(element("editor"), () => void run(), edited);

const session = new Session(
  {
    base: new URL("./", document.baseURI).href,
    device: new URLSearchParams(location.search).get("device") ?? undefined,
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
    },
  },
);

const prompt = new Prompt(element("repl"), element("marks"), {
  ready: () => session.state === "ready",
  needsMore: (source) => session.needsMore(source),
  complete: (text) => session.complete(text),
  async submit(source) {
    const lines = source.trimEnd().split("\n");
    output.line("echo", lines.map((line, index) => `${index ? "..." : ">>>"} ${line}`).join("\n"));
    outcome = "";
    await session.evaluate(source).catch(reportLoss);
  },
  suggest: (names) => output.line("note", names.slice(0, 100).join("  ")),
});

async function run(): Promise<void> {
  if (session.state === "busy") return;
  if (session.state === "loading") {
    queued = true;
    onState("loading");
    return;
  }
  if (session.state === "failed") return restart();
  output.clear();
  editor.mark(0);
  notice.hidden = true;
  outcome = "";
  const started = performance.now();
  try {
    const { status, line } = await session.run(editor.text, fileName);
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    outcome = status === 0 ? `Done in ${seconds} s` : `Ended with status ${status} after ${seconds} s`;
    if (line) editor.mark(line);
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
  if (event.event === "output") output.write(event.stream, event.text);
  else if (event.event === "image") output.image(event.data, event.width, event.height);
  else onStage(event.stage, event.loaded, event.total, event.done);
}

function onStage(stage: Stage, loaded: number, total: number, done: boolean): void {
  const row = loading.querySelector<HTMLElement>(`[data-stage=${stage}]`);
  const bar = row?.querySelector("progress");
  const words = row?.querySelector("small");
  if (!row || !bar || !words) return;
  row.classList.toggle("done", done);
  bar.value = done ? 1 : loaded / Math.max(total, 1);
  const size = (bytes: number) => (bytes / 1e6).toFixed(1);
  words.textContent = total
    ? done
      ? `${size(total)} MB`
      : `${size(loaded)} of ${size(total)} MB`
    : done
      ? "ready"
      : "";
}

function onState(state: State, problem?: string): void {
  document.documentElement.dataset.state = state;
  stopButton.disabled = state !== "busy" && !queued;
  runButton.disabled = state === "busy";
  element("prompt").classList.toggle("busy", state !== "ready");
  const words = { loading: queued ? "Runs when loaded" : "Loading", ready: outcome || "Ready", busy: "Running" };
  stateWords.textContent = state === "failed" ? "Failed" : words[state];
  if (state === "failed") output.line("stderr", `Python could not start: ${problem}. Restart tries again.`);
  if (state === "loading" && loading.hidden)
    for (const stage of ["runtime", "python", "tabtorch", "device"] as const) onStage(stage, 0, 0, false);
  loading.hidden = state === "ready" || state === "busy";
  if (state === "ready" && queued) {
    queued = false;
    queueMicrotask(() => void run());
  }
}

/** Keep what the reader writes; what the page itself opens is not a reason to forget it. */
function edited(): void {
  if (setting) return;
  try {
    localStorage.setItem(SAVED, JSON.stringify({ fileName, text: editor.text }));
  } catch {
    // storage is full or not allowed
  }
}

function open(name: string, text: string): void {
  setting = true;
  fileName = name;
  editor.text = text;
  editor.mark(0);
  setting = false;
  element("file").textContent = name;
  for (const link of document.querySelectorAll<HTMLAnchorElement>("#demos a")) {
    if (`${link.dataset.demo}.py` === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function tell(words: string): void {
  notice.textContent = words;
  notice.hidden = false;
}

/** Show what the address asks for; else what was written last; else the first demo. Nothing runs by itself. */
async function openFromAddress(): Promise<void> {
  notice.hidden = true;
  const demo = demos.find(({ name }) => location.hash === `#demo=${name}`);
  if (demo) return open(`${demo.name}.py`, demo.source);
  try {
    const code = await sharedCode(location.hash);
    if (code !== undefined) {
      open("shared.py", code);
      tell("This script came with the link. Read it, then press Run.");
      return;
    }
  } catch {
    tell("The link is damaged: its script could not be read.");
  }
  const saved = savedScript();
  if (saved) return open(saved.fileName, saved.text);
  const first = demos[0];
  if (first) open(`${first.name}.py`, first.source);
}

function savedScript(): { fileName: string; text: string } | undefined {
  try {
    const saved = JSON.parse(localStorage.getItem(SAVED) ?? "null");
    return typeof saved?.text === "string" && typeof saved.fileName === "string" ? saved : undefined;
  } catch {
    return undefined;
  }
}

function listDemos(): void {
  for (const { name, title } of demos) {
    const [subject, detail] = title.split(/: (.*)/s);
    const link = document.createElement("a");
    link.href = `#demo=${name}`;
    link.dataset.demo = name;
    link.textContent = `${Number.parseInt(name, 10)}. ${subject}`;
    if (detail) {
      const small = document.createElement("small");
      small.textContent = detail;
      link.append(small);
    }
    const item = document.createElement("li");
    item.append(link);
    element("demos").append(item);
  }
}

async function share(): Promise<void> {
  const link = await shareLink(editor.text);
  const field = element<HTMLInputElement>("link");
  field.value = link;
  element("shared").hidden = false;
  history.replaceState(null, "", link);
  const copied = await copy(link, field);
  element("shared-words").textContent = copied ? "Copied" : "Copy this link";
  field.focus();
  field.select();
}

listDemos();
runButton.addEventListener("click", () => void run());
stopButton.addEventListener("click", () => {
  if (queued) {
    queued = false;
    onState(session.state);
  } else {
    void session.stop().then((kept) => {
      if (!kept)
        output.line("note", "The script did not answer: Python was started again, and its variables are gone.");
    });
  }
});
element("restart").addEventListener("click", () => void restart());
element("share").addEventListener("click", () => void share());
element("shared-close").addEventListener("click", () => {
  element("shared").hidden = true;
  element("share").focus();
});
element("clear").addEventListener("click", () => output.clear());
element("scroller").addEventListener("click", (event) => {
  if (event.target === event.currentTarget) element("repl").focus();
});
addEventListener("hashchange", () => void openFromAddress());
void prompt;
void openFromAddress();
session.restart().catch(() => {}); // said by onState
