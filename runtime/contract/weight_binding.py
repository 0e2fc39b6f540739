"""Weight binding: maps weight names of a file to an architecture's names and back, without reading data."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from ..base.dataclass import dataclass
from ..base.errors import FormatError, UnsupportedError
from ..base.process_cache import FILES, process_cache
from ..base.units import counted
from ..ir.graph import Graph
from ..plugin import discovery
from ..tensor.scaled import scaled
from ..tensor.stored_tensor import StoredTensor, equal_bytes
from .architecture import (
    GGUF,
    HF,
    MISSHAPEN,
    OWN_HEAD,
    STATED,
    Architecture,
    Config,
    Key,
    Layout,
    Stored,
    Weight,
    lacks_weights,
    parameters,
    sizes,
    value_at,
    weight_slots,
)
from .composition import whole
from .hyperparameter import ParameterError, StatedValues, shown

LAYERS = re.compile(r"\{((?:\w+\.)*layers)\}")
"""The number of layers of a model, or of one of its parts, in a pattern of tensors that are ignored."""
NUMBER = re.compile(r"(?<!\d)(?:0|[1-9][0-9]{0,8})(?!\d)")
"""A number in a name, written as Python writes it."""
MAX_NAME = 100
"""Characters of a name that is compared with those that are known."""
HEAD_WEIGHT = "head.weight"
TIED = "tie_word_embeddings"
UNPREFIXED = ("xielu.",)
"""Prefixes of GGUF keys without the name of the architecture."""
MAX_LISTED = 12
"""Entries of a list of names in a message; the rest is counted."""


@process_cache(kept=FILES)
def architectures() -> tuple[Architecture, ...]:
    """Every architecture of every family."""
    return tuple(whole(architecture) for family in discovery.ARCHITECTURES.all() for architecture in family)


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """The names and the configuration of a file that does not name its architecture, where its weights and metadata
    imply one; `source` is its config.json. FormatError for an invalid hyper-parameter."""
    for architecture in _mentioning("implied="):
        try:
            found = architecture.implied(source, graph) if architecture.implied else None
        except ParameterError as error:
            path = graph.files[0] if graph.files else None
            why = f"invalid parameter {error.key} of a {architecture.name} model: {error}"
            raise FormatError("E-ARCH-KEY", path, why, hint=f"Correct it in {STATED[HF]}") from error
        if found is not None:
            return found
    return None


def _mentioning(text: str) -> Iterator[Architecture]:
    """The architectures of the families whose source contains a text."""
    for name in discovery.ARCHITECTURES.mentioning(text):
        yield from map(whole, discovery.ARCHITECTURES.load(name))


def named_model_type(kind: str, source: Mapping[str, Any] | None = None) -> Architecture | None:
    """An architecture whose config.json has that `model_type`; None if it is unknown.

    Args:
        source: a config.json that it has to accept, if given.
    """
    known = (each for each in _mentioning(f'"{kind}"') if kind in each.model_types)
    return next((each for each in known if source is None or each.accepts is None or each.accepts(source)), None)


def find_architecture(names: str, source: Mapping[str, Any], path: str | None = None) -> Architecture:
    """The architecture that a config.json or GGUF metadata names.

    Args:
        names: `HF` for a config.json, whose `model_type` may be our own name of an architecture that transformers does
            not have, `GGUF` for GGUF metadata, or another convention whose files imply keys of their
            own and the architecture's name under GGUF's key.
        source: the keys of the file.
        path: the file, for messages.

    Raises:
        UnsupportedError: unknown architecture; the hint lists similar names.
    """
    source = StatedValues(source)
    kind = source.get("model_type") if names == HF else source.get("general.architecture")

    def named(architecture: Architecture) -> bool:
        known = {HF: architecture.model_types, GGUF: architecture.gguf}.get(names, (architecture.name,))
        return kind in known and (architecture.accepts is None or architecture.accepts(source))

    def is_ours(architecture: Architecture) -> bool:
        return names == HF and architecture.name == kind and not architecture.model_types

    if isinstance(kind, str):
        quoted = f'"{kind}"'
        found = (
            next(filter(named, _mentioning(quoted)), None)
            or next(filter(is_ours, _mentioning(quoted)), None)
            or next(filter(named, architectures()), None)  # loads every family
        )
        if found is not None:
            return found
    kind = source.get("architecture") if kind is None else kind
    everything = sorted({name for each in architectures() for name in (each.model_types if names == HF else each.gguf)})
    near = difflib.get_close_matches(str(kind)[:MAX_NAME], everything, 3, 0.5)
    hint = f"The nearest known: {', '.join(near)}" if near else "candle-convert models list shows what is known"
    raise UnsupportedError("E-ARCH", path, f"unknown architecture {shown(kind)}", hint=hint)


def key_prefix(names: str, source: Mapping[str, Any]) -> str:
    """The architecture's prefix of the keys in a file; empty for files whose keys have none."""
    return f"{source['general.architecture']}." if names == GGUF else ""


