"""Verification of a conversion: every tensor is as close to its source as its type allows.

Names may follow two conventions where both models are known to be of one architecture (see `counterparts`).
"""

from __future__ import annotations

import dataclasses
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

from ...runtime.base import __version__
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.base.units import counted
from ...runtime.contract.naming import COUNTER
from ...runtime.contract.quantization_scheme import Dequantized
from ...runtime.ir.graph import Graph
from ...runtime.passes.weights.select import Select
from ...runtime.plugin.cluster_handle import handle_of
from ...runtime.tensor.dtype import BlockType
from ...runtime.tensor.stored_tensor import CHUNK, StoredTensor, equal_bytes
from ..console.output import aligned
from ..console.progress import NoProgress, Progress, ignored
from ..console.thread_pool import results
from ..inspect import tensor_values
from ..inspect.content_hash import file_sha256
from ..inspect.tensor_distance import share
from ..open.detect_format import refuse_unwritten
from ..open.diffusion.single_file import alike
from ..open.open_model import open_model
from .error_bound import BLOCK_BOUNDS, Blocks, Elements, row_bound
from .match_tensors import Pair, comparable, counterparts

Model = str | os.PathLike[str] | Graph
SAMPLE = 1 << 16
"""Elements at the start, the middle and the end of a tensor that are looked at where only samples are."""
SCHEMA = "candle-convert/certificate/1"
COLUMNS = ("RMSE", "max error", "SNR dB", "of bound", "status", "from", "to", "tensor")
SOURCE_COLUMN = "in the source"
"""Column of the source's names, where they follow another convention."""


