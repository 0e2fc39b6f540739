"""Text: regular expressions against Python's and onnxruntime's, hostile patterns, case without locale, n-grams against
onnxruntime."""

import itertools
import re

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
from candle_convert.ops.text.regex_compile import PatternError, compiled
from candle_convert.ops.text.regex_match import Matcher
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model, with_onnxruntime, with_reference

WORDS = [
    "",
    "a",
    "b",
    "ab",
    "ba",
    "aab",
    "abab",
    "a\nb",
    "A",
    "1",
    "a1_",
    " a ",
    "é",
    "K",
    "ſ",
    "a-b",
    "(a)",
    "\t",
    "aaa",
    "bbbb",
    "x.y@z",
    "β",
]
# Patterns that mean the same to Python, where \Z is what \z is to RE2, and classes and case are ASCII unless letters
# are beyond it.
SAME = [
    "a*",
    "a+b?",
    "(ab)*",
    "(a|b)*",
    "a|b|",
    "[ab]{2,3}",
    "a{2}",
    "a{2,}",
    "a{0,2}b{1}",
    "(?:a|ba)+",
    "[^a]",
    "[^a]+",
    ".",
    ".*",
    "(?s).*",
    r"\w+",
    r"\W",
    r"\d\w*",
    r"\s\w\s",
    r"\Aab",
    r"ab\Z",
    r"\ba\b-\bb\b",
    r"\Ba",
    r"a\B.*",
    "^a$",
    "(?m)^a$\n^b$",
    "(?m)a$.*",
    "(?i)a+b",
    "(?i)k",
    "[a-]+b",
    r"[\]a]",
    "[]a]",
    r"\(a\)",
    r"\x61",
    r"[\x61-\x62]+",
    "a??b",
    "(a*)*b",
    "(a*)+",
    "(?P<n>a)b",
    "a{,2}",
    "x.y@z",
    "((a|b)|(ab))+",
    "()*",
    "(|a)+",
    "[a-z&&[^b]]",
    "[é-ï]",
    "(?i:A)b",
    "a(?i)B",
]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("pattern", SAME)
def test_as_python(pattern):
    if pattern == "a(?i)B":
        theirs = re.compile("a(?i:B)", re.ASCII)
    elif pattern == "a{,2}":
        theirs = re.compile(r"a\{,2}")
    elif pattern == "(?i)k":
        theirs = re.compile("(?i)[k\u212a]")
    else:
        flags = re.ASCII if all(ord(letter) < 128 for letter in pattern) else 0
        theirs = re.compile(pattern, flags)
    ours = Matcher(compiled(pattern.replace(r"\Z", r"\z")))
    assert [ours.matches(word) for word in WORDS] == [theirs.fullmatch(word) is not None for word in WORDS]


def test_against_every_short_text():
    rng = np.random.default_rng(3)
    texts = ["".join(letters) for length in range(6) for letters in itertools.product("ab", repeat=length)]
    atoms = ["a", "b", "(a|b)", "(ab)", "(a*b)", "[ab]", "(|b)"]
    for _ in range(120):
        pattern = "".join(
            rng.choice(atoms) + rng.choice(["", "*", "+", "?", "{2}", "{1,2}", "*?"]) for _ in range(rng.integers(1, 5))
        )
        pattern += rng.choice(["", "|a", "|(ba)+"])
        matcher, theirs = Matcher(compiled(pattern)), re.compile(pattern)
        assert [matcher.matches(text) for text in texts] == [theirs.fullmatch(text) is not None for text in texts], (
            pattern
        )


ONLY_RE2 = [
    (r"\pL+", ["aé", "a1", "β"]),
    (r"\p{Lu}\P{Lu}", ["Aa", "aA", "É1"]),
    (r"[[:alpha:]]+", ["ab", "é", "a1"]),
    (r"[^[:^digit:]]", ["1", "a"]),
    (r"\Qa.b\E+", ["a.b", "axb", "a.bbb"]),
    (r"\x{3b2}", ["β", "b"]),
    ("(?i)ſ", ["s", "S", "ſ"]),
    (r"(?U)a+", ["aa"]),
    (r"\07|\101", ["\a", "A"]),
    ("(?i)[^k]", ["k", "K", "\u212a", "x"]),
    ("(?i)straße", ["STRAẞE", "strasse"]),
    (r"\v\a\f", ["\v\a\f"]),
    (r"[\d\-x]+", ["1-x", "y"]),
    ("a*?", ["aaa"]),
]


@pytest.mark.parametrize(("pattern", "texts"), ONLY_RE2, ids=[row[0] for row in ONLY_RE2])
def test_as_onnxruntime(pattern, texts):
    example = case(np.array(texts, object), pattern=pattern)
    expected = with_onnxruntime(operator("RegexFullMatch"), example)
    assert not isinstance(expected, str), expected
    assert operator("RegexFullMatch").compute(np.array(texts, object), pattern=pattern).tolist() == expected[0].tolist()


MALFORMED = [
    "(",
    ")",
    "a)",
    "(a",
    "[a",
    "[",
    "*",
    "a**",
    "a{2}{3}",
    "+a",
    "(?<=a)",
    "(?=a)",
    "(?P=n)",
    r"\1",
    r"\Z",
    "\\",
    "[b-a]",
    r"[a-\d]",
    "(?x)a",
    r"\p{Nonsense}",
    r"\p{Greek}",
    "a{1001}",
    "a{2,1}",
    r"\x{110000}",
    "(?",
    "|*",
    "[[:nope:]]",
    r"\C",
    "(((a{900}){900}){900})",
    "(" * 2000 + ")" * 2000,
    "(?i",
]


