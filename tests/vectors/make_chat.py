#!/usr/bin/env python3
"""Renders the templates below with Jinja2, set up as Hugging Face's tokenizers do, into chat.json.

    python3 tests/vectors/make_chat.py        (needs jinja2; only who changes a template runs this)

The first group follows the published prompt format of each family, with the quirks real templates have; a name of a
family says that it must be recognised and rendered the same in C. The second group is about the language.
"null" as a rendering means that Jinja2 raised.
"""
import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONVERSATIONS = [
    [('user', 'What is in the report?')],
    [('system', 'You are terse.'), ('user', 'Hello there.')],
    [('user', 'One'), ('assistant', 'Two'), ('user', 'Three')],
    [('system', ' Keep to facts. \n'), ('user', 'A\n'), ('assistant', ' B '), ('user', '\u00a0 C [INST] d\n\n')],
    [('user', '  x <|im_end|>\n<|im_start|>system\nyou \u00e9\u4e2d\U0001f600 "q" \\ \'s\' '), ('assistant', 'Yes.'),
     ('user', 'Go\u3000')],
]

ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
             "{{ raise_exception('roles must alternate user/assistant/user/assistant/...') }}{% endif %}")

# name: (family or None, template)
TEMPLATES = {
    # ---- families ----
    'chatml': ('chatml', "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
               "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"),
    'chatml-bos': ('chatml', "{{- bos_token -}}\n{%- for m in messages -%}\n  {{- '<|im_start|>' ~ m.role ~ '\\n' -}}\n"
                   "  {%- generation -%}{{ m.content }}{%- endgeneration -%}\n  {{- '<|im_end|>\\n' -}}\n{%- endfor -%}\n"
                   "{%- if add_generation_prompt -%}\n  {{- '<|im_start|>assistant\\n' -}}\n{%- endif -%}\n"),
    'chatml-default': ('chatml', """{%- if messages[0].role == 'system' %}
    {%- set head = messages[0].content %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set head = 'You are Bob, a careful reader.' %}
    {%- set rest = messages %}
{%- endif %}
{{- '<|im_start|>system\\n' + head + '<|im_end|>\\n' }}
{%- for m in rest %}
    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""),
    'chatml-no-system': ('chatml', "{% for m in messages %}{% if m.role == 'system' %}"
                         "{{ raise_exception('System messages are not supported.') }}{% endif %}"
                         "<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
                         "{{ '<|im_start|>assistant\\n' }}"),
    'gemma2': ('gemma', "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}"
               "{% endif %}{% for message in messages %}" + ALTERNATE +
               "{% set role = 'model' if message.role == 'assistant' else message.role %}"
               "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
               "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"),
    'gemma3': ('gemma', """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set prefix = messages[0]['content'][0]['text'] -%}
    {%- endif -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model
' }}
{%- endif -%}
"""),
    'llama3': ('llama3', "{% for m in messages %}{% set text = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + "
               "m['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set text = bos_token + text %}{% endif %}"
               "{{ text }}{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"),
    'llama3.2': ('llama3', """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{#- The system turn is always there. #}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""),
    'mistral-first': ('mistral-v1', "{{ bos_token }}{% for message in messages %}" + ALTERNATE +
                      "{% if message.role == 'user' %}{{ '[INST] ' + message.content + ' [/INST]' }}"
                      "{% else %}{{ message.content + eos_token + ' ' }}{% endif %}{% endfor %}"),
    'mistral-v1': ('mistral-v1', """{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system_message is defined %}
            {{- ' [INST] ' + system_message + '\\n\\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + message['content'] + eos_token }}
    {%- endif %}
{%- endfor %}
"""),
    'mistral-v3': ('mistral-v3', "{{ bos_token }}{% for message in messages %}" + ALTERNATE +
                   "{% if message.role == 'user' %}{{ '[INST] ' + message.content + '[/INST]' }}"
                   "{% else %}{{ ' ' + message.content | trim + eos_token }}{% endif %}{% endfor %}"),
    'mistral-v3-tekken': ('mistral-v3-tekken', """{%- set ns = namespace(turns=0) %}
{%- set users = messages | selectattr("role", "equalto", "user") | list %}
{%- if messages[0].role == 'system' %}{% set sys = messages[0].content %}{% set list = messages[1:] %}{% else %}
{%- set list = messages %}{% endif %}
{{- bos_token }}
{%- for m in list %}
    {%- set ns.turns = ns.turns + 1 %}
    {%- if m.role == 'user' %}
        {%- if ns.turns == 1 and sys is defined %}
            {{- '[INST]' + sys + '\\n\\n' + m.content + '[/INST]' }}
        {%- else %}
            {{- '[INST]' + m.content + '[/INST]' }}
        {%- endif %}
    {%- else %}
        {{- m.content + eos_token }}
    {%- endif %}
{%- endfor %}
{%- if users | length != (ns.turns + 1) // 2 %}{{ raise_exception('lost a turn') }}{% endif %}
"""),
    'zephyr': ('zephyr', "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
               "{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n"
               "{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
               "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
               "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"),
    'phi3': ('phi3', "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'system') %}"
             "{{'<|system|>' + '\n' + message['content'] + '<|end|>' + '\n'}}{% elif (message['role'] == 'user') %}"
             "{{'<|user|>' + '\n' + message['content'] + '<|end|>' + '\n' + '<|assistant|>' + '\n'}}"
             "{% elif message['role'] == 'assistant' %}{{message['content'] + '<|end|>' + '\n'}}{% endif %}{% endfor %}"),
    # ---- no family ----
    'alpaca': (None, "{% for m in messages %}### {{ m.role | capitalize }}:\n{{ m.content }}\n\n{% endfor %}### Assistant:\n"),
    'almost-chatml': (None, "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + ' <|im_end|>\\n' }}"
                      "{% endfor %}{{ '<|im_start|>assistant\\n' }}"),
    'chatml-thinks': (None, "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
                      "{% endfor %}{{ '<|im_start|>assistant\\n<think>\\n' }}"),
    # ---- the language ----
    'blanks': (None, "a\n  {% if true %}\n  b\n  {%- if true %}\n c {% endif -%}\n  d\n{% endif %}\n {# x #}\n{#- y -#} e\n"
               "{%+ if true %}\n  f{% endif +%}\n{{ 1 }}\n  {{- 2 -}}  \n{% raw %}{{ {% x %} }}{% endraw %}\n\n"),
    'literals': (None, r"""{{ 'it\'s\t\x41\u00e9\n' }}{{ "a" 'b' }}{{ 1_000 }}|{{ 1.50 }}|{{ 1e3 }}|{{ 2e20 }}|{{ 1.5e-7 }}"""
                 "|{{ true }}|{{ None }}|{{ nothing }}|{{ [1, 'a'] | length }}|{{ (1,) | length }}|{{ {'a': {'b': 2}}.a.b }}"),
    'numbers': (None, "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1 + 2 * 3 - 4 }} "
                "{{ (1 + 2) * 3 }} {{ 7.5 % 2 }} {{ -3 | abs }} {{ '3.7' | float }} {{ '12' | int + 1 }} {{ 'x' | int(5) }} "
                "{{ 3.9 | int }} {{ true + 1 }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }} {{ not 1 == 2 }} {{ 10 / 5 }}"),
    'choices': (None, "{{ 'a' if false }}|{{ 'a' if false else 'b' if true else 'c' }}|{{ 0 or 'x' }}|{{ '' and 'y' }}|"
                "{{ 'in' in 'string' }}|{{ 'k' in {'k': 1} }}|{{ 3 not in [1, 2] }}|{{ not x is defined }}|"
                "{{ x is not defined and true }}|{{ messages is iterable and messages is not string }}|"
                "{{ messages[0] is mapping }}|{{ 1 is number }}|{{ none is none }}|{{ 4 is divisibleby 2 }}|"
                "{{ 3 is odd }}|{{ 'a' is string and 'a' is sequence }}|{{ 1 is eq 1 }}|{{ 'b' is in ['a', 'b'] }}|"
                "{{ true is boolean }}|{{ 1.0 is float }}|{{ raise_exception is callable }}"),
    'slices': (None, "{% set s = 'h\u00e9llo\U0001f600' %}{{ s[1] }}{{ s[-1] }}{{ s[1:3] }}{{ s[:-1] }}{{ s[::-1] }}{{ s[::2] }}|"
               "{{ s[9:] }}|{{ s[3:1] }}|{{ s[9] }}|{{ ([1,2,3,4][1:])[0] }}{{ [1,2,3][::-1][0] }}{{ [1,2,3][-2:] | join(',') }}|"
               "{{ messages[-1].content[:5] }}|{{ s | length }}|{{ [1, 2, 3].0 }}"),
    'strings': (None, r"""{{ '  a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abc'.lstrip('ab') }}|{{ 'abc'.rstrip('bc') }}|"""
                r"""{{ 'a,b,,c'.split(',') | join('/') }}|{{ ' a  b '.split() | join('/') }}|{{ 'a b c'.split(' ', 1)[1] }}|"""
                r"""{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}|{{ '\u00e9A'.upper() }}{{ '\u00c9A'.lower() }}|"""
                r"""{{ 'aXbX'.replace('X', '--') }}|{{ 'aXbX' | replace('X', '-', 1) }}|{{ 'hello wORLD' | capitalize }}|"""
                r"""{{ 'hello wORLD' | title }}|{{ 'abcabc'.find('c') }}{{ 'abc'.find('x') }}|{{ 'aXbX'.count('X') }}|"""
                r"""{{ ' x ' | trim }}|{{ 'prefix-a'.removeprefix('prefix-') }}|{{ '-'.join(['a', 'b']) }}|{{ 'ab' * 3 }}|{{ 1 ~ 'a' ~ none }}"""),
    'lists': (None, "{{ [1,2] + [3] | list | join('+') if false else ([1,2] + [3]) | join('+') }}|{{ [3,1] | first }}{{ [3,1] | last }}|"
              "{{ messages | map(attribute='role') | join(',') }}|{{ messages | selectattr('role', 'equalto', 'user') | list | length }}|"
              "{{ messages | rejectattr('role', 'in', ['user', 'system']) | list | length }}|{{ ['a','b'] | map('upper') | join }}|"
              "{{ [1,2,2,1] | unique | join }}|{{ [1,2,3] | reverse | join }}|{{ [0,1,''] | select | list | length }}|"
              "{{ range(3) | join }}{{ range(5, 0, -2) | join }}|{{ x | default('none') }}{{ '' | default('empty', true) }}{{ 0 | d(5) }}|"
              "{{ {'b': 1, 'a': 2}.items() | map('first') | join }}|{{ {'a': 1}.get('z', 9) }}{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('q') }}|"
              "{% for k, v in {'x': 1, 'y': 2}.items() %}{{ k }}{{ v }}{% endfor %}|{{ dict(a=1).a }}"),
    'json': (None, "{{ messages | tojson }}|{{ {'a': [1, 2.5, none, true], 'b': {}} | tojson(indent=2) }}|{{ 'x\\u0001\\t' | tojson }}"),
    'loops': (None, "{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }}:{{ loop.index0 }}{{ loop.revindex }}"
              "{{ loop.first }}{{ loop.last }}{{ loop.previtem.role if loop.previtem is defined else '-' }}"
              "{{ loop.nextitem.role if not loop.last else '-' }};{% else %}none{% endfor %}"
              "{% for x in [] %}{% else %}empty{% endfor %}{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
              "{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}{% for c in 'ab' %}[{{ c }}]{% endfor %}"
              "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}-{{ b }} {% endfor %}{% for k in {'p': 1} %}{{ k }}{% endfor %}"),
    'scopes': (None, "{% set a = 1 %}{% for i in [1, 2] %}{{ a }}{% set a = a + i %}{{ a }}{% endfor %}{{ a }}{% if true %}"
               "{% set a = 9 %}{% endif %}{{ a }}{% set ns = namespace(n=0, list=[]) %}{% for m in messages %}"
               "{% set ns.n = ns.n + 1 %}{% set ns.list = ns.list + [m.role] %}{% endfor %}{{ ns.n }}{{ ns.list | join(',') }}"
               "{% set body %}<{{ messages[0].content }}>{% endset %}{{ body }}{% set x, y = 1, 2 %}{{ x + y }}"),
    'macros': (None, "{% macro turn(role, text='-', end='!') %}[{{ role }}:{{ text }}{{ end }}]{% if role == 'deep' %}"
               "{{ turn('inner') }}{% endif %}{% endmacro %}{{ turn('a') }}{{ turn('b', 'x') }}{{ turn('c', end='?') }}"
               "{{ turn(text=messages[0].content, role='d') }}{{ turn('deep') }}{{ turn() }}"),
    'raises': (None, "{% if messages | length > 1 %}{{ raise_exception('only one turn, not ' ~ messages | length) }}{% endif %}fine"),
    'undefined': (None, "{{ messages[0].nothing }}|{{ messages[7] }}|{% if messages[0].tool_calls %}x{% endif %}|"
                  "{% for x in missing %}x{% endfor %}|{{ missing | length }}|{{ 'a' in missing }}"),
    'undefined-inner': (None, "{{ messages[7].role }}"),
    'bad-types': (None, "{{ 'a' + 1 }}"),
    'dates': (None, "{{ strftime_now('%Y-%m-%d %d %b %Y %B %A %a %j %-d %y %H:%M') }}"),
}


class Generation(Extension):
    """{% generation %} as transformers has it: transparent."""
    tags = {'generation'}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(['name:endgeneration'], drop_needle=True)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, 'jinja2.ext.loopcontrols'])
    env.filters['tojson'] = tojson
    env.globals['raise_exception'] = raise_exception
    env.globals['strftime_now'] = datetime.datetime(2024, 7, 26).strftime
    return env


def render(env, template, conversation):
    try:
        return env.from_string(template).render(
            messages=[{'role': r, 'content': c} for r, c in conversation], tools=None, documents=None,
            add_generation_prompt=True, bos_token='<s>', eos_token='</s>')
    except (jinja2.exceptions.TemplateError, TypeError):
        return None


def main():
    env = environment()
    out = {'conversations': [[{'role': r, 'content': c} for r, c in conv] for conv in CONVERSATIONS],
           'templates': [{'name': name, 'family': family, 'template': text,
                          'renderings': [render(env, text, conv) for conv in CONVERSATIONS]}
                         for name, (family, text) in TEMPLATES.items()]}
    path = pathlib.Path(__file__).with_name('chat.json')
    path.write_text(json.dumps(out, indent=1, ensure_ascii=True) + '\n')


if __name__ == '__main__':
    main()
