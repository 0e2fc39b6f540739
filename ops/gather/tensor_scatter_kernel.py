"""Native TensorScatter: rows written into a cache, in place if the output aliases it or nothing else reads it."""

from __future__ import annotations

import math

from ...runtime.jit.address import i64, share, u8
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from .scatter import tensor_scatter


@range_kernel
def scattered(
    past: Address,
    update: Address,
    indices: Address,
    y: Address,
    batch: int,
    lines: int,
    longest: int,
    length: int,
    nbytes: int,
    circular: int,
    bailout: Address,
    part: int,
    parts: int,
) -> None:
    """Rows of the update in a copy of the past, `lines` of each in a batch; `nbytes` are those of an element along the
    axis."""
    first, last = share(batch * lines, part, parts)
    for line in range(first, last):
        if past != y:
            source, target = u8(past + line * longest * nbytes), u8(y + line * longest * nbytes)
            for j in range(longest * nbytes):
                target[j] = source[j]
        start = i64(indices)[line // lines] if indices != 0 else 0
        if circular == 0 and (start < 0 or start + length > longest):
            i64(bailout)[0] = 1
            continue
        for row in range(length):
            place = (start + row) % longest
            source, target = u8(update + (line * length + row) * nbytes), u8(y + (line * longest + place) * nbytes)
            for j in range(nbytes):
                target[j] = source[j]


@native(tensor_scatter)
def plan_tensor_scatter(step: Step) -> Planned:
    """Plan i64 indices."""
    past, update = step.inputs[:2]
    indices = step.inputs[2] if len(step.inputs) > 2 else None
    if past is None or update is None or past.dtype != update.dtype or len(past.shape) != len(update.shape):
        return None
    axis = step.attributes["axis"]
    along = axis % len(past.shape) if -len(past.shape) <= axis < len(past.shape) else 0
    if along == 0 or update.shape != (*past.shape[:along], update.shape[along], *past.shape[along + 1 :]):
        return None
    if indices is not None and (indices.dtype.name != "int64" or indices.count != past.shape[0]):
        return None
    if step.attributes["mode"] == "linear" and update.shape[along] > past.shape[along]:
        return None
    if step.may_overwrite(past):
        step.outputs[0] = past
    y = step.output()
    lines, nbytes = math.prod(past.shape[1:along]), math.prod(past.shape[along + 1 :]) * past.dtype.itemsize
    moved = update.nbytes if y is past else past.nbytes + update.nbytes
    return Launch(
        scattered,
        step.parts(past.shape[0] * lines, moved / 16),
        past=past,
        update=update,
        indices=0 if indices is None else indices,
        y=y,
        batch=past.shape[0],
        lines=lines,
        longest=past.shape[along],
        length=update.shape[along],
        nbytes=nbytes,
        circular=int(step.attributes["mode"] == "circular"),
        bailout=step.bailout,
    )
