"""Mistral's tekken.json: byte tokens by rank after special tokens, converted for the tokenizers library.

Source: mistral-common's Tekkenizer; transformers for how ranks become merges.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....runtime.base.errors import FormatError
from ....runtime.base.units import counted
from ..core.vocabulary import written
from .tokenizer_json import guarded, library
from .vet_tokenizer_json import HOLES, Gate, gate_for

if TYPE_CHECKING:
    import tokenizers

CODE = "E-TOKENIZER-TEKKEN"
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
SPECIAL = (
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)
"""Special tokens of files that do not list them."""


def engine_of(said: Mapping[str, Any], path: str | None = None) -> tuple[tokenizers.Tokenizer, Gate | None]:
    """The library's tokenizer of a file's content, and a gate where its pattern needs one. Raises FormatError where it
    contradicts itself."""
    tokenizers = library(path)
    config = said.get("config")
    config = config if isinstance(config, Mapping) else {}
    whole, first = (_count(config, key, path) for key in ("default_vocab_size", "default_num_special_tokens"))
    pattern = config.get("pattern")
    if not isinstance(pattern, str):
        raise FormatError(CODE, path, "tekken.json lacks a word pattern")
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    gate = gate_for({"pre_tokenizer": split}, [], path)
    if first > HOLES:
        raise FormatError(CODE, path, f"tekken.json has {first:,} special tokens", expected=f"at most {HOLES:,}")
    special = _special(said, first, path)
    pieces = _pieces(said.get("vocab"), whole - first, path)
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    vocabulary = {text: token for token, text in enumerate(special)} | {
        written(piece): first + rank for rank, piece in enumerate(pieces)
    }
    try:
        with guarded(path):
            tokenizer = tokenizers.Tokenizer(
                tokenizers.models.BPE(vocab=vocabulary, merges=_merges(pieces, ranks), ignore_merges=True)
            )
            words = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
            byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([words, byte_level])
    except Exception as error:  # the library raises plain Exception for a pattern or vocabulary that it cannot use
        raise FormatError(CODE, path, f"the tokenizers library cannot run tekken.json: {error}") from error
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False) for text in special])
    if NAMES["bos_token"] in special:
        bos = (NAMES["bos_token"], special.index(NAMES["bos_token"]))
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{bos[0]} $A", pair=f"{bos[0]} $A $B:1", special_tokens=[bos]
        )
    return tokenizer, gate


def _count(config: Mapping[str, Any], key: str, path: str | None) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 24:
        raise FormatError(CODE, path, f"tekken.json lacks a usable {key}", found=repr(value)[:40])
    return value


def _special(said: Mapping[str, Any], count: int, path: str | None) -> list[str]:
    """Texts of the special tokens, those without one by their number."""
    listed = said.get("special_tokens", [{"token_str": text} for text in SPECIAL])
    texts = (
        [entry.get("token_str") if isinstance(entry, Mapping) else None for entry in listed]
        if isinstance(listed, list)
        else [None]
    )
    if len(texts) > count or len(set(texts)) != len(texts) or not all(isinstance(text, str) and text for text in texts):
        raise FormatError(CODE, path, f"tekken.json does not list at most {count:,} special tokens with a text each")
    return [*texts, *(f"<SPECIAL_{number}>" for number in range(len(texts), count))]


def _pieces(listed: Any, count: int, path: str | None) -> list[bytes]:
    """The bytes of the first `count` tokens."""
    if not isinstance(listed, list) or not 256 <= count <= len(listed):
        raise FormatError(CODE, path, f"tekken.json does not list {counted(count, 'token')}")
    try:
        found = [base64.b64decode(entry["token_bytes"], validate=True) for entry in listed[:count]]
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise FormatError(CODE, path, "tekken.json lists a token that is not base64") from error
    if found[:256] != [bytes((byte,)) for byte in range(256)] or len(set(found)) != count:
        raise FormatError(CODE, path, "tekken.json does not begin with all bytes, or has a token twice")
    return found


def _merges(pieces: list[bytes], ranks: Mapping[bytes, int]) -> list[tuple[str, str]]:
    """Every two tokens whose union is one, in the order of the unions."""
    texts = [written(piece) for piece in pieces]
    found = []
    for piece in pieces[256:]:
        sides = [(ranks.get(piece[:index]), ranks.get(piece[index:])) for index in range(1, len(piece))]
        found += sorted((one, other) for one, other in sides if one is not None and other is not None)
    return [(texts[one], texts[other]) for one, other in found]
