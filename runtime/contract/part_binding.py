"""The architecture of one file: a row for each weight of modules, and parts whose architecture the file names."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from .architecture import HF, Architecture, Below, Part, lacks_weights
from .composition import architecture_of, with_part
from .hyperparameter import ParameterError
from .naming import bound_to
from .part_rows import own_prefix, stated_of
from .weight_binding import find_architecture, settle


def bound_to_file(
    architecture: Architecture, names: str, stated: Mapping[str, Any], weights: Collection[str], path: str | None = None
) -> Architecture:
    """The architecture with a row for each weight that a file has of modules and of parts.

    Args:
        architecture: as registered.
        names: the convention of the file.
        stated: what it states, without the prefix of keys.
        weights: names of its tensors.

    Raises:
        FormatError: the file lacks a part, or states it with an invalid value.
        UnsupportedError: a part is of an unknown architecture.
    """
    undecided = {
        name: part for name, part in architecture.parts.items()
        if not isinstance(part.architecture, Architecture) or part.architecture.modules
    }  # fmt: skip
    if not undecided:
        return bound_to(architecture, names, weights)
    inner = {name: _ways(name, part, names, weights) for name, part in undecided.items()}
    of_parts = {each for found in inner.values() for each in found}
    found = bound_to(architecture, names, [weight for weight in weights if weight not in of_parts])
    for name, part in undecided.items():
        if inner[name]:
            found = _with_stated(found, name, part, names, stated, inner[name], path)
        elif not part.optional:
            why = f"missing the weights of {part.place or name} of a {architecture.name} model"
            raise lacks_weights(path, why)
    return found


def _with_stated(
    architecture: Architecture,
    name: str,
    part: Part,
    names: str,
    source: Mapping[str, Any],
    weights: Mapping[str, Below],
    path: str | None,
) -> Architecture:
    try:
        stated = stated_of(part, names, source)
    except ParameterError as error:
        raise architecture.invalid(names, path, error.key, str(error)) from error
    own = architecture_of(part) or find_architecture(HF, stated, path)
    convention = next(iter(weights.values())).convention if names == HF else HF
    spelled = [_inner(each, below) for each, below in weights.items()]
    bound = bound_to(own, convention if names == HF else names, spelled)
    return with_part(architecture, name, replace(part, architecture=bound), functools.partial(_settle, own), convention)


def inner_names(part: Part, weights: Collection[str]) -> dict[str, str]:
    """The names of a part's weights in its own file, by those in a file of transformers that has the whole."""
    return {name: _inner(name, below) for name, below in _ways("", part, HF, weights).items()}


def _inner(name: str, below: Below) -> str:
    return below.inner + name.removeprefix(below.prefix)


def _settle(own: Architecture, config: Any, weights: Any) -> None:
    settle(own, config, weights, config.values.get("path"))


def _ways(name: str, part: Part, names: str, weights: Collection[str]) -> dict[str, Below]:
    """The names of a file's tensors that are a part's, with where they stand. The names of a convention other than that
    of transformers are those of the part only if all have its prefix."""
    if names != HF:
        below = Below(own_prefix(name))
        return {weight: below for weight in weights if weight.startswith(below.prefix)}
    found: dict[str, Below] = {}
    for convention in dict.fromkeys(below.convention for below in part.names):
        ways = [below for below in part.names if below.convention == convention]
        these = {weight: way for weight in weights if (way := _way(weight, ways)) is not None}
        if len(these) >= len(found):
            found = these
    return found


def _way(name: str, ways: Collection[Below]) -> Below | None:
    """The way of the longest prefix that a name has."""
    return max((way for way in ways if name.startswith(way.prefix)), key=lambda way: len(way.prefix), default=None)
