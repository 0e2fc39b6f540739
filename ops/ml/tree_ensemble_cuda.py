"""Tree ensembles on the device: each thread evaluates all trees for one row, aggregates and transforms the scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Argument
from .class_scores import NAMES, NEARLY_ZERO
from .decision_tree import Trees
from .tree_ensemble import AGGREGATES, KEPT, _base, _by_number, _by_position
from .tree_ensemble import tree_ensemble as newest
from .tree_ensemble import tree_ensemble_classifier as classifier
from .tree_ensemble import tree_ensemble_regressor as regressor

WALK = """
    row = i
    for t in range(targets):
        scores[row * targets + t] = START
        voted[row * targets + t] = 0
    for tree in range(trees):
        node = roots[tree]
        while node >= 0:
            value = np.float64(get_x(x, row * features + feature[node]))
            border, mode = np.float64(split[node]), modes[node]
            if mode == 0:
                goes = value <= border
            elif mode == 1:
                goes = value < border
            elif mode == 2:
                goes = value >= border
            elif mode == 3:
                goes = value > border
            elif mode == 4:
                goes = value == border
            elif mode == 5:
                goes = value != border
            MEMBER
            if value != value and missing[node] != 0:
                goes = True
            node = yes[node] if goes else no[node]
        leaf = -node - 1
        for vote in range(first[leaf], first[leaf + 1]):
            t = row * targets + target[vote]
            JOIN
            voted[t] = 1
    for t in range(targets):
        if voted[row * targets + t] == 0:
            scores[row * targets + t] = 0.0
        scores[row * targets + t] = scores[row * targets + t] / divisor + base[t]
"""
JOINS = {
    "SUM": ("0.0", "scores[t] += weight[vote]"),
    "AVERAGE": ("0.0", "scores[t] += weight[vote]"),
    "MIN": ("np.inf", "scores[t] = min(scores[t], weight[vote])"),
    "MAX": ("-np.inf", "scores[t] = max(scores[t], weight[vote])"),
}
MEMBER = """else:
                goes = False
                for place in range(set_first[node], set_first[node + 1]):
                    goes = goes or members[place] == value"""
TRANSFORMS = {
    "NONE": """
    for t in range(targets):
        put_y(y, row * targets + t, scores[row * targets + t])
""",
    "LOGISTIC": """
    for t in range(targets):
        put_y(y, row * targets + t, 1.0 / (1.0 + math.exp(-scores[row * targets + t])))
""",
    "PROBIT": """
    for t in range(targets):
        put_y(y, row * targets + t, probit(scores[row * targets + t]))
""",
    "SOFTMAX_ZERO": """
    highest = scores[row * targets]
    for t in range(targets):
        highest = max(highest, scores[row * targets + t])
    total = 0.0
    for t in range(targets):
        score = scores[row * targets + t]
        total += math.exp(score - highest) if abs(score) > NEARLY_ZERO else 0.0
    for t in range(targets):
        score = scores[row * targets + t]
        power = math.exp(score - highest) if abs(score) > NEARLY_ZERO else score * math.exp(-highest)
        put_y(y, row * targets + t, power / total if total != 0 else power)
""".replace("NEARLY_ZERO", repr(NEARLY_ZERO)),
    "SOFTMAX": """
    highest = scores[row * targets]
    for t in range(targets):
        highest = max(highest, scores[row * targets + t])
    total = 0.0
    for t in range(targets):
        total += math.exp(scores[row * targets + t] - highest)
    for t in range(targets):
        put_y(y, row * targets + t, math.exp(scores[row * targets + t] - highest) / total)
""",
}
BEST = """
    best = np.int64(-1)
    for t in range(targets):
        higher = best < 0 or scores[row * targets + t] > scores[row * targets + best]
        if (voted[row * targets + t] != 0 or always) and higher:
            best = t
    best = max(best, np.int64(0))
    if single:
        best = np.int64(1) if scores[row * targets + 1] > threshold else np.int64(0)
    put_labels(labels, row, names[best])
"""
FIRST_ONLY = """
    only = scores[row * 2]
    put_labels(labels, row, names[1 if only > threshold else 0])
    PROBIT
    scores[row * 2 + 1] = only
    scores[row * 2] = 1.0 - only if probable else -only
