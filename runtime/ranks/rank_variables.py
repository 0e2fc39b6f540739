"""Environment variables of ranks: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them, and
CANDLE_RANK_KEY."""

from __future__ import annotations

import os
import re

from ..base.errors import UsageError, printable

RANK, SIZE, HOST, PORT, KEY = "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CANDLE_RANK_KEY"
MAX_RANKS, MAX_PORT = 1 << 16, (1 << 16) - 1
MAX_SHOWN = 40
"""Characters of a value in a message."""


def is_rank() -> bool:
    """Whether RANK is set: ranks are started already."""
    return bool(os.environ.get(RANK))


def rank(size: int = MAX_RANKS) -> int:
    """RANK, 0 without it. UsageError for a value that is not one of `size` ranks."""
    return _integer(RANK, 0, 0, size - 1)


def world_size(default: int) -> int:
    """WORLD_SIZE, or `default` without it. UsageError for a value that is not a number of ranks."""
    return _integer(SIZE, default, 1, MAX_RANKS)


def port() -> int:
    """MASTER_PORT. UsageError if it is missing or not a port."""
    return _integer(PORT, None, 1, MAX_PORT)


def key() -> bytes:
    """CANDLE_RANK_KEY. UsageError if it is missing or not hexadecimal."""
    text = os.environ.get(KEY, "")
    if not re.fullmatch(r"(?:[0-9a-fA-F]{2})+", text):
        why = f"{KEY} is not set" if not text else f"{KEY} is not hexadecimal"  # a secret is not shown
        raise UsageError("E-RANK-VARIABLE", None, why, expected="two hexadecimal digits for each byte of a secret")
    return bytes.fromhex(text)


def _integer(name: str, default: int | None, low: int, high: int) -> int:
    text = os.environ.get(name, "")
    if not text and default is not None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
        shown = printable(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…")
        why = f"{name}={shown!r} is not valid" if text else f"{name} is not set"
        raise UsageError("E-RANK-VARIABLE", None, why, expected=f"an integer from {low} to {high}")
    return int(text)
