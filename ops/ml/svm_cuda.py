"""Pairwise coupling of SVM class probabilities on the device, one row per thread (Wu, Lin, Weng 2004)."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.ir.domain import CANDLE
from ...runtime.ir.op import Op
from ...runtime.ir.shape_inference import Inference
from ..rules.expression import Term
from .svm import coupled

ROW = """
    base, start = i * classes * classes, i * classes
    for a in range(classes):
        total = 0.0
        for b in range(classes):
            if a != b:
                one, two = min(a, b), max(a, b)
                pair = single[i * pairs + one * classes - one * (one + 1) // 2 + two - one - 1]
                share = pair if a < b else 1.0 - pair
                q[base + a * classes + b] = (share - 1.0) * share
                total += (1.0 - share) * (1.0 - share)
        q[base + a * classes + a] = total
        p[start + a] = 1.0 / classes
    turns = max(100, classes)
    while turns > 0:
        pqp = 0.0
        for a in range(classes):
            total = 0.0
            for b in range(classes):
                total += q[base + a * classes + b] * p[start + b]
            qp[start + a] = total
            pqp += p[start + a] * total
        furthest = 0.0
        for a in range(classes):
            furthest = max(furthest, abs(qp[start + a] - pqp))
        if furthest < 0.005 / classes:
            turns = 0
        else:
            turns -= 1
            for t in range(classes):
                own = q[base + t * classes + t]
                step = (pqp - qp[start + t]) / own
                p[start + t] += step
                pqp = (pqp + step * (step * own + 2.0 * qp[start + t])) / ((1.0 + step) * (1.0 + step))
                for a in range(classes):
                    qp[start + a] = (qp[start + a] + step * q[base + t * classes + a]) / (1.0 + step)
                    p[start + a] /= 1.0 + step
"""


def _rows(node: Inference) -> None:
    shape = node.shape(0)
    node.set(0, node.dtype(0), None if shape is None else (shape[0], node.attributes["classes"]))


_COUPLED = Op("Coupled", CANDLE, 1, coupled, _rows)
"""[rows, pairs] to [rows, classes], a step of SVMClassifier."""


def coupled_probabilities(single: Term, classes: int) -> Term:
    """A node that computes probabilities of classes [rows, classes] from those of pairs of them [rows, pairs]."""
    return Term(single.build.add(_COUPLED, [single.value], {"classes": classes}), single.build)


@cuda(_COUPLED)
def coupled_on_device(step: Step) -> Planned:
    """Couple pairwise probabilities in f64."""
    single, y, classes = step.input(0), step.output(), step.attributes["classes"]
    rows, pairs = single.shape
    named = {"single": single, "pairs": pairs, "classes": classes, "p": y}
    named |= {name: step.temporary(np.float64, (y.count * length,)) for name, length in (("q", classes), ("qp", 1))}
    return per_thread_launch("probabilities of classes", rows, named, ROW)