"""


def probit(x: float) -> float:
    """See `scores.probit`."""
    y = 2 * x - 1
    log = math.log((1 - y) * (1 + y))
    part = 2 / (math.pi * 0.147) + 0.5 * log
    size = math.sqrt(2.0) * math.sqrt(math.sqrt(part * part - log / 0.147) - part)
    return size if y > 0 else -size if y < 0 else y * size


def _walk(step: Step, trees: Trees, targets: int, how: str, base: np.ndarray) -> tuple[dict[str, Argument], str] | str:
    """Parameters and source that compute the scores of a row, or the reason why the device cannot."""
    x = step.input(0)
    features = x.shape[-1]
    if trees.feature.size and trees.feature.max() >= features:
        return "a node tests a feature that the input does not have"
    rows = x.count // features
    start, join = JOINS[how]
    named: dict[str, Argument] = {"x": x, "features": features, "targets": targets, "trees": len(trees.roots)}
    tables: dict[str, Any] = {
        "feature": trees.feature,
        "modes": trees.mode,
        "missing": trees.missing.astype(np.uint8),
        "no": trees.ways[0],
        "yes": trees.ways[1],
        "roots": trees.roots,
        "first": trees.first,
        "target": trees.target,
    }
    named |= {name: step.constant_buffer(np.ascontiguousarray(_filled(table))) for name, table in tables.items()}
    named["split"] = step.constant_buffer(_filled(trees.split.astype(np.float64)))
    named["weight"] = step.constant_buffer(_filled(trees.weight.astype(np.float64)))
    named["base"] = step.constant_buffer(
        np.broadcast_to(base.astype(np.float64), (targets,)).copy() if base.size else np.zeros(targets)
    )
    named["divisor"] = float(max(1, len(trees.roots)) if how == "AVERAGE" else 1)
    named["scores"], named["voted"] = (
        step.temporary(np.float64, (rows, targets)),
        step.temporary(np.uint8, (rows, targets)),
    )
    if trees.members:
        sets = [trees.members.get(node, np.zeros(0)) for node in range(len(trees.feature))]
        named["set_first"] = step.constant_buffer(np.cumsum([0, *(len(members) for members in sets)]))
        named["members"] = step.constant_buffer(_filled(np.concatenate(sets).astype(np.float64)))
    walk = WALK.replace("            MEMBER\n", f"            {MEMBER}\n" if trees.members else "")
    return named, walk.replace("START", start).replace("JOIN", join)


def _filled(table: np.ndarray) -> np.ndarray:
    """A table that has an element."""
    wide = table.astype(np.int64) if table.dtype.kind == "i" else table
    return wide if wide.size else np.zeros(1, wide.dtype)


def _launched(step: Step, named: dict[str, Argument], text: str, transform: str, output: int) -> Launch | str:
    if transform not in TRANSFORMS:
        return f"unknown transform {transform}"
    x = step.input(0)
    shape = named["scores"].shape  # type: ignore[union-attr]
    named["y"] = step.output(output) if step.is_used(output) else step.temporary(np.float32, shape)
    return per_thread_launch(
        "trees", x.count // x.shape[-1], named, text + TRANSFORMS[transform], {"probit": (probit, "float64")}
    )


def _given(step: Step) -> dict[str, Any]:
    return {name: step.attributes.get(name) for name in step.node.op.attributes}


@cuda(newest)
def newest_on_device(step: Step) -> Planned:
    """Plan TreeEnsemble."""
    given = _given(step)
    targets = int(max(given["leaf_targetids"], default=0)) + 1 if given["n_targets"] is None else given["n_targets"]
    trees = KEPT.get(list(given.values()), lambda: _by_position(given).checked("TreeEnsemble", targets))
    found = _walk(step, trees, targets, AGGREGATES[given["aggregate_function"]], np.zeros(0))
    return found if isinstance(found, str) else _launched(step, *found, NAMES[given["post_transform"]], 0)


@cuda(regressor)
def regressor_on_device(step: Step) -> Planned:
    """Plan TreeEnsembleRegressor."""
    given = _given(step)
    name = "TreeEnsembleRegressor"
    targets = int(max(given["target_ids"] or [0])) + 1 if given["n_targets"] is None else given["n_targets"]
    trees = KEPT.get(list(given.values()), lambda: _by_number(name, given, "target").checked(name, targets))
    base = _base(given)
    if base.size not in (0, targets):
        return "the number of base values differs from the number of targets"
    found = _walk(step, trees, targets, given["aggregate_function"], base)
    return found if isinstance(found, str) else _launched(step, *found, given["post_transform"], 0)


@cuda(classifier)
def classifier_on_device(step: Step) -> Planned:
    """Plan TreeEnsembleClassifier with integer labels."""
    given, name = _given(step), "TreeEnsembleClassifier"
    labels = np.array(given["classlabels_int64s"], np.int64)
    count = len(labels)
    trees = KEPT.get(list(given.values()), lambda: _by_number(name, given, "class").checked(name, count))
    base, positive, voices = _base(given), bool((trees.weight >= 0).all()), set(given["class_ids"] or [])
    first_only = count == 2 and voices == {0} and base.size < 2
    if not first_only and base.size not in (0, count):
        return "the number of base values differs from the number of classes"
    found = _walk(step, trees, count, "SUM", np.array([base.sum(), 0.0]) if first_only else base)
    if isinstance(found, str):
        return found
    named, text = found
    transform = given["post_transform"]
    named |= {"names": step.constant_buffer(labels), "threshold": 0.5 if positive else 0.0}
    named["labels"] = (
        step.output(0)
        if step.is_used(0)
        else step.temporary(np.int64, (step.input(0).count // step.input(0).shape[-1],))
    )
    if first_only:
        named["probable"] = int(positive and transform not in ("LOGISTIC", "PROBIT"))
        first = FIRST_ONLY.replace("PROBIT", "only = probit(only)" if transform == "PROBIT" else "")
        return _launched(step, named, text + first, "LOGISTIC" if transform == "LOGISTIC" else "NONE", 1)
    named |= {"always": int(bool(base.size)), "single": int(count == 2 and voices == {1} and not base.size)}
    return _launched(step, named, text + BEST, transform, 1)
