"""Native GroupQueryAttention: rotary embedding, KV-cache append (in place if the output aliases the past),
attention."""

from __future__ import annotations

import numpy as np

from ....runtime.jit.address import i32, i64, share, u8
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...attention.attention_kernel import Heads, ScoreOptions, heads_of, launch_attention
from ...attention.rotary_embedding_kernel import launch_rotary
from .group_query_attention import group_query_attention

I32, I64 = np.dtype(np.int32), np.dtype(np.int64)
PLAIN = {
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
    "kv_cache_bit_width": 0,
    "qk_output": 0,
    "sliding_window_cache": 0,
}
"""Values of attributes that a native plan needs."""


@range_kernel
def token_positions(
    lengths: Address,
    batch: int,
    length: int,
    first: int,
    longest: int,
    positions: Address,
    bailout: Address,
    part: int,
    parts: int,
) -> None:
    """Positions of the `length` new tokens of each sequence; `lengths` holds the index of its last key; `first`: the
    past is empty."""
    lengths, positions = i32(lengths), i64(positions)
    for index in range(batch):
        start = 0 if first != 0 else np.int64(lengths[index]) + 1 - length
        if start < 0 or np.int64(lengths[index]) + 1 > longest:
            i64(bailout)[0] = 1
            start = 0
        for row in range(length):
            positions[index * length + row] = start + row


@range_kernel
def append_cache(
    past: Address,
    before: int,
    new: Address,
    batch_step: int,
    head_step: int,
    row_step: int,
    positions: Address,
    present: Address,
    longest: int,
    batch: int,
    heads: int,
    rows: int,
    nbytes: int,
    part: int,
    parts: int,
) -> None:
    """The past, of `before` rows, and new rows at their positions; steps are bytes, the present has `longest` rows of
    `nbytes` bytes."""
    positions = i64(positions)
    first, last = share(batch * heads, part, parts)
    for unit in range(first, last):
        image, head = unit // heads, unit % heads
        target = u8(present + unit * longest * nbytes)
        if past != present:
            source = u8(past + unit * before * nbytes)
            for j in range(before * nbytes):
                target[j] = source[j]
            for j in range(before * nbytes, longest * nbytes):
                target[j] = 0
        for row in range(rows):
            place = positions[image * rows + row]
            if place + 1 > longest:
                continue
            line, made = (
                u8(new + image * batch_step + head * head_step + row * row_step),
                u8(present + (unit * longest + place) * nbytes),
            )
            for j in range(nbytes):
                made[j] = line[j]


def _parts(query: Buffer, key: Buffer | None, value: Buffer | None, heads: int, groups: int) -> list[Heads] | None:
    """Queries, keys and values of one tensor or three."""
    if key is not None and value is not None:
        found = [heads_of(query, heads), heads_of(key, groups), heads_of(value, groups)]
        whole = [item for item in found if item is not None]
        return whole if len(whole) == 3 else None
    if len(query.shape) != 3 or query.shape[2] % (heads + 2 * groups):
        return None
    batch, rows, wide = query.shape
    size = wide // (heads + 2 * groups)
    made = []
    for first, count in ((0, heads), (heads, groups), (heads + groups, groups)):
        made.append(
            Heads(query.view((batch, rows, wide), first * size), (rows * wide, size, wide), (batch, count, rows, size))
        )
    return made


def _rotated(
    step: Step, x: Heads, caches: tuple[Buffer, Buffer], positions: Buffer, interleaved: int
) -> tuple[Heads, list[Launch]] | None:
    """Rotated heads in scratch memory."""
    room = step.scratch(int(np.prod(x.shape)) * x.buffer.dtype.itemsize).view(x.shape, dtype=x.buffer.dtype)
    y = heads_of(room, None)
    assert y is not None
    launches = launch_rotary(step, x, y, caches, positions, interleaved, 2 * caches[0].shape[1])
    return None if launches is None else (y, launches)