def config_from(architecture: Architecture, names: str, source: Mapping[str, Any], path: str | None = None) -> Config:
    """The configuration in a config.json or GGUF metadata.

    Raises:
        FormatError: a hyper-parameter is missing or invalid.
        UnsupportedError: the architecture does not have the task.
    """
    stated = architecture.completed(source) if names == HF else source
    config = architecture.config(names, StatedValues(stated, key_prefix(names, source)), path)
    _name_heads(architecture, names, stated, config)
    try:
        architecture.task(config.values.get("task"))
    except KeyError as error:
        known = " or ".join(task.name for task in architecture.tasks)
        why = f"{architecture.title} models are not supported for {error.args[0]}"
        raise UnsupportedError("E-ARCH-TASK", path, why, expected=known) from None
    return config


def _name_heads(architecture: Architecture, names: str, stated: Mapping[str, Any], config: Config) -> None:
    """Add `OWN_HEAD` of each head that may be the embedding, as it is in all files but those of transformers."""
    rows = (*architecture.weights, *(row for task in architecture.tasks for row in task.weights))
    for row in rows:
        prefix, _, rest = row.name.rpartition(HEAD_WEIGHT)
        if rest or not row.optional or not row.stored(HF):
            continue
        own = names == HF and not _is_tied(architecture, stated, prefix)
        needed = own and (row.when is None or row.when(config, 0))
        config.values[prefix + OWN_HEAD] = row.stored(HF)[0].names[0] if needed else None


def _is_tied(architecture: Architecture, stated: Mapping[str, Any], prefix: str) -> bool:
    part = architecture.parts.get(prefix.removesuffix("."))
    inner = value_at(stated, part.place) if part is not None and part.place else None
    return is_tied(stated, inner if isinstance(inner, Mapping) else {}, architecture.tied)


def is_tied(stated: Mapping[str, Any], inner: Mapping[str, Any], default: bool) -> bool:
    """Whether a config.json ties the head to the embedding, itself or in the object of its language model."""
    outer = stated.get(TIED)
    return bool(inner.get(TIED) or (default if outer is None else outer))


@dataclass
class Gathered:
    """The weights of a model that a file has, and those that it lacks.

    Attributes:
        weights: by the architecture's names.
        stored: how the file stores each weight, and the names of its tensors; without computed weights.
        computed: names of weights that are computed from the configuration.
        missing: file names of the weights that the file lacks.
        extra: tensors that belong to none of the weights and are not `ignored`.
        misshapen: why a tensor's shape does not fit its layout, by the architecture's name of the weight.
    """

    weights: dict[str, StoredTensor] = field(default_factory=dict)
    stored: dict[str, tuple[Stored, list[str]]] = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    misshapen: dict[str, str] = field(default_factory=dict)


