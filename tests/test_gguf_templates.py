"""Chat templates of GGUF files: what transformers writes, with Jinja and without, and nothing else of what a template asks for."""

from __future__ import annotations

import time
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

import gguf_templates
from tabtorch.gguf import templates

USER = {"role": "user", "content": " Hi, <you>! "}
HERE = {"role": "assistant", "content": "Hello\n"}
SYSTEM = {"role": "system", "content": "Be brief."}
TALKS = [[USER], [USER, HERE, USER], [SYSTEM, USER], [SYSTEM, USER, HERE, USER], [USER, HERE]]
NAMES = {"bos_token": "<s>", "eos_token": "</s>"}


def wanted(template: str, talk: Any, more: bool, **names: Any) -> str:
    names = {**NAMES, **names}
    return render_jinja_template([talk], chat_template=template, add_generation_prompt=more, **names)[0][0]


@pytest.mark.parametrize("jinja", [True, False])
@pytest.mark.parametrize("family", gguf_templates.FAMILIES)
def test_families_are_written_as_transformers_does(family: str, jinja: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    template = gguf_templates.FAMILIES[family]
    if not jinja:
        monkeypatch.setattr(templates.importlib, "import_module", no_jinja)
    for talk in TALKS:
        for more in (True, False):
            if family == "mistral" and talk[0] is SYSTEM:
                with pytest.raises(ValueError, match="must"):
                    templates.render(template, talk, more, NAMES)
                continue
            if family == "zephyr" and talk[-1] is HERE and more and not jinja:
                continue
            assert templates.render(template, talk, more, NAMES) == wanted(template, talk, more), (talk, more)


def no_jinja(name: str) -> Any:
    assert name == "jinja2"
    raise ImportError(name)


def test_a_long_template_is_transformers() -> None:
    talk = [
        SYSTEM,
        USER,
        {"role": "assistant", "content": "<think>h</think>\n\nx", "reasoning_content": "\nwell\n"},
        USER,
    ]
    tools = [{"name": "add", "about": "a sum", "of": {"x": [1, 2]}}, {"name": "no"}]
    for more in (True, False):
        for names in ({}, {"enable_thinking": False}, {"tools": tools}):
            got = templates.render(gguf_templates.LONG, talk, more, {**NAMES, **names})
            assert got == wanted(gguf_templates.LONG, talk, more, **names)


@pytest.mark.parametrize("number", range(len(gguf_templates.HARMFUL)))
def test_what_means_harm_is_refused(number: int) -> None:
    begin = time.process_time()
    try:
        text = templates.render(gguf_templates.HARMFUL[number], [USER], True, NAMES)
    except ValueError as e:
        assert "chat template" in str(e)
    else:
        raise AssertionError(text[:200])
    assert time.process_time() - begin < 5


def test_rounds_are_counted_for_each_text_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    monkeypatch.setattr(templates, "ROUNDS", 1000)
    for _ in range(3):
        assert templates.render(template, [USER] * 100, False, NAMES) == USER["content"] * 100
    with pytest.raises(ValueError, match="more than 1000 rounds"):
        templates.render(template, [USER] * 2000, False, NAMES)


def test_what_is_no_message_is_refused() -> None:
    for bad in ("Hi", {"content": "Hi"}, {"role": 1}):
        with pytest.raises(ValueError, match="a message is a dict"):
            templates.render(None, [bad], True, NAMES)  # type: ignore[list-item]


def test_without_jinja_an_unknown_family_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates.importlib, "import_module", no_jinja)
    with pytest.raises(ImportError, match="load the package jinja2"):
        templates.render("{{ messages }}", [USER], True, NAMES)


def test_without_a_template_a_talk_is_chatml() -> None:
    want = wanted(gguf_templates.FAMILIES["chatml"], [SYSTEM, USER], True)
    assert templates.render(None, [SYSTEM, USER], True, NAMES) == want
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert templates.render(None, parts, False, NAMES) == "<|im_start|>user\nab<|im_end|>\n"
