"""What a tab keeps of measured layouts: text in the page's IndexedDB, by the name of the adapter. Nothing waits for it, and where
there is no such database (Node, a private window) nothing is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

_STORE = """
(() => {
  const open = () =>
    new Promise((resolve, reject) => {
      const asked = indexedDB.open("tabtorch-tunable", 1);
      asked.onupgradeneeded = () => asked.result.createObjectStore("results");
      asked.onsuccess = () => resolve(asked.result);
      asked.onerror = () => reject(asked.error);
    });
  const at = async (mode, ask) => {
    const db = await open();
    try {
      return await new Promise((resolve, reject) => {
        const asked = ask(db.transaction("results", mode).objectStore("results"));
        asked.onsuccess = () => resolve(asked.result);
        asked.onerror = () => reject(asked.error);
      });
    } finally {
      db.close();
    }
  };
  return {
    load: (key, found) => {
      at("readonly", (store) => store.get(key)).then((text) => found(text ?? ""), () => found(""));
    },
    save: (key, text) => {
      at("readwrite", (store) => store.put(text, key)).catch(() => {});
    },
  };
})()
"""


@cache
def _store() -> Any:
    from pyodide.code import run_js

    return run_js(_STORE)


def load(key: str, found: Callable[[str], None]) -> None:
    """Calls `found` later with the text that was saved, if there is some."""
    from pyodide.ffi import create_once_callable

    _store().load(key, create_once_callable(lambda text: found(text) if text else None))


def save(key: str, text: str) -> None:
    """Keeps it; returns at once."""
    _store().save(key, text)
