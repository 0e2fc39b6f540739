"""Model diff: names, shapes, dtypes, values, metadata and attached files of two models.

Names may follow two conventions where both models are known to be of one architecture (see `counterparts`); what is
compared then of metadata and files are the hyper-parameters that both state.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.base.units import counted
from ...runtime.base.untrusted.regex import compiled
from ...runtime.contract.metadata import to_json
from ...runtime.ir.graph import Graph
from ...runtime.passes.weights.collect import collect_weights
from ...runtime.passes.weights.select import Select
from ...runtime.tensor.storage import Storage
from ...runtime.tensor.stored_tensor import CHUNK, StoredTensor, equal_bytes
from ..console.output import aligned
from ..console.progress import NoProgress, Progress
from ..inspect import tensor_distance
from ..inspect.graph_diff import described
from ..open.detect_format import refuse_unwritten
from ..open.diffusion.single_file import alike
from ..open.open_model import open_model
from .match_tensors import Pair, comparable, counterparts

Model = str | os.PathLike[str] | Graph
SAME = ("equal", "close", "not-compared")
"""Statuses of rows without a difference; the others are dtype, differs, shape, only-a and only-b."""


@dataclass(frozen=True)
class Row:
    """One tensor of either model.

    Attributes:
        name: in `b`; in `a` where only `a` has it.
        status: equal, close (within the tolerance), not-compared (names only), dtype (same values in another dtype),
            differs, shape, only-a or only-b.
        dtype_a, dtype_b, shape_a, shape_b: None on the side that lacks the tensor.
        equal_bits: whether the stored bytes are the same, None where the dtypes differ or nothing was read.
        distance: how far the values are apart, None where they were not or cannot be compared.
        names_a, names_b: what the files call it: several tensors where the other file has them in one, none where a
            file lacks it.
    """

    name: str
    status: str
    dtype_a: str | None
    dtype_b: str | None
    shape_a: tuple[int, ...] | None
    shape_b: tuple[int, ...] | None
    equal_bits: bool | None = None
    distance: tensor_distance.Distance | None = None
    names_a: tuple[str, ...] = ()
    names_b: tuple[str, ...] = ()

    @property
    def max_abs(self) -> float | None:
        return None if self.distance is None else self.distance.max_abs

    @property
    def max_rel(self) -> float | None:
        return None if self.distance is None else self.distance.max_rel

    @property
    def mean_abs(self) -> float | None:
        return None if self.distance is None else self.distance.mean_abs

    @property
    def cosine(self) -> float | None:
        return None if self.distance is None else self.distance.cosine

    @property
    def snr_db(self) -> float | None:
        return None if self.distance is None else self.distance.snr_db

    @property
    def different(self) -> int | None:
        """Elements that are not equal."""
        return None if self.distance is None else self.distance.different

    def to_json(self) -> dict[str, Any]:
        """The row as JSON; an infinite distance is the text "inf" or "-inf"."""
        numbers = {} if self.distance is None else dataclasses.asdict(self.distance)
        fields = ("name", "names_a", "names_b", "status", "dtype_a", "dtype_b", "shape_a", "shape_b", "equal_bits")
        plain = {name: getattr(self, name) for name in fields}
        return plain | {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in numbers.items()
        }


@dataclass(frozen=True)
class Change:
    """A metadata key or an attached file that the models do not share. `status` is differs, only-a or only-b."""

    name: str
    status: str
    a: Any = None
    b: Any = None


@dataclass
class Difference:
    """The rows of a comparison; iterates over all of them, in the order of `a`, then what only `b` has.

    Attributes:
        metadata, files: keys and attached files that differ.
        graph: versions, inputs, outputs and nodes that differ, where both models have nodes.
        architecture: by whose rows tensors were found where names follow two conventions; None where they were found
            by name.
    """

    rows: list[Row] = field(default_factory=list)
    metadata: list[Change] = field(default_factory=list)
    files: list[Change] = field(default_factory=list)
    graph: list[Change] = field(default_factory=list)
    architecture: str | None = None

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        verdict = "same" if self.same else f"{counted(len(self.differing), 'tensor')} differ"
        return f"<Difference {verdict}: {counted(len(self.rows), 'tensor')} compared; table() shows them>"

    @property
    def differing(self) -> list[Row]:
        """The rows that are a difference."""
        return [row for row in self.rows if row.status not in SAME]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.differing or self.metadata or self.files or self.graph)

    def table(self, *, all_rows: bool = False) -> str:
        """The differing rows, or all of them, as aligned text."""
        shown = self.rows if all_rows else self.differing
        translated = self.architecture is not None
        rows = [(*cells(row), ", ".join(row.names_a)) if translated else cells(row) for row in shown]
        return "\n".join(aligned((*COLUMNS, A_COLUMN) if translated else COLUMNS, rows, right=range(5)))

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON."""
        return {
            "same": self.same,
            "architecture": self.architecture,
            "tensors": [row.to_json() for row in self.rows],
            "metadata": [dataclasses.asdict(change) for change in self.metadata],
            "files": [{"name": change.name, "status": change.status} for change in self.files],
            "graph": [dataclasses.asdict(change) for change in self.graph],
        }


