"""Vocabulary check: whether the ids of a tokenizer fit the embedding of a model."""

from __future__ import annotations

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted


def check_vocabulary(largest: int, rows: int | None) -> None:
    """UsageError for an id that an embedding of `rows` rows does not have; None if their number is not known."""
    if rows is not None and largest >= rows:
        why = f"the tokenizer gives the id {largest:,}, the model has {counted(rows, 'embedding')}"
        raise UsageError("E-EVAL-VOCABULARY", None, why, hint="Use the tokenizer of this model")
