"""Native LinearAttention of f32.

Columns of a state are independent: a unit of work keeps 16 of one head in cache and takes all tokens one after another,
so that threads change nothing.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.jit.address import f32
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...runtime.simd.branchless_math import exp
from ...runtime.simd.memory import fma, load_f32, load_masked, store_f32, store_masked
from ...runtime.simd.vector import LANES, splat
from .linear_attention import RULES, linear_attention

F32 = np.dtype(np.float32)
UNROLLED = 4
"""Rows of the state that are taken at a time, so that their sums do not wait for each other."""
LINE = 4 * LANES


@inner
def _decayed(block: Any, depth: Any, decay: Any, single: Any, key: Any) -> Any:
    """Multiply the rows of a block [depth, 16] by the exponential of `decay`, one for each row or a `single` one; the
    sum of the rows times `key`."""
    gates, keys = f32(decay), f32(key)
    zero = splat(np.float32(0))
    a, b, c, d = zero, zero, zero, zero
    gate = exp(gates[0]) if decay != 0 else np.float32(1)
    whole = depth - depth % UNROLLED
    for i in range(0, whole, UNROLLED):
        at = block + LINE * i
        one, two, three, four = gate, gate, gate, gate
        if single == 0 and decay != 0:
            one, two, three, four = exp(gates[i]), exp(gates[i + 1]), exp(gates[i + 2]), exp(gates[i + 3])
        first, second = load_f32(at) * splat(one), load_f32(at + LINE) * splat(two)
        third, fourth = load_f32(at + 2 * LINE) * splat(three), load_f32(at + 3 * LINE) * splat(four)
        store_f32(at, first)
        store_f32(at + LINE, second)
        store_f32(at + 2 * LINE, third)
        store_f32(at + 3 * LINE, fourth)
        a, b = fma(first, splat(keys[i]), a), fma(second, splat(keys[i + 1]), b)
        c, d = fma(third, splat(keys[i + 2]), c), fma(fourth, splat(keys[i + 3]), d)
    for i in range(whole, depth):
        row = load_f32(block + LINE * i) * splat(exp(gates[i]) if single == 0 and decay != 0 else gate)
        store_f32(block + LINE * i, row)
        a = fma(row, splat(keys[i]), a)
    return (a + b) + (c + d)


@inner
def _written(block: Any, depth: Any, key: Any, value: Any) -> None:
    """Add ``key * value`` to a block [depth, 16]."""
    keys = f32(key)
    for i in range(depth):
        at = block + LINE * i
        store_f32(at, fma(value, splat(keys[i]), load_f32(at)))


@inner
def _read(block: Any, depth: Any, query: Any) -> Any:
    """The sum of the rows of a block [depth, 16] times `query`."""
    queries = f32(query)
    zero = splat(np.float32(0))
    a, b, c, d = zero, zero, zero, zero
    whole = depth - depth % UNROLLED
    for i in range(0, whole, UNROLLED):
        at = block + LINE * i
        a, b = fma(load_f32(at), splat(queries[i]), a), fma(load_f32(at + LINE), splat(queries[i + 1]), b)
        c = fma(load_f32(at + 2 * LINE), splat(queries[i + 2]), c)
        d = fma(load_f32(at + 3 * LINE), splat(queries[i + 3]), d)
    for i in range(whole, depth):
        a = fma(load_f32(block + LINE * i), splat(queries[i]), a)
    return (a + b) + (c + d)


@range_kernel(fastmath={"contract"})
def linear_attended(
    query: Address,
    key: Address,
    value: Address,
    past: Address,
    decay: Address,
    beta: Address,
    y: Address,
    present: Address,
    batch: int,
    length: int,
    groups: int,
    sharing: int,
    depth: int,
    width: int,
    decay_row: int,
    beta_row: int,
    corrected: int,
    scale: float,
    workspace: Address,
    part: int,
    parts: int,
) -> None:
    """Inputs and outputs of the operator; 0 for absent ones. `sharing` is query heads of a key head, `depth` and
    `width` are elements of a key and a value, `decay_row` and `beta_row` elements of a token, and `corrected` is
    whether what the state gives for a key is taken off the value."""
    block = workspace + part * LINE * depth
    columns = (width + LANES - 1) // LANES
    single = 1 if decay_row == groups else 0
    factor = splat(np.float32(scale))
    for unit in range(part, batch * groups * columns, parts):
        head, column = unit // columns, unit % columns * LANES
        row, group = head // groups, head % groups
        lanes = (1 << min(LANES, width - column)) - 1
        state = 4 * (head * depth * width + column)
        for i in range(depth):
            if past != 0:
                store_f32(block + LINE * i, load_masked(past + state + 4 * width * i, lanes))
            else:
                store_f32(block + LINE * i, splat(np.float32(0)))
        for token in range(row * length, (row + 1) * length):
            at = key + 4 * depth * (token * groups + group)
            gates = decay + 4 * (token * decay_row + group * (1 if single else depth)) if decay != 0 else 0
            known = _decayed(block, depth, gates, single, at)
            new = load_masked(value + 4 * (width * (token * groups + group) + column), lanes)
            if corrected != 0:
                rate = f32(beta)[token * beta_row + (group if beta_row == groups else 0)]
                new = (new - known) * splat(rate)
            _written(block, depth, at, new)
            for index in range(sharing):
                asked = token * groups * sharing + group * sharing + index
                found = _read(block, depth, query + 4 * depth * asked) * factor
                store_masked(y + 4 * (width * asked + column), found, lanes)
        for i in range(depth):
            store_masked(present + state + 4 * width * i, load_f32(block + LINE * i), lanes)


@native(linear_attention)
def plan_linear_attention(step: Step) -> Planned:
    """Plan f32 inputs whose shapes match; NumPy computes the rest."""
    attributes = step.attributes
    heads, groups = attributes["q_num_heads"], attributes["kv_num_heads"]
    q, k, v = step.inputs[:3]
    past, decay, beta = (step.optional_input(index) for index in range(3, 6))
    given = [each for each in (q, k, v, past, decay, beta) if each is not None]
    if q is None or k is None or v is None or any(each.dtype != F32 for each in given):
        return None
    if any(len(each.shape) != 3 for each in (q, k, v)) or heads < 1 or groups < 1 or heads % groups:
        return None
    batch, length, depth, width = *q.shape[:2], k.shape[2] // groups, v.shape[2] // groups
    gated, corrected = RULES.get(attributes["update_rule"], (None, None))
    fits = (
        q.shape == (batch, length, heads * depth)
        and k.shape == (batch, length, groups * depth)
        and v.shape == (batch, length, groups * width)
        and (past is None or past.shape == (batch, groups, depth, width))
        and _fits(decay, gated, (batch, length), (groups, groups * depth))
        and _fits(beta, corrected, (batch, length), (groups, 1))
        and depth > 0
    )
    if not fits:
        return None
    units = batch * groups * -(-width // LANES)
    parts = step.parts(units, 6.0 * batch * groups * max(length, 1) * depth * width)
    present = step.output(1) if step.is_used(1) else step.scratch(4 * batch * groups * depth * width)
    return Launch(
        linear_attended,
        parts,
        query=q,
        key=k,
        value=v,
        past=0 if past is None else past,
        decay=0 if decay is None else decay,
        beta=0 if beta is None else beta,
        y=step.output() if step.is_used(0) else step.scratch(4 * batch * length * heads * width),
        present=present,
        batch=batch,
        length=length,
        groups=groups,
        sharing=heads // groups,
        depth=depth,
        width=width,
        decay_row=0 if decay is None else decay.shape[2],
        beta_row=0 if beta is None else beta.shape[2],
        corrected=int(bool(corrected)),
        scale=attributes["scale"] or depth**-0.5,
        workspace=step.scratch(parts * LINE * depth),
    )


def _fits(buffer: Buffer | None, wanted: bool | None, tokens: tuple[int, int], widths: tuple[int, int]) -> bool:
    """Whether a decay or a rate is there just where the rule takes one, for all tokens."""
    if buffer is None or not wanted:
        return buffer is None and wanted is False
    return len(buffer.shape) == 3 and buffer.shape[:2] == tokens and buffer.shape[2] in widths
