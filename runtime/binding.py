"""Binding: the weights of a file under an architecture's own names, and back under a file's names. Nothing is read."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import registry
from .arch import GGUF, HF, STATED, Architecture, Config, Key, Layout, Stored, Weight, parameters, sizes, slots
from .errors import FormatError, UnsupportedError
from .parameter import Said, shown
from .scaled import scaled
from .tensor import Tensor

NUMBER = re.compile(r"\d+")
MAX_NAME = 100
"""Characters of a name that is compared with those that are known."""
MAX_LISTED = 12
"""Entries of a list of names in a message; the rest is counted."""


@functools.cache
def architectures() -> tuple[Architecture, ...]:
    """Every architecture of every family."""
    return tuple(architecture for family in registry.all_of("models", "ARCHITECTURES") for architecture in family)


def _likely(kind: str) -> Iterator[Architecture]:
    """Every architecture, those whose families mention a kind before others, whose modules are only loaded where these are not the one."""
    for name in registry.mentioning("models", kind):
        yield from registry.load("models", name, "ARCHITECTURES")
    yield from architectures()


def recognise(names: str, source: Mapping[str, Any], path: str | None = None) -> Architecture:
    """The architecture that a config.json or GGUF metadata name. UnsupportedError, with the nearest known, where there is none."""
    source = Said(source)
    kind = source.get("model_type") if names == HF else source.get("general.architecture")
    for architecture in _likely(str(kind)) if isinstance(kind, str) else ():
        known = architecture.model_types if names == HF else architecture.gguf
        if kind in known and (architecture.accepts is None or architecture.accepts(source)):
            return architecture
    everything = sorted({name for each in architectures() for name in (each.model_types if names == HF else each.gguf)})
    near = difflib.get_close_matches(str(kind)[:MAX_NAME], everything, 3, 0.5)
    hint = f"The nearest known: {', '.join(near)}" if near else "candle-convert models list shows what is known"
    raise UnsupportedError("E-ARCH", path, f"unknown architecture {shown(kind)}", hint=hint)


def configured(architecture: Architecture, names: str, source: Mapping[str, Any], path: str | None = None) -> Config:
    """The configuration that a config.json or GGUF metadata give."""
    prefix = f"{source['general.architecture']}." if names == GGUF else ""
    return architecture.config(names, Said(source, prefix), path)


def bind(architecture: Architecture, config: Config, weights: Mapping[str, Tensor], names: str, path: str | None = None) -> dict[str, Tensor]:
    """The weights by the architecture's names, missing, extra and misshapen ones being refused, all of them at once.

    Nothing is made whose size a parameter says before that parameter agrees with the shapes of the weights.
    """
    _check_layers(architecture, config, weights, names, path)
    bound: dict[str, Tensor] = {}
    missing, wrong, used = [], [], set()
    origins: dict[str, str] = {}
    for row, layer, ours in slots(architecture, config):
        found = next(_found(row, architecture, config, weights, names, layer), None)
        if found is not None:
            way, present = found
            used.update(present)
            origins[ours] = present[0]
            parts = [weights[name] for name in present]
            try:
                _check_elements(parts)
                bound[ours] = _times(row, way.layout.join(parts, config), config, names, layer, 1)
            except ValueError as error:
                wrong.append(f"{present[0]}: {error}")
        elif not row.optional:
            ways = row.stored(names)
            missing.append(next(ways[0].expanded(config, layer), ways[0].names[0]) if ways else ours)
    unused = ignored(architecture, config, weights)
    extra = [name for name in weights if name not in used and name not in unused]
    unknown = f"{len(extra)} weights are not of a {architecture.name} model: {listed(extra)}"
    if missing:
        why = f"{len(missing)} weights of a {architecture.name} model are not there: {listed(missing)}{f'; and {unknown}' if extra else ''}"
        raise FormatError("E-ARCH-MISSING", path, why, hint="Are all shards there, and is the configuration this model's?")
    if extra:
        raise FormatError("E-ARCH-EXTRA", path, unknown, hint="--exclude RE leaves them out")
    _check_shapes(architecture, config, bound, path, wrong, origins)
    _check_bounds(architecture, config, names, path)
    _make(architecture, config, bound, path)
    if architecture.settle is not None:
        architecture.settle(config, bound)
    return bound


def _check_layers(architecture: Architecture, config: Config, weights: Mapping[str, Tensor], names: str,
                  path: str | None) -> None:
    """Compare the number of layers with the weights, before anything is done for each layer."""
    for parameter in sorted({row.layers for row in architecture.weights if "{i}" in row.name}):
        ways = (way for row in architecture.weights if row.layers == parameter for way in row.stored(names))
        stems = {name.partition("{i}")[0] for way in ways for name in way.names if "{i}" in name}
        others = {each for stem in stems for prefix in architecture.prefixes for each in (prefix + stem, stem.removeprefix(prefix))}
        layer = re.compile(f"(?:{'|'.join(map(re.escape, sorted(stems | others)))})([0-9]{{1,9}})\\b")
        there = {int(match[1]) for name in weights if (match := layer.match(name)) is not None}
        count = getattr(config, parameter)
        if there and count > max(there) + 1:
            why = f"the configuration says {count:,} layers, the file has weights of {len(there):,}"
            hint = "Are all shards there, and is the configuration this model's?"
            raise FormatError("E-ARCH-MISSING", path, why, hint=hint)


def _check_elements(parts: Sequence[Tensor]) -> None:
    """ValueError for tensors without axes or elements, which no weight of a model is."""
    for part in parts:
        if not part.shape or 0 in part.shape:
            raise ValueError(f"a tensor of the shape {list(part.shape)} is not a weight")


def _make(architecture: Architecture, config: Config, bound: dict[str, Tensor], path: str | None) -> None:
    """Add weights that the configuration says in place of the file."""
    made = {row.name: row.made(config) for row in architecture.weights if row.made is not None and row.name not in bound}
    added = {name: tensor for name, tensor in made.items() if tensor is not None}
    bound.update(added)
    _check_shapes(architecture, config, added, path, [], {})


def _check_bounds(architecture: Architecture, config: Config, names: str, path: str | None) -> None:
    """FormatError for a parameter that exceeds one that it is a part of."""
    rows = {row.name: row for row in architecture.keys if isinstance(row, Key)}
    for row in rows.values():
        value = getattr(config, row.name)
        for other in row.most if value is not None else ():
            most = getattr(config, other)
            if most is not None and value > most:
                key = next(iter(row.keys(names)), row.name)
                limit = next(iter(rows[other].keys(names)), other) if other in rows else other
                what = f"invalid parameter {key} of a {architecture.name} model"
                why = f"{what}: {shown(value)} is more than {limit}, which is {shown(most)}"
                raise FormatError("E-ARCH-KEY", path, why, hint=f"Correct it in {STATED[names]}")


def ignored(architecture: Architecture, config: Config, names: Iterable[str]) -> set[str]:
    """The names among those of a file's tensors that an architecture has no use for."""
    patterns = [pattern.replace("{layers}", str(config.values.get("layers"))) for pattern in architecture.ignored]
    return {name for name in names if any(re.search(pattern, name) for pattern in patterns)}


