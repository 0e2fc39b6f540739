"""Calibration: input data, observed activations, and ranges.json."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UsageError
from ....runtime.base.units import counted
from ....runtime.base.untrusted.json import parse
from ....runtime.ir.graph import Graph
from ....runtime.passes.pattern.replace_nodes import graphs
from ....runtime.session import Session
from ....runtime.tensor.dtype import F32
from ....runtime.tensor.file import Source
from ...api import convert
from ...run.image_preprocess import Camera, Look, pictures_below
from .activation_range import BINS, METHODS, Observed

if TYPE_CHECKING:
    import numpy as np

SCHEMA = "candle-convert/ranges/1"
F32_LIMIT = 3.5e38
FORM = "An npz file, a folder of npz files (one per sample), of npy files for each input, or of images"


@dataclass
class Calibration:
    """Ranges of the values of a network.

    Attributes:
        samples: runs.
        seen: each f32 value that is not constant, by name.
    """

    samples: int = 0
    seen: dict[str, Observed] = field(default_factory=dict)

    def ranges(self, method: str) -> dict[str, tuple[float, float]]:
        """The range of every value."""
        return {name: METHODS[method](observed) for name, observed in self.seen.items()}

    def to_json(self) -> dict[str, Any]:
        """Histograms as well, so that any method can be asked for later and more data added."""
        values = {}
        for name, one in self.seen.items():
            used = one.counts.nonzero()[0]
            first, stop = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
            values[name] = {
                "low": one.low,
                "high": one.high,
                "reach": one.reach,
                "odd": one.odd,
                "first": first,
                "counts": one.counts[first:stop].tolist(),
            }
        return {"schema": SCHEMA, "samples": self.samples, "values": values}


def read(path: str) -> Calibration:
    """Read ranges.json; FormatError where it is not one."""
    source = Source(path)
    source.budget.charge(source.size, "the ranges")
    data = parse(source.read(0, source.size), source, 0, "E-RANGES-JSON")
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("values"), dict):
        why = "is not a file of ranges"
        raise FormatError("E-RANGES-JSON", path, why, expected=SCHEMA, hint="Create one with candle-convert calibrate")
    calibration = Calibration(_count(data.get("samples"), path))
    for name, entry in data["values"].items():
        calibration.seen[name] = _observed(entry, path)
    return calibration


def _count(value: object, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        why = "a count is not an integer"
        hint = "Create the file again with candle-convert calibrate"
        raise FormatError("E-RANGES-JSON", path, why, found=value, hint=hint)
    return value


def _number(value: object) -> float:
    """An f32; NaN, which no comparison holds for, instead of anything else."""
    return float(value) if isinstance(value, int | float) and abs(value) < F32_LIMIT else math.nan


def _observed(entry: object, path: str) -> Observed:
    import numpy

    counts = entry.get("counts") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(counts, list):
        why = "a value has no histogram"
        raise FormatError("E-RANGES-JSON", path, why, hint="Create the file again with candle-convert calibrate")
    first = _count(entry.get("first"), path)
    low, high, reach = (_number(entry.get(key)) for key in ("low", "high", "reach"))
    if first + len(counts) > BINS or not -reach <= low <= 0 <= high <= reach:
        why = "a value's range contradicts itself"
        raise FormatError("E-RANGES-JSON", path, why, hint="Create the file again with candle-convert calibrate")
    one = Observed(low, high, reach, _count(entry.get("odd"), path))
    one.counts[first : first + len(counts)] = numpy.array([_count(count, path) for count in counts], numpy.int64)
    return one


def calibrate(
    graph: Graph,
    samples: Iterable[dict[str, np.ndarray]],
    onto: Calibration | None = None,
    told: Callable[[int], object] = lambda count: None,
    placed: Mapping[str, Any] | None = None,
) -> Calibration:
    """Run a simplified graph on every sample and look at all f32 values, one at a time; `onto` goes on with what was
    seen before.

    Args:
        told: is given the number of each sample.
        placed: where it runs, as options of `Session`.
    """
    made = onto or Calibration()
    observer = Observer(graph, placed)
    for sample in samples:
        observer.look(sample, lambda name, array: made.seen.setdefault(name, Observed()).add(array))
        made.samples += 1
        told(made.samples)
    return made


class Observer:
    """A network whose f32 values are looked at; arguments as of `calibrate`."""

    def __init__(self, graph: Graph, placed: Mapping[str, Any] | None = None) -> None:
        values = [*graph.inputs, *(value for inner in graphs(graph) for node in inner.nodes for value in node.outputs)]
        self._floats = {value.name for value in values if value.dtype is F32 and not value.container and value.name}
        self._session = Session(graph, **(placed or {}))

    def look(self, sample: dict[str, np.ndarray], add: Callable[[str, np.ndarray], object]) -> None:
        """Run the network on one sample; `add` is called with the name and the array of each value."""

        def tap(name: str, array: np.ndarray) -> None:
            if name in self._floats:
                add(name, array)

        for name, array in sample.items():
            tap(name, array)
        self._session.run_with_taps(sample, "", tap)


def samples(path: str, graph: Graph, look: Look | None = None) -> Iterator[dict[str, np.ndarray]]:
    """The inputs of each run, one at a time; see `sample_readers`."""
    return (read_sample() for read_sample in sample_readers(path, graph, look))


def sample_readers(path: str, graph: Graph, look: Look | None = None) -> Iterator[Callable[[], dict[str, np.ndarray]]]:
    """Readers of the inputs of each run, in the order of file names; UsageError without files, or if inputs are
    missing.

    Args:
        look: how images are prepared, None for their values from 0 to 1.
    """
    needed = [value.name for value in graph.inputs if value.name not in graph.weights]
    place = Path(path)
    if not place.is_dir():
        yield functools.partial(_from_npz, place, needed)
        return
    found = sorted(place.glob("*.npz"))
    if found:
        for each in found:
            yield functools.partial(_from_npz, each, needed)
        return
    lists = {name: sorted((place / name.replace("/", "_")).glob("*.npy")) for name in needed}
    if len(needed) == 1 and not lists[needed[0]]:
        lists[needed[0]] = sorted(place.glob("*.npy"))
    pictures = [] if any(lists.values()) else pictures_below(place)
    if pictures:
        yield from _from_pictures(path, pictures, graph, needed, look or Look())
        return
    counts = {len(files) for files in lists.values()}
    if len(counts) != 1 or counts == {0}:
        shown = ", ".join(f"{name}: {len(files)}" for name, files in lists.items())
        raise UsageError(
            "E-CALIB-DATA", path, "does not have the same number of npy files for every input", found=shown, hint=FORM
        )
    for files in zip(*lists.values(), strict=True):
        yield functools.partial(_from_npy, files, needed)


def _from_npy(files: Sequence[Path], needed: list[str]) -> dict[str, np.ndarray]:
    return {
        name: next(iter(convert.open(file).weights.values())).numpy() for name, file in zip(needed, files, strict=True)
    }


def _from_pictures(
    path: str, pictures: list[Path], graph: Graph, needed: list[str], look: Look
) -> Iterator[Callable[[], dict[str, np.ndarray]]]:
    """A run for each image, or for as many as the input's fixed batch holds; the last batch is filled with its last
    image."""
    if len(needed) != 1:
        why = f"contains images, but the model has {counted(len(needed), 'input')}"
        raise UsageError("E-CALIB-DATA", path, why, hint=FORM)
    (value,) = [value for value in graph.inputs if value.name == needed[0]]
    camera = Camera(value, look)
    first = value.shape[0] if value.shape else None
    size = first if isinstance(first, int) and first > 0 else 1
    for start in range(0, len(pictures), size):
        part = pictures[start : start + size]
        yield functools.partial(_shots, camera, needed[0], [*part, *[part[-1]] * (size - len(part))])


def _shots(camera: Camera, name: str, pictures: list[Path]) -> dict[str, np.ndarray]:
    return {name: camera.shots(pictures)}


def _from_npz(path: Path, needed: list[str]) -> dict[str, np.ndarray]:
    tensors = convert.open(path)
    missing = [name for name in needed if name not in tensors]
    if missing:
        why = f"lacks an array for the input {missing[0]!r}"
        raise UsageError("E-CALIB-DATA", path, why, found=", ".join(list(tensors)[:9]), hint=FORM)
    return {name: tensors[name].numpy() for name in needed}


def dump(made: Calibration) -> bytes:
    """The bytes of ranges.json."""
    return (json.dumps(made.to_json(), ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
