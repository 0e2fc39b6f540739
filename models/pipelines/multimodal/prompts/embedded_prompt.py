"""Embedded prompts: the first tokens of a sequence as embeddings, some of them of pictures or sounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .....runtime.base.dataclass import dataclass


@dataclass(frozen=True, eq=False)
class EmbeddedPrompt:
    """What stands for the token ids of a batch of prompts, padded on the left.

    Attributes:
        inputs: f32 arrays [batch, length, hidden] by the decoder's names of inputs: ``inputs_embeds`` and others that
            an encoder fills where its placeholders are.
        mask: i64 [batch, length]: 0 for padding, 1 for tokens, larger for groups of them, as of `Decoder`.
        positions: i64 [axes, batch, length]; None to count along the mask.
        following: i64 [batch, 1], the position of the first token after the prompt, if `positions` are given.
    """

    inputs: Mapping[str, np.ndarray]
    mask: np.ndarray
    positions: np.ndarray | None = None
    following: np.ndarray | None = None

    @property
    def length(self) -> int:
        """Tokens of each row, padding included."""
        return int(self.mask.shape[1])

    @property
    def whole(self) -> bool:
        """Whether all of it has to be one run: tokens of a group attend to later ones."""
        return bool((self.mask > 1).any())
