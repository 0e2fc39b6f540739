"""A language model in two graphs, embeddings of token ids and a decoder of embeddings, so that others can stand for
ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.ir.graph import Graph
from ...generation.decoder_states import is_state
from ...generation.kv_cache import CACHE_POSITION, Cache, EmbeddedPrompt
from ...generation.language_model import LanguageModel, Placement
from ...layers.decoder import EMBEDS
from ..task_model import opened
from ..text_model import embedding_rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ....runtime.contract.architecture import RunOptions

COUNTED = {EMBEDS, "input_ids", "attention_mask", "position_ids", CACHE_POSITION}
"""Inputs of a decoder that are not made by an encoder."""


class EmbeddedLanguageModel(LanguageModel):
    """A decoder whose graph has the input ``inputs_embeds``, and the graph ``input_ids`` -> ``inputs_embeds``.

    The tokens of a cache's `prompt` have its embeddings, mask and positions; all others are looked up by id. Further
    inputs f32 [batch, length, hidden] of the decoder are zeros outside of the prompt.

    Args:
        decoder, embed_tokens: the graphs.
        context: the most tokens that the model was trained with, None if unknown.
    """

    token_input = EMBEDS

    def __init__(self, decoder: Graph, embed_tokens: Graph, options: RunOptions, context: int | None) -> None:
        self.embed_graph = embed_tokens
        self._embedder = opened(embed_tokens, options, "f32")
        self._filled = [
            value.name
            for value in decoder.inputs
            if value.name not in COUNTED and value.name not in decoder.weights and not is_state(value)
        ]
        self._width = int((decoder.values[EMBEDS].shape or (0,))[-1] or 0)
        axes = decoder.values["position_ids"].shape if "position_ids" in decoder.values else None
        self._axes = int(axes[0] or 1) if axes is not None and len(axes) == 3 else None
        placement = Placement(options.device, options.device_memory, options.gpu_layers)
        super().__init__(decoder, options.threads, options.activations, options.tokenizer, context, placement)
        self.options = options
        self.vocabulary = embedding_rows(embed_tokens)

    def embed_ids(self, ids: np.ndarray) -> np.ndarray:
        """``inputs_embeds`` f32 [batch, length, hidden] of token ids [batch, length]."""
        found: np.ndarray = self._embedder.run([EMBEDS], {"input_ids": ids})[0]
        return found

    def start_with(self, prompt: EmbeddedPrompt) -> Cache:
        """An empty cache whose first tokens will be those of a prompt."""
        cache = self.start(len(prompt.mask))
        cache.prompt = prompt
        return cache

    def rewind(self, cache: Cache, length: int) -> bool:
        """As of `LanguageModel`; False also for a length inside the cache's prompt."""
        prompt = cache.prompt
        if prompt is not None and length < min(prompt.length, cache.length):
            return False
        rewound = super().rewind(cache, length)
        if rewound and prompt is not None and prompt.following is not None:
            cache.token_counts = prompt.following + (length - prompt.length)
        return rewound

    def _token_columns(self) -> tuple[int, ...]:
        return ()

    def _chunk(self, count: int, cache: Cache) -> int:
        whole = cache.prompt is not None and cache.prompt.whole and cache.length < cache.prompt.length
        return count if whole else super()._chunk(count, cache)

    def _token_feeds(self, tokens: np.ndarray, cache: Cache) -> dict[str, np.ndarray]:
        rows = slice(cache.length, cache.length + tokens.shape[1])
        prompt = cache.prompt
        if prompt is not None and cache.length < prompt.length:
            feeds = {name: array[:, rows] for name, array in prompt.inputs.items()}
        else:
            feeds = {EMBEDS: self.embed_ids(tokens)}
        missing = [name for name in self._filled if name not in feeds]
        if missing:
            feeds |= dict.fromkeys(missing, np.zeros((*tokens.shape[:2], self._width), np.float32))
        return {**feeds, "input_ids": tokens}

    def positions_feed(self, positions: np.ndarray) -> np.ndarray:
        """Positions [batch, length] or [axes, batch, length] as the decoder takes them."""
        return positions if positions.ndim > 2 else self._position_feed(positions)

    def _position_feed(self, counted: np.ndarray) -> np.ndarray:
        return counted if self._axes is None else np.repeat(counted[None], self._axes, 0)

    def _run(
        self, output: str, tokens: np.ndarray, cache: Cache, mask: ArrayLike | None, positions: ArrayLike | None
    ) -> Any:
        prompt, start = cache.prompt, cache.length
        if prompt is None or start >= prompt.length:
            return super()._run(output, tokens, cache, mask, positions)
        end = start + tokens.shape[1]
        stated = positions if prompt.positions is None else prompt.positions[..., start:end]
        result = super()._run(output, tokens, cache, prompt.mask[:, start:end], stated)
        if end == prompt.length and prompt.following is not None:
            cache.token_counts = prompt.following
        return result
