"""tokenizer.json writer for SentencePiece models: what Transformers.js and the tokenizers library read instead.

Source: transformers' convert_slow_tokenizer.py and its tokenizers of Llama, Gemma, T5, XLM-R and Pegasus.
"""

from __future__ import annotations

import base64
import fnmatch
import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from ....runtime.ir.graph import Graph
from ..core.tokenizer import Tokenizer
from ..core.vocabulary import NORMAL, SPACE, USER_DEFINED, Vocabulary
from ..readers import sentencepiece, tiktoken
from ..readers.gguf_engines import PREFIX
from ..readers.locate import class_of, companion_files, data, first_of, read
from ..readers.mapped_pieces import LANGUAGE
from ..readers.tokenizer_json import from_json
from .tokenizer_differences import differences
from .tokenizer_json import library_json

PATTERNS = ("tokenizer.model", "spiece.model", "sentencepiece*.model", "source.spm")
WORDS = ("MBart50Tokenizer", "MBartTokenizer", "T5Tokenizer", "XLMRobertaTokenizer")
"""Classes that split text at white space, in place of merging spaces."""
MAPPED = ("M2M100Tokenizer", "MarianTokenizer")
"""Classes whose pieces have their ids in vocab.json."""
LONGEST = 1000
"""Pieces of a text whose scores a piece of another model does not outweigh."""
FOREIGN = "\ue000"
"""Stands in front of pieces that are only decoded, of which no text has any."""
OPEN, CLOSE = "\ue001", "\ue002"
"""Stand around runs of characters that the model lacks: each run is one piece, known or not, as in SentencePiece."""
Json = dict[str, Any]


def sentencepiece_json(graph: Graph) -> dict[str, bytes]:
    """tokenizer.json for the SentencePiece model among the files of a model, and a missing
    tokenizer_config.json; nothing for other tokenizers.

    Of pieces that have their ids in vocab.json (Marian, M2M-100), those that it lacks are left out, and those of the
    target's language alone are only decoded, except for runs of characters that the model lacks. What tokenizes
    differently then is noted on the graph."""
    first = first_of(graph)
    if first is None or not any(fnmatch.fnmatchcase(first[0], pattern) for pattern in PATTERNS):
        return {}
    content, tokenizer = data(graph, first[0]), read(graph)
    if tiktoken.looks_like(content) or not tokenizer.origin.startswith("SentencePiece"):
        return {}
    path, files = graph.files[0] if graph.files else None, companion_files(graph)
    model, config = sentencepiece.parsed(content, path), files.config
    kind, scored = class_of(graph), tokenizer
    if "vocab.json" in graph.attachments:
        scored = _scored(tokenizer, model, runs=_has_runs(model, kind))
    made = {"tokenizer.json": _content(scored, model, kind, config)}
    if kind in MAPPED:
        again = from_json(json.dumps(made["tokenizer.json"]), files, {}, path)
        if lost := differences(tokenizer, again):
            graph.note("W-TOKENIZER-DIFFERS", f"tokenizer.json gives {'; '.join(lost)}")
    if not config:
        vocabulary = tokenizer.vocabulary
        names = {f"{role}_token": vocabulary.texts[token] for role, token in vocabulary.roles.items()}
        made["tokenizer_config.json"] = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    return {name: json.dumps(value, ensure_ascii=False).encode() for name, value in made.items()}


