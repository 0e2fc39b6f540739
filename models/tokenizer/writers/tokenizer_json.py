"""tokenizer.json writer for GGUF vocabularies: the tokenizers-library parts equivalent to llama.cpp's tokenizers.

Source: transformers' convert_slow_tokenizer.py for SentencePiece's kinds; the tokenizer.json files of published models.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..algorithm.pre_tokenizer import DEFAULT, PRE
from ..algorithm.regex_split import HAN, HAN_RANGES
from ..core.tokenizer import Tokenizer
from ..core.vocabulary import CONTROL, NORMAL, SPACE, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary
from ..readers.gguf_engines import PREFIX, merge_pairs

ESCAPED = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
Json = dict[str, Any]


def library_json(tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> Json | None:
    """The content of a tokenizer.json for a GGUF vocabulary; None for a kind that the library does not have (RWKV)."""
    builder = BUILDERS.get(metadata.get(f"{PREFIX}model", "llama"))
    if builder is None:
        return None
    parts = builder(tokenizer, metadata)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(tokenizer.vocabulary),
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": _around(tokenizer),
        "decoder": None,
        **parts,
    }


def _added(vocabulary: Vocabulary) -> list[Json]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    rows = enumerate(zip(vocabulary.texts, vocabulary.kinds, strict=True))
    taken = (CONTROL, UNKNOWN, USER_DEFINED)
    return [
        {"id": token, "content": text, **plain, "special": kind != USER_DEFINED}
        for token, (text, kind) in rows
        if kind in taken
    ]


def _around(tokenizer: Tokenizer) -> Json | None:
    """The post-processor that adds tokens at the start and the end of a text."""
    if not tokenizer.opening and not tokenizer.closing:
        return None
    texts = tokenizer.vocabulary.texts
    entries = {
        texts[token]: {"id": texts[token], "ids": [token], "tokens": [texts[token]]}
        for token in (*tokenizer.opening, *tokenizer.closing)
    }

    def around(sequence: str, kind: int) -> list[Json]:
        first, last = (
            [{"SpecialToken": {"id": texts[token], "type_id": kind}} for token in side]
            for side in (tokenizer.opening, tokenizer.closing)
        )
        return [*first, {"Sequence": {"id": sequence, "type_id": kind}}, *last]

    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": [*around("A", 0), *around("B", 1)],
        "special_tokens": entries,
    }


def _sequence(kind: str, name: str, parts: Sequence[Json]) -> Json:
    return parts[0] if len(parts) == 1 else {"type": kind, name: list(parts)}


def _bpe_model(vocabulary: Vocabulary, merges: Sequence[tuple[str, str]], **settings: Any) -> Json:
    plain = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")) | {
        "fuse_unk": False,
        "byte_fallback": False,
    }
    known = vocabulary.ids
    pairs = [[one, other] for one, other in merges if one in known and other in known and one + other in known]
    return {"type": "BPE", **plain, "ignore_merges": False, **settings, "vocab": known, "merges": pairs}


def _bytes(tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> Json:
    """Byte-level BPE, or BPE of text whose spaces are marked."""
    splitting = (
        PRE["gemma4"]
        if metadata.get(f"{PREFIX}model") == "gemma4"
        else PRE.get(metadata.get(f"{PREFIX}pre", "default"), DEFAULT)
    )
    merges = merge_pairs(metadata.get(f"{PREFIX}merges") or ())
    splits = [_split(pattern) for pattern in splitting.patterns]
    if not splitting.byte_level:
        return {
            "normalizer": _marked(False),
            "pre_tokenizer": _sequence("Sequence", "pretokenizers", splits),
            "decoder": _unmarked(False),
            "model": _bpe_model(tokenizer.vocabulary, merges, byte_fallback=True, ignore_merges=splitting.whole_words),
        }
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "pre_tokenizer": _sequence("Sequence", "pretokenizers", [*splits, level]),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": _bpe_model(tokenizer.vocabulary, merges, ignore_merges=splitting.whole_words),
    }


def _split(pattern: str) -> Json:
    """A pattern as the library's engine writes it."""
    text = ESCAPED.sub(lambda match: chr(int(match[1] or match[2], 16)), pattern)
    han = "".join(f"{chr(first)}-{chr(last)}" for first, last in HAN_RANGES)
    if HAN in pattern:
        text = text.replace(f"{HAN}+", f"[{han}]+", 1).replace(HAN, han).replace(r"\p{L}+", rf"[\p{{L}}&&[^{han}]]+")
    return {"type": "Split", "pattern": {"Regex": text}, "behavior": "Isolated", "invert": False}


