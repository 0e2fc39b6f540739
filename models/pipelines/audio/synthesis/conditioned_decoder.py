"""A decoder with an input that is the same for all tokens: a speaker's vector, or the hidden state of another model."""

from __future__ import annotations

import numpy as np

from ....generation.decoder_states import is_state
from ....generation.kv_cache import Cache
from ....generation.language_model import LanguageModel


class ConditionedDecoder(LanguageModel):
    """A language model whose graph has one further input, f32 [batch, width]."""

    initial_capacity = 64

    def start(self, batch: int, condition: np.ndarray | None = None) -> Cache:
        """An empty cache.

        Args:
            condition: the further input; None for zeros.
        """
        cache = super().start(batch)
        name, width = self.condition
        cache.source = {name: np.zeros((batch, width), np.float32) if condition is None else condition}
        return cache

    @property
    def condition(self) -> tuple[str, int]:
        """Name and width of the further input."""
        (found,) = (
            value
            for value in self.graph.inputs
            if not is_state(value) and value.dtype is not None and value.dtype.name == "f32"
        )
        return found.name, int((found.shape or (0,))[-1] or 0)