def unbind(architecture: Architecture, config: Config, bound: Mapping[str, Tensor], names: str) -> dict[str, Tensor]:
    """The weights under the names of files of the other kind, in the order of the rows; those that such files do not have are left out."""
    found: dict[str, list[Tensor]] = {}
    layouts: dict[str, Layout] = {}
    for row, layer, ours in slots(architecture, config):
        ways = row.stored(names)
        if ways and ours in bound:
            stored = list(ways[0].expanded(config, layer))
            whole = _times(row, bound[ours], config, names, layer, -1)
            for name, tensor in zip(stored, ways[0].layout.split(whole, config, len(stored)), strict=True):
                found.setdefault(name, []).append(tensor)
                layouts[name] = ways[0].layout
    return {name: pieces[0] if len(pieces) == 1 else layouts[name].together(pieces) for name, pieces in found.items()}


def described(architecture: Architecture, names: str, config: Config) -> dict[str, Any]:
    """The configuration as the keys of a config.json, or of GGUF metadata. UnsupportedError where GGUF has no such models."""
    if names == GGUF and not architecture.gguf:
        raise UnsupportedError("E-ARCH-NAMES", None, f"GGUF files have no {architecture.title} models", hint="Write safetensors or ONNX")
    said = parameters(architecture.keys, names, config)
    return said if names == HF else {f"{architecture.gguf[0]}.{key}": value for key, value in said.items()}


