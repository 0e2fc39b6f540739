"""Regular expressions of users and files: found as Python's `re` finds them, in time that no pattern can make long."""

import random
import re
import time

import pytest
from candle_convert.runtime.base.errors import Error, LimitError, UsageError
from candle_convert.runtime.base.untrusted.regex import compiled

NAMES = [
    *(f"model.layers.{layer}.self_attn.{part}_proj.weight" for layer in (0, 7, 13) for part in "qkvo"),
    *(f"blk.{layer}.ffn_{part}.weight" for layer in (0, 12) for part in ("gate", "up", "down")),
    "token_embd.weight", "lm_head.weight", "a b", "", "x" * 300,
]  # fmt: skip
ORDINARY = [
    r"^blk\.\d+\.",
    r"layers\.(\d|1[0-5])\.",
    r"(q|k|v)_proj",
    r"\.weight$",
    "[^.]+[.]weight",
    r"(?i)LM_HEAD",
    r"\bffn_up\b",
    "x{300}",
    "x{301}",
    r"blk\.(?:0|12)\.ffn_(?P<part>gate|up)",
    "",
    "a|b|",
    r"^$",
    r"\w+\s\w+",
    r".*\..*\..*",
    "[[:alpha:]]+"[1:-2],
    "(?!model)lm",
    r"(.)\1\1",
    "(?<=blk.)0",
    "(?>a+)b",
    "a++",
    "x{,2}y",
    r"\Ablk",
    r"weight\Z",
]
CATASTROPHIC = [
    r"(([a-z._0-9]+)+)+!",
    "(x+x+)+y",
    "(x|x)*y",
    "(x|xx)+y",
    "(.*)*y",
    "(x*)*y",
    r"(x*){1000}y",
    ".*.*.*.*.*.*.*.*y",
    "(x{1000}){1000}",
    "((((x?){30}){30}){30}){30}y",
    "(?:x?){900}x{900}",
    "(" * 3000 + "x" + ")*" * 3000 + "y",
    "|".join("x" * n + "y" for n in range(100)),
]
ENDLESS_IN_PYTHON = [r"(?!z)(x+x+)+y", r"(x+x+)+\1y", "(?=(x+)+y)x"]
WRONG = [
    "(",
    ")",
    "[",
    "*",
    "a**",
    r"\q",
    "a{3,2}",
    "(?<=a+)b",
    r"\1",
    "(?",
    "x" * 10_001,
    "(?!" * 3000 + "x" + ")" * 3000,
]


@pytest.mark.parametrize("pattern", ORDINARY)
def test_ordinary_patterns_are_pythons(pattern):
    expected = re.compile(pattern)
    assert [compiled(pattern).search(name) for name in NAMES] == [expected.search(name) is not None for name in NAMES]
    assert compiled(pattern).among(NAMES) == [expected.search(name) is not None for name in NAMES]


def test_drawn_patterns_are_pythons(seed):
    draw = random.Random(seed)
    pieces = [
        "a",
        "b",
        ".",
        "[ab]",
        "[^a]",
        "a*",
        "b+?",
        "(a|b)",
        "(?:ab)?",
        "a{2,3}",
        "^",
        "$",
        r"\b",
        "|",
        r"\d",
        "(a*)+",
        "(?:b|)",
    ]
    for _ in range(400):
        pattern = "".join(draw.choice(pieces) for _ in range(draw.randint(1, 6)))
        texts = ["".join(draw.choice("ab1 ") for _ in range(draw.randint(0, 9))) for _ in range(8)]
        assert compiled(pattern).among(texts) == [re.search(pattern, text) is not None for text in texts], pattern


@pytest.mark.parametrize("pattern", CATASTROPHIC, ids=lambda pattern: pattern[:20])
def test_catastrophic_patterns_end(pattern):
    began = time.process_time()
    try:
        assert compiled(pattern).among(["x" * 1500, "x" * 1499 + "y"])[0] in (True, False)
    except LimitError as error:
        assert error.exit_code == 6
    assert time.process_time() - began < 5


def test_nested_repetitions_are_decided():
    assert not compiled(r"(([a-z._0-9]+)+)+!").search("model.layers.0.self_attn.q_proj" * 100)
    assert compiled(r"(([a-z._0-9]+)+)+!").search("model.layers.0.self_attn.q_proj!")


@pytest.mark.parametrize("pattern", ENDLESS_IN_PYTHON)
def test_what_only_pythons_engine_has_ends_too(pattern):
    with pytest.raises(LimitError) as caught:
        compiled(pattern).search("x" * 60)
    assert (caught.value.code, caught.value.exit_code) == ("E-PATTERN-STEPS", 6)


@pytest.mark.parametrize("pattern", WRONG, ids=lambda pattern: pattern[:20])
def test_what_is_not_a_pattern(pattern):
    with pytest.raises(UsageError) as caught:
        compiled(pattern)
    assert caught.value.code == "E-PATTERN"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"layers\.(\d+)", r"blk.\1"),
        ("^", "m."),
        ("$", ".x"),
        ("x*", "-"),
        ("(?P<a>q|k)", r"\g<a>\g<0>"),
        ("e", "é"),
        ("weight", ""),
        ("(?<=l)a", "A"),
    ],
)
def test_replacements_are_pythons(pattern, replacement):
    assert compiled(pattern).replaced(replacement, NAMES) == [re.sub(pattern, replacement, name) for name in NAMES]


@pytest.mark.parametrize("replacement", [r"\9", r"\g<no>", "\\", r"\q"])
def test_replacements_that_are_none(replacement):
    with pytest.raises(UsageError):
        compiled("a(b)").replaced(replacement, ["ab"])
    assert compiled("a(b)").replaced(replacement, ["c"]) == ["c"]


def test_texts_of_any_characters():
    names = ["é\u0301x", "\U0001f600", "a\0b", "a\nb", "\ud800"]
    assert compiled(".").among(names) == [True] * 5
    assert compiled(r"\p{L}").among(names) == [True, False, True, True, False]
    with pytest.raises(Error):
        compiled("\ud800(")
