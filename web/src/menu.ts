/** The File menu: what can be done with the open script. */
import type { Editor } from "./editor";
import { download } from "./files";
import { chooseVersion } from "./versions";
import type { Workspace } from "./workspace";

/** `more`: actions by the name that the menu has for them. */
export function fileMenu(
  button: HTMLElement,
  menu: HTMLElement,
  workspace: Workspace,
  editor: Editor,
  more: Record<string, () => unknown> = {},
): void {
  const act: Record<string, () => unknown> = {
    rename: () => rename(workspace),
    duplicate: () => workspace.duplicate(),
    download: () => download(workspace.name, editor.text),
    history: () => lookBack(workspace),
    remove: () => workspace.remove(),
    reset: () => workspace.remove(),
    ...more,
  };
  const items = [...menu.querySelectorAll<HTMLButtonElement>("button")];
  menu.addEventListener("beforetoggle", (event) => {
    if (event.newState !== "open") return;
    const { left, bottom } = button.getBoundingClientRect();
    Object.assign(menu.style, { left: `min(${left}px, 100vw - 11.5rem)`, top: `${bottom + 4}px` });
    for (const item of items) item.hidden = !isOffered(item.dataset.act ?? "", workspace);
  });
  for (const item of items)
    item.addEventListener("click", () => {
      menu.hidePopover();
      button.focus();
      void act[item.dataset.act ?? ""]?.();
    });
}

/** A demo that was not edited has neither another name nor a history, and nothing of it can be deleted. */
function isOffered(action: string, { demo }: Workspace): boolean {
  if (["duplicate", "download", "notebook", "colab"].includes(action)) return true;
  if (action === "reset") return demo === "edited";
  if (action === "remove") return demo === "no";
  return demo !== "as it is";
}

async function lookBack(workspace: Workspace): Promise<void> {
  const versions = await workspace.documents.versions(workspace.open);
  const text = await chooseVersion(find("versions"), versions);
  if (text !== undefined) await workspace.restore(text);
}

function rename(workspace: Workspace): void {
  const dialog = find<HTMLDialogElement>("rename");
  const field = find<HTMLInputElement>("new-name");
  field.value = workspace.name;
  field.setCustomValidity("");
  field.oninput = () => field.setCustomValidity("");
  dialog.onsubmit = (event) => {
    if ((event.submitter as HTMLButtonElement | null)?.value !== "rename") return;
    const problem = workspace.rename(field.value.trim());
    if (!problem) return;
    event.preventDefault();
    field.setCustomValidity(problem);
    field.reportValidity();
  };
  dialog.showModal();
  field.setSelectionRange(0, field.value.replace(/\.py$/, "").length);
}

function find<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element #${id}`);
  return found as T;
}
