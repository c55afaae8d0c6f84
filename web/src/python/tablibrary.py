"""Python's library, whole. A page starts with a part of it (web/excerpt.py), and fetches it where that is not enough."""

import importlib
import os
import sys

import _absent

ARCHIVE = os.path.dirname(os.__file__)


class _Completes:
    """Asked before any other finder: once the library is whole, those find what they would have found in it all along."""

    def __init__(self, fetch):
        self.fetch = fetch  # writes the archive, before it comes back
        self.absent = frozenset(_absent.NAMES)

    def find_spec(self, name, path=None, target=None):
        if name in self.absent:
            self._complete(name)

    def _complete(self, name):
        try:
            self.fetch(ARCHIVE)
        except Exception as error:
            why = str(error).partition("\n")[0]
            raise ImportError(f"{name} is in the part of Python's library that could not be fetched: {why}") from None
        self.absent = frozenset()
        importlib.invalidate_caches()


def start(fetch):
    sys.meta_path.insert(0, _Completes(fetch))


def below(package):
    """Names of modules in a package of the library, whether they are here or not."""
    inside = f"{package}."
    names = (name[len(inside) :] for name in _absent.NAMES if name.startswith(inside))
    return {name for name in names if "." not in name}
