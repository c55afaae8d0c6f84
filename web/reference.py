"""The reference of what is tabtorch's own, in Markdown, from signatures and docstrings: the site's build reads what this prints.

What PyTorch has too is in PyTorch's documentation; of that there are only the names that do more here, or another thing.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TORCH = "https://docs.pytorch.org/docs/stable/"

#: heading, what is to be said of all of it, and the names
SECTIONS = (
    (
        "Starting",
        "In the page, and in what `tabtorch run` and `pytest --tabtorch` run, this is done already.",
        "tabtorch.install tabtorch.init",
    ),
    (
        "Reading without blocking",
        "Only for browsers in which Python cannot wait: everywhere else `item()`, `tolist()` and `print` do.",
        "tabtorch.Tensor.read",
    ),
    (
        "Pictures, charts and controls",
        "They are usable on real PyTorch, too: there they go to a notebook, to matplotlib, or to the terminal.",
        "tabtorch.show tabtorch.plot tabtorch.canvas tabtorch.slider tabtorch.button tabtorch.pad tabtorch.webcam "
        "tabtorch.microphone",
    ),
    (
        "Files of weights",
        "`import safetensors.torch` is this module after `install()`.",
        "tabtorch.safetensors.load_file tabtorch.safetensors.load_file_async tabtorch.safetensors.save_file "
        "tabtorch.safetensors.load tabtorch.safetensors.save tabtorch.safetensors.safe_open",
    ),
    (
        "Sets of images",
        "",
        "tabtorch.data.MNIST tabtorch.data.FashionMNIST tabtorch.data.CIFAR10 tabtorch.data.CIFAR100 "
        "tabtorch.data.ImageSet tabtorch.data.idx tabtorch.data.cifar_binary tabtorch.data.cifar_python",
    ),
    (
        "PyTorch's, with something to know",
        "These are called as in PyTorch. What is said here is what differs, or comes on top.",
        "torch.compile torch.compiler.reset torch.compiler.set_stance torch.save torch.load "
        "torch.hub.load_state_dict_from_url torch.hub.load_state_dict_from_url_async torch.cuda.synchronize "
        "torch.cuda.get_device_properties torch.profiler.profile",
    ),
)


def follow(path: str) -> Any:
    """What a public name stands for, or None: parts of the page may not be there yet."""
    found = importlib.import_module("tabtorch")
    for part in path.split(".")[1:]:
        if inspect.ismodule(found) and not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__.replace('torch', 'tabtorch', 1)}.{part}")
            except ImportError:
                return None
        found = getattr(found, part, None)
    return found


def signature(value: Any) -> str:
    """Its parameters and their defaults; types are in the words."""
    of = value.__init__ if inspect.isclass(value) else value
    try:
        parameters = list(inspect.signature(of).parameters.values())
    except (TypeError, ValueError):
        return "(…)"
    if parameters and parameters[0].name == "self":
        del parameters[0]
    plain = [each.replace(annotation=each.empty) for each in parameters]
    return re.sub(r"<object object at \w+>", "…", str(inspect.Signature(plain)))


def words(value: Any) -> str:
    """Its docstring as Markdown: the names of parameters stand out, where each is explained."""
    text = inspect.getdoc(value) or ""
    names = {each.strip(" */=") for each in re.findall(r"[\w]+", signature(value))} | {"Raises"}
    text = re.sub(
        r"(?m)(^|[.)] |\n)(\w+)((?:, \w+)*): ",
        lambda found: _defined(found, names),
        text,
    )
    return re.sub(r"``(.*?)``", r"`\1`", text)


def _defined(found: re.Match[str], names: set[str]) -> str:
    before, first, more = found.groups()
    listed = [first, *re.findall(r"\w+", more)]
    if not set(listed) <= names:
        return found[0]
    return before.strip() + "\n\n" + ", ".join(f"**{each}**" for each in listed) + ": "


def entry(path: str, value: Any) -> Iterator[str]:
    yield f"### `{path}`"
    called = "" if not callable(value) else signature(value)
    asynchronous = "await " if inspect.iscoroutinefunction(value) else ""
    yield f"```signature\n{asynchronous}{path}{called}\n```"
    yield words(value)
    if path.startswith("torch."):
        yield f"[In PyTorch's documentation]({pytorch_page(path)})"


def pytorch_page(path: str) -> str:
    """Where PyTorch's documentation has it."""
    for space in ("hub", "profiler"):
        if path.startswith(f"torch.{space}."):
            return f"{TORCH}{space}.html"
    return f"{TORCH}generated/{path}.html"