def gather(architecture: Architecture, config: Config, weights: Mapping[str, StoredTensor], names: str) -> Gathered:
    """The weights of a file that exist, by the architecture's names; `add_computed_weights` adds the computed ones."""
    found, used = Gathered(), set()
    for row, layer, ours in weight_slots(architecture, config):
        way, present = next(_found(row, architecture, config, weights, names, layer), (None, []))
        if way is not None:
            used.update(present)
            found.stored[ours] = way, present
            parts = [weights[name] for name in present]
            try:
                _check_elements(parts, way.layout.scalars)
                found.weights[ours] = _times(row, way.layout.join(parts, config), config, names, layer, 1)
            except ValueError as error:
                found.misshapen[ours] = f"{present[0]}: {error}"
        elif not row.optional:
            ways = row.stored(names)
            found.missing.append(next(ways[0].expanded(config, layer), ways[0].names[0]) if ways else ours)
    unused = ignored(architecture, config, weights)
    found.extra = [name for name in weights if name not in used and name not in unused]
    complete(architecture, config, found.weights)
    return found


def complete(architecture: Architecture, config: Config, bound: Mapping[str, StoredTensor]) -> None:
    """Fill in parameters that the configuration leaves open (None), from the shapes of the weights."""
    for row, _, name in weight_slots(architecture, config):
        for which, length in zip(row.shape or (), bound[name].shape if name in bound else (), strict=False):
            if isinstance(which, str) and "*" not in which and config.values.get(which) is None:
                config.values[which] = length


def bind(
    architecture: Architecture, config: Config, weights: Mapping[str, StoredTensor], names: str, path: str | None = None
) -> dict[str, StoredTensor]:
    """The weights by the architecture's names; FormatError lists all missing, extra and misshapen ones.

    A parameter is compared with the shapes of the weights before anything of its size is allocated.
    """
    check_layers(architecture, config, weights, names, path)
    found = gather(architecture, config, weights, names)
    missing, extra = found.missing, found.extra
    unknown = f"{counted(len(extra), 'weight')} not of a {architecture.name} model: {list_names(extra)}"
    if missing:
        why = (
            f"missing {counted(len(missing), 'weight')} of a {architecture.name} model: "
            f"{list_names(missing)}{f'; and {unknown}' if extra else ''}"
        )
        raise FormatError(
            "E-ARCH-MISSING", path, why, hint="Are all shards there, and is the configuration this model's?"
        )
    if extra:
        raise FormatError("E-ARCH-EXTRA", path, unknown, hint="--exclude RE leaves them out")
    add_computed_weights(architecture, config, found, names, path)
    _leave_out_repeats(architecture, config, found.weights)
    settle(architecture, config, found.weights, path)
    return found.weights


def _leave_out_repeats(architecture: Architecture, config: Config, weights: dict[str, StoredTensor]) -> None:
    """Delete weights that hold the bytes of the weight that they are where a file lacks them (`Weight.repeats`)."""
    for row, _, name in weight_slots(architecture, config):
        one, other = weights.get(name), weights.get(row.repeats or "")
        if one is None or other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
            continue
        if equal_bytes(one, other):
            del weights[name]


def settle(
    architecture: Architecture, config: Config, weights: dict[str, StoredTensor], path: str | None = None
) -> None:
    """Complete the configuration from the bound weights, or change the weights, as the architecture says.

    FormatError for weights of an image model that lack some, or have other shapes than it takes sizes from.
    """
    if architecture.settle is None:
        return
    if not architecture.modules:
        architecture.settle(config, weights)
        return
    try:
        architecture.settle(config, weights)
    except KeyError as error:
        why = f"missing a weight of a {architecture.name} model: {error.args[0]}"
        raise lacks_weights(path, why) from error
    except MISSHAPEN as error:
        raise architecture.misshapen(path) from error


