"""Windows of faces, as MTCNN scans, joins and moves them.

Source: `detect_face` of facenet-pytorch. Edges x0, y0, x1, y1 are in pixels and lie on the last pixel, so that a window
is ``x1 - x0 + 1`` wide where it is moved.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...runtime.base.dataclass import dataclass
from ..preprocess.resize_rules import Size
from .segments import distinct

SIDE, STRIDE = 12, 2
"""Side and stride of the windows of the proposal network, in pixels."""
FACTOR = 0.709
"""From one scale of a picture to the next."""
AMONG_SCALE, AMONG_ALL = 0.5, 0.7
"""Maximum overlap (IoU) with a better window, for windows of one scale and of all."""


@dataclass(frozen=True)
class Judged:
    """A network's results for windows.

    Attributes:
        scores: f32 [count], or [1, rows, columns] of a scanned picture.
        offsets: f32 [count, 4], or [1, 4, rows, columns]: how far edges move, in widths and heights.
        landmarks: f32 [count, 10]: x, then y of five points in widths and heights; None without.
    """

    scores: np.ndarray
    offsets: np.ndarray
    landmarks: np.ndarray | None = None


@dataclass(frozen=True)
class Windows:
    """Windows of a picture: edges f32 [count, 4], scores f32 [count], and landmarks f32 [count, 5, 2] if known."""

    edges: np.ndarray
    scores: np.ndarray
    landmarks: np.ndarray | None = None


def scales(size: Size, smallest: float) -> Iterator[float]:
    """The scales at which a picture is scanned for faces of `smallest` pixels and more."""
    scale = SIDE / smallest
    shortest = min(size) * scale
    while shortest >= SIDE:
        yield scale
        scale *= FACTOR
        shortest *= FACTOR


def proposed(scans: list[tuple[float, Judged]], threshold: float) -> Windows:
    """Square windows whose scores reach the threshold, from the scans of a picture at several scales."""
    edges, scores, offsets = [np.zeros((0, 4), np.float32)], [np.zeros(0, np.float32)], [np.zeros((0, 4), np.float32)]
    for scale, judged in scans:
        rows, columns = np.nonzero(judged.scores[0] >= threshold)
        corners = np.stack([columns, rows], 1).astype(np.float32) * STRIDE
        windows = np.concatenate([np.floor((corners + 1) / scale), np.floor((corners + SIDE) / scale)], 1)
        found = judged.scores[0][rows, columns]
        kept = distinct(windows, found, AMONG_SCALE)
        edges.append(windows[kept])
        scores.append(found[kept])
        offsets.append(judged.offsets[0][:, rows, columns].T[kept])
    windows, found, moves = (np.concatenate(each).astype(np.float32) for each in (edges, scores, offsets))
    kept = distinct(windows, found, AMONG_ALL)
    windows, moves = windows[kept], moves[kept]
    lengths = np.tile(windows[:, 2:] - windows[:, :2], 2)
    return Windows(squared(windows + moves * lengths), found[kept])


def refined(windows: Windows, judged: Judged, threshold: float) -> Windows:
    """Square windows whose new scores exceed the threshold."""
    passed = np.flatnonzero(judged.scores > threshold)
    edges, scores, offsets = windows.edges[passed], judged.scores[passed], judged.offsets[passed]
    kept = distinct(edges, scores, AMONG_ALL)
    return Windows(squared(moved(edges[kept], offsets[kept])), scores[kept])


def decided(windows: Windows, judged: Judged, threshold: float) -> Windows:
    """Faces and their landmarks, the most certain first; of those that contain each other the best."""
    passed = np.flatnonzero(judged.scores > threshold)
    edges, scores = windows.edges[passed], judged.scores[passed]
    assert judged.landmarks is not None
    shares = judged.landmarks[passed].reshape(-1, 2, 5).transpose(0, 2, 1)
    landmarks = shares * _lengths(edges)[:, None] + edges[:, None, :2] - 1
    faces = moved(edges, judged.offsets[passed])
    kept = apart(faces, scores, AMONG_ALL)
    return Windows(faces[kept], scores[kept], landmarks[kept])


def moved(edges: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Windows whose edges move by shares of their widths and heights."""
    return np.asarray(edges + offsets * np.tile(_lengths(edges), 2))


def squared(edges: np.ndarray) -> np.ndarray:
    """Squares around the middles of windows, as large as the longer edges."""
    lengths = edges[:, 2:] - edges[:, :2]
    side = lengths.max(1, keepdims=True)
    first = edges[:, :2] + lengths * 0.5 - side * 0.5
    return np.concatenate([first, first + side], 1)


def apart(edges: np.ndarray, scores: np.ndarray, share: float) -> np.ndarray:
    """The numbers of the windows of which no better one covers, or is covered by, more than a share; the best first."""
    order = np.argsort(-scores, kind="stable")
    areas = _lengths(edges).prod(1)
    kept = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(best)
        first, last = np.maximum(edges[best, :2], edges[order, :2]), np.minimum(edges[best, 2:], edges[order, 2:])
        common = np.maximum(last - first + 1, 0).prod(1)
        order = order[common / np.minimum(areas[best], areas[order]) <= share]
    return np.array(kept, np.int64)


def crops(pixels: np.ndarray, edges: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """The windows that lie in a picture as images of one size.

    Args:
        pixels: [height, width, channels].
        edges: of the windows.
        side: of the images.

    Returns:
        f32 [count, channels, side, side] in -1 to 1, and which of the windows they show.
    """
    height, width = pixels.shape[:2]
    whole = np.trunc(edges).astype(np.int64)
    first, last = np.maximum(whole[:, :2], 1) - 1, np.minimum(whole[:, 2:], (width, height))
    shown = np.flatnonzero((last > first).all(1))
    found = np.empty((len(shown), pixels.shape[2], side, side), np.float32)
    for row, index in enumerate(shown):
        (left, top), (right, bottom) = first[index], last[index]
        found[row] = centered(averaged(pixels[top:bottom, left:right], (side, side)))
    return found, shown


def averaged(pixels: np.ndarray, size: Size) -> np.ndarray:
    """A picture [height, width, channels] in another size, each pixel the mean of those that it touches (torch's
    `interpolate` with ``mode="area"``); f32."""
    return np.asarray(_averaged(_averaged(pixels, size[0], 0), size[1], 1), np.float32)


def centered(pixels: np.ndarray) -> np.ndarray:
    """Bytes [height, width, channels] as f32 [channels, height, width] in -1 to 1."""
    return np.asarray((pixels.transpose(2, 0, 1) - np.float32(127.5)) * np.float32(1 / 128), np.float32)


def _averaged(values: np.ndarray, length: int, axis: int) -> np.ndarray:
    count = values.shape[axis]
    positions = np.arange(length)
    first, last = positions * count // length, -(-(positions + 1) * count // length)
    sums = np.insert(np.cumsum(values, axis, np.float64), 0, 0, axis)
    shape = [1, 1, 1]
    shape[axis] = length
    return np.asarray((sums.take(last, axis) - sums.take(first, axis)) / (last - first).reshape(shape))


def _lengths(edges: np.ndarray) -> np.ndarray:
    return np.asarray(edges[:, 2:] - edges[:, :2] + 1)
