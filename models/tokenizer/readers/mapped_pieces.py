"""SentencePiece models whose pieces have their ids in vocab.json: Marian (source.spm) and M2M-100
(sentencepiece.bpe.model).

Source: transformers' MarianTokenizer and M2M100Tokenizer. A piece that vocab.json lacks is the unknown token.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....runtime.base.errors import FormatError
from ..core.language_codes import M2M100, WMT21
from ..core.special_roles import end_tokens
from ..core.special_split import Leftmost
from ..core.tokenizer import ByteEngine, TextEncoder, Tokenizer
from ..core.vocabulary import CONTROL, NORMAL, UNKNOWN, UNUSED, Vocabulary, spaced_bytes
from .sentencepiece import Model, vocabulary_of, words_of
from .tokenizer_json import CompanionFiles, token_text
from .vet_tokenizer_json import check_ids

CODE = "E-TOKENIZER-VOCAB"
USUAL = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
"""Special tokens that the configuration need not name."""
LANGUAGE = re.compile(">>.*?<<")
"""Marian: the target language at the start of a text."""


class Pieces:
    """Encoder of text without special tokens.

    Args:
        model: splits texts.
        ids: the tokens.
        marked: whether a text may begin with its target language.
    """

    def __init__(self, model: Model, ids: Mapping[str, int], unknown: int, path: str | None, *, marked: bool) -> None:
        spelled = {text: text for text in ids}  # one string in memory for a piece that both files have
        shared = replace(model, pieces=[(spelled.get(text, text), score, kind) for text, score, kind in model.pieces])
        self._words = words_of(shared, vocabulary_of(shared, {}), path)
        self._bytes = model.fallback
        self._ids, self._unknown, self._marked = ids, unknown, marked

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        language = LANGUAGE.match(text) if self._marked else None
        if language is None:
            return [self._id(piece) for piece in self._pieces(text)]
        return [self._id(language[0]), *map(self._id, self._pieces(text[language.end() :]))]

    def _pieces(self, text: str) -> list[str]:
        """Pieces of a text; unknown characters that stand together are one."""
        found = []
        for known, run in itertools.groupby(self._words.pieces(text), key=lambda pair: pair[1]):
            pieces = [piece for piece, _ in run]
            if known:
                found += pieces
            elif self._bytes:
                found += [f"<0x{byte:02X}>" for byte in "".join(pieces).encode()]
            else:
                found.append("".join(pieces))
        return found

    def _id(self, piece: str) -> int:
        return self._ids.get(piece, self._unknown)


def from_marian(
    model: Model, vocab: Mapping[str, Any], companion_files: CompanionFiles, path: str | None = None
) -> Tokenizer:
    """The tokenizer of a Marian model: source texts are split by `model`; ids of either language become text."""
    return _tokenizer(model, vocab, companion_files, path, marked=True)


def from_m2m100(
    model: Model, vocab: Mapping[str, Any], companion_files: CompanionFiles, path: str | None = None
) -> Tokenizer:
    """The tokenizer of an M2M-100 model, whose language tokens follow those of vocab.json."""
    codes = WMT21 if companion_files.config.get("language_codes") == "wmt21" else M2M100
    check_ids(vocab.values(), len(vocab), "vocab.json", CODE, path)
    languages = {f"__{code}__": len(vocab) + index for index, code in enumerate(codes.split())}
    return _tokenizer(model, {**vocab, **languages}, companion_files, path, controls=frozenset(languages))


def _tokenizer(
    model: Model,
    vocab: Mapping[str, Any],
    companion_files: CompanionFiles,
    path: str | None,
    *,
    marked: bool = False,
    controls: frozenset[str] = frozenset(),
) -> Tokenizer:
    check_ids(vocab.values(), len(vocab), "vocab.json", CODE, path)
    names = {role: token_text(companion_files, role) or usual for role, usual in USUAL.items()}
    roles = {role: vocab[name] for role, name in names.items() if name in vocab}
    if not {"unk", "eos"} <= roles.keys():
        why = f"vocab.json has no {names['unk' if 'unk' not in roles else 'eos']}"
        raise FormatError(CODE, path, why, hint="Download it again, or correct the names in tokenizer_config.json")
    count = max(vocab.values()) + 1
    texts, kinds = [f"[PAD{token}]" for token in range(count)], [UNUSED] * count
    for text, token in vocab.items():
        texts[token], kinds[token] = text, CONTROL if text in controls else NORMAL
    for role, token in roles.items():
        kinds[token] = UNKNOWN if role == "unk" else CONTROL
    vocabulary = Vocabulary(texts, kinds, roles=roles)
    if UNUSED not in kinds and len(vocab) == count:
        vocabulary = vocabulary.found_by(vocab)
    vocabulary = vocabulary.changed(kinds, end_tokens(vocabulary))
    words: TextEncoder = Pieces(model, vocab, roles["unk"], path, marked=marked)
    special = Leftmost([(texts[token], token) for token in vocabulary.of_kind(CONTROL, UNKNOWN)])
    engine = ByteEngine(vocabulary, spaced_bytes, words, special, Leftmost([]), leading=True)
    return Tokenizer(vocabulary, engine, closing=[roles["eos"]], origin="SentencePiece and vocab.json")
