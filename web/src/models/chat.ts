/** A chat with a GGUF model of the reader's, by tabtorch in the site's worker. What is said there is in chat.py. */
import { deviceWords, lacksGpu } from "../device";
import { element } from "../element";
import type { PageEvent } from "../interpreter";
import { isolate } from "../isolation";
import { describe, Session, Stopped } from "../session";
import program from "./chat.py?raw";
import { attempt, chooser } from "./model";
import "./models.css";
import "./chat.css";

interface Message {
  role: "user" | "assistant";
  content: string;
}

/** A line of chat.py's. */
interface Said {
  done?: number;
  total?: number | null;
  facts?: Record<string, string>;
  piece?: string;
  count?: number;
  seconds?: number;
  memory?: number | null;
  problem?: string;
}

const words = element<HTMLTextAreaElement>("words");
const temperature = element<HTMLInputElement>("temperature");
const progress = element<HTMLProgressElement>("progress");
const state = element("state");
const talk = element("talk");
const button = (id: string) => element<HTMLButtonElement>(id);
const opens = ["choose", "url"].map((id) => element<HTMLButtonElement | HTMLInputElement>(id));
const messages: Message[] = [];
let session: Session | undefined;
let hear: (said: Said) => void = () => {};
let knows = false; // chat.py
let there = false; // a model
let works = false;

// -- Python

/** Python with chat.py, started for the first model. */
async function python(): Promise<void> {
  session ??= await started();
  if (!knows) await session.run(program, "chat.py");
  knows = true;
}

async function started(): Promise<Session> {
  const base = new URL("./", document.baseURI).href;
  const device = new URLSearchParams(location.search).get("device") ?? undefined;
  const made = new Session(
    { base, device },
    {
      onEvent: receive,
      onState: (now) => {
        if (now === "loading") there = knows = false; // it is another Python
      },
      onDevice(device) {
        const { short, long, good } = deviceWords(device);
        Object.assign(element("device"), {
          textContent: short,
          title: long,
          className: `device ${good ? "good" : "bad"}`,
        });
        element("slow").hidden = !lacksGpu(device);
      },
    },
  );
  state.textContent = "Loading Python…";
  progress.hidden = false;
  await made.restart();
  return made;
}

let line = "";
let failure = ""; // what Python wrote on standard error

function receive(event: PageEvent): void {
  if (event.event === "stage") progress.value = event.total ? event.loaded / event.total : 1;
  if (event.event !== "output") return;
  if (event.stream === "stderr") failure += event.text;
  if (event.stream !== "stdout") return;
  const lines = (line + event.text).split("\n");
  line = lines.pop() ?? "";
  for (const each of lines) if (each.startsWith("{")) hear(JSON.parse(each) as Said);
}

/** Has Python do something; what it says meanwhile is heard. Rejects with what went wrong. */
async function perform(code: string, heard: (said: Said) => void): Promise<void> {
  let problem = "";
  failure = "";
  hear = (said) => {
    problem = said.problem ?? problem;
    heard(said);
  };
  const status = await (session as Session).evaluate(code).catch((error) => {
    throw error instanceof Stopped ? new Error(ENDED) : error;
  });
  hear = () => {};
  problem ||= status && status !== STOPPED ? failure.trim().split("\n").at(-1) || "Python ended with an error" : "";
  if (problem) throw new Error(problem);
}

const STOPPED = 130;
const ENDED = "Python did not answer, and was ended: open the model once more.";

/** A value as Python's text. */
function literal(value: unknown): string {
  return `json.loads(${JSON.stringify(JSON.stringify(value))})`;
}

// -- the model

async function open(from: File | string): Promise<void> {
  if (works) return;
  setWorks(true);
  await attempt(async () => {
    if (from instanceof File) await check(from);
    const address = from instanceof File ? URL.createObjectURL(from) : from;
    const name =
      from instanceof File ? from.name : decodeURIComponent(new URL(from).pathname.split("/").at(-1) ?? from);
    try {
      await python();
      progress.hidden = false;
      there = false;
      element("facts").hidden = true;
      forget();
      await perform(`open_model(${literal(address)})`, (said) => {
        if (said.facts) showFacts(said.facts, said.memory);
        if (said.done === undefined) return;
        progress.value = said.total ? said.done / said.total : 0;
        const gpu = said.memory ? `; ${size(said.memory)} of GPU memory` : "";
        state.textContent = `${name}: ${size(said.done)}${said.total ? ` of ${size(said.total)}` : ""}${gpu}`;
      });
      there = true;
      state.textContent = `${name} is ready.`;
    } catch (error) {
      state.textContent = "";
      throw new Error(`${name} cannot be used. ${describe(error)}${typeof from === "string" ? ABROAD : ""}`);
    } finally {
      progress.hidden = true;
      if (from instanceof File) URL.revokeObjectURL(address);
    }
  });
  setWorks(false);
  if (there) words.focus();
}

