"""Layouts of weights that files keep in one tensor: queries, keys and values; latent keys and values; gates and what they gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.arch import Config
from ...runtime.tensor import Tensor
from .layouts import changed, concatenated

Span = Callable[[Config], tuple[int, int]]


@dataclass(frozen=True)
class Rows:
    """Rows of a matrix or vector from a first to behind a last one. Other rows of weights, in the order of the file, have the rest."""

    span: Span

    def join(self, parts: list[Tensor], config: Config) -> Tensor:
        start, stop = self.span(config)
        if stop > parts[0].shape[0]:
            raise ValueError(f"a tensor {list(parts[0].shape)} has no row {stop - 1}")
        return parts[0][start:stop]

    def split(self, whole: Tensor, config: Config, count: int) -> list[Tensor]:
        return [whole]

    def together(self, pieces: Sequence[Tensor]) -> Tensor:
        """The tensor that has all rows."""
        if pieces[0].shape[1:]:
            return concatenated(pieces, 0)
        first, *others = (piece.cast("f32") for piece in pieces)
        length = sum(piece.shape[0] for piece in pieces)
        return changed(first, (length,), lambda values: np.concatenate([values, *(each.numpy() for each in others)]))


def heads_rows(part: str) -> Rows:
    """Rows of the queries, keys or values (`part`: q, k, v) of a matrix that has them one behind the other."""

    def span(config: Config) -> tuple[int, int]:
        counts = (config.heads, config.kv_heads, config.kv_heads)
        index = "qkv".index(part)
        start = sum(counts[:index]) * config.head_dim
        return start, start + counts[index] * config.head_dim

    return Rows(span)
