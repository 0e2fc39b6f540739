"""Differences of two tokenizers: ids of test strings and of text around added tokens, and decoded text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....runtime.base.units import counted
from ..core.tokenizer import Tokenizer
from ..core.vocabulary import CONTROL, USER_DEFINED
from .detect_pre_tokenizer import PROBES

MAX_ADDED = 512
"""Added tokens that are compared."""
SHOWN = 40
"""Characters of an example."""


def differences(before: Tokenizer, after: Tokenizer) -> list[str]:
    """Differences of `after` from `before`, for a message; empty if none."""
    return [
        text
        for text in (_of_ids(before, after), _of_added(before, after), _of_decoding(before, after))
        if text is not None
    ]


def differing(one: Tokenizer, other: Tokenizer) -> list[str]:
    """Strings that two tokenizers encode differently."""
    return [probe for probe in PROBES if _ids(one, probe) != _ids(other, probe)]


def _of_ids(before: Tokenizer, after: Tokenizer) -> str | None:
    texts = differing(before, after)
    return f"other ids for {_some(texts, len(PROBES), 'test string')}" if texts else None


def _of_added(before: Tokenizer, after: Tokenizer) -> str | None:
    """Added tokens may absorb white space around them (``lstrip``, ``rstrip``), or be found inside words only."""
    added = [before.vocabulary.texts[token] for token in before.vocabulary.of_kind(CONTROL, USER_DEFINED)[:MAX_ADDED]]
    contexts: tuple[Callable[[str], str], ...] = (lambda text: f"a {text} b", lambda text: f"x{text}y")
    changed = {
        text: context(text)
        for text in added
        for context in contexts
        if _ids(before, context(text)) != _ids(after, context(text))
    }
    if not changed:
        return None
    flags = sorted({flag for text in changed for flag in _strips(before, text) if flag not in _strips(after, text)})
    lost = f" ({', '.join(flags)} is lost)" if flags else ""
    return f"other ids around {_some(list(changed), len(added), 'added token')}{lost}"


def _strips(tokenizer: Tokenizer, added: str) -> list[str]:
    """The sides on which an added token absorbs white space."""
    near, left, right = (_ids(tokenizer, text) for text in (f"a{added}b", f"a {added}b", f"a{added} b"))
    return [flag for flag, ids in (("lstrip", left), ("rstrip", right)) if ids == near]


def _of_decoding(before: Tokenizer, after: Tokenizer) -> str | None:
    ids = [(probe, _ids(before, probe)) for probe in PROBES]
    count = len(after)
    texts = [
        probe
        for probe, tokens in ids
        if max(tokens, default=0) < count and before.decode(tokens) != after.decode(tokens)
    ]
    return f"other text from the ids of {_some(texts, len(PROBES), 'test string')}" if texts else None


def _some(found: Sequence[str], total: int, noun: str) -> str:
    """``2 of 13 test strings, such as 'x'``."""
    return f"{len(found):,} of {counted(total, noun)}, such as {found[0][:SHOWN]!r}"


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_bos=False, add_eos=False)
