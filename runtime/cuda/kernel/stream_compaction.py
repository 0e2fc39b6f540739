"""Stream compaction: indices that pass a test, in order, with their output positions.

Each part is counted, the counts are scanned, and each part is walked again.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import numpy as np

from ...plan.kernel_api import Argument, BaseStep, Buffer, Chain
from ..device.device import SIMULATED
from . import source_module
from .kernel import Launch
from .operand import Writer
from .per_thread import per_thread_launch

WIDTH = 4 if SIMULATED else 256
"""Threads that scan the counts of all parts."""
PARTS, SMALLEST = (3, 2) if SIMULATED else (1 << 15, 16)
"""The most parts that positions are cut into, and the fewest positions of one."""
PREFIXES = """
    t = np.int64(cuda.threadIdx.x)
    share = (parts + WIDTH - 1) // WIDTH
    first, last = min(parts, t * share), min(parts, t * share + share)
    total = np.int64(0)
    for i in range(first, last):
        total += starts[i]
    shared[t] = total
    cuda.syncthreads()
    if t == 0:
        total = np.int64(0)
        for i in range(WIDTH):
            own = shared[i]
            shared[i] = total
            total += own
        starts[parts] = total
    cuda.syncthreads()
    total = shared[t]
    for i in range(first, last):
        own = starts[i]
        starts[i] = total
        total += own
"""


def prefixes(starts: Buffer) -> Launch:
    """Exclusive prefix sum of the counts, in place; the last element becomes the total."""
    writer = Writer()
    writer.parameter("parts", starts.count - 1)
    writer.parameter("starts", starts)
    writer.add(1, f"shared = cuda.shared.array({WIDTH}, np.int64)")
    writer.add(0, *PREFIXES.replace("WIDTH", str(WIDTH)).strip("\n").split("\n"))
    return Launch(source_module.compile_source("sums of counts", writer.text(), (WIDTH,)), writer.values, 1)


def compaction_launches(
    step: BaseStep, title: str, amount: int, named: Mapping[str, Argument], test: str, write: str
) -> tuple[list[Launch | Chain], Buffer]:
    """Launches that run `write` for each selected index, and the buffer of their number.

    Args:
        named: as for `per_thread_launch`.
        test: lines that set `keep` for position ``j`` of `amount`.
        write: lines that know the position ``j``, its number ``at`` among those that are kept, and their `total`.
    """
    parts = min(PARTS, -(-amount // SMALLEST))
    starts = step.temporary(np.int64, (parts + 1,))
    given: dict[str, Argument] = {
        **named,
        "amount": amount,
        "size": -(-amount // parts),
        "parts": parts,
        "starts": starts,
    }
    walk = "for j in range(min(amount, i * size), min(amount, i * size + size)):\n" + textwrap.indent(
        textwrap.dedent(test).strip("\n"), "    "
    )
    count = f"found = np.int64(0)\n{walk}\n    if keep:\n        found += 1\nstarts[i] = found\n"
    written = textwrap.indent(textwrap.dedent(write).strip("\n"), " " * 8)
    place = f"total, at = starts[parts], starts[i]\n{walk}\n    if keep:\n{written}\n        at += 1\n"
    launches: list[Launch | Chain] = [
        per_thread_launch(f"{title}: count", parts, given, count),
        prefixes(starts),
        per_thread_launch(title, parts, given, place),
    ]
    return launches, starts.view((1,), parts)
