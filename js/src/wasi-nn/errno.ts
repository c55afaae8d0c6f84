/** The error numbers of wasi-nn (`$nn_errno` of wasi-nn.witx), and the error that carries one. */

export const Errno = {
  success: 0,
  invalidArgument: 1,
  invalidEncoding: 2,
  missingMemory: 3,
  busy: 4,
  runtimeError: 5,
  unsupportedOperation: 6,
  tooLarge: 7,
  notFound: 8,
} as const;

export type ErrnoName = keyof typeof Errno;

/** What the guest is told as a number, and the page as a text. */
export class NNError extends Error {
  override readonly name = "NNError";
  constructor(
    readonly code: ErrnoName,
    message: string,
  ) {
    super(message);
  }
}

export function fail(code: ErrnoName, message: string): never {
  throw new NNError(code, message);
}

/** An error of any origin, as wasi-nn's: what names no number is a runtime error. */
export function asNNError(error: unknown): NNError {
  if (error instanceof NNError) return error;
  return new NNError("runtimeError", error instanceof Error ? error.message : String(error));
}
