"""ConstantOfShape, EyeLike, OneHot and Trilu on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.cuda.kernel.elementwise import elementwise_chain, unchanged
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ..shape.layout_cuda import constant_on_device, iota
from .constant_of_shape import constant_of_shape, eye_like
from .one_hot import one_hot
from .trilu import trilu

cuda(eye_like)(constant_on_device)


@cuda(constant_of_shape)
def filled_on_device(step: Step) -> Planned:
    """Fill the output with one value."""
    value = step.attributes["value"]
    y = step.output()
    return elementwise_chain(
        unchanged,
        [step.constant_buffer(np.zeros((), np.float32) if value is None else np.asarray(value).reshape(()))],
        y,
    )


def _upper(x: Any, row: int, column: int, k: int) -> Any:
    return x if column - row >= k else 0


def _lower(x: Any, row: int, column: int, k: int) -> Any:
    return x if column - row <= k else 0


@cuda(trilu)
def trilu_on_device(step: Step) -> Planned:
    """Compare rows with columns."""
    x, k = step.input(0), step.optional_input(1)
    offset = k if k is not None else step.constant_buffer(np.zeros((), np.int64))
    rows, columns = iota(step, x.shape[-2], 1), iota(step, x.shape[-1])
    return elementwise_chain(
        _upper if step.attributes["upper"] else _lower, [x, rows, columns, offset.view(())], step.output()
    )


def _hot(index: Any, place: int, depth: int, off: Any, on: Any) -> Any:
    found = index + depth if index < 0 else index
    return on if found == place else off


@cuda(one_hot)
def one_hot_on_device(step: Step) -> Planned:
    """Compare indices with positions along the new axis."""
    indices, depth, values, y = step.input(0), step.input(1), step.input(2), step.output()
    axis = step.attributes["axis"] % len(y.shape)
    spread = indices.view((*indices.shape[:axis], 1, *indices.shape[axis:]))
    places = iota(step, y.shape[axis], len(y.shape) - axis - 1)
    return elementwise_chain(_hot, [spread, places, depth.view(()), values.view((), 0), values.view((), 1)], y)
