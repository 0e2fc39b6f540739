"""Tensor matching: pairs of tensors of two models that are the same weight, by name or by weight binding.

Names may follow two conventions. The rows of an architecture say what files of every kind call a weight and how they
lay it out. The values of the first model are brought into the layout of the second, so that what is compared is what
the second file stores, within the bounds of its own types.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error
from ...runtime.contract.architecture import GRAPH, HF, Config, Key, weight_slots
from ...runtime.contract.weight_binding import named_model_type, split_weight
from ...runtime.ir.graph import Graph
from ...runtime.tensor.dtype import DType
from ...runtime.tensor.stored_tensor import StoredTensor
from ..inspect.architectures import plain
from ..load.bind import Model
from ..load.canonical_names import canonical_names
from ..load.recognise import described
from ..mmproj.projector import family_of
from ..translate.lossy_check import IDLE, computed
from ..translate.named_weights import NamedWeights, identify_weights

TIED = {"head.weight": "embed.weight"}
"""Weights that models may lack, by what they use then."""
GGUF_NAME = re.compile(r"(blk\.\d+|token_embd|output_norm|rope_freqs)\.")
BEYOND_GRAPHS = ("context", "task", *IDLE)
"""Hyper-parameters that matter to those who use a model, and not to its graphs."""
MISFIT = (ValueError, AssertionError)
"""Exceptions of layouts for tensors of another shape."""

Canonical = Callable[[], tuple[StoredTensor, StoredTensor] | None]
SHOWN = 60
"""Characters of a name in a message."""


class NamesError(Error):
    """The names of two models cannot be brought together."""

    exit_code = 1


@dataclass(frozen=True)
class Pair:
    """One weight of either model.

    Attributes:
        name: what the second file calls it, or the first where the second lacks it.
        names_a, names_b: what the files call its tensors; empty where a file lacks it.
        a, b: the values, `a` in the layout of the second file; None where a file lacks them.
        dtype_a: the type in the first file.
        computed: whether the values of `a` passed through arithmetic, so that the last bits of f32 may differ.
        canonical: both sides in the architecture's own layout, for weights that one of the files stores after
            arithmetic.
    """

    name: str
    names_a: tuple[str, ...]
    names_b: tuple[str, ...]
    a: StoredTensor | None
    b: StoredTensor | None
    dtype_a: DType | None = None
    computed: bool = False
    canonical: Canonical | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Counterparts:
    """The weights of two models, pair by pair.

    Attributes:
        sides: both as weights of one architecture, by whose rows they were found; None where they were found by name.
    """

    pairs: list[Pair]
    sides: tuple[NamedWeights, NamedWeights] | None = None

    @property
    def architecture(self) -> str | None:
        """The name of that architecture."""
        return None if self.sides is None else self.sides[0].architecture.name

    def settings(self) -> Iterator[tuple[str, Any, Any]]:
        """Hyper-parameters that both files state, and that are not the same, by the architecture's names."""
        if self.sides is None:
            return
        x, y = self.sides
        for row in x.architecture.keys:
            values = [plain(side.config.values.get(row.name)) for side in (x, y)]
            states = all(row.keys(_source(side)) for side in (x, y)) if isinstance(row, Key) else True
            if states and not _agree(*values) and not self._without_effect(row.name):
                yield row.name, *values

    def _without_effect(self, name: str) -> bool:
        """Whether the first model computes the same with the second's value of a hyper-parameter, as where files of a
        convention state what another parameter follows from."""
        assert self.sides is not None
        x, y = self.sides
        if name in BEYOND_GRAPHS or x.found.missing:
            return False
        changed = Config({**x.config.values, name: y.config.values.get(name)})
        weights = dict(x.found.weights)
        graphs = [computed(Model(x.architecture, HF, config, weights, Graph())) for config in (x.config, changed)]
        return graphs[0] is not None and graphs[0] == graphs[1]


def _source(side: NamedWeights) -> str:
    """Naming convention of a model's configuration."""
    return HF if side.names == GRAPH else side.names


def _agree(a: Any, b: Any) -> bool:
    """Whether two parameters are the same up to rounding to f32; what one side leaves open is not compared."""
    if a is None or b is None:
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        return all(_agree(a[key], b[key]) for key in a.keys() & b.keys())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_agree, a, b))
    numbers = all(isinstance(side, int | float) and not isinstance(side, bool) for side in (a, b))
    return math.isclose(a, b, rel_tol=2.0**-23) if numbers else bool(a == b)


