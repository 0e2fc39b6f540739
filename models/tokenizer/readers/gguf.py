"""Tokenizers from the ``tokenizer.ggml`` keys of GGUF files, equivalent to llama.cpp's.

Source: the GGUF specification; llama.cpp's llama_vocab::impl::load.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.base.string_array import StringArray
from ....runtime.contract.hyperparameter import Integer, ParameterError, checked, flag, plain, shown, word
from ..algorithm.pre_tokenizer import DEFAULT, PRE, Splitting
from ..core.special_roles import corrected, end_tokens, found_by_text
from ..core.tokenizer import Tokenizer
from ..core.vocabulary import KINDS, NORMAL, Vocabulary
from .gguf_engines import built

PREFIX = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
ROLE_KEYS = {
    "bos": "bos",
    "eos": "eos",
    "eot": "eot",
    "eom": "eom",
    "unk": "unknown",
    "sep": "seperator",
    "pad": "padding",
    "cls": "cls",
    "mask": "mask",
    "fim_pre": "fim_pre",
    "fim_suf": "fim_suf",
    "fim_mid": "fim_mid",
    "fim_pad": "fim_pad",
    "fim_rep": "fim_rep",
    "fim_sep": "fim_sep",
}
"""Middle of the key of each role (with the specification's spelling)."""


@dataclass(frozen=True)
class Kind:
    """A vocabulary type.

    Attributes:
        roles: default ids by role.
        add_bos, add_eos: defaults of adding BOS and EOS.
        separated: whether every text is enclosed in BOS (CLS) and the separator.
    """

    name: str
    roles: Mapping[str, int]
    add_bos: bool = False
    add_eos: bool = False
    separated: bool = False


KINDS_OF_MODELS = {
    "llama": Kind("SentencePiece BPE", {"bos": 1, "eos": 2, "unk": 0}, add_bos=True),
    "gpt2": Kind("byte-level BPE", {"bos": 11, "eos": 11}),
    "whitespace": Kind("BPE of words", {"bos": 11, "eos": 11}),
    "gemma4": Kind("BPE", {}),
    "t5": Kind("unigram", {"eos": 1, "unk": 2, "pad": 0}, add_eos=True),
    "bert": Kind("WordPiece", {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103}, separated=True),
    "rwkv": Kind("RWKV", {}),
}
"""Vocabulary types by ``tokenizer.ggml.model``."""


def _octets(value: Any) -> Any:
    """Bytes, as an array of them."""
    if not isinstance(value, list) or not all(isinstance(each, int) and -128 <= each < 256 for each in value):
        raise ValueError(f"{shown(value)} is not an array of bytes")
    return value


TYPES: dict[str, Callable[[Any], Any]] = {
    "model": word,
    "pre": word,
    "add_bos_token": flag,
    "add_eos_token": flag,
    "add_space_prefix": flag,
    "remove_extra_whitespaces": flag,
    "normalizer.lowercase": flag,
    "precompiled_charsmap": _octets,
}
"""Expected types of keys with a single value."""
ID = Integer(-1, 2**32 - 1)
"""A token id; -1, or 2^32 - 1 in unsigned files, means no token."""
BPE_MODELS = ("gpt2", "gemma4")


def from_gguf(metadata: Mapping[str, Any], path: str | None = None) -> Tokenizer:
    """The tokenizer in a GGUF file's metadata.

    Raises UnsupportedError for an unknown vocabulary type or pre-tokenizer, FormatError for arrays that contradict each
    other.
    """
    _check_types(metadata, path)
    model = metadata.get(f"{PREFIX}model", "llama")
    if model not in KINDS_OF_MODELS:
        hint = f"Known types: {', '.join(KINDS_OF_MODELS)}"
        raise UnsupportedError("E-TOKENIZER-KIND", path, f"unknown vocabulary type {model!r}", hint=hint)
    kind = KINDS_OF_MODELS[model]
    splitting = _splitting(metadata, model, path)
    vocabulary = _vocabulary(metadata, kind, path)
    opening, closing = _ends(metadata, kind, splitting if model in BPE_MODELS else None, vocabulary)
    engine = built(model, metadata, vocabulary, splitting, path)
    origin = f"GGUF, {kind.name}" + (
        f", {metadata[f'{PREFIX}pre']}" if model == "gpt2" and f"{PREFIX}pre" in metadata else ""
    )
    return Tokenizer(vocabulary, engine, opening=opening, closing=closing, templates=templates(metadata), origin=origin)


def _check_types(metadata: Mapping[str, Any], path: str | None) -> None:
    """FormatError for a key whose value has another type than readers expect."""
    ids: dict[str, Callable[[Any], Any]] = {f"{name}_token_id": ID for name in ("separator", *ROLE_KEYS.values())}
    for name, kind in (TYPES | ids).items():
        key = f"{PREFIX}{name}"
        if key in metadata:
            try:
                checked(key, plain(metadata[key]), kind)
            except ParameterError as error:
                why = f"invalid {key}: {error}"
                raise FormatError(
                    "E-TOKENIZER-KEY", path, why, hint="Convert the model again with its tokenizer"
                ) from error


def templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Chat templates by name."""
    found = {"default": metadata[TEMPLATE]} if isinstance(metadata.get(TEMPLATE), str) else {}
    named = {
        key.removeprefix(f"{TEMPLATE}."): value
        for key, value in metadata.items()
        if isinstance(key, str) and key.startswith(f"{TEMPLATE}.")
    }
    return found | {name: value for name, value in named.items() if isinstance(value, str)}


def _splitting(metadata: Mapping[str, Any], model: str, path: str | None) -> Splitting:
    name = "gemma4" if model == "gemma4" else metadata.get(f"{PREFIX}pre", "default")
    if model not in BPE_MODELS:
        return DEFAULT
    if name not in PRE:
        hint = f"Known: {', '.join(sorted(PRE))}"
        raise UnsupportedError("E-TOKENIZER-PRE", path, f"the pre-tokenizer {name!r} is not known", hint=hint)
    return PRE[name]


def _vocabulary(metadata: Mapping[str, Any], kind: Kind, path: str | None) -> Vocabulary:
    tokens = metadata.get(f"{PREFIX}tokens")
    if not isinstance(tokens, list | StringArray):
        why = "lacks a vocabulary: tokenizer.ggml.tokens is missing"
        raise FormatError("E-TOKENIZER-TOKENS", path, why, hint="Convert the model again with its tokenizer")
    texts = _texts(tokens)
    marked = _numbers(metadata, "token_type", len(texts), NORMAL, path)
    kinds = np.where((marked >= min(KINDS)) & (marked <= max(KINDS)), marked, NORMAL).astype(np.uint8).tobytes()
    scores = array("d", _numbers(metadata, "scores", len(texts), 0.0, path).astype(np.float64).tobytes())
    roles = {role: token for role, token in kind.roles.items() if token < len(texts)}
    for role, middle in ROLE_KEYS.items():
        said = _integer(metadata.get(f"{PREFIX}{middle}_token_id"))
        if said is None and role == "sep":
            said = _integer(metadata.get(f"{PREFIX}separator_token_id"))
        if said is not None and 0 <= said < len(texts):
            roles[role] = said
    if (
        metadata.get(f"{PREFIX}pre") in ("chatglm-bpe", "glm4", "glm5")
        and _integer(metadata.get(f"{PREFIX}bos_token_id")) is None
    ):
        roles.pop("bos", None)
    vocabulary = Vocabulary(texts, kinds, scores, roles)
    roles |= found_by_text(vocabulary)
    ends = end_tokens(vocabulary)
    return vocabulary.changed(corrected(vocabulary, ends), ends)


def _texts(tokens: list[Any] | StringArray) -> Sequence[str]:
    if isinstance(tokens, StringArray):
        if (tokens.ends > tokens.starts).all():
            return tokens
        tokens = tokens.tolist()
    if set(map(type, tokens)) != {str}:
        tokens = [token if isinstance(token, str) else bytes(token).decode("utf-8", "replace") for token in tokens]
    return [text or f"[EMPTY_{token}]" for token, text in enumerate(tokens)] if "" in tokens else tokens


def _numbers(metadata: Mapping[str, Any], name: str, count: int, absent: float, path: str | None) -> np.ndarray:
    """One element per token."""
    value = metadata.get(f"{PREFIX}{name}")
    found = np.full(count, absent) if value is None else np.asarray(value)
    if len(found) != count:
        raise FormatError(
            "E-TOKENIZER-TOKENS",
            path,
            f"tokenizer.ggml.{name} does not have one element per token",
            expected=count,
            found=len(found),
        )
    return found


def _integer(value: Any) -> int | None:
    return (
        int(value)
        if hasattr(value, "__index__") and not isinstance(value, bool) and not hasattr(value, "__len__")
        else None
    )


def _flag(metadata: Mapping[str, Any], name: str, absent: bool) -> bool:
    value = metadata.get(f"{PREFIX}{name}")
    return absent if value is None else bool(value)


def _ends(
    metadata: Mapping[str, Any], kind: Kind, splitting: Splitting | None, vocabulary: Vocabulary
) -> tuple[list[int], list[int]]:
    """Ids added at the start and end of a text."""
    wanted = _flag(metadata, "add_bos_token", splitting.add_bos if splitting else kind.add_bos)
    always = kind.separated or (splitting is not None and splitting.newlines)
    closing = "sep" if kind.separated else "eos" if _flag(metadata, "add_eos_token", kind.add_eos) else None
    return _ids(vocabulary, "bos" if wanted or always else None), _ids(vocabulary, closing)


def _ids(vocabulary: Vocabulary, role: str | None) -> list[int]:
    token = vocabulary.roles.get(role) if role else None
    return [] if token is None else [token]
