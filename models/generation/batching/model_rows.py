"""Rows for a model: batched where its states allow it, one after another otherwise."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ...tokenizer import Tokenizer
from ..kv_cache import Cache
from . import batched_rows
from .batched_rows import BatchedRows
from .rows import Rows, SeparateRows, StepwiseModel

MAX_CONTEXT = 8192
"""Most tokens of a batched row unless more are asked for."""


class RowModel(batched_rows.RowModel, StepwiseModel, Protocol):
    """The interface of a language model; see `LanguageModel`."""

    context: int | None

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def can_batch(self) -> bool: ...
    @property
    def rotary_by_length(self) -> str | None: ...
    def start(self, batch: int) -> Cache: ...


@runtime_checkable
class MakesRows(Protocol):
    """A model with rows of its own; see `EncoderDecoderModel`."""

    @property
    def tokenizer(self) -> Tokenizer: ...
    def decoding_rows(self, count: int, context: int | None, max_memory: int | None) -> Rows: ...


BatchModel = RowModel | MakesRows
"""Models that the engine runs."""


def decoding_rows(model: BatchModel, count: int, context: int | None, max_memory: int | None) -> Rows:
    """Rows for the engine; arguments as of `Engine`."""
    if isinstance(model, MakesRows):
        return model.decoding_rows(count, context, max_memory)
    if not model.can_batch:
        return SeparateRows(model, context or model.context, lambda request: model.start(1))
    return BatchedRows(model, count, context or min(model.context or MAX_CONTEXT, MAX_CONTEXT), max_memory)
