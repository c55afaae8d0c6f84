/** The editor: CodeMirror 6 with Python, coloured by the page's own style sheet. */
import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import {
  bracketMatching,
  foldGutter,
  foldKeymap,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from "@codemirror/language";
import { lintKeymap, setDiagnostics, setDiagnosticsEffect } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { type ChangeSpec, EditorState, type Extension, StateEffect, StateField, Transaction } from "@codemirror/state";
import {
  Decoration,
  type DecorationSet,
  drawSelection,
  EditorView,
  highlightActiveLine,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";

export interface Editor {
  readonly view: EditorView;
  readonly text: string;
  /** Show a script. What can be undone in it, its selection and its place are kept by `key`. */
  open(key: string, text: string): void;
  /** Change the script's text to this, as an edit that can be undone. */
  edit(text: string): void;
  /** Show the text that the script has by now elsewhere: no edit of the reader's. */
  follow(text: string): void;
  /** Mark the line at which a script failed, and why; 0 for none. */
  mark(line: number, message?: string): void;
  focus(): void;
}

const setMark = StateEffect.define<number>();

const markedLine = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(setMark)) continue;
      if (effect.value < 1 || effect.value > transaction.state.doc.lines) return Decoration.none;
      const { from } = transaction.state.doc.line(effect.value);
      return Decoration.set([Decoration.line({ class: "failed-line" }).range(from)]);
    }
    return transaction.docChanged ? Decoration.none : marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});

export function createEditor(parent: HTMLElement, onRun: () => void, onEdit: () => void, more: Extension = []): Editor {
  const extensions = [more, extensionsFor(onRun, onEdit)];
  const others = new Map<string, { state: EditorState; place: StateEffect<unknown> }>();
  let shown: string | undefined;
  const view = new EditorView({ parent, state: EditorState.create({ extensions }) });
  const editor: Editor = {
    view,
    get text() {
      return view.state.doc.toString();
    },
    open(key, text) {
      if (shown !== undefined) others.set(shown, { state: view.state, place: view.scrollSnapshot() });
      shown = key;
      const before = others.get(key);
      view.setState(before?.state ?? EditorState.create({ doc: text, extensions }));
      editor.follow(text);
      editor.mark(0);
      if (before) view.dispatch({ effects: before.place });
      else view.scrollDOM.scrollTo(0, 0);
    },
    edit(text) {
      view.dispatch({ changes: difference(editor.text, text), userEvent: "input" });
    },
    follow(text) {
      if (text === editor.text) return;
      const annotations = [Transaction.remote.of(true), Transaction.addToHistory.of(false)];
      view.dispatch({ changes: difference(editor.text, text), annotations });
    },
    mark(line, message = "") {
      const at = line >= 1 && line <= view.state.doc.lines ? view.state.doc.line(line) : undefined;
      const from = at ? at.from + at.text.search(/\S|$/) : 0;
      const found = at && message ? [{ from, to: at.to, severity: "error" as const, message }] : [];
      view.dispatch(setDiagnostics(view.state, found), { effects: setMark.of(line) });
      if (at) view.dispatch({ effects: EditorView.scrollIntoView(at.from, { y: "center" }) });
    },
    focus: () => view.focus(),
  };
  return editor;
}

function extensionsFor(onRun: () => void, onEdit: () => void) {
  const run = () => {
    onRun();
    return true;
  };
  return [
    // Before the defaults, which give Mod-Enter another meaning. Escape, then Tab, leaves the editor.
    keymap.of([
      { key: "Shift-Enter", run },
      { key: "Mod-Enter", run },
      { key: "Ctrl-Enter", run },
    ]),
    lineNumbers(),
    foldGutter(),
    history(),
    drawSelection(),
    highlightActiveLine(),
    highlightSelectionMatches(),
    indentOnInput(),
    indentUnit.of("    "),
    bracketMatching(),
    closeBrackets(),
    python(),
    search({ top: true }),
    syntaxHighlighting(classHighlighter),
    markedLine,
    keymap.of([
      ...closeBracketsKeymap,
      ...defaultKeymap,
      ...searchKeymap,
      ...historyKeymap,
      ...foldKeymap,
      ...lintKeymap,
      indentWithTab,
    ]),
    // what is editable is in the order of Tab anyway; said in so many words, checkers see that it scrolls by keyboard
    EditorView.contentAttributes.of({ "aria-label": "Python script", "aria-describedby": "keys", tabindex: "0" }),
    // what a run found was of the text that ran
    EditorState.transactionExtender.of(({ docChanged }) =>
      docChanged ? { effects: setDiagnosticsEffect.of([]) } : null,
    ),
    EditorView.updateListener.of(({ docChanged, transactions }) => {
      if (docChanged && !transactions.every((each) => each.annotation(Transaction.remote))) onEdit();
    }),
  ];
}

/** The one change between two texts, so that the cursor and what is undone stay where they are. */
function difference(before: string, after: string): ChangeSpec {
  const shorter = Math.min(before.length, after.length);
  let from = 0;
  while (from < shorter && before[from] === after[from]) from++;
  let same = 0;
  while (same < shorter - from && before.at(-1 - same) === after.at(-1 - same)) same++;
  return { from, to: before.length - same, insert: after.slice(from, after.length - same) };
}
