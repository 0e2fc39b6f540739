"""TreeEnsemble, and its predecessors TreeEnsembleClassifier and TreeEnsembleRegressor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.ir.op import Tolerance, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import F32
from ..rules.axes import input_error
from .class_scores import NAMES, chosen, floats, labels_of, of_two, rows_of, transformed
from .decision_tree import MEMBER, MODES, Kept, Trees, summed
from .feature import DOMAIN

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
LEAF = len(MODES)
KEPT = Kept()
CLOSE = Tolerance(rtol=1e-5, atol=1e-6)


def _rows(operator: str, x: np.ndarray) -> np.ndarray:
    """Rows of features in f32 or f64, in which integers are exact."""
    rows = rows_of(operator, x)
    return (
        rows
        if rows.dtype in (np.float32, np.float64)
        else rows.astype(np.float32 if rows.dtype == np.float16 else np.float64)
    )


def _equal(operator: str, *columns: np.ndarray) -> None:
    if len({len(column) for column in columns}) > 1:
        why = "attributes that belong together differ in length"
        raise input_error(operator, why, "E-OP-ATTRIBUTE", found=[len(column) for column in columns])


def _by_position(given: dict[str, Any]) -> Trees:
    """The trees of TreeEnsemble, whose attributes name nodes and leaves by position."""
    name = "TreeEnsemble"
    feature, false, true, false_leaf, true_leaf = (
        np.array(given[f"nodes_{part}"], np.int64)
        for part in ("featureids", "falsenodeids", "truenodeids", "falseleafs", "trueleafs")
    )
    mode, split = given["nodes_modes"].reshape(-1).astype(np.int64), given["nodes_splits"].reshape(-1)
    missing = np.array(given["nodes_missing_value_tracks_true"] or np.zeros(len(feature)), np.int64) != 0
    target, weight = np.array(given["leaf_targetids"], np.int64), given["leaf_weights"].reshape(-1)
    _equal(name, feature, false, true, false_leaf, true_leaf, mode, split, missing)
    _equal(name, target, weight)
    ways = np.stack([np.where(leaf != 0, ~place, place) for leaf, place in ((false_leaf, false), (true_leaf, true))])
    if min(false.min(initial=0), true.min(initial=0)) < 0:
        raise input_error(name, "a branch leads to no node", "E-OP-ATTRIBUTE")
    roots = np.array(given["tree_roots"], np.int64)
    if roots.min(initial=0) < 0:
        raise input_error(name, "a tree has no root", "E-OP-ATTRIBUTE")
    (testing,) = np.nonzero(mode == MEMBER)
    members = _sets(name, given["membership_values"], testing.tolist())
    return Trees(feature, mode, split, missing, ways, roots, members, np.arange(len(target) + 1), target, weight)


def _sets(operator: str, values: np.ndarray | None, nodes: Sequence[int]) -> dict[int, np.ndarray]:
    """The set of each node that tests membership; NaN is between them."""
    flat = np.zeros(0) if values is None else values.reshape(-1)
    ends = np.nonzero(np.isnan(flat))[0].tolist()
    ends += [len(flat)] if not ends or ends[-1] < len(flat) - 1 else []
    if nodes and len(ends) < len(nodes):
        why = "there are fewer sets than nodes that test membership"
        raise input_error(operator, why, "E-OP-ATTRIBUTE", expected=len(nodes), found=len(ends))
    starts = [0, *(end + 1 for end in ends)]
    return {node: flat[starts[index] : ends[index]] for index, node in enumerate(nodes)}


def _by_number(operator: str, given: dict[str, Any], kind: str) -> Trees:
    """The trees of the older operators, whose attributes name nodes by tree and number; leaves are nodes with votes of
    any number."""
    tree, number, feature, false, true = (
        np.array(given[f"nodes_{part}"] or [], np.int64)
        for part in ("treeids", "nodeids", "featureids", "falsenodeids", "truenodeids")
    )
    names = {name: index for index, name in enumerate((*MODES[:MEMBER], "", "LEAF"))}
    modes = np.array([names.get(str(mode), -1) for mode in given["nodes_modes"] or []], np.int64)
    split = _floats(given, "nodes_values")
    missing = np.array(given["nodes_missing_value_tracks_true"] or np.zeros(len(tree)), np.int64) != 0
    _equal(operator, tree, number, feature, false, true, modes, split, missing)
    if modes.size and modes.min() < 0:
        raise input_error(operator, "a node has no known mode", "E-OP-ATTRIBUTE", expected=", ".join(names))
    index = {key: place for place, key in enumerate(zip(tree.tolist(), number.tolist(), strict=True))}
    if len(index) < len(tree):
        raise input_error(operator, "a tree has two nodes of one number", "E-OP-ATTRIBUTE")
    leaf = modes == names["LEAF"]
    place = np.where(leaf, ~(np.cumsum(leaf) - 1), np.cumsum(~leaf) - 1)
    inner = ~leaf
    try:
        ways = np.array(
            [
                [place[index[key]] for key in zip(tree[inner].tolist(), ids[inner].tolist(), strict=True)]
                for ids in (false, true)
            ],
            np.int64,
        )
        voters = np.array(
            [
                place[index[key]]
                for key in zip(given[f"{kind}_treeids"] or [], given[f"{kind}_nodeids"] or [], strict=True)
            ],
            np.int64,
        )
    except (KeyError, ValueError) as error:
        raise input_error(operator, "a branch or a vote is of no node", "E-OP-ATTRIBUTE", found=error) from error
    target, weight = np.array(given[f"{kind}_ids"] or [], np.int64), _floats(given, f"{kind}_weights")
    _equal(operator, voters, target, weight)
    # Weights of inner nodes occur in models of some converters, and count for nothing.
    target, weight, voters = target[voters < 0], weight[voters < 0], ~voters[voters < 0]
    order = np.argsort(voters, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(voters, minlength=int(leaf.sum())))])
    _, roots = np.unique(tree, return_index=True)
    return Trees(
        feature[inner],
        modes[inner],
        split[inner],
        missing[inner],
        ways.reshape(2, -1),
        place[np.sort(roots)],
        {},
        first,
        target[order],
        weight[order],
    )


def _floats(given: dict[str, Any], name: str) -> np.ndarray:
    tensor = given[f"{name}_as_tensor"]
    return floats(given[name]) if tensor is None else tensor.reshape(-1)


def _base(given: dict[str, Any]) -> np.ndarray:
    return _floats(given, "base_values").astype(np.float64)


def infer_tree_ensemble(node: Inference) -> None:
    """One number for each target for every row, in the dtype of the weights."""
    shape, dtype = node.shape(0), node.dtype(0)
    node.set(0, dtype, (None if shape is None else shape[0], node.attributes["n_targets"]))


SMALL: dict[str, Any] = {
    "n_targets": 2,
    "nodes_featureids": [0, 2, 1],
    "nodes_splits": np.array([0.1, -0.2, 0.3], np.float32),
    "nodes_modes": np.array([0, 3, 1], np.uint8),
    "nodes_truenodeids": [1, 0, 3],
    "nodes_falsenodeids": [2, 1, 2],
    "nodes_trueleafs": [0, 1, 1],
    "nodes_falseleafs": [0, 1, 1],
    "leaf_targetids": [0, 1, 0, 1],
    "leaf_weights": np.array([5.5, 12, -12, 4], np.float32),
    "tree_roots": [0],
}


@op(
    "TreeEnsemble",
    DOMAIN,
    since=5,
    types="ieee",
    infer=infer_tree_ensemble,
    tolerance=CLOSE,
    examples=[case("f32[5,3]", **SMALL), case("f32[4,3]", aggregate_function=2, **SMALL), case("f32[0,3]", **SMALL)],
)
def tree_ensemble(
    x: np.ndarray,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Sequence[int],
    leaf_weights: np.ndarray,
    membership_values: np.ndarray | None = None,
    n_targets: int | None = None,
    nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_featureids: Sequence[int],
    nodes_hitrates: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: Sequence[int],
    nodes_truenodeids: Sequence[int],
    post_transform: int = 0,
    tree_roots: Sequence[int],
) -> np.ndarray:
    """[N, targets]: what the leaves that a row reaches say for each target, put together and transformed."""
    given = dict(locals())
    targets = int(max(leaf_targetids, default=0)) + 1 if n_targets is None else n_targets
    if not 0 <= aggregate_function < len(AGGREGATES) or not 0 <= post_transform < len(NAMES):
        why = "unknown aggregate or transform"
        raise input_error("TreeEnsemble", why, "E-OP-ATTRIBUTE", found=f"{aggregate_function}, {post_transform}")
    trees = KEPT.get(
        [value for name, value in given.items() if name != "x"],
        lambda: _by_position(given).checked("TreeEnsemble", targets),
    )
    scores, _ = summed("TreeEnsemble", trees, _rows("TreeEnsemble", x), targets, AGGREGATES[aggregate_function])
    return transformed("TreeEnsemble", scores, NAMES[post_transform]).astype(x.dtype)


def infer_tree_ensemble_regressor(node: Inference) -> None:
    """One f32 number for each target for every row."""
    shape = node.shape(0)
    node.set(0, F32, (None if shape is None else shape[0] if len(shape) == 2 else 1, node.attributes["n_targets"]))


NODES: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [1, 0, 0, 0, 0, 2, 0, 0],
    "nodes_values": [0.25, -0.5, 0, 0, 0, 0.1, 0, 0],
    "nodes_truenodeids": [1, 2, 0, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [4, 3, 0, 0, 0, 2, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
}
TARGETS: dict[str, Any] = {
    "n_targets": 2,
    "target_treeids": [0, 0, 0, 0, 1, 1],
    "target_nodeids": [2, 2, 3, 4, 1, 2],
    "target_ids": [0, 1, 1, 0, 0, 1],
    "target_weights": [1.5, -2.0, 0.5, 3.0, 0.25, -1.0],
}


@op(
    "TreeEnsembleRegressor",
    DOMAIN,
    since=3,
    types="index+wide",
    infer=infer_tree_ensemble_regressor,
    tolerance=CLOSE,
    examples=[
        case("f32[6,3]", **NODES, **TARGETS),
        case("f32[6,3]", aggregate_function="AVERAGE", base_values=[0.5, 1.0], **NODES, **TARGETS),
        case("f32[6,3]", aggregate_function="MIN", **NODES, **TARGETS),
        case("f32[6,3]", aggregate_function="MAX", **NODES, **TARGETS),
        case("f32[6,3]", post_transform="SOFTMAX", **NODES, **TARGETS),
        case("f32[0,3]", **NODES, **TARGETS),
    ],
)
def tree_ensemble_regressor(
    x: np.ndarray,
    *,
    aggregate_function: str = "SUM",
    base_values: Sequence[float] | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    n_targets: int | None = None,
    nodes_falsenodeids: Sequence[int] | None = None,
    nodes_featureids: Sequence[int] | None = None,
    nodes_hitrates: Sequence[float] | None = None,
    nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_modes: Sequence[str] | None = None,
    nodes_nodeids: Sequence[int] | None = None,
    nodes_treeids: Sequence[int] | None = None,
    nodes_truenodeids: Sequence[int] | None = None,
    nodes_values: Sequence[float] | None = None,
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
    target_ids: Sequence[int] | None = None,
    target_nodeids: Sequence[int] | None = None,
    target_treeids: Sequence[int] | None = None,
    target_weights: Sequence[float] | None = None,
    target_weights_as_tensor: np.ndarray | None = None,
) -> np.ndarray:
    """[N, targets] in f32: what the leaves that a row reaches say for each target, put together, plus base values,
    transformed."""
    name, given = "TreeEnsembleRegressor", dict(locals())
    targets = int(max(target_ids or [0])) + 1 if n_targets is None else n_targets
    if aggregate_function not in AGGREGATES:
        raise input_error(
            name, "unknown aggregate", "E-OP-ATTRIBUTE", expected=", ".join(AGGREGATES), found=aggregate_function
        )
    trees = KEPT.get(
        [value for key, value in given.items() if key != "x"],
        lambda: _by_number(name, given, "target").checked(name, targets),
    )
    scores, _ = summed(name, trees, _rows(name, x), targets, aggregate_function)
    base = _base(given)
    if base.size not in (0, targets):
        raise input_error(
            name, "there is not one base value for each target", "E-OP-ATTRIBUTE", expected=targets, found=base.size
        )
    return transformed(name, scores + base if base.size else scores, post_transform).astype(np.float32)


def infer_tree_ensemble_classifier(node: Inference) -> None:
    """One label and the scores of all classes for every row."""
    chosen(node, "classlabels_strings", "classlabels_int64s")


VOTES: dict[str, Any] = {
    "class_treeids": [0, 0, 0, 0, 1, 1],
    "class_nodeids": [2, 2, 3, 4, 1, 2],
    "class_weights": [1.5, 2.0, 0.5, 3.0, 0.25, 1.0],
}
ONE_SIDED: dict[str, Any] = {**VOTES, "class_ids": [0] * 6}


@op(
    "TreeEnsembleClassifier",
    DOMAIN,
    since=3,
    types="index+wide -> 2",
    infer=infer_tree_ensemble_classifier,
    tolerance=CLOSE,
    examples=[
        *(
            case(
                "f32[6,3]",
                **NODES,
                **VOTES,
                class_ids=[0, 1, 2, 0, 2, 1],
                classlabels_int64s=[7, 8, 9],
                post_transform=name,
                outputs=2,
            )
            for name in NAMES[:4]
        ),
        *(
            case("f32[6,3]", **NODES, **ONE_SIDED, classlabels_strings=["no", "yes"], post_transform=name, outputs=2)
            for name in ("NONE", "LOGISTIC")
        ),
        case(
            "f32[6,3]",
            **NODES,
            **{**ONE_SIDED, "class_weights": [0.5, -2.0, 0.5, 0.25, 0.25, -1.0]},
            classlabels_int64s=[0, 1],
            outputs=2,
        ),
        case(
            "f32[6,3]",
            **NODES,
            **{**ONE_SIDED, "class_weights": [0.5, -2.0, 0.5, 0.25, 0.25, -1.0]},
            classlabels_int64s=[0, 1],
            post_transform="LOGISTIC",
            base_values=[0.5],
            outputs=2,
        ),
        case("f32[0,3]", **NODES, **VOTES, class_ids=[0, 1, 2, 0, 2, 1], classlabels_int64s=[7, 8, 9], outputs=2),
    ],
)
def tree_ensemble_classifier(
    x: np.ndarray,
    *,
    base_values: Sequence[float] | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    class_ids: Sequence[int] | None = None,
    class_nodeids: Sequence[int] | None = None,
    class_treeids: Sequence[int] | None = None,
    class_weights: Sequence[float] | None = None,
    class_weights_as_tensor: np.ndarray | None = None,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    nodes_falsenodeids: Sequence[int] | None = None,
    nodes_featureids: Sequence[int] | None = None,
    nodes_hitrates: Sequence[float] | None = None,
    nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_modes: Sequence[str] | None = None,
    nodes_nodeids: Sequence[int] | None = None,
    nodes_treeids: Sequence[int] | None = None,
    nodes_truenodeids: Sequence[int] | None = None,
    nodes_values: Sequence[float] | None = None,
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
) -> tuple[np.ndarray, np.ndarray]:
    """Labels [N] and f32 scores [N, classes]: the votes of the leaves that a row reaches, plus base values.

    Of two classes whose votes are all for the first, their sum is the score of the second. Votes for one of two classes
    are a probability where no weight is negative.
    """
    name, given = "TreeEnsembleClassifier", dict(locals())
    labels = labels_of(name, classlabels_strings, classlabels_int64s)
    count = len(labels)
    trees = KEPT.get(
        [value for key, value in given.items() if key != "x"],
        lambda: _by_number(name, given, "class").checked(name, count),
    )
    scores, voted = summed(name, trees, _rows(name, x), count, "SUM")
    base, positive = _base(given), bool((trees.weight >= 0).all())
    voices = set(class_ids or [])
    if count == 2 and voices == {0} and base.size < 2:
        only = scores[:, 0] + base.sum()
        return labels[(only > (0.5 if positive else 0)).astype(np.int64)], of_two(
            name, only, post_transform, positive
        ).astype(np.float32)
    if base.size not in (0, count):
        raise input_error(
            name, "there is not one base value for each class", "E-OP-ATTRIBUTE", expected=count, found=base.size
        )
    scores = scores + base if base.size else scores
    best = np.argmax(np.where(voted | bool(base.size), scores, -np.inf), axis=1)
    if count == 2 and voices == {1} and not base.size:
        best = (scores[:, 1] > (0.5 if positive else 0)).astype(np.int64)
    return labels[best], transformed(name, scores, post_transform).astype(np.float32)
