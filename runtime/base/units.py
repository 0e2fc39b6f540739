"""Sizes and counts for people, and ratios in decibels."""

from __future__ import annotations

import math


def human_size(nbytes: float) -> str:
    """``2.05 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.2f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} TiB"


def human_count(number: int) -> str:
    """``268 M``, ``8.03 B``: three digits and thousands, millions, billions or trillions; small numbers as they are."""
    if number < 1000:
        return str(number)
    value, unit = float(number), ""
    for following in ("K", "M", "B", "T"):
        if round(value, 2) < 999.5:
            break
        value, unit = value / 1000, following
    return (
        f"{value:.{max(0, 3 - len(str(int(value))))}f} {unit}"
        if value >= 99.95 or value != int(value)
        else f"{value:.0f} {unit}"
    )


PLURALS = {"is": "are", "was": "were", "has": "have", "does": "do"}
"""Plural forms of verbs that do not only lose an s."""


def counted(number: int | str, noun: str = "", plural: str | None = None, verb: str | None = None) -> str:
    """``1 file``, ``2 files``, ``1,200 entries``; with the verb in the singular given, ``1 file differs``, ``2 files
    differ``; without a noun ``16 differ``. A string is a number that is not known, such as ``N``: ``N rows``."""
    one = number == 1
    name = noun if one or not noun else plural or noun + "s"
    if verb is not None and not one:
        first, _, rest = verb.partition(" ")
        verb = f"{PLURALS.get(first, first.removesuffix('s'))} {rest}".rstrip()
    digits = number if isinstance(number, str) else f"{number:,}"
    return " ".join(part for part in (digits, name, verb) if part)


def signal_to_noise(signal: float, noise: float) -> float:
    """``10 log10(signal / noise)`` of two powers: infinite without noise, minus infinity without a signal, NaN where
    both are infinite.

    Powers whose quotient is too large or too small for a float are compared by their logarithms.
    """
    if not noise or not signal:
        return math.inf if not noise else -math.inf
    ratio = signal / noise
    return 10 * (math.log10(ratio) if 0 < ratio < math.inf else math.log10(signal) - math.log10(noise))