def check_layers(
    architecture: Architecture, config: Config, weights: Mapping[str, StoredTensor], names: str, path: str | None
) -> None:
    """FormatError if the configuration has more layers than the file; called before any loop over layers."""
    for parameter in sorted({row.layers for row in architecture.weights if "{i}" in row.name}):
        ways = (way for row in architecture.weights if row.layers == parameter for way in row.stored(names))
        stems = {name.partition("{i}")[0] for way in ways for name in way.names if "{i}" in name}
        others = {
            each
            for stem in stems
            for prefix in architecture.prefixes
            for each in (prefix + stem, stem.removeprefix(prefix))
        }
        layer = re.compile(f"(?:{'|'.join(map(re.escape, sorted(stems | others)))})([0-9]{{1,9}})\\b")
        there = {int(match[1]) for name in weights if (match := layer.match(name)) is not None}
        count = getattr(config, parameter)
        if there and count > max(there) + 1:
            why = f"the configuration says {counted(count, 'layer')}, the file has weights of {len(there):,}"
            hint = "Are all shards there, and is the configuration this model's?"
            raise FormatError("E-ARCH-MISSING", path, why, hint=hint)


def _check_elements(parts: Sequence[StoredTensor], scalars: bool) -> None:
    """ValueError for empty tensors, and for scalars unless the layout takes them."""
    for part in parts:
        if 0 in part.shape or not (part.shape or scalars):
            raise ValueError(f"a tensor of the shape {list(part.shape)} is not a weight")


def add_computed_weights(
    architecture: Architecture, config: Config, found: Gathered, names: str, path: str | None = None
) -> None:
    """Add the weights that are computed from the configuration, after the parameters of their sizes are checked.

    Raises:
        FormatError: a weight does not have the shape that the parameters give, or a parameter exceeds its bound.
    """
    _check_shapes(architecture, config, found, path)
    _check_bounds(architecture, config, names, path)
    for row in architecture.weights:
        tensor = row.compute(config) if row.compute is not None and row.name not in found.weights else None
        if tensor is not None:
            found.weights[row.name] = tensor
            found.computed.add(row.name)
    if found.computed:
        _check_shapes(architecture, config, found, path)


def _check_bounds(architecture: Architecture, config: Config, names: str, path: str | None) -> None:
    """FormatError for a parameter above its upper bound (`Key.at_most`)."""
    rows = {row.name: row for row in architecture.keys if isinstance(row, Key)}
    for row in rows.values():
        value = getattr(config, row.name)
        for other in row.at_most if value is not None else ():
            most = getattr(config, other)
            if most is not None and value > most:
                key = next(iter(row.keys(names)), row.name)
                limit = next(iter(rows[other].keys(names)), other) if other in rows else other
                why = f"{shown(value)} is more than {limit}, which is {shown(most)}"
                raise architecture.invalid(names, path, key, why)


def ignored(architecture: Architecture, config: Config, names: Iterable[str]) -> set[str]:
    """The tensor names that match the architecture's `ignored` patterns."""
    patterns = [LAYERS.sub(lambda field: str(config.values.get(field[1])), pattern) for pattern in architecture.ignored]
    return {name for name in names if any(re.search(pattern, name) for pattern in patterns)}


def unbind(
    architecture: Architecture, config: Config, bound: Mapping[str, StoredTensor], names: str
) -> dict[str, StoredTensor]:
    """The weights under the file names of `names` (`HF` or `GGUF`), in the order of the rows, without those that such
    files do not have. Inverse of `bind`."""
    found: dict[str, list[StoredTensor]] = {}
    layouts: dict[str, Layout] = {}
    for row, layer, ours in weight_slots(architecture, config):
        ways = row.stored(names)
        if ways and ours in bound:
            stored = list(ways[0].expanded(config, layer))
            tensors = split_weight(row, layer, bound[ours], config, names, ways[0], len(stored))
            for name, tensor in zip(stored, tensors, strict=True):
                found.setdefault(name, []).append(tensor)
                layouts[name] = ways[0].layout
    return {name: pieces[0] if len(pieces) == 1 else layouts[name].together(pieces) for name, pieces in found.items()}


def split_weight(
    row: Weight, layer: int, whole: StoredTensor, config: Config, names: str, way: Stored, count: int
) -> list[StoredTensor]:
    """The `count` tensors that store a weight of `layer` in a file, as `way` describes."""
    return way.layout.split(_times(row, whole, config, names, layer, -1), config, count)


