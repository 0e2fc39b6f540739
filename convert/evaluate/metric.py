"""Metrics of networks: the contribution of each sample, and the aggregate of all samples.

A metric looks at each sample once and keeps little of it, so that data of any size is scored in constant memory, and a
figure over any selection of samples can be computed again, which is where intervals come from.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from .average_precision import average_precision, matches

if TYPE_CHECKING:
    import numpy as np

Arrays = Mapping[str, Any]
CUSTOM = "metric"


@dataclass(frozen=True)
class Metric:
    """One figure over samples.

    Attributes:
        score: what each sample of a batch contributes, from the model's outputs and the data's targets.
        combine: the figure of a selection of contributions.
        greater: whether more is better, None where that is not known.
    """

    name: str
    score: Callable[[Arrays, Arrays], Sequence[Any]]
    combine: Callable[[Sequence[Any]], float]
    greater: bool | None = True


def mean(scores: Sequence[Any]) -> float:
    """The mean of numbers."""
    import numpy

    return float(numpy.mean(numpy.asarray(scores, numpy.float64))) if len(scores) else float("nan")


def _chosen(outputs: Arrays) -> np.ndarray:
    """The output that is scored, which stands first."""
    return next(iter(outputs.values()))


def _target(outputs: Arrays, targets: Arrays) -> np.ndarray:
    """The target of the scored output: the array of its name, or the only one that there is."""
    name = next(iter(outputs))
    if name in targets:
        return targets[name]
    if len(targets) != 1:
        found, hint = ", ".join(targets) or "nothing", f"Call it {name!r}, or use --labels NAME"
        raise UsageError("E-EVAL-TARGET", None, "the data has no labels", expected=name, found=found, hint=hint)
    return next(iter(targets.values()))


def top(count: int) -> Callable[[Arrays, Arrays], Sequence[float]]:
    """Whether the right class is among the `count` with the highest scores. Scores are [samples, classes], further axes
    are averaged over.

    Labels are class numbers [samples], or as many numbers as classes, whose greatest is meant. Where scores are equal,
    the class of the lower number comes first.
    """

    def score(outputs: Arrays, targets: Arrays) -> Sequence[float]:
        import numpy

        scores, labels = _chosen(outputs), numpy.asarray(_target(outputs, targets))
        if scores.ndim < 2:
            why = "scores need a class axis"
            raise UsageError("E-EVAL-SHAPE", None, why, expected="[samples, classes]", found=list(scores.shape))
        if labels.shape == scores.shape:
            labels = labels.argmax(axis=1)
        if labels.size != scores.size // scores.shape[1] or labels.shape[0] != scores.shape[0]:
            why = "labels do not match the scores in shape"
            raise UsageError("E-EVAL-SHAPE", None, why, expected=list(scores.shape), found=list(labels.shape))
        labels = labels.reshape(scores.shape[0], 1, *scores.shape[2:]).astype(numpy.int64)
        if labels.size and not 0 <= labels.min() <= labels.max() < scores.shape[1]:
            found = f"{labels.min()} to {labels.max()}"
            why = "a label is not a class of the model"
            raise UsageError("E-EVAL-LABEL", None, why, expected=f"0 to {scores.shape[1] - 1}", found=found)
        right = numpy.take_along_axis(scores, labels, axis=1)
        classes = numpy.arange(scores.shape[1]).reshape(1, -1, *[1] * (scores.ndim - 2))
        better = ((scores > right) | ((scores == right) & (classes < labels)) | numpy.isnan(right)).sum(axis=1)
        return [float(item) for item in (better < count).reshape(scores.shape[0], -1).mean(axis=1)]

    return score


def _pairs(outputs: Arrays, targets: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and targets [samples, numbers]."""
    import numpy

    found, right = _chosen(outputs), numpy.asarray(_target(outputs, targets))
    if found.shape != right.shape:
        why = "targets are not of the output's shape"
        raise UsageError("E-EVAL-SHAPE", None, why, expected=list(found.shape), found=list(right.shape))
    count = found.shape[0] if found.ndim else 1
    return found.astype(numpy.float64).reshape(count, -1), right.astype(numpy.float64).reshape(count, -1)


def _mse(outputs: Arrays, targets: Arrays) -> Sequence[float]:
    found, right = _pairs(outputs, targets)
    return ((found - right) ** 2).mean(axis=1).tolist()


def _mae(outputs: Arrays, targets: Arrays) -> Sequence[float]:
    found, right = _pairs(outputs, targets)
    return abs(found - right).mean(axis=1).tolist()


def _cosine(outputs: Arrays, targets: Arrays) -> Sequence[float]:
    import numpy

    found, right = _pairs(outputs, targets)
    lengths = numpy.sqrt((found**2).sum(axis=1) * (right**2).sum(axis=1))
    with numpy.errstate(invalid="ignore", divide="ignore"):
        return numpy.where(lengths > 0, (found * right).sum(axis=1) / lengths, (found == right).all(axis=1)).tolist()


METRICS: dict[str, Metric] = {
    each.name: each
    for each in (
        Metric("top1", top(1), mean),
        Metric("top5", top(5), mean),
        Metric("mse", _mse, mean, greater=False),
        Metric("mae", _mae, mean, greater=False),
        Metric("cosine", _cosine, mean),
        Metric("map", matches, average_precision),
        Metric("map50", matches, lambda found: average_precision(found, thresholds=1)),
    )
}
"""Metrics by the name that the command line gives them."""


def metric(text: str) -> Metric:
    """The metric of a name, or the one that a Python file of the user defines; UsageError for an unknown name."""
    if text.endswith(".py"):
        return custom(text)
    if text not in METRICS:
        raise UsageError(
            "E-EVAL-METRIC", None, f"unknown metric {text!r}", expected=", ".join((*METRICS, "FILE.py", "ppl", "kld"))
        )
    return METRICS[text]


def custom(path: str) -> Metric:
    """The function ``metric(outputs, targets)`` of a Python file: both are dictionaries of arrays, the result is a
    number for each sample.

    The file is the user's own code, named by the user alone. It runs as any Python program does.
    """
    if not Path(path).is_file():
        raise UsageError(
            "E-EVAL-METRIC", path, "is missing", hint="Write a file with a function metric(outputs, targets)"
        )
    spec = importlib.util.spec_from_file_location("custom_metric", path)
    if spec is None or spec.loader is None:
        raise UsageError("E-EVAL-METRIC", path, "is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, CUSTOM, None)
    if not callable(function):
        raise UsageError(
            "E-EVAL-METRIC", path, f"defines no function {CUSTOM}", expected=f"def {CUSTOM}(outputs, targets)"
        )

    def score(outputs: Arrays, targets: Arrays) -> Sequence[float]:
        import numpy

        found = numpy.asarray(function(dict(outputs), dict(targets)), numpy.float64)
        if found.ndim > 1:
            why = "does not return one number per sample"
            raise UsageError("E-EVAL-METRIC", path, why, expected="[samples]", found=list(found.shape))
        return found.reshape(-1).tolist()

    return Metric(Path(path).stem, score, mean, None)
