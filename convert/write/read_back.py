"""Read-back verification: staged files are opened by their reader and compared bit for bit with the plan."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence

from ...runtime.base.errors import Error
from ...runtime.tensor.storage import Costly, read_briefly
from ...runtime.tensor.stored_tensor import StoredTensor
from ..console.progress import Progress
from ..console.thread_pool import each
from ..open.open_model import read_file
from .plan import Part, Plan
from .staging import Staging
from .write import Crew, Range

SAMPLE = 1 << 20
"""Bytes compared at the start, the middle and the end of each tensor at level ``sample``."""


class VerifyError(Error):
    """The written file does not say what it should: a bug of ours or of the storage below."""

    exit_code = 1


def verify(plan: Plan, staging: Staging, progress: Progress, crew: Crew | None = None) -> int:
    """Compare the staged files with the plan; the number of tensors compared. `crew` compares, if it is given, else
    threads do."""
    if plan.options.verify == "none":
        return 0
    compared = compared_tensors(plan, staging)
    ranges = [
        [
            Range(index, start, stop, costly.checksums.get((start, stop)) if (costly := _costly(wanted)) else None)
            for start, stop in _ranges(plan, wanted, written)
        ]
        for index, (_, wanted, written) in enumerate(compared)
    ]
    progress.start(sum(part.stop - part.start for parts in ranges for part in parts))
    lock = threading.Lock()

    def compare(parts: Sequence[Range]) -> None:
        for part in parts:
            if not equal(compared, part):
                refuse(part)
            with lock:
                progress.advance(part.stop - part.start)

    def refuse(part: Range) -> None:
        why = f"tensor {compared[part.tensor][0]!r} differs near its byte {part.start:,}"
        raise VerifyError("E-VERIFY", plan.folder, why, hint="Please report this")

    try:
        if crew is None:
            each(compare, ranges, plan.threads)
        else:
            for count, wrong in crew.compare([part for parts in ranges for part in parts]):
                for part in wrong:
                    refuse(part)
                progress.advance(count)
    finally:
        progress.finish()
    return len(ranges)


Compared = tuple[str, StoredTensor, StoredTensor]
"""The name of a tensor, as it was planned, and as the staged files have it."""


def compared_tensors(plan: Plan, staging: Staging) -> list[Compared]:
    """The tensors of a plan, in its order, with those of the staged files.

    Raises VerifyError where the staged files have others.
    """
    return [
        (name, tensor, written[name])
        for part in plan.parts or (Part(plan.graph, plan.files),)
        for written in [_written(plan, part, staging)]
        for name, tensor in part.graph.weights.items()
    ]


def equal(compared: Sequence[Compared], part: Range) -> bool:
    """Whether a range has the planned bytes, by checksum where they were computed at great cost."""
    _, wanted, written = compared[part.tensor]
    if part.checksum is not None and (costly := _costly(wanted)) is not None:
        return bool(part.checksum == costly.checksum(read_briefly(written.storage, part.start, part.stop)))
    return wanted.storage.read(part.start, part.stop) == written.storage.read(part.start, part.stop)


def _costly(tensor: StoredTensor) -> Costly | None:
    return tensor.storage if isinstance(tensor.storage, Costly) else None


def _written(plan: Plan, part: Part, staging: Staging) -> dict[str, StoredTensor]:
    """The tensors of the staged files of a part, which must be those of its graph."""
    found: dict[str, StoredTensor] = {}
    format = part.format or plan.format
    for file in part.files:
        if file.name not in plan.attached and not part.graph.weights.keys() <= found.keys():
            found |= read_file(staging.path(file), plan.options.read, format.name).weights
    for name, wanted in part.graph.weights.items():
        tensor = found.get(name)
        if tensor is None or (wanted.dtype, wanted.shape) != (tensor.dtype, tensor.shape):
            raise VerifyError(
                "E-VERIFY", plan.folder, f"tensor {name!r} was written incorrectly", expected=wanted, found=tensor
            )
    return found


def _ranges(plan: Plan, wanted: StoredTensor, written: StoredTensor) -> Iterator[tuple[int, int]]:
    """The byte ranges of a tensor to compare, each small enough to hold."""
    covered = wanted.storage.covered() if isinstance(wanted.storage, Costly) else None
    if covered is not None:
        yield from covered
        return
    size, unit = wanted.nbytes, math.lcm(wanted.unit, written.unit)
    step = max(unit, plan.chunk // unit * unit)
    if plan.options.verify == "full" or size <= 3 * SAMPLE:
        spans = [(0, size)]
    else:
        length = max(unit, SAMPLE // unit * unit)
        spans = [
            (start, min(size, start + length))
            for start in (0, size // 2 // unit * unit, (size - length) // unit * unit)
        ]
    for start, stop in spans:
        for first in range(start, stop, step):
            yield first, min(stop, first + step)