def comparable(left: Graph, right: Graph) -> tuple[Graph, Graph]:
    """Two models as they are compared: a language model with its `Graph.mmproj` is compared whole with a multimodal
    model, without weights that such files do not have, and alone with others."""
    for graph, other in ((left, right), (right, left)):
        if graph.mmproj is not None and other.mmproj is None and _is_multimodal(other):
            left_out = family_of(graph.mmproj)[1].left_out
            whole = {id(graph): canonical_names(graph), id(other): other}
            return _without(whole[id(left)], left_out), _without(whole[id(right)], left_out)
    return dataclasses.replace(left, mmproj=None), dataclasses.replace(right, mmproj=None)


def _is_multimodal(graph: Graph) -> bool:
    said = described(graph)
    kind = said[1].get("model_type") if said is not None and said[0] == HF else None
    family = named_model_type(kind, said[1]) if said is not None and isinstance(kind, str) else None
    return family is not None and bool(family.mmproj)


def _without(graph: Graph, left_out: tuple[str, ...]) -> Graph:
    """A graph without the weights whose own names begin with some."""
    stored = identify_weights(graph).found.stored if left_out else {}
    names = {name for own, (_, found) in stored.items() if own.startswith(left_out) for name in found}
    return dataclasses.replace(
        graph, weights={name: tensor for name, tensor in graph.weights.items() if name not in names}
    )


def counterparts(
    a: Graph,
    b: Graph,
    chosen_a: Mapping[str, StoredTensor],
    chosen_b: Mapping[str, StoredTensor],
    *,
    by_name: bool = False,
) -> Counterparts:
    """Pairs of corresponding tensors of two models.

    Args:
        a, b: what was read, whose configurations say the architecture.
        chosen_a, chosen_b: the weights to compare, by the names to compare them by.
        by_name: whether names were mapped already, so that no architecture is asked for.

    Raises:
        NamesError: the names follow two conventions, and it is not known that both models are of one architecture.
    """
    if a.parts.keys() & b.parts.keys() and not by_name:
        return _by_part(a, b, chosen_a, chosen_b)
    common = chosen_a.keys() & chosen_b.keys()
    alike = len(common) in (len(chosen_a), len(chosen_b)) or not (chosen_a and chosen_b)
    if alike or by_name:
        if chosen_a and chosen_b and not common:
            raise _apart(a, b, chosen_a, chosen_b, "the models share no tensor name after --rename")
        return Counterparts(list(_by_name(a, b, chosen_a, chosen_b)))
    try:
        x, y = identify_weights(a, chosen_a), identify_weights(b, chosen_b)
    except Error as error:
        unknown = error.message
    else:
        if x.architecture.name != y.architecture.name and (x.architecture.parts or y.architecture.parts):
            x, y = (identify_weights(*side, text_only=True) for side in ((a, chosen_a), (b, chosen_b)))
        if x.architecture.name == y.architecture.name:
            return Counterparts(list(_Matching(x, y).pairs()), (x, y))
        unknown = f"one is a {x.architecture.title} model, the other a {y.architecture.title} model"
    if two_conventions(chosen_a, chosen_b):
        raise _apart(a, b, chosen_a, chosen_b, unknown)
    return Counterparts(list(_by_name(a, b, chosen_a, chosen_b)))


def _by_part(
    a: Graph, b: Graph, chosen_a: Mapping[str, StoredTensor], chosen_b: Mapping[str, StoredTensor]
) -> Counterparts:
    """The tensors of two models in folders, part by part: each part has names of its own convention."""
    pairs: list[Pair] = []
    for part in dict.fromkeys((*a.parts, *b.parts)):
        head = f"{part}/"
        sides = (
            {name.removeprefix(head): tensor for name, tensor in chosen.items() if name.startswith(head)}
            for chosen in (chosen_a, chosen_b)
        )
        found = counterparts(a.parts.get(part, Graph()), b.parts.get(part, Graph()), *sides)
        pairs += (
            dataclasses.replace(
                pair,
                name=head + pair.name,
                names_a=tuple(head + name for name in pair.names_a),
                names_b=tuple(head + name for name in pair.names_b),
            )
            for pair in found.pairs
        )
    return Counterparts(pairs)


