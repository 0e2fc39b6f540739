"""Evaluation data: batches of inputs and targets from npz and npy files and image folders."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FileAccessError, UsageError
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.dtype import STRING
from ..api import convert
from ..run.image_preprocess import Camera, Look, batches, image_files

if TYPE_CHECKING:
    import numpy as np

LABELS = ("labels", "label", "targets", "target", "y_true")
FORM = "An npz with the inputs and labels, a folder of such files, or a folder of images for each class"
BATCH = 32


@dataclass(frozen=True)
class Source:
    """Source of data.

    Attributes:
        labels: an array of the npz, or a file of its own (npy) that says what is right; None for the usual names and
            all arrays that are not inputs.
        classes: names of classes in the order of their numbers.
        batch: samples in one run, None for what the model takes.
        most: samples in all.
    """

    path: str
    labels: str | None = None
    classes: Sequence[str] | None = None
    batch: int | None = None
    most: int | None = None
    look: Look = field(default_factory=Look)


@dataclass(frozen=True)
class Batch:
    """Inputs of one run and their targets; the first `count` samples are scored, the others pad the batch to a fixed
    length."""

    feeds: dict[str, Any]
    targets: dict[str, Any]
    count: int


Reader = tuple[int, Callable[[], Batch]]
"""The number of samples of a batch, and what reads it."""


def read(source: Source, graph: Graph) -> Iterator[Batch]:
    """All batches, one at a time."""
    return (read_batch() for read_batch in readers(source, graph))


def readers(source: Source, graph: Graph) -> Iterator[Callable[[], Batch]]:
    """Readers of the batches: files are opened, their arrays and pictures not yet read."""
    inputs = [value for value in graph.inputs if value.name not in graph.weights]
    size = _batch(source, inputs)
    left = source.most
    for count, read_batch in _read(source, inputs, size):
        if left is not None and count >= left:
            yield functools.partial(_first, read_batch, left)
            return
        left = None if left is None else left - count
        yield read_batch


def _first(read_batch: Callable[[], Batch], count: int) -> Batch:
    """A batch of which only the first samples are scored."""
    batch = read_batch()
    return Batch(batch.feeds, {name: array[:count] for name, array in batch.targets.items()}, count)


def _batch(source: Source, inputs: Sequence[Value]) -> int:
    fixed = {value.shape[0] for value in inputs if value.shape and isinstance(value.shape[0], int)}
    if len(fixed) == 1 and source.batch is None:
        return max(1, fixed.pop())
    return source.batch or BATCH


def _read(source: Source, inputs: Sequence[Value], size: int) -> Iterator[Reader]:
    path = Path(source.path)
    if not path.exists():
        raise FileAccessError("E-IO-MISSING", source.path, "is missing", hint=FORM)
    if not path.is_dir():
        yield from _arrays(path, source, inputs, size)
        return
    files = sorted(path.glob("*.npz"))
    if files:
        for file in files:
            yield from _arrays(file, source, inputs, size)
        return
    pictures = image_files(path, source.classes)
    if not pictures:
        raise UsageError("E-EVAL-DATA", source.path, "contains neither npz files nor folders of images", hint=FORM)
    if len(inputs) != 1:
        why = "contains images, but the model has several inputs"
        raise UsageError("E-EVAL-DATA", source.path, why, found=len(inputs), hint="Prepare an npz")
    yield from _pictures(pictures, inputs[0], source.look, size)


def _pictures(pictures: Sequence[tuple[Path, int]], value: Value, look: Look, size: int) -> Iterator[Reader]:
    import numpy

    camera = Camera(value, look)

    def read_batch(part: Sequence[tuple[Path, int]]) -> Batch:
        array = camera.shots([path for path, _ in part])
        labels = numpy.array([number for _, number in part])
        return Batch({camera.name: _filled(array, value, size)}, {"labels": labels}, len(part))

    for part in batches(pictures, size):
        yield len(part), functools.partial(read_batch, part)


def _filled(array: np.ndarray, value: Value, size: int) -> np.ndarray:
    """With the last sample again and again, up to the length that the input has where it is fixed."""
    import numpy

    missing = size - len(array) if value.shape and isinstance(value.shape[0], int) else 0
    return numpy.concatenate([array, numpy.repeat(array[-1:], missing, axis=0)]) if missing > 0 else array


def _arrays(path: Path, source: Source, inputs: Sequence[Value], size: int) -> Iterator[Reader]:
    tensors = convert.open(path).weights
    names = [value.name for value in inputs]
    if path.suffix == ".npy" and len(names) == 1:
        tensors = {names[0]: next(iter(tensors.values()))}
    missing = [name for name in names if name not in tensors]
    if missing:
        why = f"lacks an array for the input {missing[0]!r}"
        raise UsageError("E-EVAL-DATA", str(path), why, found=", ".join(tensors), hint=FORM)
    right = {name: tensor for name, tensor in tensors.items() if name not in names}
    right = _labels(right, source, path)
    if any(not tensor.shape for tensor in tensors.values()):
        why = "has an array without a sample axis"
        raise UsageError("E-EVAL-DATA", str(path), why, hint="The first axis of every array must be the sample axis")
    lengths = {tensors[name].shape[0] for name in names} | {tensor.shape[0] for tensor in right.values()}
    if len(lengths) != 1:
        raise UsageError(
            "E-EVAL-DATA", str(path), "has arrays of different numbers of samples", found=sorted(lengths), hint=FORM
        )
    count = lengths.pop()

    def read_batch(start: int, stop: int) -> Batch:
        feeds = {
            value.name: _filled(_fitting(tensors[value.name][start:stop].numpy(), value, path), value, size)
            for value in inputs
        }
        return Batch(feeds, {name: tensor[start:stop].numpy() for name, tensor in right.items()}, stop - start)

    for start in range(0, count, size):
        stop = min(count, start + size)
        yield stop - start, functools.partial(read_batch, start, stop)


def _labels(right: dict[str, Any], source: Source, path: Path) -> dict[str, Any]:
    if source.labels is None:
        usual = [name for name in LABELS if name in right]
        return {"labels": right[usual[0]]} if usual and "boxes" not in right else right
    if source.labels in right:
        return {source.labels: right[source.labels]}
    if not Path(source.labels).is_file():
        found = ", ".join(right) or "nothing"
        why = f"lacks an array {source.labels!r}, and no such file exists"
        raise UsageError("E-EVAL-TARGET", str(path), why, found=found, hint=FORM)
    return {"labels": next(iter(convert.open(source.labels).weights.values()))}


def _fitting(array: np.ndarray, value: Value, path: Path) -> np.ndarray:
    """In the input's dtype: other widths of the same kind of number are converted."""
    if value.dtype is None or value.dtype is STRING:
        return array
    wanted = value.dtype.as_numpy()
    if array.dtype != wanted and array.dtype.kind != wanted.kind and {array.dtype.kind, wanted.kind} - set("iu"):
        why = f"is not of input {value.name!r}'s dtype"
        raise UsageError("E-RUN-DTYPE", str(path), why, expected=str(wanted), found=str(array.dtype))
    return array.astype(wanted, copy=False)
