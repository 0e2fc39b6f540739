"""Metrics of overlap: the intersection over the union of outputs and targets of each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor, zeros
from .metric import Metric

EPSILON = 1e-7


class IoU(Metric):
    """The intersection over the union of classes, the mean over those of the classes that occur.

    Args:
        target_class_ids: numbers of the classes that count.
        ignore_class: a class of targets whose elements do not count.
        sparse_y_true: whether targets are numbers of classes, otherwise the largest element along `axis`.
        sparse_y_pred: the same of outputs.
    """

    def __init__(
        self, num_classes: int, target_class_ids: Sequence[int], name: str | None = None, dtype: Any = None,
        ignore_class: int | None = None, sparse_y_true: bool = True, sparse_y_pred: bool = True, axis: int = -1,
    ) -> None:  # fmt: skip
        super().__init__(name)
        if any(not 0 <= each < num_classes for each in target_class_ids):
            why = f"target_class_ids are {list(target_class_ids)}"
            raise UsageError("E-OPTION", None, why, expected=f"0 to {num_classes - 1}")
        self.num_classes, self.target_class_ids, self.ignore_class = num_classes, list(target_class_ids), ignore_class
        self.sparse_y_true, self.sparse_y_pred, self.axis = sparse_y_true, sparse_y_pred, axis

    def sums(self, y_true: Any, y_pred: Any, weight: Tensor | None) -> Sequence[Tensor]:
        """The confusion matrix [classes of targets, classes of outputs], and how many batches there are."""
        target, output = as_tensor(y_true), as_tensor(y_pred)
        target = target if self.sparse_y_true else target.argmax(self.axis)
        output = output if self.sparse_y_pred else output.argmax(self.axis)
        target, output = (each.detach().reshape(-1).to("i64") for each in (target, output))
        counted = self._known(target) & self._known(output)
        if self.ignore_class is not None:
            counted = counted & (target != self.ignore_class)
        counts = counted.to("f32")
        if weight is not None:
            counts = counts * weight.reshape(-1).expand(counts.shape)
        cells = (target * self.num_classes + output) * counted.to("i64")
        found = zeros(self.num_classes**2).scatter_add(0, cells, counts)
        return [found.reshape(self.num_classes, self.num_classes), as_tensor(np.float32(1))]

    def _known(self, numbers: Tensor) -> Tensor:
        return (numbers >= 0) & (numbers < self.num_classes)

    def ratio(self, sums: Sequence[Any]) -> Any:
        cells = as_tensor(sums[0]).to("f32")
        both = cells.diagonal()
        either = cells.sum(0) + cells.sum(1) - both
        chosen = as_tensor(np.array(self.target_class_ids))
        both, either = both.index_select(0, chosen), either.index_select(0, chosen)
        occurs = (either > 1e-9).to("f32")
        return (both / (either + EPSILON) * occurs).sum() / (occurs.sum() + EPSILON)


class BinaryIoU(IoU):
    """The intersection over the union of outputs that reach a threshold, and of the others."""

    def __init__(
        self, target_class_ids: Sequence[int] = (0, 1), threshold: float = 0.5, name: str | None = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(2, target_class_ids, name)
        self.threshold = threshold

    def sums(self, y_true: Any, y_pred: Any, weight: Tensor | None) -> Sequence[Tensor]:
        return super().sums(y_true, as_tensor(y_pred) >= self.threshold, weight)


class MeanIoU(IoU):
    """The mean of the intersections over the unions of all classes."""

    def __init__(
        self, num_classes: int, name: str | None = None, dtype: Any = None, ignore_class: int | None = None,
        sparse_y_true: bool = True, sparse_y_pred: bool = True, axis: int = -1,
    ) -> None:  # fmt: skip
        every = range(num_classes)
        super().__init__(num_classes, every, name, dtype, ignore_class, sparse_y_true, sparse_y_pred, axis)


class OneHotIoU(IoU):
    """The intersection over the union of classes of one-hot targets."""

    def __init__(
        self, num_classes: int, target_class_ids: Sequence[int], name: str | None = None, dtype: Any = None,
        ignore_class: int | None = None, sparse_y_pred: bool = False, axis: int = -1,
    ) -> None:  # fmt: skip
        super().__init__(num_classes, target_class_ids, name, dtype, ignore_class, False, sparse_y_pred, axis)


class OneHotMeanIoU(MeanIoU):
    """The mean of the intersections over the unions of all classes of one-hot targets."""

    def __init__(
        self, num_classes: int, name: str | None = None, dtype: Any = None, ignore_class: int | None = None,
        sparse_y_pred: bool = False, axis: int = -1,
    ) -> None:  # fmt: skip
        super().__init__(num_classes, name, dtype, ignore_class, False, sparse_y_pred, axis)
