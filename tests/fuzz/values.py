"""Values that parameters should not have: extremes of every type, neighbours of what is there, other types, nested and
long ones."""

from __future__ import annotations

import math
import random
from typing import Any

INTEGERS = (
    0,
    1,
    2,
    3,
    5,
    7,
    -1,
    -2,
    31,
    255,
    1024,
    65535,
    2**20,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53 + 1,
    2**63 - 1,
    2**64 - 1,
    10**30,
)
REALS = (math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 0.5, 1.0, 1.5, 1e-45, 1e-300, 65504.0, 3.5e38, 1e308)
WORDS = (
    "",
    "x",
    "auto",
    "none",
    "linear",
    "yarn",
    "llama3",
    "longrope",
    "dynamic",
    "2",
    "NaN",
    "\u202e\x1b[31m",
    "é" * 300,
    "a" * 10_000,
)


def mutated(value: Any, draw: random.Random) -> Any:
    """Another value for `value`, of its type two times out of three."""
    if draw.random() < 0.3:
        return other(value, draw)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice((*INTEGERS, value + 1, value - 1, 2 * value, value // 2, -value, value * 2**20))
    if isinstance(value, float):
        return draw.choice((*REALS, -value, value * 1e6, value / 1e6))
    if isinstance(value, str):
        return draw.choice((*WORDS, value + "x", value[:-1]))
    if isinstance(value, list):
        return _list(value, draw)
    if isinstance(value, dict):
        return _mapping(value, draw)
    return other(value, draw)


def other(value: Any, draw: random.Random) -> Any:
    """A value of another type."""
    kinds = (
        None,
        True,
        False,
        draw.choice(INTEGERS),
        draw.choice(REALS),
        draw.choice(WORDS),
        [],
        [value],
        {},
        {"a": value},
        [value] * 100,
        [[value]],
        {"type": value, "factor": value},
        str(value),
        nested(draw.choice((5, 60))),
    )
    return draw.choice(kinds)


def nested(depth: int) -> list[Any]:
    """A list in a list in a list."""
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


def _list(value: list[Any], draw: random.Random) -> list[Any]:
    made = list(value)
    how = draw.randrange(5)
    if how == 0 or not made:
        return made * draw.choice((0, 2, 50))
    place = draw.randrange(len(made))
    if how == 1:
        del made[place]
    elif how == 2:
        made.insert(place, made[place])
    else:
        made[place] = mutated(made[place], draw)
    return made


def _mapping(value: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    made = dict(value)
    if not made or draw.random() < 0.1:
        return {**made, draw.choice(WORDS): draw.choice(INTEGERS)}
    key = draw.choice(sorted(made))
    how = draw.randrange(6)
    if how == 0:
        del made[key]
    elif how == 1:
        made[key + "x"] = made.pop(key)
    else:
        made[key] = mutated(made[key], draw)
    return made
