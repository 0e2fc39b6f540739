"""Nearest neighbors: labels by the vote of the most similar labeled vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.base.dataclass import dataclass
from ..similarity import similarities


@dataclass(frozen=True)
class Vote:
    """The label that the neighbors of a vector have.

    Attributes:
        label: the one with the largest weight.
        score: its share of the weights, in 0 to 1.
        cosine: of the nearest neighbor with that label.
        nearest: the number of that neighbor.
    """

    label: str
    score: float
    cosine: float
    nearest: int


def vote(vectors: np.ndarray, known: np.ndarray, labels: Sequence[str], neighbors: int) -> list[Vote]:
    """A vote for each of the vectors [count, width] among the known ones [known, width] and their labels; neighbors
    weigh as much as their cosine, and nothing where it is negative."""
    found = []
    for cosines in similarities(vectors, known):
        chosen = np.argsort(-cosines, kind="stable")[:neighbors]
        weights: dict[str, float] = {}
        for index in chosen:
            weights[labels[index]] = weights.get(labels[index], 0.0) + max(float(cosines[index]), 0.0)
        label = max(weights, key=lambda name: weights[name])
        total = sum(weights.values())
        nearest = next(int(index) for index in chosen if labels[index] == label)
        found.append(Vote(label, weights[label] / total if total else 0.0, float(cosines[nearest]), nearest))
    return found