def two_conventions(a: Iterable[str], b: Iterable[str]) -> bool:
    """Whether the tensor names of two models follow two conventions: they share none, or only one has llama.cpp's."""
    a, b = list(a), list(b)
    return bool(a and b) and (not {*a} & {*b} or any(map(GGUF_NAME.match, a)) != any(map(GGUF_NAME.match, b)))


def _apart(
    a: Graph, b: Graph, chosen_a: Mapping[str, StoredTensor], chosen_b: Mapping[str, StoredTensor], why: str
) -> NamesError:
    sides = [
        f"{max(chosen, key=len)[:SHOWN]!r} in {os.path.basename(graph.files[0]) if graph.files else 'the graph'}"
        for graph, chosen in ((a, chosen_a), (b, chosen_b))
    ]
    hint = "Compare the model's directory with its config.json, or map the names with --rename 'RE=REPL'"
    return NamesError(
        "E-NAMES", None, f"the tensor names follow two conventions ({', '.join(sides)}), and {why}", hint=hint
    )


def _by_name(
    a: Graph, b: Graph, chosen_a: Mapping[str, StoredTensor], chosen_b: Mapping[str, StoredTensor]
) -> Iterator[Pair]:
    """The tensors of `a`, then those that only `b` has."""

    @functools.cache
    def canonical() -> Mapping[str, tuple[StoredTensor, StoredTensor]]:
        try:
            x, y = identify_weights(a, chosen_a), identify_weights(b, chosen_b)
        except Error:
            return {}
        same = (x.architecture.name, x.names) == (y.architecture.name, y.names)
        pairs = _Matching(x, y).pairs() if same else ()
        found = ((pair.name, pair.canonical()) for pair in pairs if pair.canonical is not None)
        return {name: both for name, both in found if both is not None}

    for name in (*chosen_a, *(name for name in chosen_b if name not in chosen_a)):
        lookup = functools.partial(lambda name: canonical().get(name), name)
        yield _named(name, chosen_a.get(name), chosen_b.get(name), lookup)


def _named(name: str, a: StoredTensor | None, b: StoredTensor | None, canonical: Canonical | None = None) -> Pair:
    """Two tensors of one name."""
    names_a, names_b = (() if side is None else (name,) for side in (a, b))
    return Pair(name, names_a, names_b, a, b, None if a is None else a.dtype, canonical=canonical)


