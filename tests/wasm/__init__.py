"""The suite in Pyodide, under the interpreter that ships: `python -m wasm`."""
