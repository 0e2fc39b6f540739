"""Rows of a part: hyper-parameters and weights of an architecture under the names that a larger model has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.dataclass import dataclass
from ..tensor.stored_tensor import StoredTensor
from .architecture import HF, SAME, Architecture, Below, Config, Key, Layout, Part, Row, Stored, Weight, Whole, value_at
from .hyperparameter import SIZE, ParameterError, checked, mapping

SPECIAL = ("names", "path", "parts")
"""Values of a configuration that are not hyper-parameters."""


def own_prefix(name: str) -> str:
    """Prefix of a part's own names of weights and hyper-parameters in the whole model."""
    return f"{name}." if name else ""


def part_config(config: Config, name: str) -> Config:
    """The hyper-parameters of a part, by its own names. Their keys are those of config.json in files of every kind."""
    prefix, parts = own_prefix(name), config.values.get("parts") or {}
    own = {
        key.removeprefix(prefix): value
        for key, value in config.values.items()
        if key.startswith(prefix) and key not in SPECIAL
    }
    inner = parts[name].architecture.parts if name in parts and name else {}
    return Config({**own, "names": HF, "path": config.values.get("path"), **({"parts": inner} if inner else {})})


def part_weights(weights: Mapping[str, StoredTensor], name: str) -> dict[str, StoredTensor]:
    """The weights of a part, by its own names."""
    prefix = own_prefix(name)
    return {key.removeprefix(prefix): tensor for key, tensor in weights.items() if key.startswith(prefix)}


def stated_of(part: Part, names: str, source: Mapping[str, Any]) -> Mapping[str, Any]:
    """The hyper-parameters of a part in a file, by the keys of config.json. ParameterError if they are not an
    object."""
    if names != HF:
        return unflattened(source, _inside(part))
    if not part.place:
        return source
    found: Mapping[str, Any] = checked(part.place, value_at(source, part.place) or {}, mapping)
    if part.flat is not None and not found:
        found = {**{key: source[key] for key in source if key != "architectures"}, "model_type": part.flat}
    own = part.architecture
    return own.completed(found, nested=True) if isinstance(own, Architecture) else found


