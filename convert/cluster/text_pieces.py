"""Pieces of a text on a cluster: perplexity, and importance matrices, summed in the order of the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.units import counted
from ..console.progress import Progress
from ..evaluate.perplexity import Scores, score
from ..load.bind import bind_model
from ..load.canonical_names import canonical_names
from ..load.load_model import load_language_model
from ..quantize.observe_importance import Observed, Observer, Piece
from .workers.cluster import Cluster
from .workers.opening import Opening
from .workers.work import Work


@dataclass(frozen=True)
class Scoring(Work):
    """Perplexity of a language model, or its divergence from another one; a piece is int64 ids.

    Attributes:
        loading: options of `load`.
    """

    opening: Opening
    other: Opening | None
    loading: Mapping[str, Any]

    exclusive = True

    def prepare(self, threads: int) -> list[Any]:
        """The models."""
        openings = [self.opening] if self.other is None else [self.opening, self.other]
        return [load_language_model(each.graph(whole=True), threads, **self.loading) for each in openings]

    def run(self, prepared: list[Any], piece: Any) -> Scores:
        """The contribution of the piece's tokens."""
        return score(prepared[0], [piece], *prepared[1:])

    def describe(self, piece: Any) -> str:
        return f"a piece of {counted(len(piece), 'token')}"


@dataclass(frozen=True)
class Observation(Work):
    """Squared activations of a model; a piece is one of `observe`.

    Attributes:
        output: whether the matrix that gives the logits is observed too.
        placed: options of `Session`.
    """

    opening: Opening
    output: bool
    placed: Mapping[str, Any]

    exclusive = True

    def prepare(self, threads: int) -> Observer:
        """The model with the outputs that are observed."""
        model = bind_model(canonical_names(self.opening.graph(whole=True), text_only=True))
        return Observer(model, output=self.output, threads=threads, placed=self.placed)

    def run(self, prepared: Observer, piece: Piece) -> Observed:
        """The sums of the piece."""
        found = Observed()
        prepared.observe(piece, found)
        return found

    def describe(self, piece: Piece) -> str:
        return "a piece of the text"


def scores_on(cluster: Cluster, work: Scoring, pieces: Sequence[Any], progress: Progress) -> Scores:
    """The scores of all pieces, in their order."""
    scores = Scores()
    progress.phase("scoring")
    progress.start(sum(map(len, pieces)), unit="tokens")
    try:
        for piece, found in zip(pieces, cluster.in_order(work, pieces), strict=True):
            scores.extend(found)
            progress.advance(len(piece))
    finally:
        progress.finish()
    return scores


def observed_on(cluster: Cluster, work: Observation, pieces: Sequence[Piece], progress: Progress) -> Observed:
    """The sums of all pieces, added in their order: the bytes of one process."""
    found = Observed()
    progress.phase("observing")
    progress.start(len(pieces), unit="pieces")
    try:
        for some in cluster.in_order(work, pieces):
            for name, sums in some.sums.items():
                found.add([name], sums, some.counts[name])
            progress.advance(1)
    finally:
        progress.finish()
    return found
