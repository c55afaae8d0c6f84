"""Chat templates: how a talk is written down for a model. A file's template is a program of Jinja, which nobody has looked at.

Where `jinja2` can be imported (in Pyodide it is a package to load), the template runs in its sandbox, within bounds: what it may
call is listed, and rounds of loops, calls and characters are counted. Elsewhere the families of models that are known by what
stands in their templates are written by `_FAMILIES`; a template of no such family is an error that asks for `jinja2`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

from tabtorch.gguf.header import GGUFError

#: characters that a template may have
LONGEST = 1 << 17
#: what a run of a template may spend: a round of a loop, a call, or 128 characters that are made, is one
ROUNDS = 1 << 19
#: characters of any text that a template makes, together with the items of any list
LARGEST = 1 << 20

Messages = list[dict[str, Any]]


def render(template: str | None, messages: Messages, add_generation_prompt: bool, variables: dict[str, Any]) -> str:
    """The text of a talk. template: None where the file has none: ChatML. ValueError where the messages are refused."""
    for m in messages:
        if not isinstance(m, dict) or not isinstance(m.get("role"), str):
            raise ValueError(f'a message is a dict such as {{"role": "user", "content": "Hi"}}, and not {m!r}')
    if template is None:
        return _chatml(messages, add_generation_prompt, variables)
    try:
        importlib.import_module("jinja2")
    except ImportError:
        return _by_family(template, messages, add_generation_prompt, variables)
    known = {"messages": messages, "add_generation_prompt": add_generation_prompt, "tools": None, "documents": None}
    try:
        program, counter = _program(template)
        counter.left = ROUNDS
        return "".join(counter.written(program.generate(**{**known, **variables})))
    except Exception as e:  # whatever a program does that nobody has looked at is its own error
        raise ValueError(f"the chat template of the file: {e or type(e).__name__}") from None


# ---- Jinja


class _Counter:
    """What a run of a template may still spend."""

    def __init__(self) -> None:
        self.left = ROUNDS

    def tick(self, n: int = 1) -> str:
        """GGUFError where there are no rounds left."""
        self.left -= n
        if self.left < 0:
            raise GGUFError(f"more than {ROUNDS} rounds")
        return ""

    def make(self, n: int) -> None:
        """GGUFError where a text of so many characters is too much."""
        if n > LARGEST:
            raise GGUFError(f"more than {LARGEST} characters")
        self.tick(1 + (n >> 7))

    def bounded(self, value: Any) -> Any:
        """The value, unless it is too large with all that it holds."""
        total, waiting, items = 0, [value], 0
        while waiting:
            one = waiting.pop()
            items += 1
            if isinstance(one, str):
                total += len(one)
            elif isinstance(one, (list, tuple, type({}.values()), type({}.items()), type({}.keys()))):
                waiting.extend(one)
            elif isinstance(one, dict):
                waiting.extend(one)
                waiting.extend(one.values())
            elif isinstance(one, int):
                total += one.bit_length() >> 3
            if total + items + len(waiting) > LARGEST:
                raise GGUFError(f"more than {LARGEST} characters")
        self.tick((items >> 3) + (total >> 7))
        return value

    def rounds(self, items: Any) -> Iterator[Any]:
        """The items of a loop, each of which is counted."""
        for item in items:
            self.tick()
            yield item

    def shown(self, value: Any) -> str:
        """The value as it is written."""
        text = str(value)
        self.make(len(text))
        return text

    def joined(self, items: list[Any]) -> str:
        """The texts as one."""
        texts = [str(i) for i in items]
        self.make(sum(map(len, texts)))
        return "".join(texts)

    def grown(self, text: str, name: str, arguments: tuple[Any, ...]) -> None:
        """GGUFError where `replace` or `join` of a text would make too long a one."""
        if name == "replace" and len(arguments) >= 2:
            old, new = str(arguments[0]), str(arguments[1])
            self.make(len(text) + text.count(old) * len(new))
        if name == "join" and arguments:
            self.make(sum(len(text) + (len(i) if isinstance(i, str) else 1) for i in arguments[0]))

    def written(self, parts: Iterator[str]) -> Iterator[str]:
        """What a template writes, as long as it is not too much."""
        total = 0
        for part in parts:
            total += len(part)
            if total > LARGEST:
                raise GGUFError(f"more than {LARGEST} characters")
            yield part


#: methods of texts and of what holds others that a template may call
_METHODS = {
    str: "capitalize count endswith find index isalnum isalpha isdigit islower isspace isupper join lower lstrip partition "
    "removeprefix removesuffix replace rfind rpartition rsplit rstrip split splitlines startswith strip swapcase title upper",
    dict: "get items keys values",
    list: "index count",
    tuple: "index count",
    int: "",
}
_ALLOWED = {kind: set(names.split()) for kind, names in _METHODS.items()}
_FILTERS = (
    "abs capitalize count d default dictsort e escape first float int items last length list lower map max min reject rejectattr "
    "reverse safe select selectattr sort string title trim upper"
)


@lru_cache(4)
def _program(template: str) -> tuple[Any, _Counter]:
    """A template that is compiled, and what counts its rounds."""
    if len(template) > LONGEST:
        raise GGUFError(f"more than {LONGEST} characters")
    jinja2, nodes = importlib.import_module("jinja2"), importlib.import_module("jinja2.nodes")
    sandbox, visitor = importlib.import_module("jinja2.sandbox"), importlib.import_module("jinja2.visitor")
    utils, ext = importlib.import_module("jinja2.utils"), importlib.import_module("jinja2.ext")
    counter = _Counter()

    def through(node: Any, name: str) -> Any:
        return nodes.Filter(node, name, [], [], None, None)

    class Measured(visitor.NodeTransformer):  # type: ignore[name-defined]
        """Leads what a template makes or goes through by the counter; no name in a template begins with a space."""

        def visit_List(self, node: Any) -> Any:
            return through(self.generic_visit(node), " bounded")

        def visit_Tuple(self, node: Any) -> Any:
            node = self.generic_visit(node)
            return through(node, " bounded") if node.ctx == "load" else node

        visit_Dict = visit_Filter = visit_List

        def visit_Concat(self, node: Any) -> Any:
            return through(nodes.List(self.generic_visit(node).nodes), " joined")

        def visit_For(self, node: Any) -> Any:
            if node.recursive:
                raise GGUFError("loops that call themselves are not run")
            node = self.generic_visit(node)
            node.iter = through(node.iter, " rounds")
            return node

        def visit_Macro(self, node: Any) -> Any:
            node = self.generic_visit(node)
            node.body.insert(0, nodes.Output([through(nodes.Const(1), " tick")]))
            return node

        visit_CallBlock = visit_Macro

        def visit_AssignBlock(self, node: Any) -> Any:
            node = self.generic_visit(node)
            if node.filter is None:
                node.filter = through(None, " bounded")
            return node

        def visit_Output(self, node: Any) -> Any:
            node = self.generic_visit(node)
            plain = (nodes.TemplateData,)
            n = sum(len(part.data) for part in node.nodes if isinstance(part, plain))
            shown = [part if isinstance(part, plain) else through(part, " shown") for part in node.nodes]
            node.nodes = [through(nodes.Const(1 + (n >> 7)), " tick"), *shown]
            return node

        def refused(self, node: Any) -> Any:
            raise GGUFError("other templates are not read")

        visit_Include = visit_Import = visit_FromImport = visit_Extends = refused

    class Generation(ext.Extension):  # type: ignore[name-defined]
        """`{% generation %}` marks what the model wrote, for training: it is written as it is."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    class Bounded(sandbox.ImmutableSandboxedEnvironment):  # type: ignore[name-defined]
        """The sandbox, in which what is large is refused before it is there."""

        intercepted_binops = frozenset("+ - * ** / // %".split())

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            def length(value: Any) -> int:
                return len(value) if isinstance(value, (str, list, tuple)) else 1

            if operator == "*" and not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
                counter.make(length(left) * length(right) * int(left if isinstance(left, int) else right))
            elif operator == "**":
                counter.make(int(left).bit_length() * abs(int(right)))
            elif operator == "%" and isinstance(left, str):
                raise GGUFError("texts are not formatted with %")
            return counter.bounded(super().call_binop(context, operator, left, right))

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            if any(isinstance(obj, kind) and attr not in allowed for kind, allowed in _ALLOWED.items()):
                return False
            return bool(super().is_safe_attribute(obj, attr, value))

        def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
            counter.tick()
            owner = getattr(obj, "__self__", None)
            if isinstance(owner, str):
                counter.grown(owner, obj.__name__, args)
            return counter.bounded(super().call(context, obj, *args, **kwargs))

        def _parse(self, source: str, name: Any, filename: Any) -> Any:
            tree = Measured().visit(super()._parse(source, name, filename))
            tree.set_environment(self)
            return tree

    class Namespace(utils.Namespace):  # type: ignore[name-defined]
        """Names that a template writes to, none of which is Python's own."""

        def __setitem__(self, name: str, value: Any) -> None:
            if str(name).startswith("_"):
                raise GGUFError(f"the name {name!r} is not written to")
            super().__setitem__(name, value)

        def __repr__(self) -> str:
            return "<Namespace>"

    def at_run(function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that is not tried while the template is compiled."""
        return jinja2.pass_context(lambda context, *args: function(*args))

    def refuse(message: str) -> None:
        raise GGUFError(message)

    def tojson(
        x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        if indent is not None and not 0 <= int(indent) <= 16:
            raise GGUFError(f"an indentation of {indent}")
        text = json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        counter.make(len(text))
        return text

    def replace(text: Any, old: str, new: str, count: int | None = None) -> str:
        counter.grown(str(text), "replace", (old, new))
        return str(text).replace(old, new, -1 if count is None else count)

    def join(items: Any, d: str = "", attribute: Any = None) -> str:
        found = list(items) if attribute is None else [env.getitem(i, attribute) for i in items]
        return counter.joined([x for i in found for x in (d, i)][1:])

    def indent(text: Any, width: int = 4, first: bool = False, blank: bool = False) -> str:
        counter.make((str(text).count("\n") + 1) * abs(int(width)))
        written: str = plain["indent"](str(text), width, first, blank)
        return written

    env = Bounded(
        trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    plain, ranges = env.filters, env.globals["range"]
    env.filters = {name: plain[name] for name in _FILTERS.split() if name in plain}
    env.filters |= {"tojson": tojson, "replace": replace, "join": join, "indent": indent}
    measures = (counter.rounds, counter.tick, counter.shown, counter.joined, counter.bounded)
    env.filters |= {" " + function.__name__: at_run(function) for function in measures}
    env.globals = {
        "range": ranges,
        "namespace": Namespace,
        "dict": lambda *a, **k: dict(*a, **k),
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime.now().strftime(form[:100]),
    }
    return env.from_string(template), counter


# ---- families, for hosts without Jinja


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if part.get("type") == "text")
    if not isinstance(content, str):
        raise ValueError(f"a message must have a text as its content, and not {content!r}")
    return content


def _system(messages: Messages) -> tuple[str | None, Messages]:
    """What the first message says if it is the system's, and the others."""
    if messages and messages[0]["role"] == "system":
        return _content(messages[0]), messages[1:]
    return None, messages


def _in_turn(messages: Messages) -> None:
    for k, m in enumerate(messages):
        if m["role"] != ("user", "assistant")[k % 2]:
            raise ValueError("the roles of messages must be user, assistant, user, assistant, …")


def _chatml(messages: Messages, more: bool, names: dict[str, Any]) -> str:
    text = "".join(f"<|im_start|>{m['role']}\n{_content(m)}<|im_end|>\n" for m in messages)
    return text + ("<|im_start|>assistant\n" if more else "")


def _llama3(messages: Messages, more: bool, names: dict[str, Any]) -> str:
    head = "<|start_header_id|>{}<|end_header_id|>\n\n"
    text = "".join(head.format(m["role"]) + _content(m).strip() + "<|eot_id|>" for m in messages)
    return names["bos_token"] + text + (head.format("assistant") if more else "")


def _llama2(messages: Messages, more: bool, names: dict[str, Any]) -> str:
    system, rest = _system(messages)
    _in_turn(rest)
    text = ""
    for k, m in enumerate(rest):
        content = _content(m)
        if m["role"] == "user":
            if k == 0 and system is not None:
                content = f"<<SYS>>\n{system}\n<</SYS>>\n\n{content}"
            text += f"{names['bos_token']}[INST] {content.strip()} [/INST]"
        else:
            text += f" {content.strip()} {names['eos_token']}"
    return text


def _mistral(messages: Messages, more: bool, names: dict[str, Any]) -> str:
    _in_turn(messages)
    text = names["bos_token"]
    for m in messages:
        text += f"[INST] {_content(m)} [/INST]" if m["role"] == "user" else f" {_content(m)}{names['eos_token']}"
    return str(text)


def _gemma(messages: Messages, more: bool, names: dict[str, Any]) -> str:
    system, rest = _system(messages)
    _in_turn(rest)
    text = names["bos_token"]
    for k, m in enumerate(rest):
        before = f"{system}\n\n" if k == 0 and system is not None else ""
        role = "model" if m["role"] == "assistant" else m["role"]
        text += f"<start_of_turn>{role}\n{before}{_content(m).strip()}<end_of_turn>\n"
    return text + ("<start_of_turn>model\n" if more else "")


def _phi3(messages: Messages, more: bool, names: dict[str, Any]) -> str:
    text = "".join(f"<|{m['role']}|>\n{_content(m)}<|end|>\n" for m in messages)
    return text + ("<|assistant|>\n" if more else names["eos_token"])


def _zephyr(messages: Messages, more: bool, names: dict[str, Any]) -> str:
    text = "".join(f"<|{m['role']}|>\n{_content(m)}{names['eos_token']}\n" for m in messages)
    return text + ("<|assistant|>\n" if more else "")


#: what stands in the template of each family, the first of which fits is taken
_FAMILIES: list[tuple[tuple[str, ...], Callable[[Messages, bool, dict[str, Any]], str]]] = [
    (("<|im_start|>",), _chatml),
    (("<|start_header_id|>", "<|eot_id|>"), _llama3),
    (("<start_of_turn>",), _gemma),
    (("[INST]", "<<SYS>>"), _llama2),
    (("[INST]",), _mistral),
    (("<|end|>", "<|assistant|>"), _phi3),
    (("<|assistant|>", "eos_token"), _zephyr),
]


def _by_family(template: str, messages: Messages, more: bool, names: dict[str, Any]) -> str:
    for markers, written in _FAMILIES:
        if all(m in template for m in markers):
            return written(messages, more, names)
    raise ImportError("the file's chat template is of no family that is known: load the package jinja2, which runs it")