def key_rows(name: str, part: Part, rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows of a part's hyper-parameters as those of the whole."""
    prefix = own_prefix(name)
    return tuple(
        InnerKey(
            prefix + row.name,
            kind=row.kind if isinstance(row, Key) else SIZE,
            at_most=tuple(prefix + other for other in (row.at_most if isinstance(row, Key) else ())),
            row=row,
            part=part,
            inside=name,
        )
        for row in rows
    )


def weight_rows(name: str, part: Part, rows: Sequence[Weight], convention: str = HF) -> tuple[Weight, ...]:
    """The rows of a part's weights as those of the whole, in files of transformers with names of `convention`."""
    return tuple(_weight(name, part, row, convention) for row in rows if row.stored(convention) or row.compute)


def plain_keys(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Hyper-parameters whose keys in GGUF files are those of config.json, as of models that llama.cpp does not have."""
    return key_rows("", Part(None, "", (Below(""),)), rows)


def plain_weights(rows: Sequence[Weight]) -> tuple[Weight, ...]:
    """Weights that have their own names in GGUF files, as of models that llama.cpp does not have."""
    return weight_rows("", Part(None, "", (Below(""),)), rows)


def _weight(part_name: str, part: Part, row: Weight, convention: str) -> Weight:
    when, compute, factor, prefix = row.when, row.compute, row.factor, own_prefix(part_name)
    name = prefix + row.name

    def inner(config: Config) -> Config:
        return part_config(config, part_name)

    return Weight(
        name,
        tuple(
            way
            for names in _conventions(part, convention)
            for each in row.stored(names)
            for way in _stored(part_name, part, each, names)
        ),
        name,
        shape=None if row.shape is None else tuple(_length(prefix, length) for length in row.shape),
        optional=row.optional,
        when=None if when is None else lambda config, i: when(inner(config), i),
        compute=None if compute is None else lambda config: compute(inner(config)),
        layers=prefix + row.layers,
        factor=None if factor is None else lambda config, i: factor(inner(config), i),
        repeats=None if row.repeats is None else prefix + row.repeats,
    )


def _conventions(part: Part, convention: str) -> Sequence[str]:
    """The conventions whose names weights may have, that of written files first."""
    read_only = any(below.read_only for below in part.names if below.convention == convention)
    return (HF, convention) if read_only else (convention,)


def _stored(part_name: str, part: Part, way: Stored, convention: str) -> list[Stored]:
    layout = SAME if way.layout is SAME else InnerLayout(way.layout, part_name)
    experts = own_prefix(part_name) + way.experts
    return [
        Stored(tuple(below.prefix + name.removeprefix(below.inner) for name in way.names), layout, experts)
        for below in part.names
        if below.convention == convention and all(name.startswith(below.inner) for name in way.names)
    ]


def _length(prefix: str, length: str | int) -> str | int:
    if isinstance(length, int):
        return length
    return "*".join(factor if factor.isdigit() else prefix + factor for factor in length.split("*"))


def _inside(part: Part) -> str:
    """How keys in the part's object begin, from the top of config.json."""
    return f"{part.place}." if part.place else ""


@dataclass(frozen=True)
class ModelType:
    """Hyper-parameter: the `model_type` of a part, which only tells readers what it is.

    Attributes:
        known: those of the part's architecture, the first one being written if a file states another.
    """

    known: tuple[str, ...]
    name: str = "model_type"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        stated = source.get("model_type")
        return stated if stated in self.known else self.known[0]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"model_type": config.model_type}


@dataclass(frozen=True)
class InnerKey(Key):
    """A row of hyper-parameters of a part.

    Attributes:
        row: the row of the part's architecture.
        part: whose row it is.
        inside: the name of the part.
    """

    row: Any = None
    part: Any = None
    inside: str = ""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        stated = stated_of(self.part, names, source)
        try:
            return self.row.read(HF, stated, part_config(config, self.inside))
        except KeyError as error:
            raise KeyError(_inside(self.part) + str(error.args[0])) from error
        except ParameterError as error:
            raise ParameterError(_inside(self.part) + error.key, str(error)) from error

    def write(self, names: str, config: Config) -> dict[str, Any]:
        said = self.row.write(HF, part_config(config, self.inside))
        found = {_inside(self.part) + key: value for key, value in said.items()}
        return found if names == HF else flattened(found)

    def keys(self, names: str) -> tuple[str, ...]:
        inner = self.row.keys(HF) if isinstance(self.row, Key) else ()
        return tuple(_inside(self.part) + key for key in inner)


@dataclass(frozen=True)
class InnerLayout(Whole):
    """A layout of a part's weight, which is given the part's hyper-parameters.

    Attributes:
        layout: that of the part's architecture.
        inside: the name of the part.
    """

    layout: Layout
    inside: str

    @property
    def computed(self) -> bool:
        return self.layout.computed

    @property
    def scalars(self) -> bool:
        return self.layout.scalars

    def join(self, parts: list[StoredTensor], config: Config) -> StoredTensor:
        return self.layout.join(parts, part_config(config, self.inside))

    def split(self, whole: StoredTensor, config: Config, count: int) -> list[StoredTensor]:
        return self.layout.split(whole, part_config(config, self.inside), count)

    def together(self, pieces: Sequence[StoredTensor]) -> StoredTensor:
        return self.layout.together(pieces)


def flattened(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Nested objects as keys with dots; values that are null are left out."""
    found: dict[str, Any] = {}
    for key, value in stated.items():
        if isinstance(value, Mapping):
            found |= flattened({f"{key}.{inner}": item for inner, item in value.items()})
        elif value is not None:
            found[key] = value
    return found


def unflattened(stated: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The keys that begin with `prefix` as nested objects. Inverse of `flattened`."""
    found: dict[str, Any] = {}
    for key in stated:
        if key.startswith(prefix):
            *around, last = key.removeprefix(prefix).split(".")
            inner = found
            for step in around:
                inner = inner.setdefault(step, {})
                if not isinstance(inner, dict):
                    raise ParameterError(key, f"{step} is both a value and an object")
            inner[last] = stated[key]
    return found