def config_keys(architecture: Architecture, names: str, config: Config) -> dict[str, Any]:
    """The configuration as keys of a config.json or of GGUF metadata; UnsupportedError if GGUF does not define the
    architecture."""
    if names == GGUF and not architecture.gguf:
        raise UnsupportedError(
            "E-ARCH-NAMES", None, f"GGUF files have no {architecture.title} models", hint="Write safetensors or ONNX"
        )
    said = parameters(architecture.keys, names, config)
    if names == HF:
        kind = said.get("model_type", next(iter(architecture.model_types), architecture.name))
        rows = {key: row.name for row in architecture.keys if isinstance(row, Key) for key in row.keys(HF)}
        unset = (key for key in architecture.defaults.get(kind, {}) if config.values.get(rows.get(key, "")) is None)
        return {**dict.fromkeys(unset), **said}  # null: a key that is left out has transformers' default
    prefix = f"{architecture.gguf[0]}."
    return {key if key.startswith(UNPREFIXED) else prefix + key: value for key, value in said.items()}


def _times(row: Weight, tensor: StoredTensor, config: Config, names: str, layer: int, power: int) -> StoredTensor:
    """A weight times its row's factor (`power` 1: reading Hugging Face files), or divided by it (-1: writing)."""
    return tensor if row.factor is None or names != HF else scaled(tensor, row.factor(config, layer) ** power)


def _found(
    row: Weight, architecture: Architecture, config: Config, weights: Mapping[str, StoredTensor], names: str, layer: int
) -> Iterator[tuple[Stored, list[str]]]:
    for way in row.stored(names):
        present = []
        for name in way.expanded(config, layer):
            spelling = spelled(name, architecture, weights)
            if spelling is None:
                break
            present.append(spelling)
        else:
            if present:
                yield way, present


def spelled(name: str, architecture: Architecture, weights: Mapping[str, StoredTensor]) -> str | None:
    """A name as the file has it, with or without one of the architecture's prefixes; None if the file lacks it."""
    others = (
        name.removeprefix(prefix) if name.startswith(prefix) else prefix + name for prefix in architecture.prefixes
    )
    return next((spelling for spelling in (name, *others) if spelling in weights), None)


def _check_shapes(architecture: Architecture, config: Config, found: Gathered, path: str | None) -> None:
    """FormatError for weights whose shapes contradict the configuration."""
    wrong = list(found.misshapen.values())
    for row, layer, name in weight_slots(architecture, config):
        if row.shape is None or name not in found.weights:
            continue
        shape, expected = found.weights[name].shape, sizes(row.shape, config, layer)
        if shape != expected:
            origin = found.stored[name][1][0] if name in found.stored else name
            wrong.append(f"{origin} is {list(shape)}, not {list(expected)}")
    if wrong:
        hint = "Is the configuration this model's?"
        why = f"{counted(len(wrong), 'weight', verb='does')} not fit the configuration: {list_names(wrong, '; ')}"
        raise FormatError("E-ARCH-SHAPE", path, why, hint=hint)


def list_names(names: Sequence[str], between: str = ", ") -> str:
    """Names joined for a message. Names that differ in one number are merged: ``layers.{0-3,5}.weight``.

    At most `MAX_LISTED` entries are shown.
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
    """The names of a stem with numbers filled into its ``{}``: merged if they differ in one number, else one by one."""
    columns = [sorted(set(column)) for column in zip(*numbers, strict=True)]
    if sum(len(column) > 1 for column in columns) > 1:
        return [_filled(stem, [str(number) for number in row]) for row in numbers]
    return [_filled(stem, [str(column[0]) if len(column) == 1 else f"{{{_ranges(column)}}}" for column in columns])]


def _filled(stem: str, parts: Sequence[str]) -> str:
    first, *pieces = stem.split("{}", len(parts))
    return first + "".join(text + piece for text, piece in zip(parts, pieces, strict=True))


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, such as ``0-3,5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
