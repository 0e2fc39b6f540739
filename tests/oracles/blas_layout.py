"""Memory as a column-major BLAS reads it, in NumPy."""

import numpy as np


def by_columns(memory, matrix, count):
    """[count, rows, columns] as a BLAS sees them."""
    strides = [memory.itemsize * stride for stride in (matrix.apart, 1, matrix.leading)]
    found = np.lib.stride_tricks.as_strided(memory.reshape(-1), (count, matrix.rows, matrix.columns), strides)
    return found.transpose(0, 2, 1) if matrix.transposed else found
