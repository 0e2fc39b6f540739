"""Finding tokens by text: what hashes find is what a dictionary of all texts has."""

import numpy as np
from candle_convert.models.tokenizer.core.token_lookup import LOOKUPS_BEFORE_DICT, Finder, StringArray

ALIKE = ["<unused1>...........<unused>", "<unused1>,,,,,,,,,,,<unused>"]
"""Of one length, with the same first and last eight bytes."""
TEXTS = [
    *map(chr, range(97, 123)),
    *(f"token {number}" for number in range(40_000)),
    "\u6587" * 5,
    "a",
    *ALIKE,
    ALIKE[0],
    "\u00e9",
]


def held(texts):
    data = [text.encode() for text in texts]
    return StringArray(b"".join(data), np.cumsum(list(map(len, data))))


def test_hashes_find_what_a_dictionary_has():
    wanted = {text: token for token, text in enumerate(TEXTS)}
    finder = Finder(held(TEXTS))
    tried = [*TEXTS[:500], *TEXTS[-500:], "", "token", "token 40000", "b" * 30, "\ud800", ALIKE[0][:-1]]
    assert [finder.get(text) for text in tried] == [wanted.get(text) for text in tried]
    for texts in (["a", ALIKE[0], "none", "b"], ALIKE, []):
        every = [token for token, text in enumerate(TEXTS) if text in texts]
        assert finder.every(texts) == Finder(TEXTS).every(texts) == every
    assert "ids" not in vars(finder)
    assert all(finder.get("c") == 2 for _ in range(LOOKUPS_BEFORE_DICT))
    assert finder.ids == wanted == Finder(TEXTS).ids
    assert finder.getter()("token 7") == wanted["token 7"]
