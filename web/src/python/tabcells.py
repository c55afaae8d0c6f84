"""Cells of a script, compiled: each keeps the lines that it has in the script, and its last value is shown."""

import __future__

import ast
import functools
import linecache
import operator

from tabtorch.cli import magics

_numbers = {}  # the name that tracebacks give the text of a cell that was run -> the number of that run
_future = 0  # of `from __future__ import ...`, which holds for the cells that follow
_FUTURES = functools.reduce(
    operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)


def forget():
    """No code of the cells that have run is left."""
    global _future
    for name in _numbers:
        linecache.cache.pop(name, None)
    _numbers.clear()
    _future = 0


def name(filename, number):
    """How tracebacks name the text of a cell: what it was when it ran can be read there, however the script goes on."""
    named = f"{filename} [{number}]"
    _numbers[named] = number
    return named


def padded(first, text):
    """The text with as many empty lines before it that its own have the numbers that they have in the script."""
    return "\n" * (first - 1) + text


def parts(source, named, flags):
    """Code objects to be run one after another; the next one is compiled once the one before has run."""
    global _future
    tree = magics.tree(source, named)
    last = [tree.body.pop()] if _shows_value(tree, source) else []
    for part, mode in ((tree, "exec"), (ast.Interactive(last), "single")):
        if part.body:
            code = compile(part, named, mode, flags=flags | _future, dont_inherit=True)
            _future |= code.co_flags & _FUTURES
            yield code


def place(places):
    """Of (file, line) from the outermost to where it failed: (number of the run, line) of the innermost in a cell."""
    return next(((_numbers[file], line) for file, line in reversed(places) if file in _numbers), (0, 0))


def _shows_value(tree, source):
    """Whether it ends in an expression with no semicolon after it: its value is shown, as at the prompt."""
    if not tree.body or not isinstance(tree.body[-1], ast.Expr):
        return False
    end = tree.body[-1]
    rest = source.encode().split(b"\n")[end.end_lineno - 1][end.end_col_offset :]
    return not rest.lstrip().startswith(b";")
