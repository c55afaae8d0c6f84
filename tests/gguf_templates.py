"""Chat templates as models have them, by family, and such as mean harm."""

from __future__ import annotations

FAMILIES = {
    "chatml": (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    ),
    "llama3": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
        "message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
        "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
    ),
    "llama2": (
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
        "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
        "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
        "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + "
        "'\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
        "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    ),
    "mistral": (
        "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
        "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token}}"
        "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
    ),
    "gemma": (
        "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first = messages[0]['content'] + '\n\n' -%}"
        "{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set first = '' -%}{%- set loop_messages = messages -%}"
        "{%- endif -%}{%- for message in loop_messages -%}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}"
        "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif -%}"
        "{%- if (message['role'] == 'assistant') -%}{%- set role = 'model' -%}{%- else -%}{%- set role = message['role'] -%}"
        "{%- endif -%}{{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') }}{{ message['content'] | trim }}"
        "{{ '<end_of_turn>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{'<start_of_turn>model\n'}}{%- endif -%}"
    ),
    "phi3": (
        "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}"
        "{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}"
        "{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
    ),
    "zephyr": (
        "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
        "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
        "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
        "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
    ),
}

#: in the manner of Qwen 3 and Llama 3.1: namespaces, slices, macros, tools, JSON, methods, tests
LONG = """
{%- macro shown(tool, indent=2) -%}
{{ tool.name | upper ~ ": " ~ tool.get("about", "-") | replace("a", "A") }}
{%- endmacro -%}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
{{ "\\n" }}{{ tool | tojson }} {{ shown(tool) }}
    {%- endfor %}
    {{- "<|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "system" %}{% continue %}{% endif %}
    {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
    {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
        {%- set content = '<think>' + message.reasoning_content.strip('\\n') + '</think>' + content %}
    {%- endif %}
    {%- if message['content'].startswith('x') or not loop.last %}{{ loop.cycle('*', '+') }}{% endif %}
    {%- generation %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endgeneration %}
{%- endfor %}
{%- for k in range(3) %}{{ '%' }}{{ k * 2 - 1 }}{% endfor %}
{{- ["a", "b"] | join(", ") }}{{ {"k": [1, 2.5, none, true]} | tojson(indent=2) }}
{%- if enable_thinking is defined and enable_thinking is false %}<think>\\n\\n</think>{% endif %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""

#: what would take all of the memory, or all of the time, or what is Python's
HARMFUL = [
    "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
    "{% for a in range(1000) %}{{ 'x' * 100000 }}{% endfor %}",
    "{{ 'x' * 10**12 }}",
    "{{ [0] * 10**12 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ 2 ** (2 ** 40) }}",
    "{% set ns = namespace(s='xx') %}{% for a in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s='xx') %}{% for a in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s='xx') %}{% for a in range(60) %}{% set ns.s = ns.s|replace('x', 'xx') %}{% endfor %}",
    "{% set ns = namespace(s='xx') %}{% for a in range(60) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}",
    "{% set ns = namespace(s='xx') %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s]|join %}{% endfor %}",
    "{% set ns = namespace(s='xx') %}{% for a in range(60) %}{% set ns.s = ns.s.join([ns.s, ns.s, ns.s]) %}{% endfor %}",
    "{% set ns = namespace(s='xx') %}{% for a in range(60) %}{% set t %}{{ ns.s }}{{ ns.s }}{% endset %}"
    "{% set ns.s = t %}{% endfor %}",
    "{% set ns = namespace(s=[0]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s=[0]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson }}",
    "{% set ns = namespace(s=[0]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s ~ 'x' }}",
    "{% set ns = namespace(s=[0]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|length|string }}"
    "{{ ns.s|string|length }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro m(a) %}{{ a ~ a }}{% endmacro %}{% set ns = namespace(s='xx') %}{% for a in range(60) %}"
    "{% set ns.s = m(ns.s) %}{% endfor %}",
    "{% macro m() %}{% for a in range(90000) %}{{ 'x' * 900000 }}{% endfor %}{% endmacro %}{{ m() }}",
    "{% set t %}{% for a in range(90000) %}{{ 'x' * 900000 }}{% endfor %}{% endset %}",
    "{% set t %}{% for a in range(90000) %}{% for a in range(9) %}"
    + "x" * 100000
    + "{% endfor %}{% endfor %}{% endset %}",
    "{% set ns = namespace() %}{% for a in range(60) %}{% set ns = namespace(a=ns, b=ns) %}{{ ns }}{% endfor %}"
    "{{ raise_exception('') }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ 'x'.center(10**10) }}",
    "{{ 'x'.ljust(10**10) }}",
    "{{ 'x' | center(10**10) }}",
    "{{ 'a\\nb' | indent(10**10) }}",
    "{{ [[1]] | tojson(indent=10**10) }}",
    "{{ range(10**10) | list }}",
    "{{ range(99999) | map('string') | map('upper') | map('replace', 'x', 'y') | list | batch(1, 'x') | list | map('length') | sum }}"
    * 400,
    "{{ [1] | batch(10**10, 'x') | list }}",
    "{{ [1] | slice(10**10) | list }}",
    "{{ ''.__class__.__mro__ }}{{ 1 / 0 }}",
    "{{ messages.append(1) }}",
    "{{ messages.__class__ }}{{ raise_exception('no') }}",
    "{{ namespace.__init__.__globals__['json'] }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ strftime_now.__globals__ }}{{ raise_exception.__globals__['json'] }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{% include 'x' %}",
    "{% for a in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "{{ (0).to_bytes(10**10) }}",
    "{{ strftime_now('%Y' * 10000000) }}",
    "{{ lipsum(100000) }}",
    "{{ 'x' | wordwrap(1) }}",
    "{% filter indent(10**10) %}a\nb{% endfilter %}",
    "{{ dict(a=1).fromkeys(range(10**10)) }}",
    "{{ 'x' | attr('__class__') | attr('__mro__') | first }}{{ 1 / 0 }}",
    "{{ 9 | round(10**10, 'ceil') }}",
    "{{",
    "{{ nobody() }}",
    "{{ messages['x'].y.z }}",
]
