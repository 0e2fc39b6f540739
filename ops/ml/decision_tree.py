"""Decision trees stored as arrays of nodes; all rows are evaluated on all trees at once.

A position is a node's number, or ``~leaf`` for a leaf. Where several ways lead to one node it is walked from each; ways
that lead back are refused.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.limits import current, time_error
from ...runtime.base.units import counted
from ..rules.axes import input_error
from ..rules.output_limit import allowed

CHUNK = 1 << 20
"""Positions (rows times trees) that are walked at a time."""
CHECKED_EVERY = 1024
"""Levels between two looks at the clock."""
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
MEMBER = MODES.index("BRANCH_MEMBER")
COMPARE: tuple[Callable[..., Any], ...] = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)


@dataclass(frozen=True)
class Trees:
    """An ensemble.

    Attributes:
        feature, mode, split, missing: of each node; `missing` says whether NaN goes the true way.
        ways: [2, nodes], indices of the nodes that follow false and true.
        roots: the index of each tree's first node.
        members: the sets of nodes that test membership.
        first, target, weight: votes; those of leaf `i` are from ``first[i]`` to before ``first[i + 1]``.
    """

    feature: np.ndarray
    mode: np.ndarray
    split: np.ndarray
    missing: np.ndarray
    ways: np.ndarray
    roots: np.ndarray
    members: dict[int, np.ndarray]
    first: np.ndarray
    target: np.ndarray
    weight: np.ndarray

    def checked(self, operator: str, targets: int) -> Trees:
        """Itself; UsageError where indices, targets or ways are not possible."""
        nodes, leaves = len(self.feature), len(self.first) - 1
        for places in (self.ways, self.roots):
            if places.size and not (places.min() >= -leaves and places.max() < nodes):
                raise input_error(
                    operator, "a branch leads to no node", "E-OP-ATTRIBUTE", expected=f"{nodes} nodes, {leaves} leaves"
                )
        if self.target.size and not (self.target.min() >= 0 and self.target.max() < targets):
            raise input_error(
                operator,
                "a vote is for no target",
                "E-OP-ATTRIBUTE",
                expected=f"below {targets}",
                found=int(self.target.max()),
            )
        if self.mode.size and not (self.mode.min() >= 0 and self.mode.max() < len(MODES)):
            raise input_error(operator, "a node has no known mode", "E-OP-ATTRIBUTE", expected=", ".join(MODES))
        inner = self.ways[self.ways >= 0]
        parents = np.bincount(np.concatenate([inner, self.roots[self.roots >= 0]]), minlength=nodes)
        if (parents > 1).any() and _circular(self.ways, np.bincount(inner, minlength=nodes)):
            raise input_error(operator, "the branches of a tree lead back to themselves", "E-OP-ATTRIBUTE")
        return self


def _circular(ways: np.ndarray, parents: np.ndarray) -> bool:
    """Whether some nodes are left when those without parents are taken away again and again."""
    left, children = parents.tolist(), ways.T.tolist()
    free = [node for node, count in enumerate(left) if count == 0]
    taken = 0
    while free:
        taken += 1
        for child in children[free.pop()]:
            if child >= 0:
                left[child] -= 1
                if left[child] == 0:
                    free.append(child)
    return taken < len(left)


def walked(operator: str, trees: Trees, x: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """For some rows at a time, the leaf of each tree: [rows, trees]."""
    if trees.feature.size and not (trees.feature.min() >= 0 and trees.feature.max() < x.shape[1]):
        wanted = f"{counted(trees.feature.max() + 1, 'feature')}"
        raise input_error(
            operator, "a node tests a feature that the input does not have", expected=wanted, found=x.shape[1]
        )
    step = max(1, CHUNK // max(1, len(trees.roots)))
    for start in range(0, len(x), step):
        rows = x[start : start + step]
        yield slice(start, start + len(rows)), _leaves(operator, trees, rows)


def _leaves(operator: str, trees: Trees, x: np.ndarray) -> np.ndarray:
    places = np.tile(trees.roots, len(x))
    rows = np.repeat(np.arange(len(x)), len(trees.roots))
    deadline, level = time.monotonic() + current().time, 0
    (open_,) = np.nonzero(places >= 0)
    while open_.size:
        node = places[open_]
        found = trees.ways[_taken(trees, node, x[rows[open_], trees.feature[node]]).astype(np.intp), node]
        places[open_] = found
        open_ = open_[found >= 0]
        level += 1
        if level % CHECKED_EVERY == 0 and time.monotonic() > deadline:
            raise time_error(operator)
    return ~places.reshape(len(x), len(trees.roots))


def _taken(trees: Trees, node: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Whether each node sends its value the true way."""
    mode, split = trees.mode[node], trees.split[node]
    result = np.zeros(len(node), bool)
    for kind in np.unique(mode).tolist():
        chosen = mode == kind
        if kind != MEMBER:
            result[chosen] = COMPARE[kind](value[chosen], split[chosen])
            continue
        for tested in np.unique(node[chosen]).tolist():
            here = node == tested
            result[here] = np.isin(value[here], trees.members[tested])
    return np.asarray(result | (trees.missing[node] & np.isnan(value)))


def votes(trees: Trees, leaves: np.ndarray, targets: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Votes of the leaves of [rows, trees]: the index of each in [rows * targets], its weight, and how many there are
    for each index."""
    flat = leaves.reshape(-1)
    counts = np.diff(trees.first)[flat]
    total = int(counts.sum())
    allowed([total], 8 * 3, "Votes of trees")
    begins = np.cumsum(counts) - counts
    vote = np.repeat(trees.first[flat] - begins, counts) + np.arange(total)
    position = np.repeat(np.repeat(np.arange(len(leaves)), leaves.shape[1]), counts) * targets + trees.target[vote]
    return position, trees.weight[vote], np.bincount(position, minlength=len(leaves) * targets)


def summed(operator: str, trees: Trees, x: np.ndarray, targets: int, how: str) -> tuple[np.ndarray, np.ndarray]:
    """Votes of the trees put together for each row and target in f64 (zero if absent), and where there are
    some."""
    result = np.zeros(allowed((len(x), targets), 8, operator))
    voted = np.zeros((len(x), targets), bool)
    for rows, leaves in walked(operator, trees, x):
        shape = (len(leaves), targets)
        place, weight, counts = votes(trees, leaves, targets)
        if how in ("SUM", "AVERAGE"):
            found = np.bincount(place, weight, minlength=len(leaves) * targets)
        else:
            extreme = np.minimum if how == "MIN" else np.maximum
            found = np.full(len(leaves) * targets, np.inf if how == "MIN" else -np.inf)
            extreme.at(found, place, weight)
            found = np.where(counts > 0, found, 0)
        result[rows], voted[rows] = found.reshape(shape), counts.reshape(shape) > 0
    return (result / max(1, len(trees.roots)) if how == "AVERAGE" else result), voted


class Kept:
    """Ensembles made of attributes that were met last; the attributes are kept, too, so that their identity says what
    they hold."""

    def __init__(self, most: int = 16) -> None:
        self.most = most
        self.found: OrderedDict[tuple[int, ...], tuple[Sequence[Any], Trees]] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, parts: Sequence[Any], make: Callable[[], Trees]) -> Trees:
        """The ensemble of these attributes."""
        key = tuple(map(id, parts))
        with self.lock:
            if key in self.found:
                self.found.move_to_end(key)
                return self.found[key][1]
        trees = make()
        with self.lock:
            self.found[key] = (parts, trees)
            while len(self.found) > self.most:
                self.found.popitem(last=False)
        return trees
