/** What a thread of the package does: it has models for a guest that blocks its own thread, or it runs a guest. */

import type { Limits } from "./calls";
import { AnsweringGraphs, type Request, type SharedAnswer, WaitingGraphs } from "./channel";
import type { ErrnoName, NNError } from "./errno";
import { WasiNN } from "./host";
import { type Compile, type DeviceChoice, type ModelSource, Models, type PlanReader } from "./models";
import type { Preview1Options } from "./preview1";
import { runHere } from "./run";
import { nodeThreads, parentThread } from "./threads";

/** Models are on this thread; another one asks for them. */
export interface ModelsMessage {
  role: "models";
  shared: SharedAnswer;
  settings: {
    models: Record<string, ModelSource>;
    device: DeviceChoice | "guest";
    method: string | null;
    /** what its function is made of again */
    compile: unknown;
  };
}

/** A guest is on this thread; another one has the models. */
export interface GuestMessage {
  role: "guest";
  shared: SharedAnswer;
  module: WebAssembly.Module;
  settings: Omit<Preview1Options, "stdout" | "stderr">;
  limits: Limits;
}

export type GuestReport =
  | Request
  | { stdout: string }
  | { stderr: string }
  | { failed: { call: string; code: ErrnoName; message: string } }
  | { exit: number }
  | { error: unknown };

/** Should this thread fail where nobody expects it, nobody is to wait for it for ever. */
function guard(answering: AnsweringGraphs): void {
  const node = nodeThreads();
  if (node) process.on("uncaughtExceptionMonitor", () => answering.gone());
  else addEventListener("error", () => answering.gone());
}

type Parent = ReturnType<typeof parentThread>;

async function runGuest({ shared, module, settings, limits }: GuestMessage, parent: Parent): Promise<void> {
  const post = (report: GuestReport) => parent.postMessage(report);
  const graphs = new WaitingGraphs(post, shared);
  const onError = (call: string, { code, message }: NNError) => post({ failed: { call, code, message } });
  const nn = new WasiNN("block", graphs, new URL(import.meta.url), null, { limits, onError });
  const stdout = (line: string) => post({ stdout: line });
  const stderr = (line: string) => post({ stderr: line });
  try {
    post({ exit: await runHere(module, { ...settings, nn, stdout, stderr }) });
  } catch (error) {
    post({ error });
  }
}

/** Serves the thread that started this one. compilerOf: the function again that the settings are of */
export function serve(reader: PlanReader, compilerOf: (settings: unknown) => Compile | null): void {
  const parent = parentThread();
  let models: AnsweringGraphs | null = null;
  parent.listen((message: ModelsMessage | GuestMessage | Request) => {
    if ("ask" in message) void models?.answer(message);
    else if (message.role === "guest") void runGuest(message, parent);
    else {
      const { compile, ...settings } = message.settings;
      models = new AnsweringGraphs(new Models(reader, { ...settings, compile: compilerOf(compile) }), message.shared);
      guard(models);
      parent.postMessage({ ready: true });
    }
  });
}
