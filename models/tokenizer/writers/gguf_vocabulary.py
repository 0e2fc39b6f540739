"""GGUF vocabulary rows (string, score, type) from every tokenizer file format, with the format-specific keys.

Source: llama.cpp's conversion/base.py and gguf-py's vocab.py.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.ir.graph import Graph
from ..algorithm.merge_loop import merged
from ..core.tokenizer import Tokenizer
from ..core.vocabulary import BYTE, BYTE_TEXT, CONTROL, NORMAL, SPACE, UNKNOWN, UNUSED, USER_DEFINED
from ..readers import chatglm, rwkv, sentencepiece, tiktoken
from ..readers.locate import added, companion_files, data, first_of, text
from ..readers.tokenizer_json import Library, guarded
from .detect_pre_tokenizer import PROBES, known_name, pre_tokenizer

if TYPE_CHECKING:
    import tokenizers

PADDING_SCORE, ADDED_SCORE = -10000.0, -1000.0
SPECIAL_TEXTS = ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
BRACKETS = (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))
"""Beginnings and ends of the texts of tokens that are special, though their files do not say so."""
ROLES = (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"))
"""Roles whose ids are written whatever the files say, with the middles of their keys."""
Rows = list[tuple[str, float, int]]
Maker = Callable[[Graph, str, Tokenizer, "int | None", "str | None"], tuple[dict[str, Any], Rows]]


def chosen(graph: Graph) -> str | None:
    """The file that the vocabulary is taken from: SentencePiece's own before what was made of it; None where there is
    no tokenizer."""
    own = next((name for name in sorted(graph.attachments) if fnmatch.fnmatchcase(name, "*.model")), None)
    found = first_of(graph)
    return own or (None if found is None else found[0])


def made(graph: Graph, name: str, source: Tokenizer, rows: int | None, path: str | None) -> tuple[dict[str, Any], Rows]:
    """Keys without their prefix, and the rows of the vocabulary that the file `name` holds."""
    maker = next(maker for pattern, maker in MAKERS if fnmatch.fnmatchcase(name, pattern))
    return maker(graph, name, source, rows, path)


def _from_sentencepiece(
    graph: Graph, name: str, source: Tokenizer, rows: int | None, path: str | None
) -> tuple[dict[str, Any], Rows]:
    content = data(graph, name)
    if tiktoken.looks_like(content):
        return _from_tiktoken(graph, name, source, rows, path)
    model = sentencepiece.parsed(content, path)
    if companion_files(graph).config.get("tokenizer_class") in chatglm.CLASSES:
        return _from_chatglm(model, rows)
    found: Rows = [(piece, score, NORMAL if kind == USER_DEFINED else kind) for piece, score, kind in model.pieces]
    found = found[:rows]
    unigram = model.kind == sentencepiece.UNIGRAM
    declared = companion_files(graph).config.get("added_tokens_decoder")
    for token, (piece, control) in sorted(added(graph).items()):
        if rows is not None and token >= rows:
            continue
        found += [(f"[PAD{index}]", PADDING_SCORE, UNUSED) for index in range(len(found), token + 1)]
        special = control or (isinstance(declared, Mapping) and str(token) in declared and _looks_special(piece))
        found[token] = (
            piece if special else piece.replace(SPACE, " "),
            ADDED_SCORE,
            CONTROL if special else USER_DEFINED,
        )
    if unigram:
        return {
            "model": "t5",
            "pre": "default",
            "scored": True,
            **_normalizing(model.prefixed, model.joined, model.charsmap),
        }, found
    prefix = companion_files(graph).config.get("add_prefix_space")
    return {
        "model": "llama",
        "pre": "default",
        "scored": True,
        "add_space_prefix": prefix if isinstance(prefix, bool) else _prefix(model),
    }, found


def _from_chatglm(model: sentencepiece.Model, rows: int | None) -> tuple[dict[str, Any], Rows]:
    own = [(text, 0.0, CONTROL) for text, _ in chatglm.own_tokens(model).values()]
    filling = [(f"[PAD{token}]", 0.0, UNUSED) for token in range(len(model.pieces) + len(own), rows or 0)]
    first = [(text, *row[1:]) for text, row in zip(chatglm.TEXTS, model.pieces, strict=False)]
    pieces = [
        (piece, score, NORMAL if kind == USER_DEFINED else kind)
        for piece, score, kind in [*first, *model.pieces[len(first) :]]
    ]
    return {"model": "llama", "pre": "chatglm-spm", "scored": True, "add_space_prefix": _prefix(model)}, [
        *pieces,
        *own,
        *filling,
    ]


def _from_tekken(
    graph: Graph, name: str, source: Tokenizer, rows: int | None, path: str | None
) -> tuple[dict[str, Any], Rows]:
    """Mistral's own file: its pre-tokenizer is always this one, and no file next to it says what the special tokens
    are."""
    engine = source.engine.library if isinstance(source.engine, Library) else None
    assert engine is not None
    roles = source.vocabulary.roles
    ids = {f"{middle}_token_id": roles[role] for role, middle in (*ROLES, ("pad", "padding")) if role in roles}
    merges = [_merge(pair) for pair in json.loads(engine.to_str())["model"]["merges"]]
    keys = {
        "model": "gpt2",
        "pre": "tekken",
        "scored": True,
        "merges": merges,
        **ids,
        "add_bos_token": True,
        "add_eos_token": False,
    }
    return keys, _base(engine, source, rows)


def _prefix(model: sentencepiece.Model) -> bool | None:
    """Only a model without a space before texts has to say so."""
    return None if model.prefixed else False


def _normalizing(prefixed: bool, joined: bool, charsmap: bytes) -> dict[str, Any]:
    import numpy

    mapped = {"precompiled_charsmap": numpy.frombuffer(charsmap, numpy.uint8)} if charsmap else {}
    return {"add_space_prefix": prefixed, "remove_extra_whitespaces": joined, **mapped}


def _from_rwkv(
    graph: Graph, name: str, source: Tokenizer, rows: int | None, path: str | None
) -> tuple[dict[str, Any], Rows]:
    texts, kinds = rwkv.parsed(text(graph, name), path)
    turn = source.encode("\n\n")[:1]
    keys = {
        "model": "rwkv",
        "scored": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        **({"eot_token_id": turn[0]} if turn else {}),
    }
    return keys, [(piece, 0.0, kind) for piece, kind in zip(texts, kinds, strict=True)]


def _from_tiktoken(
    graph: Graph, name: str, source: Tokenizer, rows: int | None, path: str | None
) -> tuple[dict[str, Any], Rows]:
    """Merges are found again: the two tokens that a token is made of while only those of less rank may be made."""
    vocabulary = source.vocabulary
    ranks = {
        piece: rank
        for rank, (piece, kind) in enumerate(zip(vocabulary.texts, vocabulary.kinds, strict=True))
        if kind == NORMAL
    }
    merges = []
    for piece, rank in ranks.items():

        def lower(one: str, other: str, rank: int = rank) -> int | None:
            found = ranks.get(one + other, rank)
            return found if found < rank else None

        parts = merged(list(piece), lower)
        merges += [" ".join(parts)] if len(parts) == 2 else []
    pre = tiktoken.family_of(name, companion_files(graph).model.get("model_type")).pre
    return {"model": "gpt2", "pre": pre, "scored": False, "merges": merges, **_role_ids(source)}, _rows_of(source)


def _from_llama2c(
    graph: Graph, name: str, source: Tokenizer, rows: int | None, path: str | None
) -> tuple[dict[str, Any], Rows]:
    return {"model": "llama", "pre": "default", "scored": True, **_role_ids(source)}, _rows_of(source)


def _role_ids(source: Tokenizer) -> dict[str, int]:
    roles = source.vocabulary.roles
    return {f"{middle}_token_id": roles[role] for role, middle in ROLES if role in roles}


def _rows_of(source: Tokenizer) -> Rows:
    vocabulary = source.vocabulary
    scores = vocabulary.scores or [0.0] * len(vocabulary)
    return list(zip(vocabulary.texts, scores, vocabulary.kinds, strict=True))


def _from_library(
    graph: Graph, name: str, source: Tokenizer, rows: int | None, path: str | None
) -> tuple[dict[str, Any], Rows]:
    """The vocabulary of a tokenizer that the tokenizers library runs: byte-level BPE, SentencePiece's BPE written as
    merges, unigram or WordPiece."""
    assert isinstance(source.engine, Library)
    source.engine.check((*PROBES, "a", "a  b", "a b"))
    with guarded(path):
        return _from_engine(source.engine.library, source, rows, path)


def _from_engine(
    engine: tokenizers.Tokenizer, source: Tokenizer, rows: int | None, path: str | None
) -> tuple[dict[str, Any], Rows]:
    said = json.loads(engine.to_str())
    kind = said["model"]["type"]
    if kind == "WordPiece":
        pieces = [
            (_phantom(piece, token_kind), 0.0, token_kind) for piece, _, token_kind in _base(engine, source, rows)
        ]
        normalizer = _bert_normalizer(said.get("normalizer"))
        return {"model": "bert", "pre": known_name(engine) or "default", "scored": False, **normalizer}, pieces
    if kind == "Unigram":
        return _from_unigram(engine, source, said, rows)
    if kind != "BPE":
        hint = "Omit the tokenizer with --no-tokenizer, or pass another model's with --tokenizer DIR"
        raise UnsupportedError(
            "E-TOKENIZER-KIND", path, f"GGUF files have no vocabularies of the kind {kind}", hint=hint
        )
    if said["model"].get("byte_fallback"):
        return _from_merges(engine, source, said, rows)
    whole = bool(said["model"].get("ignore_merges"))
    merges = [_merge(pair) for pair in said["model"]["merges"]]
    keys = {"model": "gpt2", "pre": pre_tokenizer(engine, whole, path), "scored": False, "merges": merges}
    return keys, _base(engine, source, rows)


def _merge(pair: Any) -> str:
    """Two sides of a merge as one text, spaces in them as the byte alphabet has them."""
    return pair if isinstance(pair, str) else " ".join(part.replace(" ", "\u0120") for part in pair)


def _base(engine: tokenizers.Tokenizer, source: Tokenizer, rows: int | None) -> Rows:
    """Tokens of the library, added ones as they read when they are encoded and decoded."""
    texts = source.vocabulary.texts
    known = {token: piece for piece, token in engine.get_vocab(with_added_tokens=True).items()}
    named = engine.get_added_tokens_decoder()
    found: Rows = []
    for token in range(len(texts)):
        piece, kind = known.get(token, f"[PAD{token}]"), NORMAL if token in known else UNUSED
        if token in named:
            if not named[token].normalized:
                piece = engine.decode(engine.encode(piece, add_special_tokens=False).ids, skip_special_tokens=False)
            kind = CONTROL if named[token].special or _looks_special(piece) else USER_DEFINED
            piece = piece if kind == CONTROL else piece.replace(SPACE, " ")
        found.append((piece, 0.0, kind))
    return found


def _from_merges(
    engine: tokenizers.Tokenizer, source: Tokenizer, said: Mapping[str, Any], rows: int | None
) -> tuple[dict[str, Any], Rows]:
    """SentencePiece's BPE as transformers writes it: a token's score is the index of the first merge that makes it."""
    places: dict[str, int] = {}
    for index, pair in enumerate(said["model"]["merges"]):
        one, other = pair if isinstance(pair, list) else pair.split(" ", 1)
        places.setdefault(one + other, index)
    last = float(len(places) + len(source))
    unknown = said["model"].get("unk_token")
    found: Rows = []
    for piece, _, kind in _base(engine, source, rows):
        kind = BYTE if BYTE_TEXT.fullmatch(piece) and kind == NORMAL else UNKNOWN if piece == unknown else kind
        found.append(
            (
                piece,
                -float(places[piece]) if piece in places else ADDED_SCORE if kind in (CONTROL, USER_DEFINED) else -last,
                kind,
            )
        )
    first = engine.encode("a", add_special_tokens=False).tokens
    return {
        "model": "llama",
        "pre": "default",
        "scored": True,
        "add_space_prefix": bool(first) and first[0].startswith(SPACE),
    }, found


def _from_unigram(
    engine: tokenizers.Tokenizer, source: Tokenizer, said: Mapping[str, Any], rows: int | None
) -> tuple[dict[str, Any], Rows]:
    scores = dict(said["model"]["vocab"])
    unknown = said["model"].get("unk_id")
    pieces = enumerate(_base(engine, source, rows))
    found = [
        (piece, scores.get(piece, PADDING_SCORE), UNKNOWN if token == unknown else kind)
        for token, (piece, _, kind) in pieces
    ]
    charsmap = b""
    for part in _parts(said.get("normalizer"), "normalizers"):
        if part.get("type") == "Precompiled" and isinstance(part.get("precompiled_charsmap"), str):
            try:
                charsmap = base64.b64decode(part["precompiled_charsmap"], validate=True)
            except binascii.Error as error:
                raise FormatError(
                    "E-TOKENIZER-CHARSMAP", None, "the character map of tokenizer.json is not base64"
                ) from error
    first = engine.encode("a", add_special_tokens=False).tokens
    joined = engine.encode("a  b").ids == engine.encode("a b").ids
    return {
        "model": "t5",
        "pre": "default",
        "scored": True,
        **_normalizing(bool(first) and first[0].startswith(SPACE), joined, charsmap),
    }, found


def _parts(value: Any, inside: str) -> list[Mapping[str, Any]]:
    """A component of a tokenizer.json, or those that it is a sequence of."""
    if not isinstance(value, Mapping):
        return []
    return [part for part in value.get(inside, [value]) if isinstance(part, Mapping)]


def _bert_normalizer(value: Any) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for part in _parts(value, "normalizers"):
        lowercase, accents = part.get("lowercase"), part.get("strip_accents")
        kind = part.get("type")
        found |= (
            {"normalizer.lowercase": True}
            if kind == "Lowercase"
            else {"normalizer.strip_accents": True}
            if kind == "StripAccents"
            else {}
        )
        found |= {"normalizer.lowercase": lowercase} if kind == "BertNormalizer" and isinstance(lowercase, bool) else {}
        found |= {"normalizer.strip_accents": accents} if kind == "BertNormalizer" and isinstance(accents, bool) else {}
    return found


def _phantom(piece: str, kind: int) -> str:
    """A WordPiece token as GGUF has it: a mark before a word's first instead of one before the others."""
    return piece if kind == CONTROL else piece[2:] if piece.startswith("##") else SPACE + piece


def _looks_special(piece: str) -> bool:
    return piece in SPECIAL_TEXTS or any(piece.startswith(first) and piece.endswith(last) for first, last in BRACKETS)


MAKERS: tuple[tuple[str, Maker], ...] = (
    ("*.model", _from_sentencepiece), ("tekken.json", _from_tekken), ("*.tiktoken", _from_tiktoken),
    ("rwkv_vocab*.txt", _from_rwkv), ("tokenizer.bin", _from_llama2c),
    ("*", _from_library),
)  # fmt: skip
"""Patterns of file names, and the functions that read them."""