@native(group_query_attention)
def plan_group_query(step: Step) -> Planned:
    """Plan unquantized caches without score outputs, if the longest sequence is known; NumPy computes the rest."""
    given = [*step.inputs, *[None] * (16 - len(step.inputs))]
    query, key, value, past_k, past_v, lengths, _, cos, sin, position_ids, bias, sink = given[:12]
    attributes, total = step.attributes, step.constant(6)
    plain = (
        all(attributes[name] == wanted for name, wanted in PLAIN.items())
        and not any(given[12:16])
        and not step.is_used(3)
    )
    heads, groups = attributes["num_heads"], attributes["kv_num_heads"]
    if (
        query is None
        or lengths is None
        or total is None
        or lengths.dtype != I32
        or not plain
        or heads % groups
        or not step.is_used(0)
    ):
        return None
    found = _parts(query, key, value, heads, groups)
    if found is None or (past_k is None) != (past_v is None) or len({item.buffer.dtype for item in found}) != 1:
        return None
    batch, _, length, size = found[0].shape
    longest = int(total.reshape(-1)[0])
    first = longest == length
    if (
        lengths.count != batch
        or any(item.shape[3] != size or item.shape[2] != length for item in found)
        or (past_k is None and not first)
    ):
        return None
    positions = step.scratch(8 * batch * length).view((batch, length), dtype=I64)
    launches: list[Launch] = [
        Launch(
            token_positions,
            lengths=lengths,
            batch=batch,
            length=length,
            first=int(first),
            longest=longest,
            positions=positions,
            bailout=step.bailout,
        )
    ]
    if attributes["do_rotary"]:
        if (
            cos is None
            or sin is None
            or len(cos.shape) != 2
            or (position_ids is not None and (first or position_ids.count != batch * length))
        ):
            return None
        at = positions if position_ids is None else position_ids.view((batch, length))
        for index in range(2):
            made = _rotated(step, found[index], (cos, sin), at, attributes["rotary_interleaved"])
            if made is None:
                return None
            found[index] = made[0]
            launches += made[1]
    kept = []
    for index, past in ((1, past_k), (2, past_v)):
        made_one = _present(step, index, found[index], past, longest, positions)
        if made_one is None:
            return None
        kept.append(made_one[0])
        launches.append(made_one[1])
    keys, values = (
        Heads(item.buffer, item.steps, (*item.shape[:2], length if first else item.shape[2], size)) for item in kept
    )
    window = attributes["local_window_size"]
    if sink is None and attributes["smooth_softmax"] == 1:
        sink = step.constant_buffer(np.zeros(heads, np.float32))
    scores = ScoreOptions(
        attributes["scale"] or max(size, 1) ** -0.5,
        attributes["softcap"],
        bool(attributes["causal"]),
        window - 1 if window > 0 else -1,
        -1,
        bias,
        None if first else lengths,
        1,
        0,
        sink,
    )
    y = heads_of(step.output(0), heads)
    made_all = (
        None
        if y is None or (sink is not None and sink.count != heads)
        else launch_attention(step, found[0], keys, values, y, scores)
    )
    return None if made_all is None else [*launches, *made_all]


def _present(
    step: Step, index: int, new: Heads, past: Buffer | None, longest: int, positions: Buffer
) -> tuple[Heads, Launch] | None:
    """The cache with the new rows in it, as output `index` where it is wanted."""
    batch, groups, rows, size = new.shape
    before = 0 if past is None else past.shape[2]
    shape = (batch, groups, max(before, longest), size)
    if past is not None and (
        len(past.shape) != 4
        or past.dtype != new.buffer.dtype
        or (*past.shape[:2], past.shape[3]) != (batch, groups, size)
    ):
        return None
    dtype = new.buffer.dtype
    if step.is_used(index):
        result = step.results[index]
        if result is None or result[1] != shape or result[0] != dtype:
            return None
        if past is not None and past.shape == shape and step.may_overwrite(past):
            step.outputs[index] = past
        whole = step.output(index)
    else:
        whole = step.scratch(int(np.prod(shape)) * dtype.itemsize).view(shape, dtype=dtype)
    batch_step, head_step, row_step = (item * dtype.itemsize for item in new.steps)
    made = heads_of(whole, None)
    assert made is not None
    return made, Launch(
        append_cache,
        step.parts(batch * groups, whole.nbytes / 16),
        past=new.buffer if past is None else past,
        before=before,
        new=new.buffer,
        batch_step=batch_step,
        head_step=head_step,
        row_step=row_step,
        positions=positions,
        present=whole,
        longest=shape[2],
        batch=batch,
        heads=groups,
        rows=rows,
        nbytes=size * dtype.itemsize,
    )
