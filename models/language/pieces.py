"""Pieces: how many tokens of a prompt are taken at a time."""

from __future__ import annotations

MOST = 512
"""Tokens that are taken at a time where they do not come in shorter pieces of one length."""
SHORT = 256
"""Tokens from which on more at a time are no faster on the CPU, and only take more memory."""


def piece(count: int, short: int) -> int:
    """The length of a piece of `count` tokens: at most `short` where all pieces are as long, so that one plan does for them, else at most `MOST`."""
    least = -(-count // short)
    number = next((number for number in range(least, 2 * least) if count % number == 0), 0)
    return count // number if number else min(count, MOST)
