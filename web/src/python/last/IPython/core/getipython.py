"""The shell that a script runs in."""

import sys

from pyodide.ffi import run_sync

from tabtorch.cli import magics


class PageShell:
    """The page's prompt and scripts, as `get_ipython()`."""

    config = {}  # no kernel: what would ask for Jupyter's widgets shows text

    @property
    def user_ns(self):
        return sys.modules["__main__"].__dict__

    def run_line_magic(self, magic_name, line, *args):
        """Carry out `%magic_name line`."""
        found = magics.pip(line) if magic_name == "pip" else magics.run(magic_name, line)
        return run_sync(found) if magic_name == "pip" else found

    def magic(self, line):
        name, _, rest = line.partition(" ")
        return self.run_line_magic(name, rest.strip())

    def system(self, command):
        return magics.run("shell", command)


_shell = PageShell()


def get_ipython():
    """The shell, of which there is one."""
    return _shell
