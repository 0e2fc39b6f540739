"""Lengths of texts for encoders: tokens are counted, and texts that a model would cut are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runtime.base.units import counted
from .call import Call
from .requests.http_error import bad_request
from .served_model import ServedModel


async def counted_tokens(call: Call, model: ServedModel, texts: Sequence[Any], *, cut: bool, name: str) -> int:
    """Tokens of texts, pairs of texts and lists of ids, special ones included; 0 for a model without texts.

    Args:
        cut: whether the model may cut texts that are too long; HTTPError 400 otherwise.
        name: the field of the texts.
    """
    if model.takes != "texts":
        return 0
    return await call.prepared(_count, model.model, list(texts), cut, name)


def _count(model: Any, texts: list[Any], cut: bool, name: str) -> int:
    tokenizer, limit = model.tokenizer, model.text_limit
    total = 0
    for number, text in enumerate(texts):
        if isinstance(text, list):
            unknown = next((token for token in text if not 0 <= token < len(tokenizer)), None)
            if unknown is not None:
                raise bad_request(f"{name}[{number}] has the unknown token {unknown}", name)
            count = len(text)
        else:
            count = tokenizer.encodings([text])[0][1]
        if limit is not None and count > limit and (not cut or isinstance(text, list)):
            message = f"{name}[{number}] has {counted(count, 'token')}, the model takes {limit:,}"
            raise bad_request(message, name, "context_length_exceeded")
        total += count
    return total