COLUMNS = ("max abs", "max rel", "mean abs", "cosine", "SNR dB", "status", "dtype", "shape", "tensor")
A_COLUMN = "in A"
"""Column of A's names, where they follow another convention."""


def cells(row: Row) -> tuple[str, ...]:
    """A row under `COLUMNS`."""
    dtype = _either(row.dtype_a, row.dtype_b)
    shape = _either(
        *(None if side is None else "[" + ", ".join(map(str, side)) + "]" for side in (row.shape_a, row.shape_b))
    )
    if row.distance is None:
        return ("", "", "", "", "", row.status, dtype, shape, row.name)
    found = row.distance
    cosine = "" if found.cosine is None else f"{found.cosine:.6f}"
    gaps = [f"{gap:.3g}" for gap in (found.max_abs, found.max_rel, found.mean_abs)]
    return (*gaps, cosine, f"{found.snr_db:.1f}", row.status, dtype, shape, row.name)


def _either(a: str | None, b: str | None) -> str:
    sides = [side for side in (a, b) if side is not None]
    return sides[0] if len(set(sides)) == 1 else " → ".join(sides)


def _or_of_a_tensor(of_models: Callable[..., Difference]) -> Callable[..., Any]:
    """The comparison of models, which gives PyTorch's differences of neighbours for a tensor."""

    @functools.wraps(of_models)
    def chosen(a: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(a, str | os.PathLike | Graph):
            from ...tensors.core.registry import FUNCTIONS
            from ...tensors.core.tensor import Tensor

            if isinstance(a, Tensor):
                return FUNCTIONS["diff"](a, *arguments, **options)
        return of_models(a, *arguments, **options)

    return chosen


@_or_of_a_tensor
@memory_limited
def diff(
    a: Model,
    b: Model,
    *,
    atol: float = 0.0,
    rtol: float = 0.0,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    rename: Sequence[tuple[str, str]] = (),
    values: bool = True,
    metadata: bool = True,
    progress: Progress | None = None,
) -> Difference:
    """Compare two models, given as paths or graphs, of any formats and dtypes. Of a tensor, `x.diff(n, dim)`.

    Args:
        atol, rtol: values may differ by ``atol + rtol * |b|``. With a tolerance, equal shapes and close values are
            enough; without one, another dtype is a difference too.
        include, exclude: patterns of the names to compare.
        rename: pairs of pattern and replacement that turn names of `a` into names of `b`.
        values: whether values are read and compared, or only names, dtypes and shapes.
        metadata: whether metadata and attached files are compared.
    """
    left, right = alike(
        *(side if isinstance(side, Graph) else open_model(side, upgraded=False, parts=True) for side in (a, b))
    )
    left, right = comparable(left, right)
    for side in (left, right) if values else ():
        refuse_unwritten(side)
    renamed = dataclasses.replace(left, weights=collect_weights(left))
    Select(rename=tuple(rename)).run(renamed)
    weights_a, weights_b = (_chosen(weights, include, exclude) for weights in (renamed.weights, collect_weights(right)))
    matched = counterparts(left, right, weights_a, weights_b, by_name=bool(rename))
    difference = Difference(architecture=matched.architecture)
    progress = progress or NoProgress()
    progress.phase("comparing")
    sides = [(pair.a, pair.b) for pair in matched.pairs if pair.a is not None and pair.b is not None]
    progress.start(sum(a.nbytes + b.nbytes for a, b in sides if a.shape == b.shape) if values else 0)
    try:
        difference.rows = [_row(pair, (atol, rtol), values, progress) for pair in matched.pairs]
    finally:
        progress.finish()
    if metadata and matched.architecture is not None:
        difference.metadata = [Change(name, "differs", one, other) for name, one, other in matched.settings()]
    elif metadata:
        difference.metadata = _metadata(left.metadata, right.metadata)
        difference.files = _files(left.attachments, right.attachments)
    parts = [described(side) for side in (left, right)]
    if all(parts):
        difference.graph = _changes(*parts)
    return difference


def _chosen(
    weights: dict[str, StoredTensor], include: Sequence[str], exclude: Sequence[str]
) -> dict[str, StoredTensor]:
    wanted, unwanted = ([compiled(pattern) for pattern in patterns] for patterns in (include, exclude))
    return {
        name: tensor
        for name, tensor in weights.items()
        if (not wanted or any(pattern.search(name) for pattern in wanted))
        and not any(pattern.search(name) for pattern in unwanted)
    }


def _row(pair: Pair, tolerance: tuple[float, float], values: bool, progress: Progress) -> Row:
    a, b = pair.a, pair.b
    dtype_a = None if a is None else (pair.dtype_a or a.dtype).name
    dtype_b = None if b is None else b.dtype.name
    shape_a, shape_b = (None if side is None else side.shape for side in (a, b))

    def row(status: str, equal_bits: bool | None = None, distance: tensor_distance.Distance | None = None) -> Row:
        return Row(
            pair.name, status, dtype_a, dtype_b, shape_a, shape_b, equal_bits, distance, pair.names_a, pair.names_b
        )

    if a is None or b is None:
        return row("only-b" if a is None else "only-a")
    if a.shape != b.shape:
        return row("shape")
    if not values:
        return row("not-compared" if dtype_a == dtype_b else "dtype")
    equal_bits, distance = _measured(a, b, tolerance, progress)
    if not equal_bits and distance is not None and distance.outside and pair.canonical is not None:
        canonical = pair.canonical()
        again = (
            None if canonical is None else tensor_distance.distance(*canonical, atol=tolerance[0], rtol=tolerance[1])
        )
        equal_bits, distance = (equal_bits, distance) if again is None or again.outside else (None, again)
    if dtype_a == dtype_b and equal_bits:
        return row("equal", True, distance)
    if distance is None:
        return row("differs", equal_bits)
    if distance.outside:
        return row("differs", equal_bits, distance)
    if dtype_a != dtype_b and tolerance == (0.0, 0.0):
        return row("dtype", equal_bits, distance)
    return row("close" if distance.different else "equal", equal_bits, distance)


def _measured(
    a: StoredTensor, b: StoredTensor, tolerance: tuple[float, float], progress: Progress
) -> tuple[bool | None, tensor_distance.Distance | None]:
    """Whether the bytes are equal (None for different dtypes), and the distance (None where it cannot be computed)."""
    known = 0

    def equal(nbytes: int) -> None:
        nonlocal known
        known += nbytes
        progress.advance(nbytes)

    if a.dtype == b.dtype and equal_bytes(a, b, equal):
        return True, tensor_distance.Distance()

    def compared(nbytes: int) -> None:
        nonlocal known
        seen = min(known, nbytes)
        known -= seen
        progress.advance(nbytes - seen)

    distance = tensor_distance.distance(a, b, atol=tolerance[0], rtol=tolerance[1], advance=compared)
    if distance is None:
        progress.advance(a.nbytes + b.nbytes - known)
    return (None if a.dtype != b.dtype else False), distance


def _metadata(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    found = _changes(*({key: to_json(value) for key, value in side.items()} for side in (a, b)))
    return [dataclasses.replace(change, **_shown(change, a, b)) for change in found]


def _shown(change: Change, a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Both sides as numbers and texts, with their types where these alone differ."""
    from ..translate.metadata_value import kind_of, readable

    sides = {side: values[change.name] for side, values in (("a", a), ("b", b)) if change.name in values}
    shown = {side: readable(value) for side, value in sides.items()}
    if len(shown) == 2 and shown["a"] == shown["b"]:
        return {side: f"{kind_of(value)} {shown[side]}" for side, value in sides.items()}
    return shown


def _changes(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Change]:
    return [
        Change(
            key,
            "only-b" if key not in left else "only-a" if key not in right else "differs",
            left.get(key),
            right.get(key),
        )
        for key in sorted({*left, *right}, key=str)
        if key not in left or key not in right or left[key] != right[key]
    ]


def _files(a: Mapping[str, Storage], b: Mapping[str, Storage]) -> list[Change]:
    return [
        Change(name, "only-b" if name not in a else "only-a" if name not in b else "differs")
        for name in sorted({*a, *b})
        if name not in a or name not in b or not _equal_files(a[name], b[name])
    ]


def _equal_files(a: Storage, b: Storage) -> bool:
    if a.nbytes != b.nbytes:
        return False
    step = math.lcm(a.step, b.step) * (CHUNK // math.lcm(a.step, b.step) or 1)
    return all(
        a.read(first, min(a.nbytes, first + step)) == b.read(first, min(a.nbytes, first + step))
        for first in range(0, a.nbytes, step)
    )
