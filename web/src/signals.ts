/**
 * The byte in which a page asks Python to stop, as Pyodide is to see it. Pyodide reads it again and again, and writes 0
 * after each reading, whatever it has read: a 2 that the page writes between the two would be lost. Here what was not
 * read is not cleared.
 */
export function signalBuffer(byte: Uint8Array): Uint8Array {
  let read = 0;
  const seen = {
    get 0(): number {
      read = Atomics.load(byte, 0);
      return read;
    },
    set 0(value: number) {
      if (read) Atomics.store(byte, 0, value);
    },
  };
  return seen as unknown as Uint8Array; // of which Pyodide uses nothing but this element
}
