"""Counts with nouns and verbs: the number decides the form of both."""

import ast
import re

import pytest
from candle_convert.runtime.base.units import counted
from candle_convert.tests.builders.paths import REPOSITORY

FORMS = [
    ((1, "kernel"), {}, "1 kernel"),
    ((2, "kernel"), {}, "2 kernels"),
    ((0, "kernel"), {}, "0 kernels"),
    ((1200, "matrix", "matrices"), {}, "1,200 matrices"),
    ((1, "matrix", "matrices"), {}, "1 matrix"),
    ((1,), {"verb": "differs"}, "1 differs"),
    ((16,), {"verb": "differs"}, "16 differ"),
    ((1, "weight"), {"verb": "is missing"}, "1 weight is missing"),
    ((3, "weight"), {"verb": "is missing"}, "3 weights are missing"),
    ((1, "member"), {"verb": "has no checksum"}, "1 member has no checksum"),
    ((2, "member"), {"verb": "has no checksum"}, "2 members have no checksum"),
    ((2, "weight"), {"verb": "does not fit"}, "2 weights do not fit"),
    (("N", "row"), {}, "N rows"),
    (("N", "row"), {"verb": "is missing"}, "N rows are missing"),
]
PLURAL = re.compile(r"\{(len\([^{}]*\)|\w*count|total)(:,)?\} (nodes|kernels|weights|tensors|files|warnings|errors)\b")
"""A count in an f-string before a noun that is always plural."""
SHOWN = (
    "convert/commands", "convert/console", "convert/check", "convert/write", "convert/translate",
    "formats/containers/onnx/checker.py",
)  # fmt: skip
"""Where text of successful runs is made."""


@pytest.mark.parametrize(("arguments", "options", "text"), FORMS, ids=[text for *_, text in FORMS])
def test_forms(arguments, options, text):
    assert counted(*arguments, **options) == text


def test_messages_of_commands_count_with_one_function():
    """No f-string puts a number before a plural noun; lists of several, such as "2 of 13 tensors", excepted."""
    found = []
    for path in sorted(REPOSITORY.rglob("*.py")):
        inside = str(path.relative_to(REPOSITORY))
        if inside.startswith(SHOWN):
            text = path.read_text()
            joined = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.JoinedStr))
            sources = [ast.get_source_segment(text, node) or "" for node in joined]
            found += [f"{inside}: {source[:80]}" for source in sources if PLURAL.search(source)]
    assert not [each for each in found if " of " not in each], found
