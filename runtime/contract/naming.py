"""Naming: the modules of an architecture under the names of several libraries, as rows of templates.

A row covers a module and everything below it. Weights of a file become rows of `Weight` with their names in every
convention, so that binding and conversion are those of all architectures.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..base.dataclass import dataclass
from ..base.errors import FormatError
from ..base.process_cache import process_cache
from ..base.units import counted
from ..tensor.stored_tensor import StoredTensor
from .architecture import (
    CANDLE,
    HF,
    ORIGINAL,
    SAME,
    TIMM,
    TORCHVISION,
    Architecture,
    Config,
    Layout,
    ModuleNames,
    Same,
    Stored,
    Weight,
)
from .weight_binding import ignored, list_names

FIELD = re.compile(r"\{([a-z]+)(?:\+(\d))?\}")
COUNTER = ".num_batches_tracked"
"""The end of the names of counters that batch norms keep in training."""
CONVENTIONS = (HF, TIMM, TORCHVISION, CANDLE, ORIGINAL)
"""The conventions whose names a `Module` may have; others have the architecture's own names."""


class Scalar(Same):
    """A tensor without dimensions, unchanged."""

    @property
    def scalars(self) -> bool:
        return True


SCALAR = Scalar()


@dataclass(frozen=True)
class Module:
    """A module, or a weight, by its name in each convention.

    ``{i}`` stands for an index, ``{i+1}`` for the next one; an own name and the others have the same fields.

    Attributes:
        name: the architecture's own name.
        hf, timm, torchvision, candle, original: the name in files of these conventions, if it differs; several for a
            module whose weights are those of several modules there, in `layout`; empty where such files do not have it.
        layout: how tensors of files with another name store a weight.
    """

    name: str
    hf: str | tuple[str, ...] | None = None
    timm: str | tuple[str, ...] | None = None
    torchvision: str | tuple[str, ...] | None = None
    candle: str | tuple[str, ...] | None = None
    original: str | tuple[str, ...] | None = None
    layout: Layout = SAME

    def names(self, convention: str) -> tuple[str, ...]:
        """The templates in files of a convention."""
        said = getattr(self, convention) if convention in CONVENTIONS else None
        said = self.name if said is None else said
        return (said,) if isinstance(said, str) else said

    def read(self, convention: str, name: str) -> tuple[Mapping[str, int], str] | None:
        """The indices in the name of a tensor, and the rest of it; None for tensors of other modules."""
        for template in self.names(convention):
            match = _pattern(template).fullmatch(name)
            if match is not None:
                *_, rest = match.groups()
                offsets = {field: int(offset or 0) for field, offset in FIELD.findall(template)}
                indices = {field: int(match[field]) - offset for field, offset in offsets.items()}
                return (indices, rest) if min(indices.values(), default=0) >= 0 else None
        return None

    def stored(self, convention: str, indices: Mapping[str, int], rest: str) -> tuple[Stored, ...]:
        """Tensors in files of a convention that store the weight with these indices."""
        names = tuple(filled(template, indices) + rest for template in self.names(convention))
        own = convention not in CONVENTIONS or getattr(self, convention) is None
        layout = SCALAR if rest.endswith(COUNTER) else SAME if own else self.layout
        return (Stored(names, layout),) if names else ()


def inside(prefix: str, modules: Iterable[Module], hf: str) -> tuple[Module, ...]:
    """The modules of a model inside another one, under `prefix` by own names and under `hf` in transformers."""
    found = []
    for module in modules:
        names = tuple(hf + name for name in module.names(HF))
        others: dict[str, Any] = {
            each: None if getattr(module, each) is None else tuple(prefix + name for name in module.names(each))
            for each in CONVENTIONS[1:]
        }
        found.append(dataclasses.replace(module, name=prefix + module.name, hf=names, **others))
    return tuple(found)


def filled(template: str, indices: Mapping[str, int]) -> str:
    """A template with indices in place of its fields."""
    return FIELD.sub(lambda field: str(indices[field[1]] + int(field[2] or 0)), template)


@process_cache
def _pattern(template: str) -> re.Pattern[str]:
    pieces, end, seen = [], 0, set()
    for field in FIELD.finditer(template):
        pieces.append(re.escape(template[end : field.start()]))
        pieces.append(f"(?P={field[1]})" if field[1] in seen else rf"(?P<{field[1]}>\d{{1,4}})")
        seen.add(field[1])
        end = field.end()
    return re.compile("".join((*pieces, re.escape(template[end:]), r"((?:\..*)?)")))


def modules_of(architecture: Architecture, names: str, weights: Collection[str]) -> tuple[ModuleNames, ...]:
    """The modules of an architecture, for a file of a convention with weights of these names."""
    return architecture.modules(names, weights) if callable(architecture.modules) else architecture.modules


def bound_to(architecture: Architecture, names: str, weights: Collection[str]) -> Architecture:
    """The architecture with a row for each weight that a file of a convention has; itself if it has rows of its own.

    Modules with the same name in the files share its tensors. Tensors of unknown modules get no row, so that binding
    reports them.
    """
    if not architecture.modules:
        return architecture
    rows: dict[str, Weight] = {}
    modules = modules_of(architecture, names, weights)
    for name in weights:
        first = next((module for module in modules if _row(architecture, names, module, name)), None)
        if first is not None:
            fused = (each for each in modules if each is first or each.names(names) == first.names(names))
            for row in filter(None, (_row(architecture, names, each, name) for each in fused)):
                rows.setdefault(row.name, row)
    return dataclasses.replace(architecture, weights=tuple(rows.values()))


class WatchedWeights(dict[str, StoredTensor]):
    """Weights that remember which of them graphs have used."""

    def __init__(self, weights: Mapping[str, StoredTensor]) -> None:
        super().__init__(weights)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> StoredTensor:
        self.used.add(name)
        return super().__getitem__(name)


def check_used(architecture: Architecture, weights: WatchedWeights, path: str | None) -> None:
    """FormatError for weights that the graphs of a model do not use: they belong to a variant of another kind."""
    spare = ignored(architecture, Config({}), weights)
    unused = [name for name in weights if name not in weights.used | spare and not name.endswith(COUNTER)]
    if unused:
        which = f"{counted(len(unused), 'weight')} not of a {architecture.name} model: {list_names(unused)}"
        raise FormatError("E-ARCH-EXTRA", path, which, hint="--exclude RE leaves them out")


def _row(architecture: Architecture, names: str, module: ModuleNames, name: str) -> Weight | None:
    spellings = (name, *(name.removeprefix(prefix) for prefix in architecture.prefixes if name.startswith(prefix)))
    found = next(filter(None, (module.read(names, spelling) for spelling in spellings)), None)
    if found is None:
        found = next(filter(None, (module.read(names, prefix + name) for prefix in architecture.prefixes)), None)
    if found is None:
        return None
    indices, rest = found
    own = filled(module.name, indices) + rest
    others = {each: module.stored(each, indices, rest) for each in CONVENTIONS}
    counts = rest.endswith(COUNTER)
    return Weight(own, hf=others.pop(HF), gguf=() if counts else own, optional=counts, others=others)
