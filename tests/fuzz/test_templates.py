"""Chat templates drawn from a grammar of Jinja: each renders, is refused or exceeds a limit, and a scan says so without
being hurt."""

import json

from candle_convert.tests.fuzz.harness import Case, sweep

NAMES = (
    "messages",
    "tools",
    "x",
    "loop",
    "namespace",
    "range",
    "cycler",
    "joiner",
    "dict",
    "lipsum",
    "self",
    "caller",
    "bos_token",
    "strftime_now",
    "n",
)
ATTRIBUTES = (
    "role",
    "content",
    "index",
    "append",
    "items",
    "__class__",
    "format",
    "replace",
    "join",
    "_x",
    "next",
    "x",
    "encode",
    "split",
    "mro",
)
FILTERS = (
    "abs",
    "attr('x')",
    "batch(2)",
    "batch(999999999, 'x')",
    "capitalize",
    "center(99)",
    "center(10 ** 9)",
    "count",
    "default('x')",
    "dictsort",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format(1)",
    "groupby('role')",
    "indent(9999)",
    "int",
    "items",
    "join",
    "join('x' * 9999)",
    "last",
    "length",
    "list",
    "lower",
    "map('string')",
    "max",
    "min",
    "pprint",
    "random",
    "reject('none')",
    "replace('a', 'aa' * 999)",
    "reverse",
    "round(-999999)",
    "safe",
    "select",
    "slice(3)",
    "slice(10 ** 9)",
    "sort",
    "string",
    "striptags",
    "sum",
    "sum(start=[])",
    "title",
    "tojson",
    "tojson(indent=99999)",
    "trim",
    "truncate(5)",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap(1)",
    "xmlattr",
    "none_such",
)
OPERATORS = (
    " + ",
    " - ",
    " * ",
    " ** ",
    " / ",
    " // ",
    " % ",
    " ~ ",
    " == ",
    " < ",
    " in ",
    " and ",
    " or ",
    " is ",
    ", ",
)
ATOMS = (
    "1",
    "0",
    "-1",
    "3.5",
    "1e308",
    "99999",
    "10 ** 40",
    "'a'",
    "'%s'",
    "'%999999d'",
    "'{:>99999999}'",
    "'a' * 99999",
    "[1] * 99999",
    "[]",
    "{}",
    "{'a': 1}",
    "none",
    "true",
    "'\\ud800'",
    "'\\0'",
    "range(99999)",
    "'www.a.b ' * 999",
    "('<' * 9999)",
    "()",
    "''",
)


def expression(draw, depth=0):
    how = draw.randrange(10) if depth < 5 else 0
    if how < 3:
        return draw.choice(ATOMS) if draw.random() < 0.6 else draw.choice(NAMES)
    inner = expression(draw, depth + 1)
    if how < 5:
        return f"({inner}{draw.choice(OPERATORS)}{expression(draw, depth + 1)})"
    if how < 7:
        return f"({inner})|{draw.choice(FILTERS)}"
    if how == 7:
        return f"({inner}).{draw.choice(ATTRIBUTES)}"
    if how == 8:
        return f"({inner})({', '.join(expression(draw, depth + 1) for _ in range(draw.randint(0, 2)))})"
    return f"[{', '.join([inner] * draw.choice((1, 2, 9)))}]"


def statement(draw, depth=0):
    how = draw.randrange(9) if depth < 6 else 0
    if how < 2:
        return "{{ " + expression(draw) + " }}"
    body = "".join(statement(draw, depth + 1) for _ in range(draw.randint(0, 2)))
    if how == 2:
        return (
            "{% for x in "
            + expression(draw, 2)
            + " %}"
            + body
            + draw.choice(("", "{% break %}", "{% continue %}"))
            + "{% endfor %}"
        )
    if how == 3:
        return "{% if " + expression(draw, 2) + " %}" + body + "{% else %}" + "y" + "{% endif %}"
    if how == 4:
        return (
            "{% set n = namespace(x="
            + expression(draw, 3)
            + ") %}"
            + "{% for i in range(30) %}{% set n.x = [n.x, n.x] %}"
            + body
            + "{% endfor %}"
        )
    if how == 5:
        return "{% macro x(a) %}" + body + draw.choice(("", "{{ x(a) }}")) + "{% endmacro %}{{ x(1) }}"
    if how == 6:
        return (
            draw.choice(
                ("{% generation %}", "{% filter upper %}", "{% set y %}", "{% with %}", "{% raw %}", "{% call x() %}")
            )
            + body
        )
    if how == 7:
        times = draw.choice((1, 2, 25, 120, 3000))
        return "{% for x in [1, 2] %}" * times + body + "{% endfor %}" * times
    return draw.choice(
        (
            "{%",
            "{{",
            "{#",
            "}}",
            "\\",
            "{% include 'x' %}",
            "{% extends x %}",
            "{%- -%}",
            "text",
            "{{ '" + "\\" * 99,
            "(" * 5000,
        )
    )


MESSAGES = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "user", "content": [{"type": "text"}]},
]


def case(draw):
    template = "".join(statement(draw) for _ in range(draw.randint(1, 4)))
    files = {
        "chat_template.jinja": template.encode("utf-8", "replace"), "messages.json": json.dumps(MESSAGES).encode(),
        "m/tokenizer_config.json": json.dumps({"chat_template": [{"name": "default", "template": template}]}).encode(),
    }  # fmt: skip
    render = ("template", "render", "{dir}/chat_template.jinja")
    return Case(
        files, [(*render, "--user", "Hello"), (*render, "--messages", "{dir}/messages.json"), ("scan", "{dir}/m")]
    )


def test_templates(full):
    sweep(case, full, count=6, peak=200 << 20)
