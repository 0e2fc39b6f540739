"""Certifying: whether a model is another one in other types, every tensor as close to its source as its type allows."""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

from .. import __version__
from ..runtime.dtype import BlockType
from ..runtime.graph import Graph
from ..runtime.passes.select import Select
from ..runtime.record import dataclass
from ..runtime.tensor import CHUNK, Tensor
from . import elements
from .bounds import Blocks, Elements
from .comparing import equal_bytes, share
from .hashing import file_sha256
from .opening import open_model
from .output import aligned
from .parallel import results
from .progress import NoProgress, Progress, ignored

Model = str | os.PathLike[str] | Graph
LEVELS = ("full", "sample")
SAMPLE = 1 << 16
"""Elements at the start, the middle and the end of a tensor that are looked at where only samples are."""
SCHEMA = "candle-convert/certificate/1"
COLUMNS = ("tensor", "status", "from", "to", "RMSE", "max error", "SNR dB", "of bound")


@dataclass(frozen=True)
class Checked:
    """What was found out about one tensor.

    Attributes:
        status: equal (bit for bit), within (its type's bounds), or why it fails: beyond (the bounds), changed (the type is the same, the values
            are not), nan (a number became NaN or infinity), shape, missing, extra, unknown (a type that cannot be decoded).
        source, type: names of the dtypes before and after.
        shape: in the source, or where there is none, in what was made of it.
        rmse, max_error, snr_db: of the values that are finite; None where nothing was compared.
        used: the largest share of a bound that is used up, 1 being just within.
    """

    name: str
    status: str
    source: str | None
    type: str | None
    shape: tuple[int, ...]
    rmse: float | None = None
    max_error: float | None = None
    snr_db: float | None = None
    used: float | None = None

    @property
    def ok(self) -> bool:
        return self.status in ("equal", "within")

    def to_json(self) -> dict[str, Any]:
        """The fields; numbers that JSON does not have are text."""
        plain = dataclasses.asdict(self)
        return {key: str(value) if isinstance(value, float) and not math.isfinite(value) else value for key, value in plain.items()}


