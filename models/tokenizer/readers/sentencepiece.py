"""SentencePiece models (tokenizer.model, spiece.model): pieces with scores and types, and the normalizer.

Source: sentencepiece_model.proto; SentencePiece's bpe_model.cc, unigram_model.cc and sentencepiece_processor.cc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UnsupportedError
from ..algorithm.charsmap import Charsmap
from ..algorithm.normalizer import Normalizer
from ..algorithm.sentencepiece_bpe import SPM
from ..algorithm.unigram import Unigram
from ..core.special_roles import end_tokens, found_by_text
from ..core.special_split import Leftmost
from ..core.tokenizer import ByteEngine, Tokenizer
from ..core.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary, spaced_bytes
from .protobuf import Field, fields
from .vet_tokenizer_json import check_ids

CODE = "E-TOKENIZER-SPM"
UNIGRAM, BPE = 1, 2
PIECES, TRAINER, NORMALIZER = 1, 2, 3
KINDS = {1: NORMAL, 2: UNKNOWN, 3: CONTROL, 4: USER_DEFINED, 5: UNUSED, 6: BYTE}


@dataclass
class Model:
    """Contents of a model file.

    Attributes:
        pieces: string, score and type of every token.
        kind: `UNIGRAM` or `BPE`.
        suffixed: whether white space is attached to the end of a word instead of its beginning.
        fallback: whether unknown characters become bytes.
        roles: ids by role.
        charsmap: precompiled character map, empty if missing.
        prefixed, joined, escaped: see `Normalizer`.
    """

    pieces: list[tuple[str, float, int]] = field(default_factory=list)
    kind: int = UNIGRAM
    suffixed: bool = False
    fallback: bool = False
    roles: dict[str, int] = field(default_factory=lambda: {"unk": 0, "bos": 1, "eos": 2})
    charsmap: bytes = b""
    prefixed: bool = True
    joined: bool = True
    escaped: bool = True


def parsed(data: bytes, path: str | None = None) -> Model:
    """The contents of a model file. FormatError if it is malformed, UnsupportedError for word and character models."""
    model = Model()
    for part in fields(data, CODE, path):
        if not isinstance(part.value, bytes):
            continue
        if part.number == PIECES:
            model.pieces.append(_piece(part, path))
        elif part.number in (TRAINER, NORMALIZER):
            for said in fields(part.value, CODE, path):
                _note(model, part.number, said)
    if not model.pieces:
        raise FormatError(CODE, path, "is not a SentencePiece model: it lacks pieces")
    if model.kind not in (UNIGRAM, BPE):
        raise UnsupportedError(
            "E-TOKENIZER-KIND",
            path,
            f"the SentencePiece model is of the type {model.kind}",
            hint="Known: 1 (unigram), 2 (bpe)",
        )
    model.roles = {role: token for role, token in model.roles.items() if 0 <= token < len(model.pieces)}
    return model


def _piece(part: Field, path: str | None) -> tuple[str, float, int]:
    text, score, kind = "", 0.0, NORMAL
    assert isinstance(part.value, bytes)
    for said in fields(part.value, CODE, path):
        if said.number == 1:
            text = said.text()
        elif said.number == 2:
            score = said.real()
        elif said.number == 3:
            kind = KINDS.get(said.integer(), NORMAL)
    return text, score, kind


def _note(model: Model, part: int, said: Field) -> None:
    """Apply a field of the trainer's or normalizer's settings."""
    if part == NORMALIZER and said.number == 2 and isinstance(said.value, bytes):
        model.charsmap = said.value
    elif (part, said.number) in FLAGS:
        setattr(model, FLAGS[part, said.number], bool(said.value))
    elif (part, said.number) in ROLES:
        model.roles[ROLES[part, said.number]] = said.integer()
    elif (part, said.number) == (TRAINER, 3):
        model.kind = said.integer()


FLAGS = {
    (TRAINER, 24): "suffixed",
    (TRAINER, 35): "fallback",
    (NORMALIZER, 3): "prefixed",
    (NORMALIZER, 4): "joined",
    (NORMALIZER, 5): "escaped",
}
ROLES = {(TRAINER, 40): "unk", (TRAINER, 41): "bos", (TRAINER, 42): "eos", (TRAINER, 43): "pad"}


def from_model(
    model: Model,
    added: Mapping[int, tuple[str, bool]],
    templates: Mapping[str, str],
    *,
    add_bos: bool,
    add_eos: bool,
    path: str | None = None,
    begun: bool = False,
    opening: Sequence[int] = (),
    ends: Sequence[int] = (),
) -> Tokenizer:
    """The tokenizer of a SentencePiece model.

    Args:
        added: tokens that other files add or rename: string, and whether it is a control token, by id.
        add_bos, add_eos: whether to add BOS and EOS by default.
        begun: whether the space in front of words stands at the start of a text only, not after special tokens.
        opening: further ids at the start of a text.
        ends: further ids that end a generation.
    """
    vocabulary = vocabulary_of(model, added)
    vocabulary = replace(vocabulary, ends=vocabulary.ends | set(ends))
    words = words_of(replace(model, prefixed=model.prefixed and not begun), vocabulary, path)
    special = [
        (vocabulary.texts[token], token) for token, kind in enumerate(vocabulary.kinds) if kind in (CONTROL, UNKNOWN)
    ]
    own = [(text, token) for token, (text, control) in added.items() if not control]
    engine = ByteEngine(
        vocabulary,
        spaced_bytes,
        words,
        Leftmost([*special, *own]),
        Leftmost(own),
        begun=model.prefixed and begun,
        leading=model.prefixed,
    )
    roles = vocabulary.roles
    opening = [*([roles["bos"]] if add_bos and "bos" in roles else []), *opening]
    closing = [roles["eos"]] if add_eos and "eos" in roles else []
    origin = f"SentencePiece, {'unigram' if model.kind == UNIGRAM else 'BPE'}"
    return Tokenizer(vocabulary, engine, opening=opening, closing=closing, templates=templates, origin=origin)


def words_of(model: Model, vocabulary: Vocabulary, path: str | None) -> Unigram | NormalizedSPM:
    """The encoder of text without special tokens."""
    normalizer = Normalizer(
        Charsmap(model.charsmap, path) if model.charsmap else None,
        prefixed=model.prefixed,
        suffixed=model.suffixed,
        joined=model.joined,
        escaped=model.escaped,
        kept=[text for text, _, kind in model.pieces if kind == USER_DEFINED],
    )
    if model.kind != UNIGRAM:
        return NormalizedSPM(vocabulary, normalizer, model.fallback)
    return Unigram(
        vocabulary,
        normalizer,
        lambda text, best: len(text.encode()) * best - 0.1,
        unused=False,
        fallback=model.fallback,
    )


def vocabulary_of(model: Model, added: Mapping[int, tuple[str, bool]]) -> Vocabulary:
    """The pieces, with the tokens that other files add; ids in no file are unused."""
    check_ids(added, len(model.pieces) + len(added), "a file next to the SentencePiece model", CODE, None)
    count = max([len(model.pieces), *(token + 1 for token in added)])
    rows = [*model.pieces, *((f"[PAD{token}]", -10000.0, UNUSED) for token in range(len(model.pieces), count))]
    for token, (text, control) in added.items():
        if token >= len(model.pieces) or rows[token][2] not in (UNKNOWN, BYTE):
            rows[token] = (text, rows[token][1], CONTROL if control else USER_DEFINED)
    vocabulary = Vocabulary([row[0] for row in rows], [row[2] for row in rows], [row[1] for row in rows], model.roles)
    vocabulary = replace(vocabulary, roles={**found_by_text(vocabulary), **model.roles})
    return replace(vocabulary, ends=end_tokens(vocabulary))


class NormalizedSPM:
    """SentencePiece BPE on normalized text; user-defined pieces are always single tokens."""

    def __init__(self, vocabulary: Vocabulary, normalizer: Normalizer, fallback: bool) -> None:
        self._own = Leftmost(
            [(vocabulary.texts[token], token) for token, kind in enumerate(vocabulary.kinds) if kind == USER_DEFINED]
        )
        self._texts = vocabulary.texts
        self._words = SPM(vocabulary, strict=True, fallback=fallback)
        self._normalizer = normalizer

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        found: list[int] = []
        for fragment in self._own.split(self._normalizer.normalized(text)):
            found += [fragment] if isinstance(fragment, int) else self._words.encode(fragment)
        return found

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """The pieces of the normalized text, and whether each is a token; unknown symbols come one by one."""
        for fragment in self._own.split(self._normalizer.normalized(text)):
            if isinstance(fragment, int):
                yield self._texts[fragment], True
            else:
                yield from self._words.pieces(fragment)
