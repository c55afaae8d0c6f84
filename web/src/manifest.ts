/** What the build wrote into the site, by its path there. */
export interface Manifest {
  /** Pyodide's version. */
  pyodide: string;
  wheel: string;
  /** Data files that the demos open. */
  data: string[];
  bytes: Record<string, number>;
  /** Start of each file's SHA-256: part of its address, so that a cache never hands out an older build's. */
  hash: Record<string, string>;
}