def _times(row: Weight, tensor: Tensor, config: Config, names: str, layer: int, power: int) -> Tensor:
    """A weight from Hugging Face's files (`power` 1), or for them (-1), by its row's factor."""
    return tensor if row.factor is None or names != HF else scaled(tensor, row.factor(config, layer) ** power)


def _found(
    row: Weight, architecture: Architecture, config: Config, weights: Mapping[str, Tensor], names: str, layer: int
) -> Iterator[tuple[Stored, list[str]]]:
    for way in row.stored(names):
        present = []
        for name in way.expanded(config, layer):
            spelling = _spelled(name, architecture, weights)
            if spelling is None:
                break
            present.append(spelling)
        else:
            if present:
                yield way, present


def _spelled(name: str, architecture: Architecture, weights: Mapping[str, Tensor]) -> str | None:
    others = (name.removeprefix(prefix) if name.startswith(prefix) else prefix + name for prefix in architecture.prefixes)
    return next((spelling for spelling in (name, *others) if spelling in weights), None)


def _check_shapes(
    architecture: Architecture, config: Config, bound: Mapping[str, Tensor], path: str | None, wrong: list[str], origins: Mapping[str, str]
) -> None:
    """Compare shapes with the configuration; parameters that it leaves open (None) are taken from the first weight that has them.

    Args:
        wrong: what is known to be wrong already.
        origins: what the file calls the weights.
    """
    for row, _, name in slots(architecture, config):
        if row.shape is not None and name in bound:
            for which, length in zip(row.shape, bound[name].shape, strict=False):
                if isinstance(which, str) and "*" not in which and config.values.get(which) is None:
                    config.values[which] = length
            expected = sizes(row.shape, config)
            if bound[name].shape != expected:
                wrong.append(f"{origins.get(name, name)} is {list(bound[name].shape)}, not {list(expected)}")
    if wrong:
        hint = "Is the configuration this model's?"
        raise FormatError("E-ARCH-SHAPE", path, f"{len(wrong)} weights do not fit the configuration: {listed(wrong, '; ')}", hint=hint)


def listed(names: Sequence[str], between: str = ", ") -> str:
    """Names in one text; those that only a number in their first word tells apart are one, ``layers.{0-3,5}.weight``.

    Of many the first `MAX_LISTED` are listed.
    """
    groups: dict[str, list[list[int]]] = {}
    for name in names:
        first, *rest = name.split(" ", 1)
        numbers = [int(number) for number in NUMBER.findall(first)]
        groups.setdefault(" ".join([NUMBER.sub("{}", first), *rest]), []).append(numbers)
    found = [text for stem, numbers in groups.items() for text in _folded(stem, numbers)]
    rest = [f"... ({len(found) - MAX_LISTED:,} more)"] if len(found) > MAX_LISTED else []
    return between.join([*found[:MAX_LISTED], *rest])


def _folded(stem: str, numbers: list[list[int]]) -> list[str]:
    """Names of one stem, its ``{}`` being filled: as one where they differ in one number, else one by one."""
    columns = [sorted(set(column)) for column in zip(*numbers, strict=True)]
    if sum(len(column) > 1 for column in columns) > 1:
        return [_filled(stem, [str(number) for number in row]) for row in numbers]
    return [_filled(stem, [str(column[0]) if len(column) == 1 else f"{{{_ranges(column)}}}" for column in columns])]


def _filled(stem: str, texts: Sequence[str]) -> str:
    first, *pieces = stem.split("{}", len(texts))
    return first + "".join(text + piece for text, piece in zip(texts, pieces, strict=True))


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, such as ``0-3,5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
