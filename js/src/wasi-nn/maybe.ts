/** A value now, or a promise of it. The calls of a guest are written once, for hosts that wait and hosts that suspend. */
export type Maybe<T> = T | Promise<T>;

export function isPromise<T>(value: Maybe<T>): value is Promise<T> {
  return typeof (value as Promise<T> | null | undefined)?.then === "function";
}

export function then<T, U>(value: Maybe<T>, use: (value: T) => Maybe<U>): Maybe<U> {
  return isPromise(value) ? value.then(use) : use(value);
}

/** `run`, and `settle` in the end, however it ended. */
export function lastly<T>(run: () => Maybe<T>, settle: () => void): Maybe<T> {
  let result: Maybe<T>;
  try {
    result = run();
  } catch (error) {
    settle();
    throw error;
  }
  if (isPromise(result)) return result.finally(settle);
  settle();
  return result;
}
