"""Packed batches: texts of about equal total lengths side by side in one row, without padding."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

MAX_TOKENS = 1024
"""Tokens of a batch, unless one text is longer."""
MIN_TOKENS = 256
"""Tokens from which a batch is worth a thread of its own."""
SIZES_PER_OCTAVE = 32
"""Lengths of rows between a power of two and the next; each is planned once."""
MIN_STEP = 4


def concurrent_batches(lengths: Sequence[int], threads: int) -> int:
    """Number of batches of texts to run at a time on so many threads: all, or one on all threads."""
    return threads if len(lengths) >= threads and sum(lengths) >= threads * MIN_TOKENS else 1


def balanced(lengths: Sequence[int], texts: int, threads: int = 1) -> list[list[int]]:
    """Indices of texts in batches of at most `texts`, whose total lengths are about equal and about `MAX_TOKENS` at
    most: the longest text first, each to the batch that is the shortest so far. Their number is a multiple of
    `threads`."""
    count = max(-(-len(lengths) // texts), -(-sum(lengths) // MAX_TOKENS))
    count = -(-count // threads) * threads
    batches: list[list[int]] = [[] for _ in range(count)]
    shortest = [(0, number) for number in range(count)]
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        total, number = heapq.heappop(shortest)
        batches[number].append(index)
        if len(batches[number]) < texts:
            heapq.heappush(shortest, (total + lengths[index], number))
    return [batch for batch in batches if batch]


def row_length(tokens: int) -> int:
    """The length of a row that holds some tokens: one of a few, so that plans are reused."""
    step = max(MIN_STEP, (1 << tokens.bit_length()) // (2 * SIZES_PER_OCTAVE))
    return -(-tokens // step) * step


def unpacked(hidden: np.ndarray, lengths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Hidden states [1, tokens, width] of texts as [texts, longest, width] with zeros after shorter ones, and the mask
    of their tokens, bool [texts, longest]."""
    mask = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
    found = np.zeros((*mask.shape, hidden.shape[-1]), hidden.dtype)
    found[mask] = hidden[0, : sum(lengths)]
    return found, mask
