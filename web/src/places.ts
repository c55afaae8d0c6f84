/** Folders of the file system that Python sees. */

/** Where scripts lie that have no folder of their own; the demos' data is beside them. */
export const HOME = "/home/pyodide";
/** The working directory of a script that comes with files. */
export const WORK = "/work";
