"""DFT and STFT on the device, as products with the transform's matrix."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.matmul.tiled import Axes, Contraction, product
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import View
from ..generator.range import range_
from .dft import dft, stft
from .mel_weight_matrix import mel_weight_matrix
from .window_function import blackman_window, hamming_window, hann_window

LARGEST = 4096
"""Elements of a signal from which the fast transform on the CPU beats a matrix."""


@cuda(range_, mel_weight_matrix, hann_window, hamming_window, blackman_window)
def constant_on_device(step: Step) -> Planned:
    """Copy a value that follows from constants."""
    inputs = [step.constant(index) for index in range(len(step.inputs))]
    compute = step.node.op.compute
    assert compute is not None
    if any(item is None for item in inputs):
        return "its size is not a constant"
    return View(step.constant_buffer(np.asarray(compute(*inputs, **step.node.attributes))))


def _unit(count: int, parts: int, dtype: np.dtype[np.generic]) -> np.ndarray:
    return np.eye(count * parts, dtype=dtype).reshape(count * parts, count, parts)


@cuda(dft)
def dft_on_device(step: Step) -> Planned:
    """Plan signals of up to `LARGEST` elements."""
    x, y = step.input(0), step.output()
    given, axis = step.constant(1), step.constant(2)
    if any(item is None and step.optional_input(index) is not None for index, item in ((1, given), (2, axis))):
        return "its length or axis is not a constant"
    rank = len(x.shape)
    along = (-2 if axis is None else int(axis.reshape(()))) % rank
    count, parts = x.shape[along], x.shape[-1]
    if count * parts > LARGEST or y.shape[along] > LARGEST:
        return f"signals of more than {LARGEST} elements are supported on the CPU only"
    assert dft.compute is not None
    matrix = dft.compute(_unit(count, parts, x.dtype), given, np.array(1), **step.node.attributes)
    others = [place for place in range(rank - 1) if place != along]
    held = step.constant_buffer(np.ascontiguousarray(matrix).reshape(count, parts, *matrix.shape[1:]))
    return product(
        x,
        held,
        y,
        Contraction(
            stack=Axes([], [], [], []),
            rows=Axes(
                [x.shape[place] for place in others],
                [x.strides[place] for place in others],
                None,
                [y.strides[place] for place in others],
            ),
            columns=Axes(held.shape[2:], None, held.strides[2:], [y.strides[along], 1]),
            depth=Axes([count, parts], [x.strides[along], 1], held.strides[:2], None),
        ),
    )


@cuda(stft)
def stft_on_device(step: Step) -> Planned:
    """Multiply overlapping frames, which are rows of a strided view."""
    x, y = step.input(0), step.output()
    every, window, length = (step.constant(index) for index in (1, 2, 3))
    if every is None or any(
        item is None and step.optional_input(index) is not None for index, item in ((2, window), (3, length))
    ):
        return "its frame length or window is not a constant"
    stride = int(every.reshape(()))
    size = int(length.reshape(())) if length is not None else window.size if window is not None else x.shape[1]
    parts = x.shape[2]
    if size * parts > LARGEST:
        return f"frames of more than {LARGEST} elements are supported on the CPU only"
    assert stft.compute is not None
    matrix = stft.compute(_unit(size, parts, x.dtype), np.array(size), window, np.array(size), **step.node.attributes)
    held = step.constant_buffer(np.ascontiguousarray(matrix).reshape(size, parts, *matrix.shape[2:]))
    return product(
        x,
        held,
        y,
        Contraction(
            stack=Axes([], [], [], []),
            rows=Axes(y.shape[:2], [x.strides[0], stride * parts], None, y.strides[:2]),
            columns=Axes(held.shape[2:], None, held.strides[2:], y.strides[2:]),
            depth=Axes([size, parts], [parts, 1], held.strides[:2], None),
        ),
    )