def _content(tokenizer: Tokenizer, model: sentencepiece.Model, kind: str, config: Mapping[str, Any]) -> Json:
    unigram = model.kind == sentencepiece.UNIGRAM
    said: Json = {"model": "t5" if unigram else "llama", "add_space_prefix": model.prefixed}
    content = library_json(_marked(tokenizer), {f"{PREFIX}{key}": value for key, value in said.items()})
    assert content is not None
    content["model"]["byte_fallback"] = model.fallback
    steps = _normalizers(model, kind) if unigram or kind in MAPPED else []
    if kind in MAPPED:
        bare = {"type": "Replace", "pattern": {"Regex": f"[{FOREIGN}-{CLOSE}]"}, "content": ""}
        content["decoder"] = {"type": "Sequence", "decoders": [bare, content["decoder"]]}
    if unigram:
        content["normalizer"] = {"type": "Sequence", "normalizers": steps} if steps else None
        marks = _metaspace("always" if model.prefixed else "never", split=True)
        split = [{"type": "WhitespaceSplit"}, marks]
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": split} if kind in WORDS else marks
    elif model.prefixed:
        content["normalizer"] = {"type": "Sequence", "normalizers": steps} if steps else None
        content["pre_tokenizer"] = _metaspace("first" if config.get("legacy") is False else "always", split=False)
    return content


def _normalizers(model: sentencepiece.Model, kind: str) -> list[Json]:
    """Normalizers that run before spaces become marks, as in transformers' tokenizer of this class: translation models'
    remove spaces at the ends too, as SentencePiece does."""
    charsmap = base64.b64encode(model.charsmap).decode()
    steps: list[Json] = [{"type": "Precompiled", "precompiled_charsmap": charsmap}] if model.charsmap else []
    merged = [(" {2,}", " ")] if model.joined and kind not in WORDS else []
    ends = [(r"(?<![\s\S]) +| +(?![\s\S])", "")] if merged and kind in MAPPED else []
    other = f"[^{_character_class(_characters(model))}]"
    runs = [(f"(?<!{other})(?={other})", OPEN), (f"(?<={other})(?!{other})", CLOSE)] if _has_runs(model, kind) else []
    return steps + [
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
        for pattern, content in (*ends, *merged, *runs)
    ]


def _has_runs(model: sentencepiece.Model, kind: str) -> bool:
    return kind in MAPPED and model.kind == sentencepiece.UNIGRAM and not model.fallback


def _characters(model: sentencepiece.Model) -> set[str]:
    """Characters of the model's pieces, and the space."""
    return {" ", *"".join(text for text, _, kind in model.pieces if kind in (NORMAL, USER_DEFINED))}


def _character_class(characters: Iterable[str]) -> str:
    """The inside of a class of regular expressions, in the syntax that Oniguruma and JavaScript share."""
    codes = sorted(map(ord, characters))
    starts = [i for i in range(len(codes)) if not i or codes[i] != codes[i - 1] + 1]
    ranges = [(codes[first], codes[last - 1]) for first, last in itertools.pairwise([*starts, len(codes)])]
    return "".join(f"{_literal(first)}-{_literal(last)}" for first, last in ranges)


def _literal(code: int) -> str:
    return f"\\x{code:02x}" if code < 128 else chr(code)


def _scored(tokenizer: Tokenizer, model: sentencepiece.Model, *, runs: bool) -> Tokenizer:
    """The tokenizer of pieces with ids of their own, with the scores of the model. Others have a score that every
    division into pieces of the model exceeds; codes of languages are found anywhere in a text."""
    scores, characters = {text: score for text, score, _ in model.pieces}, _characters(model)
    lowest = min(scores.values()) * LONGEST
    vocabulary = tokenizer.vocabulary
    texts, kinds = list(vocabulary.texts), list(vocabulary.kinds)
    for token, text in enumerate(vocabulary.texts):
        if LANGUAGE.fullmatch(text):
            kinds[token] = USER_DEFINED
        elif kinds[token] != NORMAL or text in scores:
            continue
        elif runs and characters.isdisjoint(text):
            texts[token] = OPEN + text + CLOSE
        elif len(text) > 1:
            texts[token] = FOREIGN + text
    given = [scores.get(text, lowest) for text in texts]
    scored = Vocabulary(texts, kinds, given, vocabulary.roles, vocabulary.ends)
    marked = Tokenizer(
        scored, tokenizer.engine, opening=tokenizer.opening, closing=tokenizer.closing, origin=tokenizer.origin
    )
    marked.find_languages = tokenizer.find_languages
    return marked


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
