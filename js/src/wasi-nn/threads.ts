/** Worker threads of a page and of Node, as one thing. */

export interface Thread {
  postMessage(message: unknown): void;
  /** messages, to the last one who listens; and `failed`, once, if the thread ends by itself */
  listen(heard: (message: never) => void, failed: (error: Error) => void): void;
  terminate(): void;
  /** From now on it does not keep Node's process from ending. */
  rest(): void;
  /** From now on it does. */
  wake(): void;
}

type Builtin = <T>(name: string) => T | undefined;
const builtin = (globalThis.process as { getBuiltinModule?: Builtin } | undefined)?.getBuiltinModule;
type NodeThreads = typeof import("node:worker_threads");

/** @internal */
export function nodeThreads(): NodeThreads | undefined {
  return builtin?.<NodeThreads>("node:worker_threads");
}

/** A thread that runs a module. */
export function startThread(module: URL): Thread {
  const node = nodeThreads();
  if (node) {
    // `node --input-type=module -e …`: the flag is for what has no file
    const execArgv = process.execArgv.filter((flag) => !flag.startsWith("--input-type="));
    const worker = new node.Worker(module, { execArgv });
    return {
      postMessage: (message) => worker.postMessage(message),
      listen(heard, failed) {
        worker.removeAllListeners("message").removeAllListeners("error");
        worker.on("message", heard as (message: unknown) => void);
        worker.on("error", failed);
      },
      terminate: () => void worker.terminate(),
      rest: () => worker.unref(),
      wake: () => worker.ref(),
    };
  }
  const worker = new Worker(module, { type: "module" });
  return {
    postMessage: (message) => worker.postMessage(message),
    listen(heard, failed) {
      worker.onmessage = ({ data }) => heard(data as never);
      worker.onerror = (event) => failed(new Error(event.message || `${module} cannot be run as a worker`));
    },
    terminate: () => worker.terminate(),
    rest: () => {},
    wake: () => {},
  };
}

/** The other end, in the thread itself. */
export function parentThread(): Pick<Thread, "postMessage"> & { listen(heard: (message: never) => void): void } {
  const port = nodeThreads()?.parentPort;
  if (port)
    return {
      postMessage: (message) => port.postMessage(message),
      listen: (heard) => void port.on("message", heard as (message: unknown) => void),
    };
  const scope = globalThis as unknown as DedicatedWorkerGlobalScope;
  return {
    postMessage: (message) => scope.postMessage(message),
    listen(heard) {
      scope.onmessage = ({ data }) => heard(data as never);
    },
  };
}

interface DedicatedWorkerGlobalScope {
  postMessage(message: unknown): void;
  onmessage: ((event: { data: unknown }) => void) | null;
}