def _marked(prefixed: bool) -> Json:
    """Spaces as marks, with one before the text."""
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    return (
        {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, replaced]} if prefixed else replaced
    )


def _unmarked(prefixed: bool) -> Json:
    """Marks as spaces, tokens of bytes as characters, without the space before the text."""
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefixed else []
    replaced = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    return {"type": "Sequence", "decoders": [replaced, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]}


def _spm(tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> Json:
    prefixed = bool(metadata.get(f"{PREFIX}add_space_prefix", True))
    vocabulary = tokenizer.vocabulary
    unknown = None if tokenizer.unk is None else vocabulary.texts[tokenizer.unk]
    model = _bpe_model(vocabulary, _merges(vocabulary), byte_fallback=True, fuse_unk=True, unk_token=unknown)
    return {"normalizer": _marked(prefixed), "decoder": _unmarked(prefixed), "model": model}


def _merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Merges that make every token of two others, those of the best scores first."""
    known = {
        text
        for text, kind in zip(vocabulary.texts, vocabulary.kinds, strict=True)
        if kind in (NORMAL, UNUSED, USER_DEFINED)
    }
    found = []
    for token, text in enumerate(vocabulary.texts):
        if text in known:
            splits = [(text[:at], text[at:]) for at in range(1, len(text)) if text[:at] in known and text[at:] in known]
            found += [
                (-vocabulary.scores[token], vocabulary.ids[one], vocabulary.ids[other], one, other)
                for one, other in splits
            ]
    return [(one, other) for _, _, _, one, other in sorted(found)]


def _unigram(tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> Json:
    vocabulary = tokenizer.vocabulary
    rows = zip(vocabulary.texts, vocabulary.scores, vocabulary.kinds, strict=True)
    pieces = [[text, 0.0 if kind == USER_DEFINED else score] for text, score, kind in rows]
    mapped = metadata.get(f"{PREFIX}precompiled_charsmap")
    normalizers: list[Json] = []
    if mapped is not None and len(mapped):
        raw = mapped.tobytes() if hasattr(mapped, "tobytes") else bytes(mapped)
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()})
    if metadata.get(f"{PREFIX}remove_extra_whitespaces", False):
        replaced = ((r"\A +| +\z", ""), (" {2,}", " "))
        normalizers += [
            {"type": "Replace", "pattern": {"Regex": pattern}, "content": content} for pattern, content in replaced
        ]
    scheme = "always" if metadata.get(f"{PREFIX}add_space_prefix", False) else "never"
    marks = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": False}
    model = {"type": "Unigram", "unk_id": tokenizer.unk, "vocab": pieces, "byte_fallback": False}
    normalizer = {"type": "Sequence", "normalizers": normalizers} if normalizers else None
    return {"normalizer": normalizer, "pre_tokenizer": marks, "decoder": marks, "model": model}


def _wordpiece(tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> Json:
    lowercase = bool(metadata.get(f"{PREFIX}normalizer.lowercase", True))
    accents = metadata.get(f"{PREFIX}normalizer.strip_accents")
    vocabulary = tokenizer.vocabulary
    rows = enumerate(zip(vocabulary.texts, vocabulary.kinds, strict=True))
    ids = {
        text if kind in (CONTROL, UNKNOWN) else text[1:] if text.startswith(SPACE) else f"##{text}": token
        for token, (text, kind) in rows
    }
    unknown = "[UNK]" if tokenizer.unk is None else vocabulary.texts[tokenizer.unk]
    strip = lowercase if accents is None else bool(accents)
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": strip,
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    }


BUILDERS: dict[Any, Callable[[Tokenizer, Mapping[str, Any]], Json]] = {
    "llama": _spm, "gpt2": _bytes, "gemma4": _bytes, "t5": _unigram, "bert": _wordpiece,
}  # fmt: skip
"""``tokenizer.ggml.model`` -> its builder."""
