"""tokenizer.json writer for SentencePiece models: what Transformers.js and the tokenizers library read in their place.

Source: transformers' convert_slow_tokenizer.py and its tokenizers of Llama, Gemma, T5, XLM-R and Pegasus.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from typing import Any

from ....runtime.ir.graph import Graph
from ..core.tokenizer import Tokenizer
from ..core.vocabulary import SPACE
from ..readers import sentencepiece, tiktoken
from ..readers.gguf_engines import PREFIX
from ..readers.locate import class_of, companion_files, data, first_of, read
from .tokenizer_json import library_json

PATTERNS = ("tokenizer.model", "spiece.model", "sentencepiece*.model")
WORDS = ("MBart50Tokenizer", "MBartTokenizer", "T5Tokenizer", "XLMRobertaTokenizer")
"""Classes that split text at white space, in place of merging spaces."""
Json = dict[str, Any]


def sentencepiece_json(graph: Graph) -> dict[str, bytes]:
    """tokenizer.json for the SentencePiece model among the files of a model, and a missing
    tokenizer_config.json; nothing for other tokenizers, and where pieces have their ids in a further file (M2M-100)."""
    first = first_of(graph)
    if first is None or not any(fnmatch.fnmatchcase(first[0], pattern) for pattern in PATTERNS):
        return {}
    content, tokenizer = data(graph, first[0]), read(graph)
    if tiktoken.looks_like(content) or not tokenizer.origin.startswith("SentencePiece"):
        return {}
    model, config = (
        sentencepiece.parsed(content, graph.files[0] if graph.files else None),
        companion_files(graph).config,
    )
    made = {"tokenizer.json": _content(tokenizer, model, class_of(graph), config)}
    if not config:
        vocabulary = tokenizer.vocabulary
        names = {f"{role}_token": vocabulary.texts[token] for role, token in vocabulary.roles.items()}
        made["tokenizer_config.json"] = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    return {name: json.dumps(value, ensure_ascii=False).encode() for name, value in made.items()}


def _content(tokenizer: Tokenizer, model: sentencepiece.Model, kind: str, config: Mapping[str, Any]) -> Json:
    import numpy

    unigram = model.kind == sentencepiece.UNIGRAM
    said: Json = {"model": "t5" if unigram else "llama", "add_space_prefix": model.prefixed}
    said |= {"precompiled_charsmap": numpy.frombuffer(model.charsmap, numpy.uint8)} if model.charsmap else {}
    content = library_json(_marked(tokenizer), {f"{PREFIX}{key}": value for key, value in said.items()})
    assert content is not None
    content["model"]["byte_fallback"] = model.fallback
    if unigram:
        merged = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
        spaces = [merged] if model.joined and kind not in WORDS else []
        mapped = content["normalizer"]["normalizers"] if content["normalizer"] else []
        content["normalizer"] = {"type": "Sequence", "normalizers": [*mapped, *spaces]} if mapped or spaces else None
        marks = _metaspace("always" if model.prefixed else "never", split=True)
        split = [{"type": "WhitespaceSplit"}, marks]
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": split} if kind in WORDS else marks
    elif model.prefixed:
        content["normalizer"] = None
        content["pre_tokenizer"] = _metaspace("first" if config.get("legacy") is False else "always", split=False)
    return content


def _metaspace(scheme: str, *, split: bool) -> Json:
    """Spaces as marks, with one before every text, before the first one, or never."""
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


def _marked(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with the usual language of a translation model's sources among what begins and ends texts."""
    if tokenizer.languages is None:
        return tokenizer
    inside = -1
    around = tokenizer.languages.marked([inside], None, None)
    at = around.index(inside)
    return Tokenizer(
        tokenizer.vocabulary, tokenizer.engine, opening=around[:at], closing=around[at + 1 :], origin=tokenizer.origin
    )
