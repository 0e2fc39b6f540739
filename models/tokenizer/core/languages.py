"""Languages of translation models: which token says that a text is in a language, and where the token stands.

Source: transformers' tokenizers of mBART, mBART-50, M2M-100, NLLB, Marian and T5 (MADLAD-400).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ....runtime.base.nearest_name import did_you_mean
from .vocabulary import Vocabulary

PREFIX, SUFFIX, TARGET = "prefix", "suffix", "target"
"""Before the source stands its language; behind it and the end token; before it stands the target's language."""
FIRST, START = "first", "start"
"""The target's language is the first token that the decoder generates, or the one that it starts from."""
SHOWN = 8
"""Languages that a message lists."""


@dataclass(frozen=True)
class Marking:
    """How models of one tokenizer class mark languages.

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
"""By `tokenizer_class` of tokenizer_config.json, without ``Fast``."""


class Languages:
    """Languages of a tokenizer.

    Args:
        ids: token ids by code.
        source, target: codes of the languages if nobody says them.

    Attributes:
        starts: whether the decoder starts from the target's token, instead of generating it first.
    """

    def __init__(
        self, marking: Marking, ids: Mapping[str, int], end: int | None, source: str | None, target: str | None
    ) -> None:
        self.ids = dict(ids)
        self.starts = marking.target == START
        self._marking, self._end, self._source, self._target = marking, end, source or marking.usual, target

    def marked(self, ids: Sequence[int], source: str | None, target: str | None) -> list[int]:
        """The ids of a source text as the model expects them. UsageError for an unknown language."""
        end = [] if self._end is None else [self._end]
        kind, code = self._marking.source, source or self._source
        if kind == TARGET:
            if source is not None:
                raise UsageError(
                    "E-LANGUAGE",
                    None,
                    "the model does not take a source language",
                    found=source,
                    hint="Leave out --source-lang",
                )
            found = self.id_of(target) if target is not None else None
            return [*([] if found is None else [found]), *ids, *end]
        assert code is not None
        language = self.id_of(code)
        return [language, *ids, *end] if kind == PREFIX else [*ids, *end, language]

    def target(self, target: str | None) -> int | None:
        """The id of the target's language among the decoder's first tokens, None if the decoder is not told it.

        UsageError for an unknown language.
        """
        code = target or self._target
        return None if self._marking.target is None or code is None else self.id_of(code)

    def id_of(self, code: str) -> int:
        """The token of a language. UsageError for an unknown code."""
        if code in self.ids:
            return self.ids[code]
        known = sorted(self.ids)
        listed = ", ".join(known[:SHOWN]) + (f" ... ({len(known):,} in all)" if len(known) > SHOWN else "")
        hint = did_you_mean(code, known, f"Languages: {listed}")
        raise UsageError("E-LANGUAGE", None, f"the model does not know the language {code!r}", hint=hint)


def languages_of(
    name: str, vocabulary: Vocabulary, legacy: bool, source: str | None, target: str | None
) -> Languages | None:
    """The languages of a tokenizer, None if it has no language tokens.

    Args:
        name: `tokenizer_class` of tokenizer_config.json.
        legacy: whether the source's language stands behind the text (``legacy_behaviour``).
        source, target: codes of the languages if nobody says them.
    """
    marking = MARKINGS.get(name.removesuffix("Fast"))
    if marking is None:
        return None
    if legacy:
        marking = Marking(marking.pattern, SUFFIX, marking.target, marking.usual)
    pattern = re.compile(marking.pattern)
    found = ((pattern.fullmatch(text), token) for token, text in enumerate(vocabulary.texts))
    ids = {match[1]: token for match, token in found if match is not None}
    return Languages(marking, ids, vocabulary.roles.get("eos"), source, target) if ids else None
