/** What the build wrote into the site, by its path there. */
export interface Manifest {
  /** Of the whole build: another one has another. */
  version: string;
  /** Pyodide's version. */
  pyodide: string;
  wheel: string;
  /** The wheel with what few programs use of the package, which Python fetches when something of it is imported. */
  extras: string;
  /** Data files that the demos open. */
  data: string[];
  bytes: Record<string, number>;
  /** Start of the SHA-256 of each file of the site: part of its address, so that a cache never hands out an older build's. */
  hash: Record<string, string>;
}
