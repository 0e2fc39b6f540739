"""Differences of two tokenizers: ids of test strings and of text around added tokens, and decoded text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....runtime.base.units import counted
from ..core.tokenizer import Tokenizer
from ..core.vocabulary import CONTROL, USER_DEFINED
from .detect_pre_tokenizer import PROBES

MAX_ADDED = 512
"""Added tokens that are compared."""
SHOWN = 40
"""Characters of an example."""
AROUND = ("a {} b", "x{}y")
"""Text around added tokens and patterns of decoders."""


def differences(before: Tokenizer, after: Tokenizer, decoder: Any = None) -> list[str]:
    """Differences of `after` from `before`, for a message; empty if none.

    Args:
        decoder: that of the tokenizer.json of `before`, whose replacements `after` lacks unless it decodes the same.
    """
    found = (_of_ids(before, after), _of_added(before, after), _of_decoding(before, after, decoder))
    return [text for text in (*found, *_expressions(decoder)) if text is not None]


def differing(one: Tokenizer, other: Tokenizer) -> list[str]:
    """Strings that two tokenizers encode differently."""
    return [probe for probe in PROBES if _ids(one, probe) != _ids(other, probe)]


def _of_ids(before: Tokenizer, after: Tokenizer) -> str | None:
    texts = differing(before, after)
    return f"other ids for {_some(texts, len(PROBES), 'test string')}" if texts else None


def _of_added(before: Tokenizer, after: Tokenizer) -> str | None:
    """Added tokens may absorb white space around them (``lstrip``, ``rstrip``), or be found inside words only."""
    added = _added(before)
    changed = {
        text: context for text in added for context in _around(text) if _ids(before, context) != _ids(after, context)
    }
    if not changed:
        return None
    flags = sorted({flag for text in changed for flag in _strips(before, text) if flag not in _strips(after, text)})
    lost = f" ({', '.join(flags)} is lost)" if flags else ""
    return f"other ids around {_some(list(changed), len(added), 'added token')}{lost}"


def _added(tokenizer: Tokenizer) -> list[str]:
    vocabulary = tokenizer.vocabulary
    return [vocabulary.texts[token] for token in vocabulary.of_kind(CONTROL, USER_DEFINED)[:MAX_ADDED]]


def _around(text: str) -> list[str]:
    return [context.format(text) for context in AROUND]


def _strips(tokenizer: Tokenizer, added: str) -> list[str]:
    """The sides on which an added token absorbs white space."""
    near, left, right = (_ids(tokenizer, text) for text in (f"a{added}b", f"a {added}b", f"a{added} b"))
    return [flag for flag, ids in (("lstrip", left), ("rstrip", right)) if ids == near]


def _of_decoding(before: Tokenizer, after: Tokenizer, decoder: Any) -> str | None:
    added, replaced = _added(before), [text for kind, text in _patterns(decoder) if kind == "String"]
    strings = [*PROBES, *(context for text in (*added, *replaced) for context in _around(text))]
    ids = [(text, _ids(before, text)) for text in dict.fromkeys(strings)]
    count = len(after)
    texts = [
        text for text, tokens in ids if max(tokens, default=0) < count and before.decode(tokens) != after.decode(tokens)
    ]
    return f"other text from the ids of {_some(texts, len(ids), 'test string')}" if texts else None


def _expressions(decoder: Any) -> list[str]:
    """Replacements of regular expressions, for which no test string is made."""
    return [
        f"decoded text without the replacement of {text[:SHOWN]!r}"
        for kind, text in _patterns(decoder)
        if kind == "Regex"
    ]


def _patterns(decoder: Any) -> Iterator[tuple[str, str]]:
    """Kinds and texts of what the Replace steps of a decoder replace."""
    if not isinstance(decoder, Mapping):
        return
    steps = decoder.get("decoders")
    for step in steps if isinstance(steps, list) else []:
        yield from _patterns(step)
    pattern = decoder.get("pattern")
    if decoder.get("type") == "Replace" and isinstance(pattern, Mapping):
        yield from ((str(kind), str(text)) for kind, text in pattern.items())


def _some(found: Sequence[str], total: int, noun: str) -> str:
    """``2 of 13 test strings, such as 'x'``."""
    return f"{len(found):,} of {counted(total, noun)}, such as {found[0][:SHOWN]!r}"


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_bos=False, add_eos=False)
