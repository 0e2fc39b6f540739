"""PagedAttention on the device: new keys and values are written to the pages of their sequences, then attended."""

from __future__ import annotations

import numpy as np

from ....runtime.cuda.kernel.elementwise import chain_step, copy_launch, elementwise_chain, elementwise_launch
from ....runtime.cuda.kernel.kernel import Launch
from ....runtime.cuda.kernel.operand import Lookup, Operand, over
from ....runtime.cuda.kernel.reduce import Result, reduce_rows
from ....runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ....runtime.plan.kernel_api import Buffer, Chain
from ....runtime.plan.rows import Fold, add
from ...attention.flash_cuda import Heads, Pages, Rule, fits, flash
from .group_query_attention_cuda import parts_of, rotated_heads
from .paged_attention import paged_attention

INT64 = np.dtype(np.int64)


def _before(end: int, token: int) -> int:
    return 1 if end <= token else 0


def _total(total: int) -> int:
    return total


def _place(past: int, token: int, start: int) -> int:
    return past + token - start


def _length(past: int, start: int, end: int) -> int:
    return past + end - start


def _page(sequence: int, place: int, pages: float, size: float) -> int:
    return sequence * int(pages) + place // int(size)


def _slot(page: int, place: int, size: float) -> int:
    return page * int(size) + place % int(size)


class _Tokens:
    """Locations of tokens, int64 arrays [tokens]: the sequence, the position there, the sequence's keys with the new
    ones, and the slot."""

    def __init__(self, step: Step, count: int, launches: list[Launch | Chain]) -> None:
        self.step, self.count, self.launches = step, count, launches
        self.ends, self.pasts, self.table = (step.input(index) for index in (5, 6, 7))
        self.flag = step.flag(f"sequences, pasts or pages of {step.node.op.name} contradict its tokens and caches")
        batch, tokens = self.pasts.count, step.constant_buffer(np.arange(count))
        self.sequences, self.places, self.lengths = (step.temporary(INT64, (count,)) for _ in range(3))
        ended, here = Fold("total", _before, add, dtype=INT64), Operand(tokens, (1, 0))
        result = Result(_total, Operand(self.sequences, (1, 0)), per_row=True)
        launches.append(
            reduce_rows(
                [count], [batch], {"end": Operand(self.ends, (0, 1), 1), "token": here}, [ended], [result], INT64
            )
        )
        past, start, end = (
            self._of(self.sequences, buffer, place)
            for buffer, place in ((self.pasts, 0), (self.ends, 0), (self.ends, 1))
        )
        self._zipped(_place, [past, over(tokens, (count,)), start], self.places)
        self._zipped(_length, [past, start, end], self.lengths)

    def _of(self, indices: Buffer, buffer: Buffer, offset: int = 0) -> Operand:
        """An array's elements by indices."""
        lookup = Lookup(
            indices, (1,), 1, buffer.count - offset if buffer is not self.ends else self.pasts.count, flag=self.flag
        )
        return Operand(buffer, (0,), offset, (lookup,))

    def _zipped(self, function: object, operands: list[Operand], target: Buffer, *numbers: float) -> None:
        buffers = [operand.buffer for operand in operands]
        apply = chain_step(function, buffers, INT64, *numbers, compute=INT64)  # type: ignore[arg-type]
        self.launches.append(elementwise_launch([apply], (self.count,), operands, over(target, target.shape)))

    def slots(self, size: int) -> Buffer:
        """Slots that the tokens' keys are written to."""
        index, found = self.step.temporary(INT64, (self.count,)), self.step.temporary(INT64, (self.count,))
        self.launches.append(
            elementwise_chain(_page, [self.sequences, self.places], index, self.table.shape[1], size, compute=INT64)
        )
        self._zipped(
            _slot,
            [self._of(index, self.table.view((self.table.count,))), over(self.places, (self.count,))],
            found,
            size,
        )
        return found


@cuda(paged_attention)
def paged_on_device(step: Step) -> Planned:
    """Plan 16- and 32-bit caches in separate pages."""
    given = step.attributes
    value_cache = step.optional_input(4)
    if (
        given["kv_cache_layout"] != "SEPARATE"
        or value_cache is None
        or {given["k_quant_type"], given["v_quant_type"]} != {"NONE"}
    ):
        return "quantized and latent caches are not supported"
    if any(step.optional_input(index) is not None for index in range(11, 17)) or given["rotary_offset"]:
        return "sinks, norms and rotary offsets are supported on the CPU only"
    query, keys, values = step.input(0), step.input(3), value_cache
    heads, groups, size, page = given["num_heads"], given["kv_num_heads"], keys.shape[3], keys.shape[1]
    count = query.shape[0]
    if not fits(size, size) or keys.shape != values.shape or keys.shape[2] != groups or heads % groups:
        return "the shapes of its inputs contradict each other"
    launches: list[Launch | Chain] = []
    flat = query.view((1, *query.shape))
    pair = (step.optional_input(1), step.optional_input(2))
    key, value = (None if item is None else item.view((1, *item.shape)) for item in pair)
    q, k, v = parts_of(flat, key, value, heads, groups)
    tokens = _Tokens(step, count, launches)
    if given["do_rotary"]:
        positions = tokens.places.view((1, count))
        q, k = (rotated_heads(step, part, positions, 8, launches) for part in (q, k))
    slots = step.optional_input(10) if step.optional_input(10) is not None else tokens.slots(page)
    assert slots is not None
    held = [_written(step, 3 + index, part, slots, launches) for index, part in enumerate((k, v))]
    y = step.output() if step.is_used(0) else step.temporary(query.dtype, (count, heads * size))
    asked = Heads(q.buffer, (count, heads, 1, size), (q.strides[2], q.strides[1], q.strides[2], q.strides[3]))
    result = Heads(y, (count, heads, 1, size), (heads * size, size, heads * size, 1))
    caches = [Heads(buffer, (1, groups, keys.shape[0] * page, size), (0, size, groups * size, 1)) for buffer in held]
    left = given["local_window_size"] - 1 if given["local_window_size"] > 0 else -1
    rule = Rule(
        given["scale"] or 1 / max(1, size) ** 0.5,
        given["softcap"],
        tokens.places,
        bool(given["is_causal"]),
        left,
        -1,
        tokens.lengths,
        None,
    )
    pages = Pages(tokens.table, tokens.sequences, tokens.places, page, tokens.flag)
    return [*launches, *flash(asked, caches[0], caches[1], result, rule, pages)]


def _written(step: Step, index: int, new: Heads, slots: Buffer, launches: list[Launch | Chain]) -> Buffer:
    """A cache with the new keys or values, in place where nothing else needs it; tokens without a slot are left out."""
    past = step.input(index)
    output = index - 2
    if step.may_overwrite(past):
        made = step.outputs[output] = past
    else:
        made = step.output(output) if step.is_used(output) else step.temporary(past.dtype, past.shape)
        launches.append(copy_launch(past.shape, over(past, past.shape), over(made, made.shape)))
    pages, page, groups, size = past.shape
    lookup = Lookup(slots, (0, 0, 1, 0), groups * size, pages * page, wraps=False)
    launches.append(copy_launch(new.shape, new.operand, Operand(made, (0, size, 0, 1), lookups=(lookup,))))
    return made
