"""Languages of translation models: which token says that a text is in a language, and where the token stands.

Source: transformers' tokenizers of mBART, mBART-50, M2M-100, NLLB, Marian and T5 (MADLAD-400).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from .vocabulary import Vocabulary

PREFIX, SUFFIX, TARGET = "prefix", "suffix", "target"
"""Before the source stands its language; after it and the end token; before it stands the target's language."""
FIRST, START = "first", "start"
"""The target's language is the first token that the decoder generates, or the one that it starts from."""
SHOWN = 5
"""Languages that a message lists, the nearest first."""
MAX_CODE = 40
"""Characters of a code that is compared with those that are known."""


@dataclass(frozen=True)
class Marking:
    """Language markers of models of one tokenizer class.

    Attributes:
        pattern: matches language tokens; its group is the code.
        source: `PREFIX`, `SUFFIX` or `TARGET`.
        target: `FIRST` or `START`; None if the source states the target.
        usual: code of the source if nobody says it; None if the source is not marked.
    """

    pattern: str
    source: str
    target: str | None = None
    usual: str | None = None


MARKINGS = {
    "MBartTokenizer": Marking(r"([a-z]{2,3}_[A-Z]{2})", SUFFIX, START, "en_XX"),
    "MBart50Tokenizer": Marking(r"([a-z]{2,3}_[A-Z]{2})", PREFIX, FIRST, "en_XX"),
    "M2M100Tokenizer": Marking(r"__([a-z]{2,4})__", PREFIX, FIRST, "en"),
    "NllbTokenizer": Marking(r"([a-z]{3}_[A-Z][a-z]{3})", PREFIX, FIRST, "eng_Latn"),
    "MarianTokenizer": Marking(r">>(.{1,40})<<", TARGET),
    "T5Tokenizer": Marking(r"<2([A-Za-z_]{1,40})>", TARGET),
}
"""`tokenizer_class` of tokenizer_config.json, without ``Fast`` -> its markers."""


class Languages:
    """Languages of a tokenizer.

    Args:
        ids: token ids by code.
        end: the token after every source text.
        source, target: codes of the languages if nobody says them.
    """

    def __init__(
        self, marking: Marking, ids: Mapping[str, int], end: int | None, source: str | None, target: str | None
    ) -> None:
        self.ids = dict(ids)
        self._marking, self._source, self._target = marking, source or marking.usual, target
        self._end = [] if end is None else [end]

    def marked(self, ids: Sequence[int], source: str | None, target: str | None) -> list[int]:
        """The ids of a source text as the model expects them.

        Args:
            ids: without special tokens.
            source, target: codes; None for those that the files state.

        UsageError for an unknown language, and for a source if texts are marked with the target only.
        """
        if self._marking.source == TARGET:
            if source is not None:
                why = "the model takes no source language"
                raise UsageError("E-LANGUAGE", None, why, found=source, hint="Pass the target language only")
            return [*([] if target is None else [self.id_of(target)]), *ids, *self._end]
        code = source or self._source
        assert code is not None
        language = self.id_of(code)
        return [language, *ids, *self._end] if self._marking.source == PREFIX else [*ids, *self._end, language]

    def target(self, target: str | None) -> int | None:
        """The id of the target's language among the decoder's first tokens, None if the decoder does not get it.

        UsageError for an unknown language.
        """
        code = target or self._target
        return None if self._marking.target is None or code is None else self.id_of(code)

    def starts(self, start: int) -> bool:
        """Whether the decoder starts from the target's token, instead of generating it first; `start`: the token that
        it starts from otherwise."""
        return self._marking.target == START or start in self.ids.values()

    def id_of(self, code: str) -> int:
        """The token of a language, by its code or the token's text. UsageError for an unknown language."""
        match = re.fullmatch(self._marking.pattern, code)
        found = self.ids.get(code, self.ids.get(match[1]) if match is not None else None)
        if found is not None:
            return found
        near = difflib.get_close_matches(code[:MAX_CODE], self.ids, SHOWN, 0.3)
        shown = list(dict.fromkeys([*near, *self.ids]))[:SHOWN]
        rest = f" ... ({len(self.ids):,})" if len(self.ids) > SHOWN else ""
        raise UsageError("E-LANGUAGE", None, f"the model has no language {code!r}", expected=", ".join(shown) + rest)


def languages_of(
    name: str, vocabulary: Vocabulary, legacy: bool, source: str | None, target: str | None
) -> Languages | None:
    """The languages of a tokenizer, None if it has no language tokens.

    Args:
        name: tokenizer class, one of `MARKINGS`.
        legacy: whether the source's language stands after the text (``legacy_behaviour``).
        source, target: codes of the languages if nobody says them.
    """
    marking = MARKINGS.get(name)
    if marking is None:
        return None
    if legacy:
        marking = replace(marking, source=SUFFIX)
    pattern = re.compile(marking.pattern)
    found = ((pattern.fullmatch(text), token) for token, text in enumerate(vocabulary.texts))
    ids = {match[1]: token for match, token in found if match is not None}
    return Languages(marking, ids, vocabulary.roles.get("eos"), source, target) if ids else None
