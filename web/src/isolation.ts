/** Memory that the page and its worker share: the host's headers give it, or else the site's own service worker. */
import { serviceWorker } from "./version";

const TRIED = "tabtorch.isolation";

/**
 * Resolves once the page is as isolated as it will be. Where the host sends no headers the page is loaded once more, with
 * those that offline.js adds; then this never resolves.
 */
export async function isolate(): Promise<void> {
  if (globalThis.crossOriginIsolated) sessionStorageOrNothing()?.removeItem(TRIED);
  else if (await canReload()) {
    location.reload();
    await new Promise(() => {});
  }
}

async function canReload(): Promise<boolean> {
  const storage = sessionStorageOrNothing();
  // In a frame it takes the whole page's headers; and what did not help once will not the next time.
  if (!storage || storage.getItem(TRIED) || window.parent !== window || !("serviceWorker" in navigator)) return false;
  try {
    await serviceWorker();
    await navigator.serviceWorker.ready;
    storage.setItem(TRIED, "yes");
    return true;
  } catch {
    return false; // not allowed here: Stop reaches scripts that wait, and others lose their variables
  }
}

function sessionStorageOrNothing(): Storage | undefined {
  try {
    return sessionStorage;
  } catch {
    return undefined;
  }
}
