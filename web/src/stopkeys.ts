/** Escape anywhere on the page, and Ctrl+C in the prompt, if there is one, stop what runs. */
export function stopKeys(prompt: HTMLTextAreaElement | undefined, runs: () => boolean, stop: () => void): void {
  addEventListener(
    "keydown",
    (event) => {
      if (!runs() || event.isComposing || event.repeat) return;
      const { target } = event;
      const field = target instanceof HTMLInputElement ? target : target === prompt ? prompt : undefined;
      const copies = field && field.selectionStart !== field.selectionEnd;
      const breaks = field && event.ctrlKey && !event.shiftKey && event.key === "c" && !copies;
      if (event.key !== "Escape" && !breaks) return;
      if ((target as Element).closest?.(".cm-editor")?.querySelector(".cm-tooltip-autocomplete")) return; // closes that
      event.preventDefault();
      event.stopPropagation();
      stop();
    },
    { capture: true },
  );
}
