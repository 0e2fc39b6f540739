"""Text of MetaVoice as tokens: the byte-pair encoding that stands in the metadata of the first stage.

``meta.tokenizer`` of first_stage.pt has a word pattern, the ranks of byte strings, the rank of the token that ends a
text, and an offset: tokens of text stand after those of audio. first_stage.meta.json next to safetensors says the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import Error, FormatError, UsageError
from .....runtime.base.untrusted.json import parse
from .....runtime.ir.graph import Graph
from .....runtime.tensor.storage import Region
from ....tokenizer.core.tokenizer import Tokenizer
from ....tokenizer.core.vocabulary import written
from ....tokenizer.readers.tokenizer_json import CompanionFiles, from_json

CODE = "E-TOKENIZER-METAVOICE"
PREFIX = "meta.tokenizer."
RANKS, SPECIAL = "mergeable_ranks.", "special_tokens."
META = "first_stage.meta.json"
MOST = 1 << 16
"""Tokens; the published model has 513."""
PLAIN = {
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2015), "-"),
    **dict.fromkeys((0xB4, 0x2018, 0x2019, 0x2032, 0x2035, 0x1FEF, 0x1FFD, 0x1FFE), "'"),
    **dict.fromkeys((0x201C, 0x201D, 0x201F, 0x2033, 0x2036), '"'),
    **dict.fromkeys(map(ord, "\t\r\n*"), " "),
    0x2016: "||",
    0x201A: ",",
    0x201B: "`",
    0x201E: ",,",
    0x2024: ".",
    0x2025: "..",
    0x2026: "...",
    0x2122: "TM",
}
"""Punctuation as the model was trained on it."""


@dataclass(frozen=True)
class TextTokens:
    """Text as tokens.

    Attributes:
        tokenizer: of texts.
        end: the token that ends a text.
        offset: what is added to every token.
    """

    tokenizer: Tokenizer
    end: int
    offset: int

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with that of its end. UsageError for letters beyond Latin-1."""
        plain = " ".join(text.translate(PLAIN).split())
        strange = sorted({letter for letter in plain if ord(letter) > 0xFF})
        if strange:
            why = "the model reads English, without such letters"
            raise UsageError("E-SPEAK-TEXT", None, why, found=" ".join(strange[:5]))
        return [token + self.offset for token in (*self.tokenizer.encode(plain), self.end)]


def text_tokens(stage: Graph, beside: Graph | None) -> TextTokens:
    """The tokens of the first stage.

    Args:
        stage: the first stage as it was read.
        beside: what has the files of its folder attached.

    Raises UsageError where nothing says them, FormatError for what contradicts itself.
    """
    path = stage.files[0] if stage.files else None
    said = {key.removeprefix(PREFIX): value for key, value in stage.metadata.items() if key.startswith(PREFIX)}
    said = said or _beside(beside, path)
    if not said:
        hint = f"Use the authors' first_stage.pt, or put {META} beside it"
        raise UsageError("E-LM-TOKENIZER", path, "the first stage has no tokenizer", hint=hint)
    pattern = said.get("pat_str")
    pieces = _pieces({key.removeprefix(RANKS): rank for key, rank in said.items() if key.startswith(RANKS)}, path)
    special = [value for key, value in said.items() if key.startswith(SPECIAL)]
    if not isinstance(pattern, str):
        raise FormatError(CODE, path, "the tokenizer of the first stage has no word pattern")
    end = _integer(special[0], path) if special else len(pieces)
    offset = _integer(said.get("offset") or 0, path)
    return TextTokens(from_json(_as_json(pieces, pattern), CompanionFiles({}, {}, {}, {}), {}, path), end, offset)


def tokens_beside(graph: Graph) -> dict[str, Any]:
    """The tokenizer of a copy of the model, opened as `graph`, from `META`: metadata of its first stage."""
    nested: dict[str, Any] = {}
    for stage in graph.parts.values():
        for key, value in stage.metadata.items():
            if key.startswith(PREFIX):
                outer, dot, inner = key.removeprefix(PREFIX).partition(".")
                nested |= {outer: {**nested.get(outer, {}), inner: value}} if dot else {outer: value}
        if nested:
            break
    return {META: {"tokenizer": nested}} if nested else {}


def _beside(graph: Graph | None, path: str | None) -> dict[str, Any]:
    """The content of the file next to safetensors, with the keys of the checkpoint's metadata."""
    storage = None if graph is None else graph.attachments.get(META)
    if not isinstance(storage, Region):
        return {}
    try:
        found = parse(bytes(storage.read(0, storage.nbytes)), storage.source, 0, CODE)
    except Error as error:
        raise FormatError(CODE, path, f"{META} is not JSON") from error
    said = found.get("tokenizer", found) if isinstance(found, dict) else {}
    flat: dict[str, Any] = {}
    for key, value in said.items() if isinstance(said, dict) else ():
        flat |= {f"{key}.{inner}": item for inner, item in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def _pieces(ranks: Mapping[str, Any], path: str | None) -> list[bytes]:
    """Byte strings by rank; single bytes that are not listed have their own values."""
    found = {_integer(rank, path): _bytes(text) for text, rank in ranks.items()}
    listed = set(found.values())
    for byte in range(256):
        if bytes((byte,)) not in listed:
            found.setdefault(byte, bytes((byte,)))
    if len(found) > MOST or sorted(found) != list(range(len(found))) or len(set(found.values())) < len(found):
        raise FormatError(CODE, path, "the ranks of the tokenizer are not 0, 1, 2 and so on")
    return [found[rank] for rank in range(len(found))]


def _bytes(text: str) -> bytes:
    """The bytes of a key: the metadata of a pickle has one letter for each."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _integer(value: Any, path: str | None) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31:
        return value
    raise FormatError(CODE, path, "the tokenizer of the first stage has an invalid number", found=repr(value)[:40])


def _as_json(pieces: list[bytes], pattern: str) -> str:
    """A tokenizer.json that merges the two pieces whose union has the lowest rank."""
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    merges = []
    for piece in pieces:
        sides = [(piece[:index], piece[index:]) for index in range(1, len(piece))]
        both = [(one, other) for one, other in sides if one in ranks and other in ranks]
        merges += sorted(both, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, letters]},
            "decoder": letters,
            "model": {
                "type": "BPE",
                "ignore_merges": True,
                "vocab": {written(piece): rank for piece, rank in ranks.items()},
                "merges": [[written(one), written(other)] for one, other in merges],
            },
        }
    )
