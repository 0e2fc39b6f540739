"""Grammars that generated text follows: JSON schemas, regular expressions, and context-free grammars in Lark's or
llama.cpp's notation, by llguidance (https://github.com/guidance-ai/llguidance)."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.base.errors import UnsupportedError, UsageError
from ....runtime.plugin.optional_package import optional_package
from ...tokenizer import Tokenizer

USE = "text by a grammar"
COMPACT = {"whitespace_flexible": False}
"""Options of JSON schemas: no space that a model might write without end."""
ANCHOR = "a"
"""Text before a token, so that a decoder does not drop the token's leading space."""


class Grammar:
    """A compiled grammar; `constraint` makes the state of one request."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        self._tokenizer, self._text = tokenizer, text

    def constraint(self) -> GrammarConstraint:
        """The constraint of a request."""
        return GrammarConstraint(optional_package("llguidance", USE).LLMatcher(self._tokenizer, self._text))


class GrammarConstraint:
    """Tokens that continue a text of a grammar; when the text is complete, an end token may come, and at last must.

    Args:
        matcher: llguidance's state.
    """

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def apply(self, logits: np.ndarray) -> None:
        """As of `Constraint`."""
        bits = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")
        self._check()
        logits[bits[: len(logits)] == 0] = -np.inf

    def accept(self, token: int) -> None:
        """As of `Constraint`."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise _error(self._matcher.get_error())


class GrammarCompiler:
    """Compiles grammars for the tokens of a model.

    UnsupportedError without llguidance, and for a tokenizer without an end token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._package = optional_package("llguidance", USE)
        self._known = tokenizer
        if not tokenizer.ends:
            why = "the tokenizer has no token that ends a text"
            raise UnsupportedError("E-GRAMMAR-END", None, why)

    def json_schema(self, text: str) -> Grammar:
        """JSON of a schema, which is JSON itself. UsageError for a schema that is invalid or not supported."""
        return self._compiled(self._package.LLMatcher.grammar_from_json_schema, text, COMPACT)

    def regex(self, text: str) -> Grammar:
        """Text that a regular expression matches from beginning to end. UsageError for an invalid one."""
        return self._compiled(self._package.grammar_from, "regex", text)

    def grammar(self, text: str) -> Grammar:
        """Text of a grammar in the notation of Lark or of llama.cpp (GBNF). UsageError for an invalid one."""
        return self._compiled(self._package.grammar_from, "grammar", text)

    def marker(self, text: str) -> str:
        """A text as an element of a grammar in Lark's notation: the special token of that name if there is one."""
        token = self._known.id_of(text)
        special = token is not None and self._known.vocabulary.is_special(token)
        return f"<[{token}]>" if special else json.dumps(text)

    def _compiled(self, make: Callable[..., str], *arguments: Any) -> Grammar:
        try:
            made = make(*arguments)
        except ValueError as error:
            raise _error(str(error)) from error
        if why := self._package.LLMatcher.validate_grammar(made, self._tokenizer):
            raise _error(why)
        return Grammar(self._tokenizer, made)

    @functools.cached_property
    def _tokenizer(self) -> Any:
        known = self._known
        ends = sorted(known.ends)
        described = _Described(known, token_bytes(known))
        return self._package.LLTokenizer(self._package.TokenizerWrapper(described), eos_token=ends)


class _Described:
    """A tokenizer in llguidance's terms."""

    def __init__(self, known: Tokenizer, tokens: list[bytes]) -> None:
        self.eos_token_id = min(known.ends)
        self.bos_token_id = known.bos
        self.tokens = tokens
        self.special_token_ids = [token for token in range(len(known)) if known.vocabulary.is_special(token)]
        self._known = known

    def __call__(self, text: str) -> list[int]:
        return self._known.encode(text, special=False, add_bos=False, add_eos=False)


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of each token; those of special tokens are their names."""
    names = tokenizer.vocabulary.texts
    find: Callable[[int, bool], bytes] | None = getattr(tokenizer.engine, "bytes_of", None)
    if find is not None:
        plain = [find(token, False) for token in range(len(tokenizer))]
    else:
        before = tokenizer.encode(ANCHOR, add_bos=False, add_eos=False)
        start = len(tokenizer.decode(before))
        plain = [tokenizer.decode([*before, token])[start:].encode() for token in range(len(tokenizer))]
    return [
        names[token].encode() if tokenizer.vocabulary.is_special(token) else text for token, text in enumerate(plain)
    ]


def _error(why: str) -> UsageError:
    said = " ".join(why.split())[:300].rstrip(".")
    return UsageError("E-GRAMMAR", None, f"the grammar cannot be used: {said}", hint="Check the schema or grammar")
