/** Completion and documentation in the editor, from the running interpreter; while that is busy, words of the script. */
import {
  acceptCompletion,
  autocompletion,
  type Completion,
  type CompletionContext,
  type CompletionResult,
  completionStatus,
  moveCompletionSelection,
} from "@codemirror/autocomplete";
import { syntaxTree } from "@codemirror/language";
import { type EditorState, type Extension, Prec, StateEffect, StateField } from "@codemirror/state";
import { type EditorView, hoverTooltip, keymap, showTooltip, type Tooltip } from "@codemirror/view";
import type { About, Completion as Found } from "./interpreter";
import "./assist.css";

export interface AssistParts {
  /** Whether Python can answer now. */
  ready(): boolean;
  complete(text: string): Promise<Found>;
  about(text: string): Promise<About | undefined>;
}

/** How far back Python is shown what is before the cursor. */
const REACH = 20_000;
/** How often it is looked whether Python has become busy since it was asked. */
const LOOK_MS = 100;
const MOST_WORDS = 50;
const KEYWORDS =
  "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield".split(
    " ",
  );

export function assist(parts: AssistParts): Extension {
  return [
    autocompletion({
      override: [(context) => offer(context, parts)],
      selectOnOpen: false, // Enter ends the line, unless one of the list was chosen; Tab takes the first
      interactionDelay: 0,
      icons: false,
    }),
    Prec.high(keymap.of([{ key: "Tab", run: takeFirst }])),
    hoverTooltip((view, at) => tell(view, at, parts), { hideOnChange: true }),
    told,
    keymap.of([
      { key: "F1", run: (view) => tellAtCursor(view, parts) },
      { key: "Escape", run: hideTold },
    ]),
  ];
}

function takeFirst(view: EditorView): boolean {
  if (completionStatus(view.state) !== "active") return false;
  return acceptCompletion(view) || (moveCompletionSelection(true)(view) && acceptCompletion(view));
}

async function offer(context: CompletionContext, parts: AssistParts): Promise<CompletionResult | null> {
  const { state, pos, explicit } = context;
  const before = context.matchBefore(/[\w.]*$/)?.text ?? "";
  const inside = syntaxTree(state).resolveInner(pos, -1).name;
  if (inside === "Comment" || (!explicit && !/(^|\.)[A-Za-z_]\w*$|\w\.$|^\.$/.test(before))) return null;
  const found = parts.ready() ? await unlessBusy(parts, parts.complete(textBefore(state, pos))) : undefined;
  if (context.aborted) return null;
  const word = /\w*$/.exec(before)?.[0] ?? "";
  const from = pos - (found?.names.length ? found.replace : word.length);
  const named = found?.names.map((label, index) => fromPython(label, found.hints[index])) ?? [];
  const isAttribute = before.includes(".");
  const words = isAttribute || !word || inside.includes("String") ? [] : wordsOf(state, pos, word);
  const known = new Set(named.map(({ label }) => label));
  const options = [...named, ...words.filter((label) => !known.has(label)).map((label) => ({ label }))];
  if (!options.some(({ label }) => label !== word)) return null;
  return { from, options, filter: false };
}

function fromPython(label: string, [signature, summary]: [string, string] = ["", ""]): Completion {
  const detail = signature.length > 44 ? `${signature.slice(0, 43)}…` : signature;
  const info = [detail === signature ? "" : `${label}${signature}`, summary].filter(Boolean).join("\n\n");
  return { label, ...(detail ? { detail } : {}), ...(info ? { info } : {}) };
}

/** What the script names elsewhere, and the language's own words. */
function wordsOf({ doc }: EditorState, pos: number, word: string): string[] {
  const text = doc.sliceString(Math.max(0, pos - REACH), pos - word.length) + doc.sliceString(pos, pos + REACH);
  const all = new Set([...(text.match(/[A-Za-z_]\w{2,}/g) ?? []), ...KEYWORDS]);
  return [...all]
    .filter((each) => each !== word && each.startsWith(word))
    .sort()
    .slice(0, MOST_WORDS);
}

function textBefore({ doc }: EditorState, pos: number): string {
  return doc.sliceString(doc.lineAt(Math.max(0, pos - REACH)).from, pos);
}

/** The answer, or nothing if Python has something else to do. */
async function unlessBusy<T>({ ready }: AssistParts, answer: Promise<T>): Promise<T | undefined> {
  let look: ReturnType<typeof setInterval> | undefined;
  const busy = new Promise<undefined>((resolve) => {
    look = setInterval(() => ready() || resolve(undefined), LOOK_MS);
  });
  const first = await Promise.race([answer, busy]).catch(() => undefined);
  clearInterval(look);
  return first;
}

/** What the name at this place is. */
async function tell({ state }: EditorView, at: number, parts: AssistParts): Promise<Tooltip | null> {
  const word = state.wordAt(at);
  if (!word || !parts.ready()) return null;
  const about = await unlessBusy(parts, parts.about(textBefore(state, word.to)));
  if (!about) return null;
  return { pos: word.from, end: word.to, above: true, create: () => ({ dom: described(about) }) };
}

function described({ heading, text }: About): HTMLElement {
  const box = document.createElement("div");
  box.className = "cm-about";
  box.setAttribute("role", "status");
  const code = document.createElement("code");
  code.textContent = heading;
  const words = document.createElement("p");
  words.textContent = text;
  box.append(code, words);
  return box;
}

const setTold = StateEffect.define<Tooltip | null>();

/** What was asked for by key: it goes when the cursor does. */
const told = StateField.define<Tooltip | null>({
  create: () => null,
  update(before, { effects, docChanged, selection }) {
    const effect = effects.find((each) => each.is(setTold));
    return effect ? (effect.value as Tooltip | null) : docChanged || selection ? null : before;
  },
  provide: (field) => showTooltip.from(field),
});

function tellAtCursor(view: EditorView, parts: AssistParts): boolean {
  const { state } = view;
  void tell(view, state.selection.main.head, parts).then((tooltip) => {
    if (view.state.doc === state.doc) view.dispatch({ effects: setTold.of(tooltip) });
  });
  return true;
}

function hideTold(view: EditorView): boolean {
  if (!view.state.field(told)) return false;
  view.dispatch({ effects: setTold.of(null) });
  return true;
}
