"""The decoder of an encoder-decoder as a language model: its cache holds what the encoder made of the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.ir.graph import Value
from ..generation.decoder_states import empty_states, numpy_dtype
from ..generation.kv_cache import Cache
from ..generation.language_model import LanguageModel
from .decoder import SOURCE_MASK, TEXTS

USUAL_SOURCE = 16
"""Tokens of a source for which kernels are compiled ahead."""


class CrossLanguageModel(LanguageModel):
    """A decoder with the inputs ``encoder_attention_mask`` and ``cross_key_values``.

    A text may have several rows of the batch, which share its keys and values.
    """

    initial_capacity = 64

    def start(self, batch: int, source: Mapping[str, np.ndarray] | None = None) -> Cache:
        """An empty cache of `batch` rows.

        Args:
            source: the inputs that the encoder computed, and its mask; None for zeros of a usual length.
        """
        return Cache(empty_states(self._states, batch), batch, self._empty_source(batch) if source is None else source)

    def source(
        self, hidden: np.ndarray, mask: np.ndarray | None, key_values: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The inputs that the decoder has of an encoder's outputs: hidden states, their mask unless it is None, and
        keys and values."""
        return {**({} if mask is None else {SOURCE_MASK: mask}), **key_values}

    def select(self, cache: Cache, parents: Sequence[int] | np.ndarray, rows: int) -> None:
        """Continue row ``parents[i]`` of a cache in row i, and drop texts whose rows are not continued.

        Args:
            parents: text by text, `rows` rows of each.
        """
        chosen, before = np.asarray(parents), len(cache.mask_buffer)
        texts = len(next(iter(cache.source.values())))
        kept = chosen[::rows] // (before // texts)
        if len(kept) != texts:
            cache.source = {name: array[kept] for name, array in cache.source.items()}
            cache.decode_step = None
        writers = cache.writers()
        if len(chosen) != before:
            cache.states = {name: _chosen(array, chosen, cache.length) for name, array in cache.states.items()}
            cache.mask_buffer = cache.mask_buffer[chosen]
            cache.decode_step = None
        else:
            self._move_rows(cache, chosen, writers)
        cache.written_by = writers[chosen]
        cache.token_counts = cache.token_counts[chosen]

    def _move_rows(self, cache: Cache, chosen: np.ndarray, writers: np.ndarray) -> None:
        """Copy what differs between rows that change and those that they continue, in place, so that a decode step
        stays valid."""
        (moved,) = np.nonzero(chosen != np.arange(len(chosen)))
        sources = chosen[moved]
        (differing,) = np.nonzero((writers[moved] != writers[sources]).any(0))
        if len(differing):
            tokens = slice(differing[0], differing[-1] + 1)
            for array in cache.states.values():
                array[moved, :, tokens] = array[sources, :, tokens]
        cache.mask_buffer[moved] = cache.mask_buffer[sources]

    def _row_inputs(self) -> set[str]:
        """Sources of different lengths need their mask."""
        return super()._row_inputs() | {value.name for value in self.source_values()} if self.takes_mask else set()

    @property
    def takes_mask(self) -> bool:
        """Whether sources of a batch may have different lengths."""
        return SOURCE_MASK in self._names

    def source_values(self) -> list[Value]:
        """The inputs that an encoder makes."""
        return [value for value in self.graph.inputs if value.name.startswith("cross_") or value.name == SOURCE_MASK]

    def _empty_source(self, batch: int) -> dict[str, np.ndarray]:
        lengths: dict[Any, int] = {TEXTS: batch}
        return {
            value.name: np.zeros(
                [dim if isinstance(dim, int) else lengths.get(dim, USUAL_SOURCE) for dim in value.shape or ()],
                numpy_dtype(value),
            )
            for value in self.source_values()
        }


def _chosen(state: np.ndarray, rows: np.ndarray, length: int) -> np.ndarray:
    """Rows of a state [batch, heads, capacity, head_dim], of which `length` tokens are used."""
    made = np.zeros((len(rows), *state.shape[1:]), state.dtype)
    made[:, :, :length] = state[rows, :, :length]
    return made