def table(head: tuple[str, str], rows: Iterator[tuple[str, str]]) -> str:
    cells = [" | ".join(each.replace("|", "\\|").replace("\n", " ") for each in row) for row in (head, *rows)]
    return "\n".join(f"| {row} |" for row in (cells[0], "--- | ---", *cells[1:]))


def device_functions() -> Iterator[tuple[str, str]]:
    """`torch.webgpu`: each function with the first sentence of what is said of it."""
    module = importlib.import_module("tabtorch.webgpu")
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or not inspect.isfunction(value) or value.__module__ != module.__name__:
            continue
        first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
        yield f"`{name}{signature(value)}`", first


def command_line() -> Iterator[str]:
    """The options of each command, from the parser itself."""
    parser: argparse.ArgumentParser = importlib.import_module("tabtorch.cli.commands")._parser()
    commands: Any = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    helps = {each.dest: each.help or "" for each in commands._choices_actions}
    for name, command in commands.choices.items():
        yield f"### `tabtorch {name}`"
        yield " ".join((command.description or f"{helps[name].capitalize()}.").split())
        rows = [row for action in command._actions if action.dest != "help" for row in _option(action)]
        if rows:
            yield table(("option", "what it does"), iter(rows))
    yield "### Environment"
    listed = re.findall(r"^  (\w+) +(.*)$", importlib.import_module("tabtorch.cli.commands").ENVIRONMENT, re.M)
    yield table(("variable", "what it says"), ((f"`{name}`", what) for name, what in listed))


def _option(action: argparse.Action) -> Iterator[tuple[str, str]]:
    takes = action.metavar or ("|".join(action.choices) if action.choices else "")
    if not takes and action.nargs != 0:
        takes = action.dest.upper()
    called = action.option_strings[-1] if action.option_strings else ""
    shown = takes if isinstance(takes, str) else " ".join(takes)
    yield f"`{' '.join(part for part in (called, shown) if part)}`", action.help or ""


def plugin() -> Iterator[tuple[str, str]]:
    """The options of the pytest plugin, read from its text: pytest itself need not be there."""
    tree = ast.parse((ROOT / "py" / "pytest_tabtorch.py").read_text())
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    for call in calls:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method not in ("addoption", "addini"):
            continue
        given = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg != "type"}
        positional = [ast.literal_eval(each) for each in call.args]
        takes = given.get("metavar") or "|".join(given.get("choices", ()))
        name = f"{positional[0]} {takes}".strip()
        yield f"`{name}`", given.get("help") or positional[1]


def lines() -> Iterator[str]:
    yield "# Reference"
    yield (
        "What is tabtorch's own, from its docstrings. For all else PyTorch's [documentation](https://docs.pytorch.org/docs/stable/)"
        " holds; [which of its operators are here](../COMPATIBILITY.md) is a page of its own."
    )
    for title, about, names in SECTIONS:
        there = [(path, value) for path in names.split() if (value := follow(path)) is not None]
        yield f"## {title}"
        yield about
        for path, value in there:
            yield from entry(path, value)
    yield "## `torch.webgpu`"
    yield (
        "The GPU, in the manner of [torch.cuda](https://docs.pytorch.org/docs/stable/cuda.html). After `install()` the same names"
        " in `torch.cuda` do the same, so that a script which asks for CUDA goes on."
    )
    yield table(("function", "what it does"), device_functions())
    yield "## The command line"
    yield from command_line()
    yield "## The pytest plugin"
    yield "Its use is explained in [hosts and tools](hosts.md#pytest-in-a-tab)."
    yield table(("option", "what it does"), plugin())


def main() -> None:
    sys.path.insert(0, str(ROOT / "py"))
    print("\n\n".join(each for each in lines() if each))


if __name__ == "__main__":
    main()