@dataclass
class Verification:
    """The tensors of a model and of its source."""

    source: Graph
    made: Graph
    level: str
    tensors: list[Checked] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every tensor is what it should be."""
        return all(tensor.ok for tensor in self.tensors)

    @property
    def failed(self) -> list[Checked]:
        return [tensor for tensor in self.tensors if not tensor.ok]

    def worst(self, count: int = 5) -> list[Checked]:
        """The tensors that fail, then those that lost most signal."""

        def rank(tensor: Checked) -> tuple[bool, float]:
            return tensor.ok, math.inf if tensor.snr_db is None else tensor.snr_db

        return sorted(self.tensors, key=rank)[:count]

    def table(self, tensors: Sequence[Checked] | None = None) -> str:
        """Tensors as aligned text; all of them by default."""
        return "\n".join(aligned(COLUMNS, map(_cells, self.tensors if tensors is None else tensors), right=(4, 5, 6, 7)))

    def to_json(self) -> dict[str, Any]:
        """The verdict and all tensors as JSON."""
        return {"faithful": self.ok, "level": self.level, "failed": len(self.failed), "tensors": [tensor.to_json() for tensor in self.tensors]}

    def certificate(self) -> dict[str, Any]:
        """The same with the files it is about, by their SHA-256; the same files give the same certificate."""
        tool = {"name": "candle-convert", "version": __version__}
        files = {side: [_file(path) for path in graph.files] for side, graph in (("source", self.source), ("made", self.made))}
        return {"schema": SCHEMA, "tool": tool, **files, **self.to_json()}


def _file(path: str) -> dict[str, Any]:
    return {"name": os.path.basename(path), "bytes": os.path.getsize(path), "sha256": file_sha256(path)}


def _cells(tensor: Checked) -> tuple[str, ...]:
    numbers = [(tensor.rmse, "{:.3g}"), (tensor.max_error, "{:.3g}"), (tensor.snr_db, "{:.1f}")]
    shown = ["" if value is None else form.format(value) for value, form in numbers]
    used = "" if tensor.used is None else f"{tensor.used:.0%}" if tensor.used < 100 else "far beyond"
    return (tensor.name, tensor.status, tensor.source or "", tensor.type or "", *shown, used)


def verify(
    source: Model, made: Model, *, level: str = "full", select: Select | None = None, threads: int | None = None, progress: Progress | None = None
) -> Verification:
    """Whether `made` is `source` in other types: the same names and shapes, every tensor within the bounds of its type (see `bounds`).

    Args:
        level: ``full``, or ``sample`` for parts of each tensor.
        select: which tensors of the source, under which names.
    """
    left, right = (side if isinstance(side, Graph) else open_model(side) for side in (source, made))
    wanted = dataclasses.replace(left, weights=dict(left.weights))
    (select or Select()).run(wanted)
    progress = progress or NoProgress()
    progress.phase("verifying")
    elements.load()
    common = [name for name in wanted.weights if name in right.weights and wanted.weights[name].shape == right.weights[name].shape]
    sizes = (_compared(tensor, level) for name in common for tensor in (wanted.weights[name], right.weights[name]))
    progress.start(sum(sizes))
    lock = threading.Lock()

    def advance(nbytes: int) -> None:
        with lock:
            progress.advance(nbytes)

    names = [*wanted.weights, *(name for name in right.weights if name not in wanted.weights)]

    def check(name: str) -> Checked:
        return _check(name, wanted.weights.get(name), right.weights.get(name), level, advance)

    try:
        return Verification(left, right, level, results(check, names, threads or min(4, os.cpu_count() or 1)))
    finally:
        progress.finish()


def _compared(tensor: Tensor, level: str) -> int:
    return sum(share(tensor, first, last) for first, last in _spans(tensor.count, level))


def _spans(count: int, level: str) -> Iterator[tuple[int, int]]:
    """The elements to look at."""
    if level == "full" or count <= 3 * SAMPLE:
        if count:
            yield 0, count
        return
    middle = count // 2 // SAMPLE * SAMPLE
    last = (count - 1) // SAMPLE * SAMPLE
    yield from ((0, SAMPLE), (middle, middle + SAMPLE), (last, count))


def _check(name: str, source: Tensor | None, made: Tensor | None, level: str, advance: Callable[[int], object] = ignored) -> Checked:
    """One tensor."""
    if source is None or made is None:
        there = source or made
        assert there is not None
        before, after = (None if side is None else side.dtype.name for side in (source, made))
        return Checked(name, "extra" if source is None else "missing", before, after, there.shape)
    found = Checked(name, "equal", source.dtype.name, made.dtype.name, source.shape)
    if source.shape != made.shape:
        return dataclasses.replace(found, status="shape")
    if source.dtype == made.dtype and level == "full" and equal_bytes(source, made):
        advance(source.nbytes + made.nbytes)
        return found
    left, right = elements.plain(source), elements.plain(made)
    if left is None or right is None:
        return dataclasses.replace(found, status="equal" if source.dtype == made.dtype and equal_bytes(source, made) else "unknown")
    sums = Blocks(made.dtype) if isinstance(made.dtype, BlockType) and source.dtype != made.dtype else Elements(source, made)
    unit = math.lcm(elements.unit(left), elements.unit(right), made.dtype.block)
    step = max(unit, CHUNK // 8 // unit * unit)
    for start, stop in _spans(source.count, level):
        end = min(source.count, -(-stop // unit) * unit)
        for first in range(start // unit * unit, end, step):
            last = min(end, first + step)
            sums.add(elements.read(left, first, last), elements.read(right, first, last))
            advance(sum(share(side, max(first, start), min(last, stop)) for side in (source, made)))
    return dataclasses.replace(found, **sums.verdict())