class _Matching:
    """The weights of two models of one architecture."""

    def __init__(self, x: NamedWeights, y: NamedWeights) -> None:
        self.x, self.y = x, y
        self.rows = {
            ours: (row, layer) for side in (y, x) for row, layer, ours in weight_slots(side.architecture, side.config)
        }
        self.held: dict[str, list[str]] = {}
        for ours, (_, names) in y.found.stored.items():
            for name in names:
                self.held.setdefault(name, []).append(ours)
        self._apart: dict[tuple[str, str], list[StoredTensor]] = {}

    def pairs(self) -> Iterator[Pair]:
        """In the order of the second model's rows, then what only the first has."""
        for name, held in self.held.items():
            sources = [self._source(ours) for ours in held]
            if None not in sources or not self.y.spare.issuperset(held):
                yield self._of(name, held, sources)
        for ours in dict.fromkeys((*self.x.found.stored, *self.x.found.computed)):
            if ours not in self.y.found.stored and ours not in self.x.spare:
                yield from self._left(ours)
        yield from self._unknown()

    def _source(self, ours: str) -> str | None:
        """The weight of the first model that is to be the second's `ours`."""
        found = self.x.found
        return next((name for name in (ours, self._tied(ours)) if name in found.weights or name in found.stored), None)

    def _tied(self, ours: str) -> str | None:
        """The tensor that a model uses instead of a missing tied weight."""
        return TIED.get(ours) if self.rows[ours][0].optional else None

    def _of(self, name: str, held: list[str], sources: list[str | None]) -> Pair:
        """A tensor of the second model, which holds several weights where `held` has several names."""
        b = self.y.weights[name]
        names_b = (self.y.spelled(name),)
        known = [source for source in sources if source is not None]
        names_a = self._names(held[0], name, known)
        if len(known) < len(held):
            return Pair(names_b[0], names_a, names_b, None, b)
        a = self._expected(name, held, known)
        stored = self._stored(known[0])
        computed = any(self._computed(ours, source) for ours, source in zip(held, known, strict=True))
        canonical = functools.partial(self._canonical, held[0], known[0]) if computed and len(held) == 1 else None
        return Pair(
            names_b[0], names_a, names_b, a, b, a.dtype if stored is None else stored.dtype, computed, canonical
        )

    def _names(self, ours: str, name: str, known: list[str]) -> tuple[str, ...]:
        """The first file's names of the tensors; of several for one weight, the one that stands for `name`."""
        every = [self.x.found.stored[source][1] for source in known if source in self.x.found.stored]
        beside = self.y.found.stored[ours][1]
        if len(every) == 1 and len(every[0]) == len(beside):
            every = [[every[0][beside.index(name)]]]
        return tuple(dict.fromkeys(self.x.spelled(each) for names in every for each in names))

    def _stored(self, source: str) -> StoredTensor | None:
        """The first tensor of a weight in the first file."""
        return self.x.weights[self.x.found.stored[source][1][0]] if source in self.x.found.stored else None

    def _computed(self, ours: str, source: str) -> bool:
        """Whether a weight passes through arithmetic on its way from the first file to the second."""
        ways = [
            side.found.stored[name][0] for side, name in ((self.x, source), (self.y, ours)) if name in side.found.stored
        ]
        return (
            any(way.layout.computed for way in ways)
            or self.rows[ours][0].factor is not None
            or source not in self.x.found.stored
        )

    def _canonical(self, ours: str, source: str) -> tuple[StoredTensor, StoredTensor] | None:
        x, y = self.x.found.weights.get(source), self.y.found.weights.get(ours)
        return None if x is None or y is None or x.shape != y.shape else (x, y)

    def _expected(self, name: str, held: list[str], sources: list[str]) -> StoredTensor:
        """The tensor that the second file should have as `name`; the first file's own tensor where its shape does not
        fit."""
        try:
            pieces = [self._pieces(ours, source, name) for ours, source in zip(held, sources, strict=True)]
            if len(pieces) == 1:
                return pieces[0]
            alike = len({piece.dtype for piece in pieces}) == 1
            layout = self.y.found.stored[held[0]][0].layout
            return layout.together(pieces if alike else [piece.dequantize() for piece in pieces])
        except MISFIT:
            stored = self._stored(sources[0])
            return self.x.found.weights[sources[0]] if stored is None else stored

    def _pieces(self, ours: str, source: str, name: str) -> StoredTensor:
        """The part of one weight that the second file stores as `name`."""
        way, names = self.y.found.stored[ours]
        if (ours, source) not in self._apart:
            if source not in self.x.found.weights:
                raise ValueError(self.x.found.misshapen[source])
            row, layer = self.rows[ours]
            whole = self.x.found.weights[source]
            if whole.qtype is not None and whole.dtype != self.y.weights[name].dtype:
                whole = whole.dequantize()
            self._apart[ours, source] = split_weight(row, layer, whole, self.y.config, self.y.names, way, len(names))
        return self._apart[ours, source][names.index(name)]

    def _left(self, ours: str) -> Iterator[Pair]:
        """A weight that the second file does not store: tied there, computed from the configuration, or missing."""
        stored, found, names = self._stored(ours), self.x.found, self._spelled(ours)
        tied = self._tied(ours)
        row, layer = self.rows[ours]
        whole, dtype = found.weights.get(ours, stored), None if stored is None else stored.dtype
        if stored is not None and tied is not None and tied in self.y.found.stored:
            (name,) = self.y.found.stored[tied][1]
            expected = self._expected(name, [tied], [ours])
            yield Pair(names[0], names, (self.y.spelled(name),), expected, self.y.weights[name], dtype)
        elif stored is not None and ours in self.y.found.computed:
            yield Pair(names[0], names, (), whole, self.y.found.weights[ours], dtype, computed=True)
        elif row.stored(self.y.names):
            name = names[0] if names else next(row.stored(self.y.names)[0].expanded(self.y.config, layer))
            yield Pair(name, names, (), whole, None, dtype)

    def _spelled(self, ours: str) -> tuple[str, ...]:
        """The first file's names of the tensors of a weight."""
        return tuple(map(self.x.spelled, self.x.found.stored[ours][1] if ours in self.x.found.stored else ()))

    def _unknown(self) -> Iterator[Pair]:
        """Tensors that are of no weight, by their names."""
        extra_a, extra_b = ({name: side.weights[name] for name in side.found.extra} for side in (self.x, self.y))
        for name in extra_a | extra_b:
            yield _named(name, extra_a.get(name), extra_b.get(name))