@pytest.mark.parametrize("pattern", MALFORMED, ids=[pattern[:20] for pattern in MALFORMED])
def test_malformed_patterns(pattern):
    with pytest.raises(PatternError):
        compiled(pattern)
    with pytest.raises(UsageError):
        operator("RegexFullMatch").compute(np.array(["a"], object), pattern=pattern)
    made, _ = model(operator("RegexFullMatch"), case(np.array(["a"], object), pattern=pattern))
    with pytest.raises(FormatError):
        infer(onnx_graph.graph_of(made))


HOSTILE = [
    "(a*)*b",
    "(a|a)*b",
    "(a+)+$b",
    "(a|aa)+b",
    "(.*)*x",
    "(a?){900}a{900}b",
    "((a{0,12}){0,12}){0,12}b",
    "(|a|b|ab)*c",
    "a*" * 500 + "b",
]


@pytest.mark.parametrize("pattern", HOSTILE, ids=[pattern[:20] for pattern in HOSTILE])
def test_no_pattern_takes_long(pattern):
    # Backtracking would not come to an end.
    assert not Matcher(compiled(pattern)).matches("a" * 3000)


def run(name, example):
    made, feeds = model(operator(name), example)
    return Session(onnx_graph.graph_of(made)).run(None, feeds)


def test_case_does_not_depend_on_the_locale():
    x = np.array(["Straße", "ÉCOLE", "istanbul", "ﬁn"], object)
    assert run("StringNormalizer", case(x, case_change_action="UPPER", locale="tr_TR"))[0].tolist() == [
        "STRAßE",
        "ÉCOLE",
        "ISTANBUL",
        "ﬁN",
    ]
    assert run("StringNormalizer", case(x, case_change_action="LOWER"))[0].tolist() == [
        "straße",
        "école",
        "istanbul",
        "ﬁn",
    ]


def test_stop_words_in_any_case():
    x = np.array(["Monday", "TUESDAY", "friday"], object)
    assert run("StringNormalizer", case(x, stopwords=["monday", "Tuesday"]))[0].tolist() == ["friday"]
    assert run("StringNormalizer", case(x, stopwords=["monday", "TUESDAY"], is_case_sensitive=1))[0].tolist() == [
        "Monday",
        "friday",
    ]
    assert run("StringNormalizer", case(x.reshape(1, 3), stopwords=["monday", "tuesday", "Friday"]))[0].tolist() == [
        [""]
    ]


@pytest.mark.parametrize("shape", [(2, 3), (0,), (0, 2)])
def test_inputs_that_are_not_one_row(shape):
    x = np.full(shape, "a", object)
    if shape == (0,):
        assert run("StringNormalizer", case(x))[0].tolist() == [""]
        return
    with pytest.raises((UsageError, FormatError)):
        run("StringNormalizer", case(x))


SPLITS = [
    case(np.array([" a  b ", "c", ""], object), outputs=2),
    case(np.array([",a,,b,"], object), delimiter=",", outputs=2),
    case(np.array(["a||b||c"], object), delimiter="||", maxsplit=1, outputs=2),
    case(np.array([["a b c"], ["d e"]], object), maxsplit=1, outputs=2),
    case(np.array(["a b"], object), delimiter="", maxsplit=0, outputs=2),
]


@pytest.mark.parametrize("example", SPLITS, ids=range(len(SPLITS)))
def test_splits(example):
    expected = with_reference(operator("StringSplit"), example)
    assert not isinstance(expected, str), expected
    got = run("StringSplit", example)
    assert [item.tolist() for item in got] == [np.asarray(item).tolist() for item in expected]


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("text", [False, True], ids=["numbers", "words"])
def test_n_grams_against_onnxruntime(mode, text):
    rng = np.random.default_rng(9)
    for _ in range(8):
        tokens = rng.integers(0, 5, (3, 12))
        grams = [np.unique(rng.integers(0, 5, (6, length)), axis=0) for length in (1, 2, 3)]
        pool = np.concatenate([item.reshape(-1) for item in grams])
        starts = np.cumsum([0, *(item.size for item in grams[:-1])])
        places = rng.permutation(sum(map(len, grams)))
        attributes = {"pool_strings": [f"w{item}" for item in pool]} if text else {"pool_int64s": pool.tolist()}
        if mode != "TF":
            attributes["weights"] = rng.uniform(0.5, 2, len(places)).astype(np.float32).tolist()
        low = int(rng.integers(1, 4))
        attributes |= {
            "mode": mode,
            "min_gram_length": low,
            "max_gram_length": int(rng.integers(low, 4)),
            "max_skip_count": int(rng.integers(0, 4)),
            "ngram_counts": starts.tolist(),
            "ngram_indexes": places.tolist(),
        }
        x = np.array([[f"w{item}" for item in row] for row in tokens], object) if text else tokens
        example = case(x, **attributes)
        expected = with_onnxruntime(operator("TfIdfVectorizer"), example)
        assert not isinstance(expected, str), expected
        got = run("TfIdfVectorizer", example)[0]
        np.testing.assert_allclose(got, expected[0], rtol=1e-6)


def test_texts_of_fixed_width_are_taken():
    made, _ = model(operator("StringConcat"), case(np.array(["b", "a"], object), np.array(["x"], object)))
    (got,) = Session(onnx_graph.graph_of(made)).run(None, {"x0": np.array(["b", "a"]), "x1": np.array(["x"])})
    assert got.dtype == object
    assert got.tolist() == ["bx", "ax"]
    (got,) = Session(onnx_graph.graph_of(model(operator("Unique"), case(np.array(["b"], object)))[0])).run(
        None, {"x0": np.array(["b"])}
    )
    assert got.dtype == object
