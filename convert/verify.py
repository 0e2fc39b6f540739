"""Verification: staged files are opened by their own reader, and their tensors compared bit for bit with what was to be written."""

from __future__ import annotations

import math

from ..runtime.errors import Error
from ..runtime.tensor import Tensor
from .opening import read_file
from .plan import Plan
from .progress import Progress
from .staging import Staging

SAMPLE = 1 << 20
"""Bytes compared at the start, the middle and the end of each tensor at level ``sample``."""


class VerifyError(Error):
    """The written file does not say what it should: a bug of ours or of the storage below."""

    exit_code = 1


def verify(plan: Plan, staging: Staging, progress: Progress) -> int:
    """Compare the staged files with the plan; the number of tensors compared."""
    level = plan.options.verify
    if level == "none":
        return 0
    spans = {name: _spans(tensor, level) for name, tensor in plan.graph.weights.items()}
    progress.start(sum(stop - start for ranges in spans.values() for start, stop in ranges))
    try:
        seen: set[str] = set()
        for file in plan.files:
            if file.name in plan.attached or seen == plan.graph.weights.keys():
                continue
            written = read_file(staging.path(file), plan.options.read, plan.format.name)
            for name, tensor in written.weights.items():
                _compare(plan, name, tensor, spans.get(name, []), progress)
                seen.add(name)
        missing = plan.graph.weights.keys() - seen
        if missing:
            raise VerifyError("E-VERIFY", plan.folder, f"tensor {min(missing)!r} was not written", hint="Please report this")
        return len(seen)
    finally:
        progress.finish()


def _spans(tensor: Tensor, level: str) -> list[tuple[int, int]]:
    size, unit = tensor.nbytes, tensor.unit
    if level == "full" or size <= 3 * SAMPLE:
        return [(0, size)] if size else []
    length = max(unit, SAMPLE // unit * unit)
    starts = (0, size // 2 // unit * unit, (size - length) // unit * unit)
    return [(start, min(size, start + length)) for start in starts]


def _compare(plan: Plan, name: str, found: Tensor, spans: list[tuple[int, int]], progress: Progress) -> None:
    wanted = plan.graph.weights.get(name)
    if wanted is None or (wanted.dtype, wanted.shape) != (found.dtype, found.shape):
        raise VerifyError("E-VERIFY", plan.folder, f"tensor {name!r} came out as {found!r}", expected=wanted, hint="Please report this")
    unit = math.lcm(wanted.unit, found.unit)
    step = max(unit, plan.chunk // unit * unit)
    for start, stop in spans:
        for first in range(start, stop, step):
            last = min(stop, first + step)
            if wanted.storage.read(first, last) != found.storage.read(first, last):
                raise VerifyError("E-VERIFY", plan.folder, f"tensor {name!r} differs near its byte {first:,}", hint="Please report this")
            progress.advance(last - first)
