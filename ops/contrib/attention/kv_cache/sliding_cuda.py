"""Sliding-window KV caches on the device: past and new keys are joined for one run, and the last ones are stored."""

from __future__ import annotations

import numpy as np

from .....runtime.base.dataclass import dataclass
from .....runtime.cuda.kernel.elementwise import copy_launch, elementwise_chain
from .....runtime.cuda.kernel.kernel import Launch
from .....runtime.cuda.kernel.operand import Lookup, Operand, over
from .....runtime.cuda.plan.kernel_api import Step
from .....runtime.plan.kernel_api import Buffer, Chain
from .....runtime.plan.rows import add
from ....attention.flash_cuda import Heads
from .append_cuda import behind, emptied, written
from .quantized_cuda import Coding

INT64 = np.dtype(np.int64)


def _resident(total: int, capacity: int, run: int) -> int:
    """As `_Cache.resident`: whole runs are dropped at a time."""
    return total if total <= capacity else total - run * ((total - capacity + run - 1) // run)


def _from_end(place: int, kept: int, total: int) -> int:
    return place + total - kept if place < kept else -1


def _before(place: int, start: int, count: int) -> int:
    return place + start - count


@dataclass(frozen=True)
class Sliding:
    """Past and kept positions of each sequence, int64 [batch].

    Attributes:
        capacity: positions of the cache.
        starts: positions before the new ones; counts: those of them that the cache has.
        totals: positions that the run has; kept: those of them that stay.
    """

    capacity: int
    starts: Buffer
    counts: Buffer
    totals: Buffer
    kept: Buffer

    def extended(
        self, step: Step, past: Buffer, new: Heads, index: int, launches: list[Launch | Chain], form: Coding | None
    ) -> Heads:
        """Keys or values of the run; what is kept of them is output `index`."""
        n, groups, length, _ = new.shape
        made = step.temporary(past.dtype, (n, groups, self.capacity + length, past.shape[3]))
        launches += [emptied(step, made), copy_launch(past.shape, over(past, past.shape), Operand(made, made.strides))]
        found = written(step, made, new, behind(step, self.counts, length, launches), launches, form)
        if step.is_used(index):
            table = step.temporary(INT64, (n, self.capacity))
            places = step.constant_buffer(np.arange(self.capacity))
            launches.append(
                elementwise_chain(
                    _from_end, [places, self.kept.view((n, 1)), self.totals.view((n, 1))], table, compute=INT64
                )
            )
            lookup = Lookup(table, (self.capacity, 0, 1, 0), made.shape[3], made.shape[2], wraps=False)
            present = step.output(index)
            launches.append(
                copy_launch(
                    present.shape,
                    Operand(made, (*made.strides[:2], 0, 1), lookups=(lookup,)),
                    over(present, present.shape),
                )
            )
        return found

    def seen(self, step: Step, bias: Buffer, length: int, launches: list[Launch | Chain]) -> Buffer:
        """A bias of all positions for those of the run."""
        n, keys = self.counts.count, self.capacity + length
        table, made = step.temporary(INT64, (n, keys)), step.temporary(bias.dtype, (n, *bias.shape[1:3], keys))
        places = step.constant_buffer(np.arange(keys))
        launches.append(
            elementwise_chain(
                _before, [places, self.starts.view((n, 1)), self.counts.view((n, 1))], table, compute=INT64
            )
        )
        lookup = Lookup(table, (keys, 0, 0, 1), 1, bias.shape[3], wraps=False)
        source = Operand(bias, (bias.strides[0] if bias.shape[0] > 1 else 0, *bias.strides[1:3], 0), lookups=(lookup,))
        launches.append(copy_launch(made.shape, source, over(made, made.shape)))
        return made


def sliding(step: Step, starts: Buffer, length: int, capacity: int, launches: list[Launch | Chain]) -> Sliding:
    """The positions in a cache of `capacity` before and after a run of `length` tokens."""
    run = capacity - step.attributes["local_window_size"] + 1
    counts, ends, totals, kept = (step.temporary(INT64, starts.shape) for _ in range(4))
    launches += [
        elementwise_chain(_resident, [starts], counts, capacity, run, compute=INT64),
        elementwise_chain(add, [starts, step.constant_buffer(np.array(length))], ends, compute=INT64),
        elementwise_chain(add, [counts, step.constant_buffer(np.array(length))], totals, compute=INT64),
        elementwise_chain(_resident, [ends], kept, capacity, run, compute=INT64),
    ]
    return Sliding(capacity, starts, counts, totals, kept)
