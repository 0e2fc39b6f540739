"""MatMulNBits and GatherBlockQuantized on the device, decoded by the kernels that read the weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.cuda.element.block_quantized import QuantizedBuffer
from ....runtime.cuda.element.group_quantized import GroupForm, grouped
from ....runtime.cuda.element.sub_byte import PackedBuffer
from ....runtime.cuda.kernel.elementwise import chain_step, copy_launch, elementwise_chain, elementwise_launch
from ....runtime.cuda.kernel.kernel import Launch
from ....runtime.cuda.kernel.operand import Lookup, Operand, over
from ....runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ....runtime.plan.kernel_api import Buffer, Chain
from ....runtime.plan.rows import add
from ....runtime.tensor.dtype import DTYPES, of_numpy
from ...linalg.gemv_cuda import FEW, rows_by
from ...linalg.linear import GROUP
from ...rules.bit_packing import row_nbytes
from .gather_block_quantized import gather_block_quantized
from .matmul_nbits import matmul_nbits

F32 = np.dtype(np.float32)
WORD = 16
"""Bytes that codes begin at a multiple of where words of them are read."""
ROUNDED = 4
"""The accuracy level that allows rows of 8 bits."""


@cuda(matmul_nbits)
def matmul_nbits_on_device(step: Step) -> Planned:
    """Multiply with packed codes. With many rows, f16 rows meet weights rounded to f16, and f32 rows are rounded to 8
    bits where the accuracy level allows it."""
    given, a, bias, y = step.attributes, step.input(0), step.optional_input(5), step.output()
    depth, columns = given["K"], given["N"]
    w = _weight(step)
    if isinstance(w, str):
        return w
    if bias is not None and bias.count != columns:
        return "unsupported bias shape"
    launches: list[Launch | Chain] = []
    rows, wide = a.count // depth, w.shape[1]
    x, few = a.view((rows, depth)), rows <= FEW
    if wide != depth or (few and x.dtype != F32):
        made = step.temporary(F32 if few else x.dtype, (rows, wide))
        table = step.constant_buffer(np.where(np.arange(wide) < depth, np.arange(wide), -1))
        launches.append(
            copy_launch(
                made.shape,
                Operand(x, (depth, 0), lookups=(Lookup(table, (0, 1), 1, depth, wraps=False),)),
                over(made, made.shape),
            )
        )
        x = made
    target = y.view((rows, columns)) if bias is None else step.temporary(F32, (rows, columns))
    rounded = (
        given["accuracy_level"] == ROUNDED and not few and x.dtype == F32 and w.run is not None and wide % GROUP == 0
    )
    launches += rows_by(step, x, w, target, rounded)
    return (
        launches
        if bias is None
        else [*launches, Chain((chain_step(add, [target, bias], y.dtype),), y.view((rows, columns)))]
    )


def _weight(step: Step) -> QuantizedBuffer | str:
    """The weight [N, whole groups], a text where only the CPU knows what to do."""
    given, codes, scales, zeros = step.attributes, step.input(1), step.input(2), step.optional_input(3)
    bits, depth, columns, size = (given[name] for name in ("bits", "K", "N", "block_size"))
    groups = -(-depth // size)
    counts = codes.count == columns * groups * row_nbytes(size, bits) and scales.count == columns * groups
    if zeros is not None:
        counts = counts and zeros.count == columns * (row_nbytes(groups, bits) if zeros.dtype == np.uint8 else groups)
    if not counts or codes.dtype != np.uint8 or given["weight_prepacked"] or codes.offset % WORD:
        return "unsupported weight shape"
    order = None
    if step.optional_input(4) is not None:
        found = step.constant(4)
        if found is None:
            return "the group indices are not a constant"
        if found.size != depth or found.min() < 0 or found.max() >= groups:
            return "unsupported shape of the group indices"
        order = step.constant_buffer(np.pad(found.reshape(-1).astype(np.int32), (0, groups * size - depth)))
    return grouped(codes, columns, GroupForm(bits, size, groups, scales, zeros, order))


def _wrapped(index: int, rows: int) -> int:
    return index + rows if index < 0 else index


def _group(index: int, size: int) -> int:
    return index // size if index >= 0 else index


def _real(code: float, scale: float, middle: float) -> float:
    return (code - middle) * scale


def _centred(code: float, scale: float, zero: float) -> float:
    return (code - zero) * scale


def _unpacked(codes: Buffer, bits: int) -> Buffer:
    """Bytes as the integers of 2 or 4 bits that they hold."""
    shape = (*codes.shape[:-1], codes.shape[-1] * (8 // bits))
    return PackedBuffer(DTYPES[f"u{bits}"].as_numpy(), shape, codes.allocation, codes.offset, bits=bits)


@cuda(gather_block_quantized)
def gather_blocks_on_device(step: Step) -> Planned:
    """Dequantize each element of the result from its code, scale and zero point."""
    given, data, ids, scales, zeros, y = (
        step.attributes,
        step.input(0),
        step.input(1),
        step.input(2),
        step.optional_input(3),
        step.output(),
    )
    rank, bits = len(data.shape), given["bits"]
    axis, along = (
        given[name] % rank if -rank <= given[name] < rank else -1 for name in ("gather_axis", "quantize_axis")
    )
    plain = data.dtype != np.uint8 or bits == 8
    if min(axis, along) < 0 or len(scales.shape) != rank or not (plain or (bits in (2, 4) and axis == 0 != along)):
        return "unsupported axes"
    codes = data if plain else _unpacked(data, bits)
    points = zeros if zeros is None or plain else _unpacked(zeros, bits)
    size = given["block_size"] or codes.shape[along]
    wanted = [-(-length // size) if place == along else length for place, length in enumerate(codes.shape)]
    spread = of_numpy(data.dtype).kind == "float"
    if any(have not in (need, 1 if spread else need) for have, need in zip(scales.shape, wanted, strict=True)):
        return "unsupported shape of the scales"
    if zeros is not None and zeros.shape != (*wanted[:-1], wanted[-1] if plain else row_nbytes(wanted[-1], bits)):
        return "unsupported shape of the zero points"
    rows = step.temporary(np.int64, ids.shape)
    launches: list[Launch | Chain] = [elementwise_chain(_wrapped, [ids], rows, codes.shape[axis], compute=rows.dtype)]
    tables = [(axis, rows, codes.shape[axis])]
    groups = [*tables, (along, step.constant_buffer(np.arange(codes.shape[along]) // size), wanted[along])]
    if axis == along:
        groups = [(axis, step.temporary(np.int64, ids.shape), wanted[axis])]
        launches.append(elementwise_chain(_group, [rows], groups[0][1], size, compute=rows.dtype))
    operands = [
        _over(codes, axis, ids, tables),
        *(_over(item, axis, ids, groups) for item in (scales, points) if item is not None),
    ]
    middle = 1 << (bits - 1) if data.dtype == np.uint8 else 0
    function, numbers = (_real, (float(middle),)) if points is None else (_centred, ())
    apply = chain_step(function, [item.buffer for item in operands], y.dtype, *numbers, compute=F32)
    return [*launches, elementwise_launch([apply], y.shape, operands, over(y, y.shape))]


def _over(buffer: Buffer, axis: int, ids: Buffer, tables: Sequence[tuple[int, Buffer, int]]) -> Operand:
    """An array over the result, where the axes of `ids` stand for `axis`; tables give indices along axes, of which
    there are so many."""

    def spread(strides: Sequence[int], among: Sequence[int]) -> tuple[int, ...]:
        return (*strides[:axis], *among, *strides[axis + 1 :])

    none, rank = [0] * len(ids.shape), len(buffer.shape)
    steps = [0 if length == 1 else step for length, step in zip(buffer.shape, buffer.strides, strict=True)]
    lookups = [
        Lookup(
            table,
            spread([0] * rank, ids.strides)
            if place == axis
            else spread([int(other == place) for other in range(rank)], none),
            steps[place],
            length,
            wraps=False,
        )
        for place, table, length in tables
    ]
    looked_up = {place for place, _, _ in tables}
    return Operand(
        buffer,
        spread([0 if place in looked_up else step for place, step in enumerate(steps)], none),
        lookups=tuple(lookups),
    )
