/** A small GPT that writes letter by letter, and learns from text that is pasted, by the npm package alone. */
import type { Tensor } from "../../../js/src/model/index";
import { element } from "../element";
import { Curve } from "./curve";
import { attempt, breathe, chooser, inTurn, keep, type Model, open, type Shapes } from "./model";
import "./models.css";

interface GPT {
  predict(inputs: { x: BigInt64Array; at: BigInt64Array }): Promise<{ logits: Tensor }>;
  step(inputs: { x: BigInt64Array; y: BigInt64Array }): Promise<{ loss: Tensor }>;
}

const FILE = "models/gpt.safetensors";
// as in web/models.py
const CONTEXT = 64;
const BATCH = 4;
const ALPHABET = `\n${String.fromCharCode(...Array.from({ length: 95 }, (_, k) => 32 + k))}`;
const SHAPES: Shapes = {
  predict: { x: [1, CONTEXT], at: [1] },
  step: { x: [BATCH, CONTEXT], y: [BATCH, CONTEXT] },
};
const LENGTH = 500; // characters of a text
const STEPS = 200; // of a lesson

const numbers = new Map([...ALPHABET].map((character, number) => [character, number]));
const curve = new Curve(element("curve"), "loss");
const prompt = element<HTMLInputElement>("prompt");
const text = element<HTMLTextAreaElement>("text");
const temperature = element<HTMLInputElement>("temperature");
const written = element("written");
written.tabIndex = 0; // it scrolls, by keyboard too
const button = (id: string) => element<HTMLButtonElement>(id);
let model: Model<GPT> | undefined;
let stopped = false;

function numbersOf(words: string): number[] {
  return [...words].map((character) => numbers.get(character) ?? (numbers.get(" ") as number));
}

/** The number of the next character, after these. */
async function next(before: readonly number[], { predict }: Pick<GPT, "predict">): Promise<number> {
  const last = before.slice(-CONTEXT);
  const x = new BigInt64Array(CONTEXT);
  last.forEach((number, k) => {
    x[k] = BigInt(number);
  });
  const { logits } = await predict({ x, at: BigInt64Array.of(BigInt(last.length - 1)) });
  const found = (await logits.data()) as Float32Array;
  logits.dispose();
  return drawn(found, Number(temperature.value));
}

/** A number by chance, as likely as its logit says; at temperature 0 the likeliest. */
function drawn(logits: Float32Array, heat: number): number {
  const most = Math.max(...logits);
  if (heat === 0) return logits.indexOf(most);
  const weights = Array.from(logits, (each) => Math.exp((each - most) / heat));
  let rest = Math.random() * weights.reduce((a, b) => a + b);
  return Math.max(
    0,
    weights.findIndex((each) => {
      rest -= each;
      return rest < 0;
    }),
  );
}

async function write(): Promise<void> {
  if (!model) return;
  const given = document.createElement("span");
  given.className = "given";
  given.textContent = prompt.value;
  const made = document.createTextNode("");
  written.replaceChildren(given, made);
  const all = prompt.value ? numbersOf(prompt.value) : [0];
  const began = performance.now();
  for (let k = 1; k <= LENGTH && !stopped; k++) {
    const number = await next(all, model);
    all.push(number);
    made.data += ALPHABET[number];
    const seconds = (performance.now() - began) / 1000;
    element("speed").textContent = `${k} letters, ${(k / seconds).toFixed(0)} a second`;
    written.scrollTop = written.scrollHeight;
    await breathe();
  }
}

/** Pieces of the text from places by chance, and the same one character on. */
function batch(all: readonly number[]): { x: BigInt64Array; y: BigInt64Array } {
  const [x, y] = [new BigInt64Array(BATCH * CONTEXT), new BigInt64Array(BATCH * CONTEXT)];
  for (let b = 0; b < BATCH; b++) {
    const from = Math.floor(Math.random() * (all.length - CONTEXT));
    for (let k = 0; k < CONTEXT; k++) {
      x[b * CONTEXT + k] = BigInt(all[from + k] as number);
      y[b * CONTEXT + k] = BigInt(all[from + k + 1] as number);
    }
  }
  return { x, y };
}

async function learn(): Promise<void> {
  if (!model) return;
  const all = numbersOf(text.value);
  if (all.length <= CONTEXT)
    throw new Error(`A text of more than ${CONTEXT} characters is wanted to learn from; this one has ${all.length}.`);
  for (let k = 0; k < STEPS && !stopped; k++) {
    const { loss } = await model.step(batch(all));
    curve.add(Number(await loss.item()));
    loss.dispose();
    await breathe();
  }
}

/** While one of these works, its Stop is there, and nothing else. */
async function alone(stop: HTMLButtonElement, work: () => Promise<void>): Promise<void> {
  const others = ["write", "learn", "save", "load", "reset"].map(button);
  stopped = false;
  for (const each of others) each.disabled = true;
  stop.disabled = false;
  await attempt(() => inTurn(work));
  stop.disabled = true;
  for (const each of others) each.disabled = !model;
}

async function take(from: string | File): Promise<void> {
  const other = await open<GPT>(from, SHAPES);
  model?.dispose();
  model = other;
  curve.clear();
}

const [stop, enough] = [button("stop"), button("enough")];
for (const each of [stop, enough])
  each.addEventListener("click", () => {
    stopped = true;
  });
button("write").addEventListener("click", () => alone(stop, write));
prompt.addEventListener("keydown", ({ key }) => {
  if (key === "Enter" && !button("write").disabled) void alone(stop, write);
});
button("learn").addEventListener("click", () => alone(enough, learn));
button("reset").addEventListener("click", () => alone(enough, () => take(FILE)));
button("save").addEventListener("click", () =>
  alone(enough, async () => {
    if (model) keep(await model.save(), "gpt.safetensors");
  }),
);
chooser(button("load"), element<HTMLInputElement>("file"), (file) => void alone(enough, () => take(file)));
temperature.addEventListener("input", () => {
  element("degrees").textContent = temperature.value;
});

await alone(enough, () => take(FILE));
document.documentElement.dataset.state = model ? "ready" : "failed";
