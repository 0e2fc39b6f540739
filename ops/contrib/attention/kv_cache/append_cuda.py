"""KV-cache append on the device: new keys and values are written after those of each sequence."""

from __future__ import annotations

import numpy as np

from .....runtime.cuda.kernel.elementwise import copy_launch, elementwise_chain
from .....runtime.cuda.kernel.kernel import Launch
from .....runtime.cuda.kernel.operand import Lookup, Operand, over
from .....runtime.cuda.plan.kernel_api import Step
from .....runtime.plan.kernel_api import Buffer, Chain
from .....runtime.plan.rows import add
from ....attention.attention_cuda import in_heads
from ....attention.flash_cuda import Heads
from .quantized_cuda import Coding

INT64 = np.dtype(np.int64)


def _zero(place: int) -> float:
    return 0


def behind(step: Step, starts: Buffer, length: int, launches: list[Launch | Chain]) -> Buffer:
    """Positions [batch, length] from `starts` on, one for each of the batch."""
    made = step.temporary(INT64, (starts.count, length))
    launches.append(
        elementwise_chain(
            add, [starts.view((starts.count, 1)), step.constant_buffer(np.arange(length))], made, compute=INT64
        )
    )
    return made


def emptied(step: Step, made: Buffer) -> Chain:
    """Zeros, also where nothing is written: what is hidden must not be other than a number."""
    return elementwise_chain(_zero, [step.constant_buffer(np.zeros(1, np.float32))], made)


def cached(
    step: Step,
    past: Buffer | None,
    new: Heads,
    places: Buffer,
    index: int,
    longest: int,
    launches: list[Launch | Chain],
    form: Coding | None = None,
) -> Heads:
    """Keys or values after those of each sequence's past, where these are if nothing else needs them."""
    n, groups, length, size = new.shape
    room = max(longest, past.shape[2]) if past is not None else longest
    dtype = past.dtype if past is not None else new.buffer.dtype
    if past is not None and past.shape[2] == room and step.may_overwrite(past):
        made = step.outputs[index] = past
    else:
        made = (
            step.output(index)
            if step.is_used(index)
            else step.temporary(dtype, (n, groups, room, past.shape[3] if past is not None else size))
        )
        if room > (past.shape[2] if past is not None else length):
            launches.append(emptied(step, made))
        if past is not None and past.count:
            launches.append(copy_launch(past.shape, over(past, past.shape), Operand(made, made.strides)))
    return written(step, made, new, places, launches, form)


def written(
    step: Step, made: Buffer, new: Heads, places: Buffer, launches: list[Launch | Chain], form: Coding | None
) -> Heads:
    """Write new rows [batch, heads, length, size] to cache positions `places` [batch, length]; all rows as values."""
    why = f"a sequence of {step.node.op.name} exceeds the capacity of its cache"
    lookup = Lookup(places, (new.shape[2], 0, 1, 0), made.shape[3], made.shape[2], flag=step.flag(why))
    if form is not None:
        launches.append(form.written(new, made, lookup))
        found, reading = form.read(step, made, new)
        launches.append(reading)
        return found
    launches.append(
        copy_launch(new.shape, new.operand, Operand(made, (made.strides[0], made.strides[1], 0, 1), lookups=(lookup,)))
    )
    return in_heads(made, None)
