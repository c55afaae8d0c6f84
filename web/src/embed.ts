/**
 * One script in a frame of somebody's page: editor, Run, Stop and output. It stands alone, with the script in its address,
 * or it is what a <tabtorch-cell> becomes: then the page says which script, and where the Python is that its cells share.
 * Nothing of what is written here is kept, and Python is loaded by the first Run.
 */
import { EditorState, type Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import * as Comlink from "comlink";
import { allowed, question } from "./consent";
import { createEditor, type Editor } from "./editor";
import { element } from "./element";
import type { RunResult, Stage } from "./interpreter";
import { isolate } from "./isolation";
import { Output } from "./output";
import { endControls } from "./rich";
import { type Seat, type SeatEvent, Seats } from "./seats";
import { describe, type State } from "./session";
import { sharedCode, shareLink } from "./share";
import { stopKeys } from "./stopkeys";
import type { FromCell, Setup } from "./tabtorch-cell";
import "./style.css";
import "./embed.css";

type Place = Pick<Seat, "run" | "runCell" | "evaluate" | "answer" | "stop"> | Comlink.Remote<Seat>;

/** A page that is not ours is around it. What scripts keep there is apart from what they keep in a tab of their own. */
const framed = parent !== window;
const readOnly = [EditorState.readOnly.of(true), EditorView.editable.of(false)];
const output = new Output(element("output"), element("scroller"));
const runButton = element<HTMLButtonElement>("run");
const stopButton = element<HTMLButtonElement>("stop");
const stateWords = element("state");
const progress = element<HTMLProgressElement>("progress");
const stages = new Map<Stage, number>();

let editor: Editor;
let place: Place;
let begin: (source: string) => Promise<RunResult>;
let runs = false;
let lastError = ""; // the last line that a script wrote on standard error
let links = 0;

function show(text: string, more: Extension, onEdit: () => void): void {
  const edited = () => {
    onEdit();
    void link();
  };
  editor = createEditor(element("editor"), () => void run(), edited, more);
  editor.open("script", text);
  void link();
}

/** Keep the link to the page what is written here. */
async function link(): Promise<void> {
  const asked = ++links;
  const address = await shareLink(editor.text).catch(() => "./"); // too long for one
  if (asked === links) element<HTMLAnchorElement>("full").href = address;
}

async function run(): Promise<void> {
  const source = editor.text;
  const result = await perform(() => begin(source));
  if (result?.line && editor.text === source) editor.mark(result.line, lastError);
}

/** Install a package, and run what has missed it. */
async function install(name: string): Promise<void> {
  const result = await perform(() => place.evaluate(`%pip install ${name}`));
  if (result?.status === 0) await run();
}

async function perform(work: () => Promise<RunResult>): Promise<RunResult | undefined> {
  if (runs) return undefined;
  output.clear();
  editor.mark(0);
  lastError = "";
  element("hint").hidden = true;
  element("scroller").hidden = false;
  setRuns(true);
  stateWords.textContent = "Waiting";
  const started = performance.now();
  try {
    const result = await work();
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    const words = new Map([
      [0, `Done in ${seconds} s`],
      [130, "Stopped"],
    ]);
    stateWords.textContent = words.get(result.status) ?? "Failed";
    return result;
  } catch (error) {
    stateWords.textContent = "Failed";
    output.line("stderr", `Python could not start: ${describe(error)}. Run tries again.`);
    return undefined;
  } finally {
    setRuns(false);
  }
}

function setRuns(now: boolean): void {
  runs = now;
  runButton.disabled = now;
  stopButton.disabled = !now;
  if (now) return;
  progress.hidden = true;
  output.endAsking();
}

function hear(event: SeatEvent): void {
  if (event.event === "state") onState(event.state);
  else if (event.event === "stage") onStage(event.stage, event.done ? 1 : event.loaded / Math.max(event.total, 1));
  else if (event.event === "output") {
    if (event.stream === "stderr") lastError = event.text.trimEnd().split("\n").at(-1) || lastError;
    output.write(event.stream, event.text);
  } else if (event.event === "display") output.display(event);
  else if (event.event === "clear") output.clear();
  else if (event.event === "input") output.ask((line) => void place.answer(line));
  else if (event.event === "missing") output.element(question(event.name, event.from, () => void install(event.name)));
  else if (event.event === "dropped") output.dropped(event.lines, event.characters);
}

function onState(state: State): void {
  if (state === "loading") endControls();
  if (!runs) return;
  progress.hidden = state !== "loading";
  if (state === "loading") stateWords.textContent = "Loading Python";
  if (state === "busy") stateWords.textContent = "Running";
}

function onStage(stage: Stage, part: number): void {
  stages.set(stage, part);
  progress.value = [...stages.values()].reduce((sum, each) => sum + each, 0) / 4;
}

/** The script of the address. */
async function alone(): Promise<void> {
  await isolate();
  const asked = new URLSearchParams(location.search);
  const seats = new Seats({
    base: new URL("./", document.baseURI).href,
    device: asked.get("device") ?? undefined,
    get packages() {
      return allowed();
    },
  });
  place = seats.seat(hear);
  begin = (source) => place.run(source);
  const text = await sharedCode(location.hash).catch(() => "# The link is damaged: its script could not be read.\n");
  show(text ?? "", [], () => {});
  // In a tab of its own a link would run what somebody else wrote with what this browser keeps for the site.
  if (asked.get("run") === "1" && framed) await run();
}

/** The script of a <tabtorch-cell>, whose page is around this one. */
function ofPage(): void {
  const say = (message: FromCell) => parent.postMessage(message, "*");
  const sayHeight = () =>
    say({ tabtorch: "height", height: Math.ceil(element("frame").getBoundingClientRect().height) });
  addEventListener("message", ({ source, data, ports: [port] }: MessageEvent<Setup>) => {
    if (source !== parent || data?.tabtorch !== "cell") return;
    document.documentElement.style.colorScheme = data.scheme;
    if (!port) return;
    port.addEventListener("message", ({ data }: MessageEvent<SeatEvent>) => data?.event && hear(data));
    place = Comlink.wrap<Seat>(port);
    begin = (source) => place.runCell(source);
    document.documentElement.classList.toggle("grows", !data.fixed);
    show(data.code, data.readonly ? readOnly : [], () => say({ tabtorch: "text", text: editor.text }));
    if (data.run) void run();
    say({ tabtorch: "begun" });
    sayHeight(); // a frame that is out of sight is not told of its own size
    new ResizeObserver(sayHeight).observe(element("frame"));
  });
  say({ tabtorch: "hello" });
}

runButton.addEventListener("click", () => void run());
stopButton.addEventListener("click", () => void place.stop());
stopKeys(
  undefined,
  () => runs,
  () => void place.stop(),
);
if (framed && new URLSearchParams(location.search).has("cell")) ofPage();
else void alone();
