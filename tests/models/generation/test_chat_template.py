"""Chat templates: rendered as transformers renders them, and stopped where they do not end, or reach out of their
sandbox."""

import resource
from datetime import datetime

import pytest
from candle_convert.models.generation.chat_template import prompt, rendered_with, writes_bos
from candle_convert.models.generation.template_sandbox import rendered
from candle_convert.runtime.base.errors import Error
from candle_convert.tests.builders.trained_tokenizers import bpe_metadata, byte_bpe, gguf_tokenizer

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [True, None]}}}
PARAMETERS = {"type": "object", "properties": {"a": {}}}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b> ü\n  there "},
    {"role": "assistant", "content": "Hello", "tool_calls": [CALL]},
    {"role": "user", "content": "2+2?"},
]
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "adds <x> & \u00fc", "parameters": PARAMETERS}}
]
TEMPLATES = {
    "chatml": """{% for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' -}}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "tools as JSON": "{% if tools %}{{ tools | tojson }}|{{ tools | tojson(indent=2) }}{% endif %}{{ bos_token ~ "
    "messages|length ~ eos_token }}",
    "namespaces and loops": """{% set ns = namespace(found=false, text='') %}
{% for message in messages[::-1] %}
    {% if message.role == 'assistant' %}{% continue %}{% endif %}
    {% if ns.found %}{% break %}{% endif %}
    {% set ns.text = ns.text + (message.content | trim) %}
    {% if loop.index > 1 %}{% set ns.found = true %}{% endif %}
{% endfor %}
{{ ns.text }}""",
    "training marks": """{% for m in messages %}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}[{{ m.content }}]{% endif %}
{% endfor %}""",
    "macros and dictionaries": """{%- macro call(c) -%}
{{ c.name }}({% for k, v in c.arguments.items() %}{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}\
{% endfor %})
{%- endmacro -%}
{% for m in messages %}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}\
{{ call(c.function) }}{% endfor %}{% endif %}{% endfor %}""",
    "methods of texts": """{{ messages[1].content.strip().split('\\n')[0].replace('Hi', 'Ho').upper() }}
{{ ' '.join(['a', 'b']) }} {{ '%s-%03d' % ('x', 7) }}""",
    "other values": "{{ enable_thinking | default('none') }}{{ documents is none }}{{ strange is defined }}",
}


@pytest.fixture(scope="module")
def tokenizer():
    found = gguf_tokenizer(bpe_metadata(byte_bpe(()), "gpt-2") | {"bos_token_id": 1, "eos_token_id": 2})
    found.templates.update(TEMPLATES)
    return found


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["alone", "tools"])
def test_texts_are_those_of_transformers(tokenizer, name, tools):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_bpe(()), bos_token="<s>", eos_token="</s>", chat_template=TEMPLATES[name]
    )
    for answer in (True, False):
        wanted = theirs.apply_chat_template(
            CHAT, tools=tools, tokenize=False, add_generation_prompt=answer, enable_thinking=False
        )
        assert prompt(tokenizer, CHAT, name=name, tools=tools, answer=answer, enable_thinking=False) == wanted


def test_which_template_is_taken(tokenizer):
    tokenizer.templates |= {"default": "plain", "tool_use": "{{ bos_token }}tools"}
    assert prompt(tokenizer, CHAT) == "plain"
    assert prompt(tokenizer, CHAT, tools=TOOLS) == "<s>tools"
    assert writes_bos(tokenizer, "<s>tools")
    assert not writes_bos(tokenizer, "plain")
    with pytest.raises(Error) as caught:
        prompt(tokenizer, CHAT, name="rag")
    assert caught.value.code == "E-TEMPLATE-NONE"


def test_the_present_can_be_given():
    assert rendered("{{ strftime_now('%d %b %Y') }}", {}, now=lambda: datetime(2024, 7, 26)) == "26 Jul 2024"


TEXTS = "{% set s = 'a' * 1000000 %}{% set l = [s] * 10000 %}"
LISTS = "{% set a0 = [1] * 10 %}" + "".join(f"{{% set a{level} = [a{level - 1}] * 10 %}}" for level in range(1, 13))
REFUSED = {
    "{% for i in range(10**9) %}{% endfor %}": ("E-TEMPLATE-SIZE", 6),
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": ("E-TEMPLATE-STEPS", 6),
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}": ("E-TEMPLATE-SIZE", 6),
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}": (
        "E-TEMPLATE-SIZE",
        6,
    ),
    "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}": (
        "E-TEMPLATE-SIZE",
        6,
    ),
    "{{ 'a' * 10**10 }}": ("E-TEMPLATE-SIZE", 6),
    "{{ 10 ** (10 ** 9) }}": ("E-TEMPLATE-STEPS", 6),
    "{{ '%999999999d' % 3 }}": ("E-TEMPLATE-SIZE", 6),
    "{{ '%*d' % (999999999, 3) }}": ("E-TEMPLATE-SIZE", 6),
    "{{ '{:>999999999}'.format(3) }}": ("E-TEMPLATE-SIZE", 6),
    "{{ 'a' | center(999999999) }}": ("E-TEMPLATE-SIZE", 6),
    "{{ 'a'.zfill(99999999) }}": ("E-TEMPLATE-SIZE", 6),
    "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}": ("E-TEMPLATE-SIZE", 6),
    "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}": ("E-TEMPLATE-SIZE", 6),
    "{{ ('b' * 1000000).join('a' * 1000000) }}": ("E-TEMPLATE-SIZE", 6),
    "{{ range(99999) | list | batch(999999999, 'x') | list }}": ("E-TEMPLATE-SIZE", 6),
    "{{ {'a': 1} | tojson(indent=99999999) }}": ("E-TEMPLATE-SIZE", 6),
    "{% for i in range(99999) %}{{ 'x' * 100000 }}{% endfor %}": ("E-TEMPLATE-SIZE", 6),
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": ("E-TEMPLATE-DEPTH", 6),
    "{% for i in [1] %}" * 100 + "{% endfor %}" * 100: ("E-TEMPLATE-SYNTAX", 3),
    "{% for i in [1] %}" * 30 + "{% endfor %}" * 30: ("E-TEMPLATE-SYNTAX", 3),
    "{% if 1 %}" * 10000 + "{% endif %}" * 10000: ("E-TEMPLATE-DEPTH", 6),
    "{{ a" + " + a" * 20000 + " }}": ("E-TEMPLATE-DEPTH", 6),
    "{{ '" + "\\" * 1000000 + "' }}": ("E-TEMPLATE-SIZE", 6),
    "x" * (2**20 + 1): ("E-TEMPLATE-SIZE", 6),
    "{{ '\\ud800' }}": ("E-TEMPLATE-VALUES", 2),
    "{{ cycler.__init__.__globals__.os.popen('id') }}": ("E-TEMPLATE-SANDBOX", 5),
    "{{ ''.__class__.__mro__[1].__subclasses__() }}": ("E-TEMPLATE-SANDBOX", 5),
    "{{ messages.append(1) }}": ("E-TEMPLATE-SANDBOX", 5),
    "{{ raise_exception('roles must alternate') }}": ("E-TEMPLATE-MESSAGES", 2),
    "{{ nothing.at.all }}": ("E-TEMPLATE-VALUES", 2),
    "{{ 1 / 0 }}": ("E-TEMPLATE-VALUES", 2),
    "{% include 'x' %}": ("E-TEMPLATE-VALUES", 2),
    "{% if %}": ("E-TEMPLATE-SYNTAX", 3),
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}": ("E-TEMPLATE-DEPTH", 6),
}


EXHAUSTING = [
    TEXTS + "{{ l }}",
    TEXTS + "{{ l | string }}",
    TEXTS + "{{ l | tojson }}",
    TEXTS + "{{ l | pprint }}",
    TEXTS + "{{ l | join }}",
    TEXTS + "{{ l ~ 1 }}",
    TEXTS + "{{ '%s' % (l,) }}",
    TEXTS + "{{ '{}'.format(l) }}",
    LISTS + "{{ a12 }}",
    LISTS + "{{ a12 | tojson(indent=10000) }}",
    LISTS + "{{ a12 | pprint }}",
    "{{ ([[1] * 100000] * 100000) | sum(start=[]) }}",
    "{{ ('a-' * 5000000) | title }}",
    "{{ ('www.a.b ' * 500000) | urlize }}",
    "{{ [1] | batch(10 ** 9, 'x') | list }}",
    "{{ range(9) | list | slice(10 ** 8) | list }}",
    "{{ 10 | round(-999999999) }}",
    "{{ ('1' * 3000000) | int }}",
    "{{ strftime_now('%Y' * 10000000) }}",
    "{{ lipsum(n=10 ** 9) }}",
    "{% set ns = namespace(x=2) %}{% for i in range(90) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "{{ " + "1" * 1000000 + " }}",
]
"""Templates that use up memory, time or depth, whichever the machine has least of."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("template", EXHAUSTING, ids=lambda template: template[-50:])
def test_templates_that_exhaust_a_machine(template):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    with pytest.raises(Error) as caught:
        rendered_with(template, None, CHAT)
    assert caught.value.code in ("E-TEMPLATE-SIZE", "E-TEMPLATE-STEPS", "E-TEMPLATE-DEPTH")
    assert caught.value.exit_code == 6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 1
    assert rendered_with("{{ messages | length }}", None, CHAT) == "4"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("template", REFUSED, ids=lambda template: template[:50])
def test_templates_that_do_other_things_than_render(template):
    code, status = REFUSED[template]
    with pytest.raises(Error) as caught:
        rendered_with(template, None, CHAT)
    assert (caught.value.code, caught.value.exit_code) == (code, status)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
    assert ".." not in str(caught.value)


def test_messages_are_objects_with_roles():
    for messages in ([{"content": "x"}], ["x"], [{"role": 1}]):
        with pytest.raises(Error) as caught:
            rendered_with("x", None, messages)
        assert caught.value.code == "E-TEMPLATE-MESSAGES"
