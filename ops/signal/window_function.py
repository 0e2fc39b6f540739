"""HannWindow, HammingWindow and BlackmanWindow: sums of cosines (Harris, 1978)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import BY_ONNX
from ..cast.cast import element_type
from ..rules.output_limit import allowed
from ..rules.shape_rules import model_error

EXAMPLES = [case(np.int64(10)), case(np.int64(9), periodic=0), case(np.int32(4), output_datatype=11), case(np.int64(0))]


def as_long_as(node: Inference) -> None:
    """`size` elements of `output_datatype`."""
    size = node.data(0)
    node.set(0, BY_ONNX.get(node.attributes["output_datatype"]), (size[0] if size else None,))


def _window(size: np.ndarray, periodic: int, output_datatype: int, factors: Sequence[float]) -> np.ndarray:
    """The sum of factors[k] * cos(2 * pi * k * n / length) over k, for n from 0; a symmetric window is one element
    shorter than its period."""
    count = int(size.reshape(()))
    if count < 0:
        raise model_error("a window has a negative size", expected="0 or more", found=count)
    turns = np.arange(allowed((count,), 8, "a window")[0]) * (2 * math.pi)
    with np.errstate(all="ignore"):
        angles = turns / (count if periodic else count - 1)
        found = sum(factor * np.cos(k * angles) for k, factor in enumerate(factors)) + np.zeros(count)
    return found.astype(element_type(output_datatype).as_numpy())


@op("HannWindow", since=17, types="index", infer=as_long_as, examples=EXAMPLES)
def hann_window(size: np.ndarray, *, periodic: int = 1, output_datatype: int = 1) -> np.ndarray:
    """Shape (size,)."""
    return _window(size, periodic, output_datatype, (0.5, -0.5))


@op("HammingWindow", since=17, types="index", infer=as_long_as, examples=EXAMPLES)
def hamming_window(size: np.ndarray, *, periodic: int = 1, output_datatype: int = 1) -> np.ndarray:
    """Shape (size,)."""
    return _window(size, periodic, output_datatype, (25 / 46, -21 / 46))


@op("BlackmanWindow", since=17, types="index", infer=as_long_as, examples=EXAMPLES)
def blackman_window(size: np.ndarray, *, periodic: int = 1, output_datatype: int = 1) -> np.ndarray:
    """Shape (size,)."""
    return _window(size, periodic, output_datatype, (0.42, -0.5, 0.08))
