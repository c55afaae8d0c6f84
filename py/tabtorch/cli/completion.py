"""What makes a shell complete `tabtorch`: written from the parser, so that it knows every option there is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

__all__ = ["completion"]

FILES = {"FILE": "files", "DIR": "folders"}  # what an argument of that name is


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, list[argparse.Action]]]:
    """Name, help and arguments of each command."""
    for group in parser._actions:
        if isinstance(group, argparse._SubParsersAction):
            helps = {action.dest: action.help or "" for action in group._choices_actions}
            for name, command in group.choices.items():
                yield name, helps[name], command._actions


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]


def _kind(action: argparse.Action) -> str:
    """What its value is: words to choose from, "files", "folders", "nothing" to propose, or "" if it takes none."""
    if action.nargs == 0:
        return ""
    return " ".join(map(str, action.choices or ())) or FILES.get(str(action.metavar), "nothing")


def _bash(parser: argparse.ArgumentParser) -> Iterator[str]:
    reply = {"files": '$(compgen -f -- "$cur")', "folders": '$(compgen -d -- "$cur")', "nothing": "", "": ""}

    def words(text: str) -> str:
        return f'$(compgen -W "{text}" -- "$cur")'

    yield "_tabtorch() {"
    yield '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}" IFS=$\' \\t\\n\''
    yield "  if ((COMP_CWORD == 1)); then command=; fi"
    yield '  case "$command:$prev" in'
    for name, _, actions in _commands(parser):
        for action in actions:
            kind = _kind(action)
            if action.option_strings and kind:
                keys = " | ".join(f"{name}:{option}" for option in action.option_strings)
                yield f"    {keys}) COMPREPLY=({reply.get(kind) if kind in reply else words(kind)}); return ;;"
    yield "  esac"
    yield '  case "$command:$cur" in'
    every = [(name, actions) for name, _, actions in _commands(parser)]
    for name, actions in every:
        options = " ".join(option for action in actions for option in action.option_strings)
        yield f"    {name}:-*) COMPREPLY=({words(options)}) ;;"
    for name, actions in every:
        for action in (action for action in actions if not action.option_strings):
            kind = _kind(action)
            yield f"    {name}:*) COMPREPLY=({reply.get(kind) if kind in reply else words(kind)}) ;;"
    first = " ".join(
        [name for name, _ in every] + [option for action in _options(parser) for option in action.option_strings]
    )
    yield f"    :*) COMPREPLY=({words(first)}) ;;"
    yield "  esac"
    yield "}"
    yield "complete -o filenames -F _tabtorch tabtorch"


def _zsh(parser: argparse.ArgumentParser) -> Iterator[str]:
    act = {"files": "_files", "folders": "_files -/", "nothing": " "}

    def quoted(text: str) -> str:
        for char in "\\[]:":
            text = text.replace(char, f"\\{char}")
        return text.replace("'", "'\\''")

    yield "#compdef tabtorch"
    yield "_tabtorch() {"
    every = list(_commands(parser))
    names = " ".join(f"'{name}:{quoted(text)}'" for name, text, _ in every)
    yield f"  local -a commands=({names})"
    first = " ".join(option for action in _options(parser) for option in action.option_strings)
    yield f"  if (( CURRENT == 2 )); then _describe command commands; compadd -- {first}; return; fi"
    yield "  local command=$words[2]"
    yield "  shift words; (( CURRENT-- ))"
    yield "  case $command in"
    for name, _, actions in every:
        specs = []
        for action in actions:
            kind = _kind(action)
            value = f":{action.metavar or action.dest}:{act.get(kind, f'({kind})')}" if kind else ""
            if action.option_strings:
                specs += [f"'{option}[{quoted(action.help or '')}]{value}'" for option in action.option_strings]
            else:
                specs.append(f"'*{value}'")
        yield f"    {name}) _arguments {' '.join(specs)} ;;"
    yield "  esac"
    yield "}"
    yield "compdef _tabtorch tabtorch"


def _fish(parser: argparse.ArgumentParser) -> Iterator[str]:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def flags(action: argparse.Action) -> str:
        names = " ".join(f"-l {o[2:]}" if o.startswith("--") else f"-s {o[1:]}" for o in action.option_strings)
        kind = _kind(action)
        value = {"": "", "files": "-rF", "folders": "-xa '(__fish_complete_directories)'", "nothing": "-x"}
        return " ".join(part for part in (names, value.get(kind, f"-xa {quoted(kind)}")) if part)

    for action in _options(parser):
        yield f"complete -c tabtorch -f -n __fish_use_subcommand {flags(action)} -d {quoted(action.help or '')}"
    for name, text, actions in _commands(parser):
        yield f"complete -c tabtorch -f -n __fish_use_subcommand -a {name} -d {quoted(text)}"
        for action in actions:
            at = f"complete -c tabtorch -n '__fish_seen_subcommand_from {name}'"
            yield f"{at} {flags(action)} -d {quoted(action.help or action.dest)}"


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for "bash", "zsh" or "fish"."""
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](parser)
    return "\n".join(lines) + "\n"
