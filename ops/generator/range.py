"""Range: evenly spaced elements."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import MAX_DATA, Inference
from ...runtime.ir.symbolic_dim import subtract_dims
from ..cast.cast import element_type
from ..rules.axes import constants, input_error
from ..rules.output_limit import allowed


def infer_range(node: Inference) -> None:
    """The number of steps where the ends are known, and the numbers where they are integers."""
    known = [node.data(index) for index in range(3)]
    ends: list[Dim] = [column[0] if column else None for column in known]
    numbers = constants(ends)
    data = None
    length: Dim = None
    if numbers is not None:
        if numbers[2] == 0:
            node.fail("the step is zero")
        positions = range(*numbers)
        length, data = len(positions), list(positions) if len(positions) <= MAX_DATA else None
    elif ends[2] == 1 and subtract_dims(ends[1], ends[0]) is not None:
        length = subtract_dims(ends[1], ends[0])
    else:
        arrays = [node.array(index) for index in range(3)]
        if all(array is not None and array.size == 1 for array in arrays):
            length = _count(*(array.reshape(-1)[0] for array in arrays if array is not None))
    node.set(0, node.dtype(0) or node.dtype(1) or node.dtype(2), (length,), data=data)


def _count(start: np.generic, limit: np.generic, delta: np.generic) -> int:
    """ceil((limit - start) / delta), at least 0: exact for integers, in f64 for floats (which holds the quotient of f32
    and narrower)."""
    if start.dtype.kind in "iu":
        ends = [int(item) for item in (start, limit, delta)]
        return max(0, -((ends[0] - ends[1]) // ends[2])) if ends[2] else -1
    first, last, step = (float(item) for item in (start, limit, delta))
    count = (last - first) / step if step else math.nan
    return max(0, math.ceil(count)) if math.isfinite(count) else -1


@op(
    "Range",
    since=27,
    types="T=float+index+i16 T T",
    traits=(Trait.KEEPS_F32,),
    infer=infer_range,
    examples=[
        case(np.array(1, np.float32), np.array(2, np.float32), np.array(0.25, np.float32)),
        case(np.array(10), np.array(4), np.array(-2)),
        case(np.array(3, np.int16), np.array(3, np.int16), np.array(1, np.int16)),
        case(np.array(0.5, np.float64), np.array(9.0), np.array(2.0)),
        case(np.array(1, np.float16), np.array(3, np.float16), np.array(0.5, np.float16), stash_type=10),
    ],
)
def range_(start: np.ndarray, limit: np.ndarray, delta: np.ndarray, *, stash_type: int = 1) -> np.ndarray:
    """``start + i * delta`` below `limit`, 1-D; f16 and bf16 are computed in the element type `stash_type`."""
    ends = [item.reshape(-1)[0] for item in (start, limit, delta) if item.size == 1]
    if len(ends) != 3:
        raise input_error("Range", "start, limit and delta are not scalars")
    count = _count(ends[0], ends[1], ends[2])
    if count < 0:
        raise input_error(
            "Range", "the number of steps is not finite", "E-OP-VALUE", found=", ".join(str(item) for item in ends)
        )
    allowed([count], max(start.dtype.itemsize, 8), "Range")
    narrow = start.dtype.itemsize == 2 and start.dtype.kind not in "iu"
    dtype = element_type(stash_type).as_numpy() if narrow else start.dtype
    first, step = (item.astype(dtype) for item in (ends[0], ends[2]))
    with np.errstate(over="ignore"):
        return np.asarray(first + np.arange(count).astype(dtype) * step).astype(start.dtype)
