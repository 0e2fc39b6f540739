"""Languages of translation models: the tokens that name them, and where a text or its translation has them.

- NLLB and M2M100 have the source's token before the text, the first mBART models behind it; the target's token is the
  first one that is generated. A model whose decoder starts from the token of a language starts from the target's.
- MADLAD-400 (``<2de>``) and models of several languages by Marian (``>>deu<<``) have the target's token before
  the text.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence

from ...runtime.base.errors import UsageError
from ..tokenizer import Tokenizer

FORMS = ("{}", "__{}__", "<2{}>", ">>{}<<")
"""How a language's code stands in its token."""
TOKEN = re.compile(
    r"__([a-z]{2,3})__|([a-z]{2,3}_[A-Z]{2})|([a-z]{3}_[A-Z][a-z]{3})|<2([a-zA-Z_]{2,12})>|>>([a-zA-Z_]{2,12})<<"
)
"""A token that names a language; its groups are the code."""
MAX_NEAR = 5


class Languages:
    """The languages that a tokenizer has tokens of."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @functools.cached_property
    def codes(self) -> dict[str, int]:
        """The token of each language, by its code."""
        found = {}
        for index, text in enumerate(self._tokenizer.vocabulary.texts):
            match = TOKEN.fullmatch(text)
            if match is not None:
                found[next(filter(None, match.groups()))] = index
        return found

    def token(self, code: str) -> int:
        """The token of a language, by its code or the token's text. UsageError for an unknown one."""
        known = self.codes
        for form in FORMS:
            index = self._tokenizer.id_of(form.format(code))
            if index is not None and index in known.values():
                return index
        if not known:
            raise UsageError("E-LANGUAGE", None, "the model has no tokens of languages", found=code)
        near = difflib.get_close_matches(code, known, MAX_NEAR, 0.3)
        shown = list(dict.fromkeys([*near, *known]))[:MAX_NEAR]
        rest = f" ... ({len(known):,})" if len(known) > MAX_NEAR else ""
        raise UsageError("E-LANGUAGE", None, f"the model has no language {code!r}", expected=", ".join(shown) + rest)

    def is_language(self, token: int) -> bool:
        """Whether a token names a language."""
        return token in self.codes.values()

    def opens_text(self, token: int) -> bool:
        """Whether a target's token stands before the text that is translated."""
        return self._tokenizer.vocabulary.texts[token][:2] in ("<2", ">>")

    def with_source(self, ids: Sequence[int], token: int) -> list[int]:
        """The ids of a text, with the token of its language in place of the one that the tokenizer added, or before
        them."""
        for place in (0, len(ids) - 1):
            if ids and self.is_language(ids[place]):
                return [*ids[:place], token, *ids[place + 1 :]]
        return [token, *ids]
