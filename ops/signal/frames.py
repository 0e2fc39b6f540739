"""Frames: overlapping parts of signals, and signals of which overlapping parts are added."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.domain import CANDLE
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Undecomposable, case, op
from ...runtime.ir.shape_inference import Inference, Shape


def _infer_frames(node: Inference) -> None:
    shape, length, hop = node.shape(0), node.attributes["length"], node.attributes["hop"]
    if shape is None or len(shape) != 2:
        node.set(0, node.dtype(0), None)
        return
    samples = shape[1]
    node.set(0, node.dtype(0), (shape[0], (samples - length) // hop + 1 if isinstance(samples, int) else None, length))


def _lengths(shape: Shape | None) -> list[int]:
    """The lengths of a shape; Undecomposable where one is unknown."""
    found = [length for length in shape or () if isinstance(length, int)]
    if len(found) < 3:
        raise Undecomposable("the lengths of its frames are unknown")
    return found


def _lower_frames(node: Node, build: Builder) -> None:
    _, count, length = _lengths(node.outputs[0].shape)
    positions = np.arange(count)[:, None] * node.attributes["hop"] + np.arange(length)
    build.add("Gather", [*node.inputs, build.constant(positions)], {"axis": 1}, outputs=node.outputs, name=node.name)


@op(
    "Frames", CANDLE, types="wide+complex", infer=_infer_frames, lower=_lower_frames,
    examples=[case("f32[2,20]", length=6, hop=4), case("f64[1,7]", length=7, hop=1)],
)  # fmt: skip
def frames(x: np.ndarray, *, length: int, hop: int) -> np.ndarray:
    """(batch, frames, length) of (batch, samples): a frame every `hop` samples."""
    return np.lib.stride_tricks.sliding_window_view(x, length, axis=1)[:, ::hop]


def _infer_added(node: Inference) -> None:
    shape = node.shape(0)
    node.set(0, node.dtype(0), None if shape is None else (shape[0], node.attributes["samples"]))


def _lower_added(node: Node, build: Builder) -> None:
    (x,), hop, samples = node.inputs, node.attributes["hop"], node.attributes["samples"]
    assert x is not None
    _, count, length = _lengths(x.shape)
    whole = hop * (count - 1) + length
    columns = build.add("Transpose", [x], {"perm": [0, 2, 1]})
    added = build.add("Col2Im", [columns, build.constant([whole]), build.constant([length])], {"strides": [hop]})
    padded = build.add("Pad", [added, build.constant([0, 0, 0, 0, 0, samples - whole])])
    build.add("Squeeze", [padded, build.constant([1])], outputs=node.outputs, name=node.name)


@op(
    "OverlapAdd", CANDLE, types="wide+complex", infer=_infer_added, lower=_lower_added,
    examples=[case("f32[2,4,6]", hop=4, samples=20), case("f64[1,3,5]", hop=1, samples=7)],
)  # fmt: skip
def overlap_add(x: np.ndarray, *, hop: int, samples: int) -> np.ndarray:
    """(batch, samples) of (batch, frames, length): frames begin every `hop` samples and are added; zeros follow."""
    batch, count, length = x.shape
    pieces = -(-length // hop)
    if pieces > count:
        y = np.zeros((batch, samples), x.dtype)
        for frame in range(count):
            y[:, frame * hop : frame * hop + length] += x[:, frame]
        return y
    y = np.zeros((batch, max(count + pieces - 1, -(-samples // hop)), hop), x.dtype)
    for piece in range(pieces):
        part = x[..., piece * hop : (piece + 1) * hop]
        y[:, piece : piece + count, : part.shape[2]] += part
    return np.ascontiguousarray(y.reshape(batch, -1)[:, :samples])
