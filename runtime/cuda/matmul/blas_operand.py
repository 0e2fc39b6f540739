"""BLAS operands: matrices and strided batches with leading dimensions, from the strides of a contraction.

A BLAS is column-major; a row-major matrix is its transpose. So the library computes c^T = b^T a^T: its first operand
is our second.
"""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...plan.elementwise_fusion import merged
from ..kernel.contraction_axes import Axes, Contraction


@dataclass(frozen=True)
class Matrix:
    """A column-major operand.

    Attributes:
        rows, columns: of the stored layout.
        leading: elements from one column to the next.
        transposed: whether the product takes its transpose.
        apart: elements from one matrix of a stack to the next, 0 where all share one.
    """

    rows: int
    columns: int
    leading: int
    transposed: bool
    apart: int


@dataclass(frozen=True)
class BlasProblem:
    """``third = first second``, column-major, for each of `count` matrices; `first` is our second operand and
    `second` our first."""

    first: Matrix
    second: Matrix
    third: Matrix
    count: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """m, n and k of the BLAS call."""
        return self.third.rows, self.third.columns, self.first.rows if self.first.transposed else self.first.columns


def blas_problem(axes: Contraction) -> BlasProblem | None:
    """The BLAS problem of a contraction, None if an operand is not a matrix or a strided batch."""
    found = [_single(group) for group in (axes.stack, axes.rows, axes.columns, axes.depth)]
    if any(item is None for item in found):
        return None
    (count, stacked), (m, down), (n, across), (k, deep) = (item for item in found if item is not None)
    if count > 1 and stacked["b"] == 0 and stacked["a"] == m * down["a"] and stacked["c"] == m * down["c"]:
        m, count = m * count, 1  # rows of all matrices meet the same second operand
    second = _matrix(k, m, deep["a"], down["a"], stacked["a"], count)
    first = _matrix(n, k, across["b"], deep["b"], stacked["b"], count)
    third = _matrix(n, m, across["c"], down["c"], stacked["c"], count)
    if first is None or second is None or third is None or third.transposed or (count > 1 and third.apart == 0):
        return None
    return BlasProblem(first, second, third, count)


def _single(group: Axes) -> tuple[int, dict[str, int]] | None:
    """A group merged to one axis: its length and the strides of the operands."""
    columns = {
        name: strides for name, strides in (("a", group.a), ("b", group.b), ("c", group.c)) if strides is not None
    }
    lengths, found = merged(group.lengths, list(columns.values()))
    if len(lengths) > 1:
        return None
    return (lengths[0] if lengths else 1), {
        name: strides[0] if strides else 0 for name, strides in zip(columns, found, strict=True)
    }


def _matrix(rows: int, columns: int, down: int, across: int, apart: int, count: int) -> Matrix | None:
    """[rows, columns] with these strides as a column-major matrix, or its transpose if rows are contiguous."""
    apart = apart if count > 1 else 0
    if apart < 0:
        return None
    if (rows == 1 or down == 1) and (columns == 1 or across >= rows):
        return Matrix(rows, columns, across if columns > 1 else rows, False, apart)
    if (columns == 1 or across == 1) and (rows == 1 or down >= columns):
        return Matrix(columns, rows, down if rows > 1 else columns, True, apart)
    return None