@dataclass(frozen=True)
class Checked:
    """The result of comparing one tensor.

    Attributes:
        name: in what was made; in the source where it is missing.
        status: equal (bit for bit), within (its type's bounds), or why it fails: beyond (the bounds), changed (the type
            is the same, the values are not), nan (a number became NaN or infinity), shape, missing, extra, unknown (a
            type that cannot be decoded).
        source, type: names of the dtypes before and after.
        shape: in the source; in the destination if the source lacks the tensor.
        rmse, max_error, snr_db: of the values that are finite; None where nothing was compared.
        used: the largest share of a bound that is used up, 1 being just within.
        names_source, names_made: what the files call it: several tensors where the other file has them in one, none
            where a file lacks it.
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
    names_source: tuple[str, ...] = ()
    names_made: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status in ("equal", "within")

    def to_json(self) -> dict[str, Any]:
        """The fields; numbers that JSON does not have are text."""
        plain = dataclasses.asdict(self)
        return {
            key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in plain.items()
        }


@dataclass
class Verification:
    """The tensors of a model and of its source.

    Attributes:
        architecture: by whose rows tensors were found where names follow two conventions; None where they were found
            by name.
    """

    source: Graph
    made: Graph
    level: str
    tensors: list[Checked] = field(default_factory=list)
    architecture: str | None = None

    def __repr__(self) -> str:
        verdict = "faithful" if self.ok else f"{len(self.failed)} failed"
        return (
            f"<Verification {verdict}: {counted(len(self.tensors), 'tensor')}, level {self.level}; table() shows them>"
        )

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
        rows = self.tensors if tensors is None else tensors
        translated = self.architecture is not None
        cells = [(*_cells(row), ", ".join(row.names_source)) if translated else _cells(row) for row in rows]
        return "\n".join(aligned((*COLUMNS, SOURCE_COLUMN) if translated else COLUMNS, cells, right=(0, 1, 2, 3)))

    def to_json(self) -> dict[str, Any]:
        """The verdict and all tensors as JSON."""
        tensors = [tensor.to_json() for tensor in self.tensors]
        verdict = {"faithful": self.ok, "level": self.level, "architecture": self.architecture}
        return {**verdict, "failed": len(self.failed), "tensors": tensors}

    def certificate(self) -> dict[str, Any]:
        """The verdict as JSON, with name, size and SHA-256 of each file; the same files give the same certificate."""
        tool = {"name": "candle-convert", "version": __version__}
        files = {
            side: [_file(path) for path in graph.files]
            for side, graph in (("source", self.source), ("made", self.made))
        }
        return {"schema": SCHEMA, "tool": tool, **files, **self.to_json()}


def _file(path: str) -> dict[str, Any]:
    return {"name": os.path.basename(path), "bytes": os.path.getsize(path), "sha256": file_sha256(path)}


def _cells(tensor: Checked) -> tuple[str, ...]:
    numbers = [(tensor.rmse, "{:.3g}"), (tensor.max_error, "{:.3g}"), (tensor.snr_db, "{:.1f}")]
    shown = ["" if value is None else form.format(value) for value, form in numbers]
    used = "" if tensor.used is None else f"{tensor.used:.0%}" if tensor.used < 100 else "far beyond"
    return (*shown, used, tensor.status, tensor.source or "", tensor.type or "", tensor.name)


@dataclass(eq=False)
class Paired:
    """Tensors of a model with those of its source.

    Attributes:
        architecture: as of `Verification`.
    """

    source: Graph
    made: Graph
    pairs: list[Pair]
    architecture: str | None


def paired(source: Graph, made: Graph, select: Select) -> Paired:
    """The tensors to compare. NamesError as of `verify`."""
    left, right = comparable(*alike(source, made))
    for side in (left, right):
        refuse_unwritten(side)
    wanted = dataclasses.replace(left, weights=dict(left.weights))
    select.run(wanted)
    found = counterparts(left, right, wanted.weights, right.weights, by_name=bool(select.rename or select.names))
    network = bool(right.nodes) and not left.nodes
    pairs = [pair for pair in found.pairs if not (network and _only_one_kind_has(pair, right))]
    return Paired(left, right, pairs, found.architecture)


Crew = Callable[[Paired], Iterator[tuple[int, list[Checked]]]]
"""Comparison in other processes: yields bytes compared, and the results of the next pairs."""


@memory_limited
def verify(
    source: Model,
    made: Model,
    *,
    level: str = "full",
    select: Select | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    crew: Crew | None = None,
    cluster: Any = None,
) -> Verification:
    """Whether `made` is `source` in other types: the same weights, every tensor within the bounds of its type.

    Args:
        level: ``full``, or ``sample`` for parts of each tensor.
        select: which tensors of the source, under which names.
        crew: other processes that compare in place of threads.
        cluster: workers that compare the tensors of two paths: what `cluster` returns, or a `distributed.Client`.

    Raises:
        NamesError: the names follow two conventions, and it is not known that both models are of one architecture.
    """
    before, after = (side if isinstance(side, Graph) else open_model(side, parts=True) for side in (source, made))
    if cluster is not None:
        if isinstance(source, Graph) or isinstance(made, Graph):
            why = "an open model cannot be sent to a cluster"
            raise UsageError("E-OPTION", None, why, hint="Pass its path")
        paths = os.fspath(source), os.fspath(made)
        crew = handle_of(cluster).comparison(*paths, level, select or Select())
    found = paired(before, after, select or Select())
    progress = progress or NoProgress()
    progress.phase("verifying")
    tensor_values.load()
    progress.start(sum(compared_bytes(pair, level) for pair in found.pairs))
    lock = threading.Lock()

    def advance(nbytes: int) -> None:
        with lock:
            progress.advance(nbytes)

    try:
        if crew is None:
            workers = threads or min(4, os.cpu_count() or 1)
            tensors = results(lambda pair: checked(pair, level, advance), found.pairs, workers)
        else:
            tensors = []
            for nbytes, some in crew(found):
                tensors += some
                advance(nbytes)
        return Verification(found.source, found.made, level, tensors, found.architecture)
    finally:
        progress.finish()


def _only_one_kind_has(pair: Pair, network: Graph) -> bool:
    """Whether a tensor is one that checkpoints lack, a constant of the computation such as a shape or a limit, or one
    that networks lack, a counter of training."""
    if pair.b is None:
        return pair.name.endswith(COUNTER)
    kind, rank = pair.b.dtype.kind, len(pair.b.shape)
    numbers = pair.b.count == 1 or (rank <= 1 and kind in ("int", "uint", "bool"))
    return pair.a is None and (numbers or pair.name in network.constants)


def compared_bytes(pair: Pair, level: str) -> int:
    """The bytes of both sides to compare."""
    if pair.a is None or pair.b is None or pair.a.shape != pair.b.shape:
        return 0
    return _compared(pair.a, level) + _compared(pair.b, level)


def _compared(tensor: StoredTensor, level: str) -> int:
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


def checked(pair: Pair, level: str, advance: Callable[[int], object] = ignored) -> Checked:
    """One pair; values that a file stores after arithmetic may also agree in the architecture's own layout."""
    source, made = pair.a, pair.b
    if source is None or made is None:
        there = made if source is None else source
        assert there is not None
        before, after = (None if side is None else side.dtype.name for side in (source, made))
        status = "extra" if source is None else "missing"
        return Checked(
            pair.name, status, before, after, there.shape, names_source=pair.names_a, names_made=pair.names_b
        )
    found = Checked(
        pair.name, "equal", (pair.dtype_a or source.dtype).name, made.dtype.name, source.shape,
        names_source=pair.names_a, names_made=pair.names_b,
    )  # fmt: skip
    if source.shape != made.shape:
        return dataclasses.replace(found, status="shape")
    first = dataclasses.replace(found, **_measured(source, made, level, advance, pair.computed))
    canonical = None if first.ok or pair.canonical is None else pair.canonical()
    if canonical is None:
        return first
    again = dataclasses.replace(found, **_measured(*canonical, level, ignored, computed=True))
    return again if again.ok else first


def _measured(
    source: StoredTensor, made: StoredTensor, level: str, advance: Callable[[int], object], computed: bool
) -> dict[str, Any]:
    """Status and errors of two tensors of one shape."""
    if source.dtype == made.dtype and level == "full" and equal_bytes(source, made):
        advance(source.nbytes + made.nbytes)
        return {"status": "equal"}
    left, right = tensor_values.plain(source), tensor_values.plain(made)
    if left is None or right is None:
        return {"status": "equal" if source.dtype == made.dtype and equal_bytes(source, made) else "unknown"}
    length = made.dtype.block
    if isinstance(made.dtype, BlockType) and source.dtype != made.dtype:
        sums: Blocks | Elements = Blocks(length, BLOCK_BOUNDS.get(made.dtype.name))
    elif isinstance(made.storage, Dequantized) and made.storage.rounding:
        length = made.shape[-1]
        sums = Blocks(length, row_bound(made.storage.rounding))
    else:
        sums = Elements(source, made, computed=computed)
    unit = math.lcm(tensor_values.unit(left), tensor_values.unit(right), length)
    step = max(unit, CHUNK // 8 // unit * unit)
    for start, stop in _spans(source.count, level):
        end = min(source.count, -(-stop // unit) * unit)
        for first in range(start // unit * unit, end, step):
            last = min(end, first + step)
            sums.add(tensor_values.read(left, first, last), tensor_values.read(right, first, last))
            advance(sum(share(side, max(first, start), min(last, stop)) for side in (source, made)))
    return sums.verdict()
