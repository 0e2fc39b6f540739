"""Reports on tensors of models by a cluster: content hashes, and comparisons of a conversion with its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ...runtime.base.dataclass import dataclass
from ...runtime.passes.weights.collect import collect_weights
from ...runtime.passes.weights.select import Select
from ...runtime.tensor.stored_tensor import StoredTensor
from ..compare.canonical_hash import canonical_weights
from ..compare.certificate import Checked, Paired, checked, compared_bytes, paired
from ..inspect import tensor_values
from ..inspect.content_hash import tensor_hash
from .workers.cluster import Cluster
from .workers.grouped import grouped
from .workers.opening import Opening
from .workers.work import Work

GROUP_BYTES = 256 * 2**20
"""Bytes of tensors that are one piece."""


@dataclass(frozen=True)
class Hashes(Work):
    """Content hashes of the tensors of models; a piece is pairs of the index of a model and the name of a tensor.

    Attributes:
        canonical: whether weights go by the names and layouts of their architecture.
    """

    models: tuple[Opening, ...]
    canonical: bool

    def prepare(self, threads: int) -> list[dict[str, StoredTensor]]:
        """The tensors of each model."""
        if self.canonical:
            return [canonical_weights(model.graph(parts=True, upgraded=False)) for model in self.models]
        return [collect_weights(model.graph(parts=True, upgraded=False, dequantized=False)) for model in self.models]

    def run(self, prepared: list[dict[str, StoredTensor]], piece: Sequence[tuple[int, str]]) -> list[str]:
        """A hash for each."""
        return [tensor_hash(prepared[model][name]) for model, name in piece]


@dataclass(frozen=True)
class Comparison(Work):
    """Pairs of tensors of a model and its source; a piece is indices of pairs."""

    source: Opening
    made: Opening
    level: str
    select: Select

    def prepare(self, threads: int) -> Paired:
        """The pairs, in the same order for every worker."""
        tensor_values.load()
        return paired(self.source.graph(parts=True), self.made.graph(parts=True), self.select)

    def run(self, prepared: Paired, piece: Sequence[int]) -> list[Checked]:
        """The result of comparing each."""
        return [checked(prepared.pairs[index], self.level) for index in piece]


def hashes_on(
    cluster: Cluster,
    models: Sequence[Opening],
    weights: Sequence[Mapping[str, StoredTensor]],
    canonical: bool,
    advance: Callable[[int], object],
) -> list[dict[str, str]]:
    """The hashes of the tensors of each model, by name in the order of `weights`."""
    items = [((index, name), tensor.nbytes) for index, each in enumerate(weights) for name, tensor in each.items()]
    pieces = list(grouped(items, GROUP_BYTES))
    sizes = dict(items)
    found: list[dict[str, str]] = [{} for _ in models]
    for piece, hashes in zip(pieces, cluster.in_order(Hashes(tuple(models), canonical), pieces), strict=True):
        for (index, name), sha256 in zip(piece, hashes, strict=True):
            found[index][name] = sha256
        advance(sum(sizes[item] for item in piece))
    return found


def checks_on(cluster: Cluster, work: Comparison) -> Callable[[Paired], Iterator[tuple[int, list[Checked]]]]:
    """Comparison by workers: yields bytes compared, and the results of the next pairs."""

    def compare(found: Paired) -> Iterator[tuple[int, list[Checked]]]:
        sizes = [compared_bytes(pair, work.level) for pair in found.pairs]
        pieces = list(grouped(enumerate(sizes), GROUP_BYTES))
        for piece, results in zip(pieces, cluster.in_order(work, pieces), strict=True):
            yield sum(sizes[index] for index in piece), results

    return compare
