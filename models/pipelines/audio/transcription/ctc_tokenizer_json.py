"""tokenizer.json of CTC models, whose checkpoints have vocab.json alone: the file that Transformers.js and the
tokenizers library read in place of Wav2Vec2CTCTokenizer."""

from __future__ import annotations

import json
from typing import Any

from .....runtime.ir.graph import Graph
from ....tokenizer.readers.locate import settings
from .ctc_tokens import SETTINGS, VOCABULARY, CtcTokens, ctc_tokens

FILE = "tokenizer.json"
CLASS = "Wav2Vec2CTCTokenizer"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
"""Tokens that are not text; the blank is none of them, since it separates equal letters until the decoder drops it."""


def ctc_tokenizer_json(graph: Graph) -> bytes | None:
    """The file for a model that has a vocabulary of CTC, None for one that has tokenizer.json or another tokenizer."""
    said = settings(graph, SETTINGS)
    named = str(said.get("tokenizer_class", CLASS)).removesuffix("Fast")
    if FILE in graph.attachments or VOCABULARY not in graph.attachments or named != CLASS:
        return None
    tokens = ctc_tokens(graph)
    special = {content if isinstance(content := said.get(key, usual), str) else usual for key, usual in SPECIAL.items()}
    return json.dumps(_content(tokens, special), ensure_ascii=False, indent=1).encode()


def _content(tokens: CtcTokens, special: set[str]) -> dict[str, Any]:
    """The object of the file."""
    lower = tokens.lower and len({text.lower() for text in tokens.texts.values()}) == len(tokens.texts)
    ids = {
        text.lower() if lower and text not in (tokens.blank, tokens.delimiter, *special) else text: token
        for token, text in sorted(tokens.texts.items())
    }
    plain = {"single_word": False, "lstrip": True, "rstrip": True, "normalized": False}
    added = [
        {"id": token, "content": text, **plain, "special": text in special}
        for text, token in ids.items()
        if len(text) > 1
    ]
    spaced = {"type": "Replace", "pattern": {"String": " "}, "content": tokens.delimiter}
    steps = [{"type": "Lowercase"}, spaced] if lower else [spaced]
    ctc = {
        "type": "CTC", "pad_token": tokens.blank, "word_delimiter_token": tokens.delimiter, "cleanup": True
    }  # fmt: skip
    strip = {"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""}
    unknown = next((text for text in ids if text in special and "unk" in text), "<unk>")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [ctc, {"type": "Fuse"}, strip]},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": unknown},
    }
