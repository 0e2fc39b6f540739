"""A model inside another one: its hyper-parameters and weights under a prefix of their own.

config.json has the hyper-parameters of such a part in an object. Other files state them by the same keys, with the name
of the object in front: ``text_encoder.d_model``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import HF, SAME, Config, Key, Layout, Row, Stored, Weight, Whole
from ...runtime.contract.hyperparameter import SIZE, ParameterError, checked, mapping
from ...runtime.tensor.tensor import Tensor


@dataclass(frozen=True)
class Submodel:
    """A part of a model that is a model of its own.

    Attributes:
        name: how own names of its weights and hyper-parameters begin, without the dot; empty for no prefix.
        place: the object in config.json, without the dot; empty for config.json itself.
        hf: how the names of its weights begin in files of transformers.
        keys, weights: rows, as of `Architecture`.
        convention: whose names its weights have in files of transformers.
    """

    name: str
    place: str
    hf: str
    keys: tuple[Row, ...]
    weights: tuple[Weight, ...]
    convention: str = HF

    @property
    def prefix(self) -> str:
        """How own names of weights and hyper-parameters begin."""
        return f"{self.name}." if self.name else ""

    @property
    def inside(self) -> str:
        """How keys in the part's object begin, from the top of config.json."""
        return f"{self.place}." if self.place else ""

    def stated(self, names: str, source: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a file says of the part, in the keys of config.json."""
        if names != HF:
            return unflattened(source, self.inside)
        found: Mapping[str, Any] = checked(self.place, source.get(self.place) or {}, mapping) if self.place else source
        return found

    def config(self, config: Config) -> Config:
        """The part's hyper-parameters, by its own names. Their keys are those of config.json in files of every kind."""
        return part_config(config, self.prefix)

    def rows(self) -> tuple[Row, ...]:
        """The rows of hyper-parameters of the whole model."""
        return tuple(
            InnerKey(
                self.prefix + row.name,
                kind=row.kind if isinstance(row, Key) else SIZE,
                at_most=tuple(self.prefix + name for name in (row.at_most if isinstance(row, Key) else ())),
                row=row,
                part=self,
            )
            for row in self.keys
        )

    def weight_rows(self) -> tuple[Weight, ...]:
        """The rows of weights of the whole model. Files without names of transformers have the own names."""
        return tuple(self._weight(row) for row in self.weights if row.stored(self.convention) or row.compute)

    def _weight(self, row: Weight) -> Weight:
        when, compute, factor = row.when, row.compute, row.factor
        name = self.prefix + row.name
        return Weight(
            name,
            tuple(self._stored(way) for way in row.stored(self.convention)),
            name,
            shape=None if row.shape is None else tuple(self._length(length) for length in row.shape),
            optional=row.optional,
            when=None if when is None else lambda config, i: when(self.config(config), i),
            compute=None if compute is None else lambda config: compute(self.config(config)),
            layers=self.prefix + row.layers,
            factor=None if factor is None else lambda config, i: factor(self.config(config), i),
        )

    def _stored(self, way: Stored) -> Stored:
        layout = SAME if way.layout is SAME else InnerLayout(way.layout, self)
        return Stored(tuple(self.hf + name for name in way.names), layout, self.prefix + way.experts)

    def _length(self, length: str | int) -> str | int:
        if isinstance(length, int):
            return length
        return "*".join(factor if factor.isdigit() else self.prefix + factor for factor in length.split("*"))


def part_config(config: Config, prefix: str) -> Config:
    """The hyper-parameters whose names begin with `prefix`, by the rest of the names. Their keys are those of
    config.json in files of every kind."""
    own = {name.removeprefix(prefix): value for name, value in config.values.items() if name.startswith(prefix)}
    return Config(own | {"names": HF, "path": config.values.get("path")})


@dataclass(frozen=True)
class InnerKey(Key):
    """A row of hyper-parameters of a part.

    Attributes:
        row: the row of the part's architecture.
        part: whose row it is.
    """

    row: Any = None
    part: Any = None

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        stated = self.part.stated(names, source)
        try:
            return self.row.read(HF, stated, self.part.config(config))
        except KeyError as error:
            raise KeyError(self.part.inside + str(error.args[0])) from error
        except ParameterError as error:
            raise ParameterError(self.part.inside + error.key, str(error)) from error

    def write(self, names: str, config: Config) -> dict[str, Any]:
        said = self.row.write(HF, self.part.config(config))
        found = {self.part.inside + key: value for key, value in said.items()}
        return found if names == HF else flattened(found)

    def keys(self, names: str) -> tuple[str, ...]:
        inner = self.row.keys(HF) if isinstance(self.row, Key) else ()
        return tuple(self.part.inside + key for key in inner)


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


@dataclass(frozen=True)
class InnerLayout(Whole):
    """A layout of a part's weight, which is given the part's hyper-parameters."""

    layout: Layout
    part: Submodel

    @property
    def computed(self) -> bool:
        return self.layout.computed

    @property
    def scalars(self) -> bool:
        return self.layout.scalars

    def join(self, parts: list[Tensor], config: Config) -> Tensor:
        return self.layout.join(parts, self.part.config(config))

    def split(self, whole: Tensor, config: Config, count: int) -> list[Tensor]:
        return self.layout.split(whole, self.part.config(config), count)

    def together(self, pieces: Sequence[Tensor]) -> Tensor:
        return self.layout.together(pieces)
