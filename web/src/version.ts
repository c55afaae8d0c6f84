/** Which build of the site this is, whether this browser keeps it, and whether there is a newer one. */
import type { Manifest } from "./manifest";

/** What this page was built with: asked for once, so that a Python that starts later is of the same build. */
export const manifest: Promise<Manifest> = fetch("./manifest.json", { cache: "no-cache" }).then((response) => {
  if (!response.ok) throw new Error(`${response.url}: ${response.status} ${response.statusText}`);
  return response.json();
});
manifest.catch(() => {}); // reported where it is needed

/** The site's service worker: public hosts need it for their headers, and everybody for a visit without a network. */
export function serviceWorker(): Promise<ServiceWorkerRegistration> {
  return navigator.serviceWorker.register("./offline.js", { updateViaCache: "none" });
}

/** The line that says it. */
export class Version {
  #attends = false;

  constructor(private readonly line: HTMLElement) {
    void this.#show();
    if (navigator.serviceWorker?.controller) void this.keep(); // it was here before: nothing is left to fetch, but news
  }

  /** Let the browser keep the site. Called once Python is there, so that nothing is fetched before what that needs. */
  async keep(): Promise<void> {
    if (this.#attends || !("serviceWorker" in navigator)) return;
    this.#attends = true;
    navigator.serviceWorker.addEventListener("message", ({ data }) => this.#hear(data));
    try {
      const registration = await serviceWorker();
      registration.addEventListener("updatefound", () => this.#watch(registration));
      this.#watch(registration);
      (await navigator.serviceWorker.ready).active?.postMessage("keep");
    } catch {
      // not allowed here, or there is no network and nothing new
    }
  }

  #hear(data: unknown): void {
    this.line.dataset.kept = String(data);
    if (data === "kept") void this.#show(" · works offline");
  }

  async #show(more = ""): Promise<void> {
    const { wheel, version } = await manifest.catch(() => ({ wheel: "", version: "unknown" }));
    const words = `tabtorch ${/tabtorch-([^-]+)/.exec(wheel)?.[1] ?? ""} · build ${version}${more}`;
    const button = this.line.querySelector("button");
    this.line.replaceChildren(words, ...(button ? [" ", button] : []));
  }

  /** A newer version is there as a whole, and waits. */
  #watch({ waiting, installing }: ServiceWorkerRegistration): void {
    if (waiting && navigator.serviceWorker.controller) this.#offer(waiting);
    installing?.addEventListener("statechange", () => {
      if (installing.state === "installed" && navigator.serviceWorker.controller) this.#offer(installing);
    });
  }

  #offer(waiting: ServiceWorker): void {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "An update is there: reload";
    button.title = "Scripts and files stay; variables go";
    button.addEventListener("click", () => {
      navigator.serviceWorker.addEventListener("controllerchange", () => location.reload());
      waiting.postMessage("take over");
    });
    this.line.querySelector("button")?.remove();
    this.line.append(" ", button);
  }
}
