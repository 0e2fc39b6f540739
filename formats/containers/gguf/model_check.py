"""Consistency checks of GGUF keys: vocabulary arrays of equal length, valid token ids, plausible sizes.

Source: llama.cpp's loading of vocabularies and hyper-parameters (llama-vocab.cpp, llama-model.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ....runtime.base.errors import FormatError
from ....runtime.base.string_array import StringArray
from ....runtime.base.units import counted
from ....runtime.contract.format import Finding
from .header import Header

TOKENS = "tokenizer.ggml.tokens"
MERGES = "tokenizer.ggml.merges"
PER_TOKEN = (("tokenizer.ggml.scores", "fiu", "f32"), ("tokenizer.ggml.token_type", "iu", "i32"))
"""Arrays with one element per token: numpy kinds of the elements, and the type that llama.cpp reads."""
TOKEN_ID = re.compile(r"tokenizer\.ggml\.\w+_token_id")
ABSENT_ID = 0xFFFFFFFF
BYTE_TOKEN = 6
BYTE_TEXT = re.compile(r"<0x[0-9A-Fa-f]{2}>")
MANY_BLOCKS = 1 << 16


def check_model(header: Header, n_tensors: int) -> None:
    """Raise FormatError if keys contradict each other in a way that breaks readers."""
    metadata = header.metadata

    def malformed(code: str, key: str, why: str, **sides: Any) -> FormatError:
        hint = "Convert the original model again"
        return FormatError(code, header.source.path, f"{key} {why}", at=header.where[key], hint=hint, **sides)

    for key in (TOKENS, MERGES):
        if key in metadata and not isinstance(metadata[key], list | StringArray):
            raise malformed("E-GGUF-TOKENIZER", key, "is not an array of strings")
    tokens = metadata.get(TOKENS)
    for key, kinds, _ in PER_TOKEN:
        value = metadata.get(key)
        if value is None:
            continue
        if getattr(value, "ndim", None) != 1 or value.dtype.kind not in kinds:
            raise malformed("E-GGUF-TOKENIZER", key, "is not an array of the expected type")
        if tokens is not None and len(value) != len(tokens):
            raise malformed(
                "E-GGUF-TOKENIZER", key, "does not have one element per token", expected=len(tokens), found=len(value)
            )
    key = _key(header, "block_count")
    blocks = _integer(metadata.get(key))
    if blocks is not None and blocks > max(MANY_BLOCKS, n_tensors):
        raise malformed("E-GGUF-HPARAM", key, f"is {blocks:,} with {counted(n_tensors, 'tensor')}")


def model_findings(header: Header) -> Iterator[Finding]:
    """Findings about keys on which a program that loads the model would fail."""
    for code, severity, key, message in (*_tokenizer(header), *_hyper_parameters(header)):
        yield Finding(code, severity, message, header.where.get(key))


def _tokenizer(header: Header) -> Iterator[tuple[str, str, str, str]]:
    metadata = header.metadata
    for key, _, wanted in PER_TOKEN:
        value = metadata.get(key)
        zeros = value is not None and value.itemsize == 4 and not value.any()  # which every type of 32 bits reads alike
        if value is not None and not zeros and f"{value.dtype.kind}{8 * value.dtype.itemsize}" != wanted:
            yield (
                "E-GGUF-TOKENIZER",
                "error",
                key,
                f"{key} is an array of {value.dtype.name}, llama.cpp reads {wanted} only",
            )
    tokens = metadata.get(TOKENS)
    if tokens is None:
        return
    for key in filter(TOKEN_ID.fullmatch, metadata):
        number = _integer(metadata[key])
        if number is None or not 0 <= number < len(tokens):
            severity = "warning" if number in (ABSENT_ID, -1) else "error"
            yield (
                "E-GGUF-TOKENIZER",
                severity,
                key,
                f"{key} is {metadata[key]}, the vocabulary has {counted(len(tokens), 'token')}",
            )
    kinds = metadata.get(PER_TOKEN[1][0])
    broken = _broken_byte_tokens(tokens, kinds)
    if broken:
        why = f"token {broken[0]} is a byte token but reads {str(tokens[broken[0]])[:20]!r}; {len(broken)} such tokens"
        yield "E-GGUF-TOKENIZER", "error", TOKENS, why


def _broken_byte_tokens(tokens: list[Any], kinds: Any) -> list[int]:
    import numpy

    if kinds is None:
        return []
    marked: Iterable[int] = numpy.flatnonzero(kinds == BYTE_TOKEN).tolist()
    return [index for index in marked if not (isinstance(tokens[index], str) and BYTE_TEXT.fullmatch(tokens[index]))]


def _hyper_parameters(header: Header) -> Iterator[tuple[str, str, str, str]]:
    key = _key(header, "attention.head_count")
    attention = any(".attn_q" in info.name for info in header.tensors)
    if attention and _integer(header.metadata.get(key)) == 0:
        yield "E-GGUF-HPARAM", "error", key, f"{key} is 0, yet there are attention weights"


def _key(header: Header, name: str) -> str:
    return f"{header.metadata.get('general.architecture')}.{name}"


def _integer(value: Any) -> int | None:
    import numpy

    return int(value) if isinstance(value, numpy.integer) else None
