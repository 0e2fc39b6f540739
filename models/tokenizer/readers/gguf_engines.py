"""Encoders for GGUF vocabularies, by ``tokenizer.ggml.model``.

Source: llama.cpp's llama_vocab::impl::load and llama_vocab::impl::tokenize.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....runtime.base.errors import FormatError
from ..algorithm.bpe import BPE, Apart
from ..algorithm.charsmap import Charsmap
from ..algorithm.greedy_longest import Longest
from ..algorithm.normalizer import Normalizer
from ..algorithm.pre_tokenizer import PRE, Splitting
from ..algorithm.sentencepiece_bpe import SPM
from ..algorithm.unigram import Unigram
from ..algorithm.wordpiece import WordPiece
from ..core.special_split import LongestFirst
from ..core.tokenizer import ByteEngine, TextEncoder
from ..core.vocabulary import (
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    escaped_bytes,
    letters_bytes,
    plain_bytes,
    spaced_bytes,
)

PREFIX = "tokenizer.ggml."
Builder = Callable[[Mapping[str, Any], Vocabulary, Splitting, "str | None"], ByteEngine]
PHI3_KEPT = ("<unk>", "<s>", "<|endoftext|>")


def built(
    model: str, metadata: Mapping[str, Any], vocabulary: Vocabulary, splitting: Splitting, path: str | None
) -> ByteEngine:
    """The engine of a vocabulary type."""
    return BUILDERS[model](metadata, vocabulary, splitting, path)


def _spm(metadata: Mapping[str, Any], vocabulary: Vocabulary, splitting: Splitting, path: str | None) -> ByteEngine:
    words = SPM(vocabulary)
    prefixed = bool(metadata.get(f"{PREFIX}add_space_prefix", True))
    return _pieces(metadata, vocabulary, spaced_bytes, words, prefixed=prefixed, leading=prefixed)


def _bpe(metadata: Mapping[str, Any], vocabulary: Vocabulary, splitting: Splitting, path: str | None) -> ByteEngine:
    merges = metadata.get(f"{PREFIX}merges")
    if merges is None and metadata.get(f"{PREFIX}pre") != "kimi-k2":
        why = "lacks merges: tokenizer.ggml.merges is missing"
        raise FormatError("E-TOKENIZER-TOKENS", path, why, hint="Convert the model again with its tokenizer")
    pairs = merge_pairs(merges or ())
    decode = spaced_bytes if splitting.spaced else letters_bytes if splitting.byte_level else plain_bytes
    return _pieces(metadata, vocabulary, decode, BPE(vocabulary, pairs, splitting))


def _words(metadata: Mapping[str, Any], vocabulary: Vocabulary, splitting: Splitting, path: str | None) -> ByteEngine:
    """Word-level BPE; white space is dropped."""
    pairs = merge_pairs(metadata.get(f"{PREFIX}merges") or ())
    lowercase = bool(metadata.get(f"{PREFIX}normalizer.lowercase", False))
    return _pieces(metadata, vocabulary, plain_bytes, Apart(BPE(vocabulary, pairs, PRE["whitespace"]), lowercase))


def merge_pairs(merges: Sequence[Any]) -> list[tuple[str, str]]:
    """The two sides of every merge."""
    return [_pair(merge) for merge in merges]


def _pair(merge: Any) -> tuple[str, str]:
    """The two sides of a merge; the first may be a space."""
    text = merge if isinstance(merge, str) else bytes(merge).decode("utf-8", "replace")
    place = text.find(" ", 1)
    return (text[:place], text[place + 1 :]) if place > 0 else ("", "")


def _unigram(metadata: Mapping[str, Any], vocabulary: Vocabulary, splitting: Splitting, path: str | None) -> ByteEngine:
    mapped = metadata.get(f"{PREFIX}precompiled_charsmap")
    charsmap = None if mapped is None or not len(mapped) else Charsmap(_raw(mapped), path)
    normalizer = Normalizer(
        charsmap,
        prefixed=bool(metadata.get(f"{PREFIX}add_space_prefix", False)),
        joined=bool(metadata.get(f"{PREFIX}remove_extra_whitespaces", False)),
        kept=[vocabulary.texts[token] for token in vocabulary.of_kind(USER_DEFINED)],
        always_prefixed=False,
    )
    words = Unigram(vocabulary, normalizer, lambda text, best: 0.0, unused=True, fallback=False)
    return _pieces(metadata, vocabulary, spaced_bytes, words, leading=normalizer.prefixed)


def _raw(value: Any) -> bytes:
    """The bytes of an array of 8-bit integers."""
    return value.tobytes() if hasattr(value, "tobytes") else bytes(value)


def _wordpiece(
    metadata: Mapping[str, Any], vocabulary: Vocabulary, splitting: Splitting, path: str | None
) -> ByteEngine:
    lowercase = bool(metadata.get("tokenizer.ggml.normalizer.lowercase", True))
    stripped = bool(metadata.get("tokenizer.ggml.normalizer.strip_accents", lowercase))
    return _pieces(
        metadata, vocabulary, spaced_bytes, WordPiece(vocabulary, lowercase=lowercase, stripped=stripped), leading=True
    )


def _rwkv(metadata: Mapping[str, Any], vocabulary: Vocabulary, splitting: Splitting, path: str | None) -> ByteEngine:
    return _pieces(metadata, vocabulary, escaped_bytes, Longest(vocabulary, escaped_bytes))


BUILDERS: dict[str, Builder] = {
    "llama": _spm,
    "gpt2": _bpe,
    "whitespace": _words,
    "gemma4": _bpe,
    "t5": _unigram,
    "bert": _wordpiece,
    "rwkv": _rwkv,
}


def _pieces(
    metadata: Mapping[str, Any],
    vocabulary: Vocabulary,
    decode: Callable[[str], bytes],
    words: TextEncoder,
    *,
    prefixed: bool = False,
    leading: bool = False,
) -> ByteEngine:
    left, right = _trimming(metadata, vocabulary)
    every = _finder(vocabulary, (CONTROL, USER_DEFINED, UNKNOWN), left, right)
    own = _finder(vocabulary, (USER_DEFINED,), left, right)
    return ByteEngine(vocabulary, decode, words, every, own, prefixed=prefixed, leading=leading)


def _finder(vocabulary: Vocabulary, kinds: Sequence[int], left: frozenset[int], right: frozenset[int]) -> LongestFirst:
    return LongestFirst([(vocabulary.texts[token], token) for token in vocabulary.of_kind(*kinds)], left, right)


def _trimming(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[frozenset[int], frozenset[int]]:
    """Special tokens that absorb white space before or after them; llama.cpp infers them from model names, since files
    do not state it."""
    pre, name, architecture = (
        str(metadata.get(key, "")) for key in (f"{PREFIX}pre", "general.name", "general.architecture")
    )
    texts = vocabulary.texts
    if pre in ("jina-v2-de", "jina-v2-es", "jina-v2-code") or architecture in ("nomic-bert-moe", "jina-bert-v3"):
        return _with_text(texts, "<mask>"), frozenset()
    if "phi-3" in name.lower() or "phi3" in name.lower():
        special = (
            token
            for token, kind in enumerate(vocabulary.kinds)
            if kind in (CONTROL, USER_DEFINED, UNKNOWN) or texts[token] == "</s>"
        )
        return frozenset(), frozenset(token for token in special if texts[token] not in PHI3_KEPT)
    if "modern-bert" in name.lower():
        return _with_text(texts, "[MASK]"), frozenset()
    return frozenset(), frozenset()


def _with_text(texts: Sequence[str], wanted: str) -> frozenset[int]:
    return frozenset(token for token, text in enumerate(texts) if text == wanted)
