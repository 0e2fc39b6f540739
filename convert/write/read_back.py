"""Read-back verification: staged files are opened by their reader and compared bit for bit with the plan."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

from ...runtime.base.errors import Error
from ...runtime.tensor.storage import Costly, Storage, read_briefly
from ...runtime.tensor.stored_tensor import StoredTensor
from ..console.progress import Progress
from ..console.thread_pool import each
from ..open.open_model import read_file
from .plan import Part, Plan
from .staging import Staging

SAMPLE = 1 << 20
"""Bytes compared at the start, the middle and the end of each tensor at level ``sample``."""


class VerifyError(Error):
    """The written file does not say what it should: a bug of ours or of the storage below."""

    exit_code = 1


def verify(plan: Plan, staging: Staging, progress: Progress) -> int:
    """Compare the staged files with the plan; the number of tensors compared."""
    if plan.options.verify == "none":
        return 0
    compared = [
        (name, tensor, written[name])
        for part in plan.parts or (Part(plan.graph, plan.files),)
        for written in [_written(plan, part, staging)]
        for name, tensor in part.graph.weights.items()
    ]
    ranges = [list(_ranges(plan, wanted, written)) for _, wanted, written in compared]
    progress.start(sum(stop - start for parts in ranges for start, stop in parts))
    lock = threading.Lock()

    def compare(index: int) -> None:
        name, wanted, written = compared[index]
        for start, stop in ranges[index]:
            if not _equal(wanted.storage, written.storage, start, stop):
                why = f"tensor {name!r} differs near its byte {start:,}"
                raise VerifyError("E-VERIFY", plan.folder, why, hint="Please report this")
            with lock:
                progress.advance(stop - start)

    try:
        each(compare, range(len(ranges)), plan.threads)
    finally:
        progress.finish()
    return len(ranges)


def _equal(wanted: Storage, written: Storage, start: int, stop: int) -> bool:
    """Whether both give the same bytes, by checksum where they were computed at great cost."""
    checksum = wanted.checksums.get((start, stop)) if isinstance(wanted, Costly) else None
    if isinstance(wanted, Costly) and checksum is not None:
        return checksum == wanted.checksum(read_briefly(written, start, stop))
    return wanted.read(start, stop) == written.read(start, stop)


def _written(plan: Plan, part: Part, staging: Staging) -> dict[str, StoredTensor]:
    """The tensors of the staged files of a part, which must be those of its graph."""
    found: dict[str, StoredTensor] = {}
    for file in part.files:
        if file.name not in plan.attached and not part.graph.weights.keys() <= found.keys():
            found |= read_file(staging.path(file), plan.options.read, plan.format.name).weights
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
