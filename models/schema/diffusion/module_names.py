"""Modules by two conventions: names of weights are taken from one to the other by their longest known module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Pair = tuple[str, str]
"""Prefixes of a module's weights in the original and in diffusers."""


def renamed(name: str, modules: Mapping[str, str]) -> str | None:
    """The name of a weight with the longest of its modules in `modules` replaced; None if it is in none of them."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        found = modules.get(".".join(parts[:count]))
        if found is not None:
            return ".".join([found, *parts[count:]])
    return None


def below(pair: Pair, inner: Iterable[Pair]) -> list[Pair]:
    """The modules inside a module."""
    original, ours = pair
    return [(f"{original}.{first}", f"{ours}.{second}") for first, second in inner]


def swapped(pairs: Iterable[Pair]) -> dict[str, str]:
    """The original name by the name in diffusers."""
    return {ours: original for original, ours in pairs}
