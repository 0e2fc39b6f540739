"""Prefill chunks: how many prompt tokens are processed per run."""

from __future__ import annotations

MAX_CHUNK = 512
"""Maximum chunk length in tokens."""
CPU_CHUNK = 256
"""Chunk length in tokens beyond which the CPU gets no faster and only uses more memory."""


def chunk_length(count: int, short: int) -> int:
    """Chunk length for `count` tokens: at most `short` if it divides them evenly, so that one plan serves all chunks,
    else at most `MAX_CHUNK`."""
    least = -(-count // short)
    number = next((number for number in range(least, 2 * least) if count % number == 0), 0)
    return count // number if number else min(count, MAX_CHUNK)
