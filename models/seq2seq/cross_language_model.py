"""The decoder of an encoder-decoder as a language model: its cache holds what the encoder made of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..generation.decoder_states import empty_states, growing_axis, numpy_dtype
from ..generation.kv_cache import Cache
from ..generation.language_model import LanguageModel
from .decoder import TEXTS

SOURCE_MASK = "encoder_attention_mask"
USUAL_SOURCE = 16
"""Tokens of a source for which kernels are compiled ahead."""


class CrossLanguageModel(LanguageModel):
    """A decoder with the inputs ``encoder_attention_mask`` and ``cross_key_values``.

    A text may have several rows of the batch, which share its keys and values.
    """

    def start(self, batch: int, source: Mapping[str, np.ndarray] | None = None) -> Cache:
        """An empty cache of `batch` rows.

        Args:
            source: the inputs that the encoder computed, and its mask; None for zeros of a usual length.
        """
        return Cache(empty_states(self._states, batch), batch, self._empty_source(batch) if source is None else source)

    def select(self, cache: Cache, parents: Sequence[int] | np.ndarray, rows: int) -> None:
        """Continue row ``parents[i]`` of a cache in row i, and drop texts whose rows are not continued.

        Args:
            parents: text by text, `rows` rows of each.
        """
        chosen, before = np.asarray(parents), len(cache.mask_buffer)
        texts = len(cache.source[SOURCE_MASK])
        kept = chosen[::rows] // (before // texts)
        if len(kept) != texts:
            cache.source = {name: array[kept] for name, array in cache.source.items()}
            cache.decode_step = None
        if len(chosen) != before:
            cache.states = {name: array[chosen] for name, array in cache.states.items()}
            cache.mask_buffer = cache.mask_buffer[chosen]
            cache.decode_step = None
        else:
            self._move_rows(cache, chosen)
        cache.token_counts = cache.token_counts[chosen]

    def _move_rows(self, cache: Cache, chosen: np.ndarray) -> None:
        """Copy the tokens of rows that change, in place, so that a decode step stays valid."""
        (moved,) = np.nonzero(chosen != np.arange(len(chosen)))
        for value in self._states if len(moved) else ():
            axis = growing_axis(value)
            assert axis is not None
            used = np.moveaxis(cache.states[value.name], axis, 1)[:, : cache.length]
            used[moved] = used[chosen[moved]]
        cache.mask_buffer[moved] = cache.mask_buffer[chosen[moved]]

    def _empty_source(self, batch: int) -> dict[str, np.ndarray]:
        lengths: dict[Any, int] = {TEXTS: batch}
        return {
            value.name: np.zeros(
                [dim if isinstance(dim, int) else lengths.get(dim, USUAL_SOURCE) for dim in value.shape or ()],
                numpy_dtype(value),
            )
            for value in self.graph.inputs
            if value.name.startswith("cross_") or value.name == SOURCE_MASK
        }
