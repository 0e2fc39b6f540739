"""Ids of a tokenizer that may be another model's."""

from __future__ import annotations

from collections.abc import Sequence

from .....runtime.base.errors import UsageError


def checked(ids: Sequence[int], count: int) -> Sequence[int]:
    """The ids. UsageError for those beyond the `count` tokens of a model."""
    wrong = next((token for token in ids if not 0 <= token < count), None)
    if wrong is not None:
        why = "the model has no such token; is the tokenizer this model's?"
        raise UsageError("E-TOKENIZER-ID", None, why, expected=f"0 to {count - 1:,}", found=wrong)
    return ids
