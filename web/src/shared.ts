/**
 * The frame that nobody sees, of a page with <tabtorch-cell>s: it holds the Python that they share. Each cell has a frame
 * of its own (embed.html), and talks with this one over a channel that the page has handed to both.
 */
import * as Comlink from "comlink";
import { allowed } from "./consent";
import { portsOf } from "./links";
import { Seats } from "./seats";

const seats = new Seats({
  base: new URL("./", document.baseURI).href,
  device: new URLSearchParams(location.search).get("device") ?? undefined,
  get packages() {
    return allowed();
  },
});

addEventListener("message", ({ source, data, ports: [port] }) => {
  if (source !== parent || data?.tabtorch !== "seat" || !port) return;
  // What Python says is plain messages beside comlink's calls.
  Comlink.expose(
    seats.seat((event) => port.postMessage(event, portsOf(event))),
    port,
  );
});
parent.postMessage({ tabtorch: "hello" }, "*");
