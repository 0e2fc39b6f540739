"""Native TensorScatter: rows written into a cache, in place where nothing else uses it or where the output has its memory."""

from __future__ import annotations

import math
from typing import Any

from ...runtime.kernel import range_kernel
from ...runtime.launch import Launch, Planned, Step, native
from ...runtime.native import i64, share, u8
from .scatter import tensor_scatter


@range_kernel
def scattered(args: Any, part: Any, parts: Any) -> None:
    """Past, update, indices, result; batch, lines of each, longest, update's length, bytes of an element along the axis; circular, refusal."""
    past, update, indices, y = args[0], args[1], args[2], args[3]
    batch, lines, longest, length, nbytes, circular, refusal = args[4], args[5], args[6], args[7], args[8], args[9], args[10]
    first, last = share(batch * lines, part, parts)
    for line in range(first, last):
        if past != y:
            source, target = u8(past + line * longest * nbytes), u8(y + line * longest * nbytes)
            for j in range(longest * nbytes):
                target[j] = source[j]
        start = i64(indices)[line // lines] if indices != 0 else 0
        if circular == 0 and (start < 0 or start + length > longest):
            i64(refusal)[0] = 1
            continue
        for row in range(length):
            place = (start + row) % longest
            source, target = u8(update + (line * length + row) * nbytes), u8(y + (line * longest + place) * nbytes)
            for j in range(nbytes):
                target[j] = source[j]


@native(tensor_scatter)
def plan_tensor_scatter(step: Step) -> Planned:
    """Indices of i64."""
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
    if step.alone(past):
        step.outputs[0] = past
    y = step.output()
    lines, nbytes = math.prod(past.shape[1:along]), math.prod(past.shape[along + 1 :]) * past.dtype.itemsize
    arguments = (
        past, update, indices if indices is not None else 0, y, past.shape[0], lines, past.shape[along], update.shape[along], nbytes,
        int(step.attributes["mode"] == "circular"), step.refusal,
    )
    moved = update.nbytes if y is past else past.nbytes + update.nbytes
    return Launch(scattered, arguments, step.parts(past.shape[0] * lines, moved / 16))
