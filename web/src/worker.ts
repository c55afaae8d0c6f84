/** The worker that Python runs in, so that the page always answers. */
import * as Comlink from "comlink";
import { Interpreter, type PageEvent } from "./interpreter";
import { portsOf } from "./links";

// Events are plain messages beside comlink's calls: one line of output costs one postMessage, and no reply.
const send = (event: PageEvent) => (self as unknown as Worker).postMessage(event, portsOf(event));

Comlink.expose(new Interpreter(send));
