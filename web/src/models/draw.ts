/** A classifier of digits that learns from who draws them, by the npm package alone. */
import type { Tensor } from "../../../js/src/model/index";
import { element } from "../element";
import { pad } from "../pad";
import { Curve } from "./curve";
import { attempt, breathe, chooser, inTurn, keep, type Model, open, type Shapes } from "./model";
import "./models.css";

interface Digits {
  predict(inputs: { x: Float32Array }): Promise<{ probabilities: Tensor }>;
  step(inputs: { x: Float32Array; y: BigInt64Array }): Promise<{ loss: Tensor }>;
}

interface Example {
  pixels: Float32Array;
  label: number;
}

const FILE = "models/digits.safetensors";
/** of the pad, and of what the network sees: the digits that it learnt from were made so, too */
const DRAWN = 32;
const SEEN = 8;
const BATCH = 16; // as in web/models.py
const SHAPES: Shapes = {
  predict: { x: [1, 1, SEEN, SEEN] },
  step: { x: [BATCH, 1, SEEN, SEEN], y: [BATCH] },
};
const STEPS = 8; // of a lesson
const MOST_DRAWN = BATCH / 2; // of a batch: the rest is of the data set

const curve = new Curve(element("curve"), "loss");
const surface = { element: element("pad"), numbers: new Float64Array(DRAWN * DRAWN), changed: look };
const buttons = ["save", "load", "reset"].map((id) => element<HTMLButtonElement>(id));
const rows = Array.from({ length: 10 }, (_, digit) => row(digit));
const taught: Example[] = [];
let known: Example[] = [];
let model: Model<Digits> | undefined;
let asked = false; // to read

/** A button that says how likely a digit is; who presses it says that it is this one. */
function row(digit: number): { button: HTMLButtonElement; show(p: number | undefined, best: boolean): void } {
  const button = document.createElement("button");
  button.type = "button";
  button.disabled = true;
  const [name, bar, much] = [
    document.createElement("span"),
    document.createElement("span"),
    document.createElement("span"),
  ];
  const filled = document.createElement("span");
  name.textContent = String(digit);
  bar.className = "bar-of";
  much.className = "much";
  bar.append(filled);
  button.append(name, bar, much);
  button.title = `This is a ${digit}: learn it`;
  button.addEventListener("click", () => void attempt(() => inTurn(() => teach(digit))));
  const item = document.createElement("li");
  item.append(button);
  element("digits").append(item);
  const show = (p: number | undefined, best: boolean) => {
    const words = p === undefined ? "" : `${(100 * p).toFixed(p < 0.0995 ? 1 : 0)} %`;
    much.textContent = words;
    filled.style.width = `${100 * (p ?? 0)}%`;
    button.classList.toggle("best", best);
  };
  show(undefined, false);
  return { button, show };
}

/** What is drawn, as the network sees it: the mean of each 4 x 4 pixels. */
function seen(): Float32Array {
  const out = new Float32Array(SEEN * SEEN);
  const side = DRAWN / SEEN;
  surface.numbers.forEach((value, k) => {
    const [x, y] = [k % DRAWN, Math.floor(k / DRAWN)];
    const at = Math.floor(y / side) * SEEN + Math.floor(x / side);
    out[at] = (out[at] as number) + value / side ** 2;
  });
  return out;
}

function isDrawn(): boolean {
  return surface.numbers.some((value) => value > 0);
}

/** Reads what is drawn, once what is at work is done. */
function look(): void {
  if (asked) return;
  asked = true;
  void attempt(() => inTurn(read));
}

async function read(): Promise<void> {
  asked = false;
  if (!isDrawn() || !model) {
    for (const each of rows) each.show(undefined, false);
    return;
  }
  const { probabilities } = await model.predict({ x: seen() });
  const found = [...((await probabilities.data()) as Float32Array)];
  probabilities.dispose();
  const best = found.indexOf(Math.max(...found));
  for (const [digit, each] of rows.entries()) each.show(found[digit], digit === best);
}

/** A lesson: what is drawn is this digit. */
async function teach(label: number): Promise<void> {
  if (!model) return;
  if (!isDrawn()) throw new Error("Draw a digit first: then say which one it is.");
  taught.push({ pixels: seen(), label });
  element("says").textContent = `Learning that this is a ${label}…`;
  for (let k = 0; k < STEPS; k++) {
    const { loss } = await model.step(batch());
    curve.add(Number(await loss.item()));
    loss.dispose();
    await breathe();
  }
  element("taught").textContent = `You have taught it ${taught.length} drawing${taught.length === 1 ? "" : "s"}.`;
  element("says").textContent = `It has learnt that this is a ${label}.`;
  await read();
}

/** The last drawings, the newest more than once while there are few, among digits of the data set. */
function batch(): { x: Float32Array; y: BigInt64Array } {
  const own = taught.slice(-MOST_DRAWN);
  const examples = Array.from({ length: BATCH }, (_, k): Example => {
    const drawn = k < MOST_DRAWN || known.length === 0;
    return (drawn ? own.at(-1 - (k % own.length)) : known[Math.floor(Math.random() * known.length)]) as Example;
  });
  const x = new Float32Array(BATCH * SEEN * SEEN);
  for (const [k, { pixels }] of examples.entries()) x.set(pixels, k * SEEN * SEEN);
  return { x, y: BigInt64Array.from(examples, ({ label }) => BigInt(label)) };
}

/** Lines of data/digits.txt: a label, and 64 pixels as digits of base 17. */
function examples(text: string): Example[] {
  const lines = text.split("\n").filter(Boolean);
  return lines.map((line) => {
    const [label, pixels = ""] = line.split(" ");
    return { label: Number(label), pixels: Float32Array.from(pixels, (c) => Number.parseInt(c, 17) / 16) };
  });
}

async function take(from: string | File): Promise<void> {
  const other = await open<Digits>(from, SHAPES);
  model?.dispose();
  model = other;
  curve.clear();
  taught.length = 0;
  await read();
  element("taught").textContent =
    from instanceof File ? `It goes on with what is in ${from.name}.` : "You have taught it nothing yet.";
  for (const button of [...buttons, ...rows.map((each) => each.button)]) button.disabled = false;
}

pad(surface, { label: "Draw a digit", height: DRAWN, width: DRAWN });
surface.element.className = "pad";
surface.element.querySelector("canvas")?.style.removeProperty("width"); // as the page has room for
element("save").addEventListener("click", () =>
  attempt(() =>
    inTurn(async () => {
      if (model) keep(await model.save(), "digits.safetensors");
    }),
  ),
);
element("reset").addEventListener("click", () => attempt(() => inTurn(() => take(FILE))));
chooser(element("load"), element<HTMLInputElement>("file"), (file) => void attempt(() => inTurn(() => take(file))));

await attempt(async () => {
  const data = fetch(new URL("data/digits.txt", document.baseURI)).then((reply) => reply.text());
  await inTurn(() => take(FILE));
  known = examples(await data);
});
document.documentElement.dataset.state = model ? "ready" : "failed";
