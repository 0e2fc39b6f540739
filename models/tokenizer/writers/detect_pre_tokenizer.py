"""Pre-tokenizer detection: by the hash of the ids of a known text, or by how test strings are split."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from ....runtime.base.errors import UnsupportedError
from ..algorithm.pre_tokenizer import ROWS, Splitting
from .known_hashes import NAMES, TEXT

if TYPE_CHECKING:
    import tokenizers

PROBES = (
    TEXT,
    "Hello, WORLD's world'S it's IT'LL we'Ll x'm y'D don't \u00e9t\u00e9s caf\u00e9's",
    "CamelCaseWords XMLHttp \u0414\u043e\u043c \u01c5x",
    "a1b22c333d4444e55555 \u0663\u0664\u0665\u0666 \u00bd\u00b2 1234567.89 12,345",
    "x=1;y+=2 !!\n\n$%^&*()_+ <tag/>\r\n//c\n/\n.\n\n \n\n  end",
    "e\u0301a\u0308 \u0928\u092e\u0938\u094d\u0924\u0947 \u0e44\u0e17\u0e22",
    "\u4f60\u597d world \u3053\u3093\u306b\u3061\u306f \u30ab\u30ca \ud55c\uad6d\uc5b4 \u0645\u0631\u062d\u0628\u0627",
    "   three  two one\t\ttab\n newline \n\n  x\u00a0y\u3000z  ",
    "#define @user .dot -dash \u201cquoted\u201d \u2026 \u20ac5 \u00a9 \u2192 `code` ~x^2|",
    "(a)[b]{c} \"q\" 'w' a_b-c/d\\e <x>",
    "IMGIMGABZ <sentinel:12>    four",
    "a  3   33 'Tis o'tool x'sand",
    "word" * 30 + " " * 33 + "x",
)  # fmt: skip


def pre_tokenizer(engine: tokenizers.Tokenizer, whole_words: bool, path: str | None) -> str:
    """The name of a byte-level tokenizer's pre-tokenizer in GGUF files.

    Args:
        whole_words: whether words that are tokens stay whole whatever the merges say.

    Raises UnsupportedError where no known one makes the same words.
    """
    known = known_name(engine)
    if known is not None:
        return known
    ordered = sorted(ROWS, key=lambda row: row[1].whole_words != whole_words)
    for names, splitting in ordered:
        if splitting.byte_level and all(
            _words(engine, probe) == _expected(engine, splitting, probe) for probe in PROBES
        ):
            return names.split()[0]
    hint = "Omit the tokenizer with --no-tokenizer, or pass another model's with --tokenizer DIR"
    raise UnsupportedError(
        "E-TOKENIZER-PRE", path, "the tokenizer cuts words in a way that no pre-tokenizer of GGUF files does", hint=hint
    )


def known_name(engine: tokenizers.Tokenizer) -> str | None:
    """The name of a pre-tokenizer by the hash of its ids, or None."""
    return NAMES.get(sha256(str(engine.encode(TEXT).ids).encode()).hexdigest())


def _words(engine: tokenizers.Tokenizer, text: str) -> list[str]:
    """The words that the library makes."""
    text = _normalized(engine, text)
    if engine.pre_tokenizer is None:
        return [text]
    return [text[start:stop] for _, (start, stop) in engine.pre_tokenizer.pre_tokenize_str(text)]


def _expected(engine: tokenizers.Tokenizer, splitting: Splitting, text: str) -> list[str]:
    return splitting.words(_normalized(engine, text))


def _normalized(engine: tokenizers.Tokenizer, text: str) -> str:
    return engine.normalizer.normalize_str(text) if engine.normalizer is not None else text