const ABROAD =
  " (A file of another site comes only if that site allows it, by CORS. Else download it, and choose the file.)";

async function check(file: File): Promise<void> {
  const magic = await file.slice(0, 4).text();
  if (magic !== "GGUF") throw new Error(`“${file.name}” is no GGUF file: those begin with the letters GGUF.`);
}

function showFacts(facts: Record<string, string>, memory: number | null | undefined): void {
  const all = memory ? { ...facts, "GPU memory": size(memory) } : facts;
  const parts = Object.entries(all).map(([name, value]) => {
    const part = document.createElement("div");
    const [term, words] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = name;
    words.textContent = value;
    part.append(term, words);
    return part;
  });
  element("facts").replaceChildren(...parts);
  element("facts").hidden = false;
}

function size(bytes: number): string {
  return bytes < 1e6
    ? `${Math.ceil(bytes / 1e3)} kB`
    : bytes < 1e9
      ? `${(bytes / 1e6).toFixed(1)} MB`
      : `${(bytes / 1e9).toFixed(2)} GB`;
}

// -- the talk

function shown(role: Message["role"], text: string): HTMLElement {
  const item = document.createElement("div");
  item.className = role;
  const who = document.createElement("strong");
  who.className = "unseen";
  who.textContent = role === "user" ? "You:" : "Model:";
  const said = document.createElement("p");
  said.textContent = text;
  item.append(who, said);
  talk.append(item);
  item.scrollIntoView({ block: "nearest" });
  return said;
}

async function ask(): Promise<void> {
  const content = words.value.trim();
  if (!content || works || !there) return;
  words.value = "";
  messages.push({ role: "user", content });
  shown("user", content);
  const answer = shown("assistant", "");
  const item = answer.parentElement as HTMLElement;
  item.ariaBusy = "true";
  setWorks(true);
  element("speed").textContent = "Reading…";
  await attempt(async () => {
    let text = "";
    try {
      await perform(
        `ask(${literal(messages)}, ${Number(temperature.value)})`,
        ({ piece, count = 0, seconds = 0, memory }) => {
          if (piece === undefined) return;
          text += piece;
          answer.textContent = text;
          item.scrollIntoView({ block: "nearest" });
          const rate = count > 1 ? `, ${((count - 1) / seconds).toFixed(1)} a second` : "";
          const gpu = memory ? `, ${size(memory)} of GPU memory` : "";
          element("speed").textContent = `${count} token${count === 1 ? "" : "s"}${rate}${gpu}`;
        },
      );
    } finally {
      messages.push({ role: "assistant", content: text });
      if (!text) answer.textContent = "(nothing)";
      item.ariaBusy = "false";
    }
  });
  setWorks(false);
  words.focus();
}

async function stop(): Promise<void> {
  button("stop").disabled = true;
  await session?.stop();
}

function forget(): void {
  messages.length = 0;
  talk.replaceChildren();
  element("speed").textContent = "";
}

function setWorks(now: boolean): void {
  works = now;
  for (const each of opens) each.disabled = now;
  words.disabled = now || !there;
  button("send").disabled = now || !there;
  button("anew").disabled = now || !there;
  button("stop").disabled = !now || !there;
}

// -- what the reader does

chooser(element("choose"), element<HTMLInputElement>("file"), (file) => void open(file));
element("fetch").addEventListener("submit", (event) => {
  event.preventDefault();
  void open(element<HTMLInputElement>("url").value);
});
const area = element("source");
addEventListener("dragover", (event) => {
  event.preventDefault();
  area.classList.add("over");
});
addEventListener("dragleave", () => area.classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  area.classList.remove("over");
  const [file] = event.dataTransfer?.files ?? [];
  if (file) void open(file);
});
element("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  void ask();
});
words.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  void ask();
});
button("stop").addEventListener("click", () => void stop());
button("anew").addEventListener("click", () => {
  forget();
  words.focus();
});
temperature.addEventListener("input", () => {
  element("degrees").textContent = temperature.value;
});

await isolate(); // which may load the page once more: not after a file was chosen
document.documentElement.dataset.state = "ready";
