"""Files of transformers that Whisper's other formats lack: tokenizer, feature extractor and generation settings, from
the vocabulary and the sizes that those formats state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import UnsupportedError
from .....runtime.contract.architecture import Config
from .....runtime.ir.graph import Graph
from ....preprocess.audio.log_mel import LogMel
from ....preprocess.audio.waveform import FILE as PREPROCESSOR
from ....tokenizer import Tokenizer, read
from ....tokenizer.readers.gguf_engines import PREFIX
from ....tokenizer.readers.locate import first_of, settings
from ....tokenizer.writers.gguf_keys import gguf_metadata
from ....tokenizer.writers.tokenizer_json import library_json
from .speech_tokens import BASE, GENERATION, HEADS, SpeechTokens, special_names, speech_tokens, unspoken

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
TOKENIZER_CLASS = "WhisperTokenizer"
FRAMES = 2
"""Frames of a spectrogram by positions of the encoder."""
DERIVED = "_from_model_config"
"""Key that marks a generation_config.json derived from config.json by transformers."""
MAX_INITIAL_TIMESTAMP = 50
"""The latest first timestamp, in steps of `PRECISION`: a second, as OpenAI's decoder has it."""


def whisper_files(graph: Graph, config: Config) -> dict[str, bytes]:
    """The files by name, without those that the graph has as transformers reads them.

    Args:
        graph: a model in names of transformers; without a vocabulary, that is noted on it.
    """
    found = {} if PREPROCESSOR in graph.attachments else {PREPROCESSOR: _json(_preprocessor(config))}
    tokenizer = _tokenizer(graph)
    if tokenizer is None:
        why = "the source has no vocabulary, which transcribing takes: add one with --tokenizer DIR"
        graph.note("W-TOKENIZER-NONE", why)
    try:
        tokens = speech_tokens(tokenizer or NamedIds(config.vocab))
    except UnsupportedError:
        return found
    if tokenizer is not None:
        named = str(settings(graph, SETTINGS).get("tokenizer_class", "")).removesuffix("Fast") == TOKENIZER_CLASS
        if TOKENIZER not in graph.attachments:
            found[TOKENIZER] = _json(_library(graph, tokens))
        if TOKENIZER not in graph.attachments or not named:
            found[SETTINGS] = _json(_settings(tokenizer, tokens, config.positions))
    stated = {name: value for name, value in settings(graph, GENERATION).items() if name != DERIVED}
    if stated.get("no_timestamps_token_id") is None:
        found[GENERATION] = _json({**_generation(tokens, tokenizer, config), **settings_of(graph), **stated})
    return found


LISTS = ("suppress_tokens", "begin_suppress_tokens")


def settings_of(graph: Graph) -> dict[str, Any]:
    """The lists of suppressed tokens that older models state in config.json."""
    said = settings(graph, "config.json")
    return {name: said[name] for name in LISTS if said.get(name) is not None}


@dataclass(frozen=True)
class NamedIds:
    """The special tokens of a published vocabulary of that size, which replace its tokenizer."""

    vocabulary: int

    def id_of(self, text: str) -> int | None:
        """The id of a special token, None for other texts."""
        names = special_names(self.vocabulary) if self.vocabulary > BASE else []
        return self.vocabulary - len(names) + names.index(text) if text in names else None


def _tokenizer(graph: Graph) -> Tokenizer | None:
    """The tokenizer, None without a vocabulary."""
    return read(graph) if f"{PREFIX}tokens" in graph.metadata or first_of(graph) is not None else None


def _library(graph: Graph, tokens: SpeechTokens) -> Mapping[str, Any]:
    """tokenizer.json, in which timestamps are not special tokens."""
    held = {key: value for key, value in graph.metadata.items() if key.startswith(PREFIX)}
    keys = held or gguf_metadata(graph, "whisper", None)
    content = library_json(read(Graph(metadata=keys)), keys)
    if content is None:
        raise UnsupportedError("E-SPEECH-TOKENS", None, "the vocabulary is not one of byte-level BPE")
    added = [{**each, "special": each["id"] < tokens.first_timestamp} for each in content["added_tokens"]]
    return {**content, "added_tokens": added}


def _settings(tokenizer: Tokenizer, tokens: SpeechTokens, length: int) -> Mapping[str, Any]:
    """tokenizer_config.json."""
    texts = tokenizer.vocabulary.texts
    end, plain = texts[tokens.end], {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    added = {
        str(token): {"content": texts[token], **plain, "special": token < tokens.first_timestamp}
        for token in range(tokens.end, len(texts))
    }
    return {
        "tokenizer_class": TOKENIZER_CLASS,
        "processor_class": "WhisperProcessor",
        "model_max_length": length,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "return_attention_mask": False,
        **{f"{role}_token": end for role in ("bos", "eos", "unk", "pad")},
        "additional_special_tokens": [texts[token] for token in range(tokens.end, tokens.first_timestamp)],
        "added_tokens_decoder": added,
    }


def _preprocessor(config: Config) -> Mapping[str, Any]:
    """preprocessor_config.json."""
    usual = LogMel(config.bands)
    mel = LogMel(config.bands, seconds=max(1, config.source_positions * FRAMES * usual.hop // usual.rate))
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": mel.mels,
        "sampling_rate": mel.rate,
        "n_fft": mel.fft,
        "hop_length": mel.hop,
        "chunk_length": mel.seconds,
        "n_samples": mel.samples,
        "nb_max_frames": mel.frames,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


def _generation(tokens: SpeechTokens, tokenizer: Tokenizer | None, config: Config) -> Mapping[str, Any]:
    """generation_config.json: what transcribing takes where the source does not state it."""
    many = bool(tokens.languages)
    lists: dict[str, Sequence[int]] = {}
    if tokenizer is not None:
        blank = tokenizer.encode(" ", special=False, add_bos=False, add_eos=False)
        lists["suppress_tokens"] = sorted({*unspoken(tokenizer), *tokens.suppressed})
        lists["begin_suppress_tokens"] = [*blank, tokens.end]
    layers = range(config.decoder_layers // 2, config.decoder_layers)
    ids = {
        "lang_to_id": {f"<|{code}|>": token for code, token in tokens.languages.items()},
        "task_to_id": dict(tokens.tasks),
    }
    return {
        HEADS: [[layer, head] for layer in layers for head in range(config.heads)],
        **{f"{role}_token_id": tokens.end for role in ("bos", "eos", "pad")},
        "decoder_start_token_id": tokens.start,
        "no_timestamps_token_id": tokens.no_timestamps,
        **({} if tokens.previous is None else {"prev_sot_token_id": tokens.previous}),
        "is_multilingual": many,
        **(ids if many else {}),
        **lists,
        "max_initial_timestamp_index": MAX_INITIAL_TIMESTAMP,
        "max_length": config.positions,
        "return_timestamps": False,
    }


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()
