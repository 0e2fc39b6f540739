"""Native MatMulInteger and QLinearMatMul with constant right matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.jit.address import f32, i32, share, u8
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...runtime.simd.dot4_u8s8 import PATH
from ..kernels.gemm.byte_pairs.byte_dots import COLUMN_QUADS, column_dots
from ..kernels.gemm.byte_pairs.byte_panels import BytePanels, byte_panels
from ..kernels.gemm.epilogue import Epilogue, EpilogueArguments, apply_epilogue_rows, launch_with_epilogue
from ..kernels.gemm.microkernel_u8s8 import SIGN_OFFSET, TILE_QUADS, TILES, TileColumn, tile_column
from ..kernels.gemm.register_tile import PANEL
from ..kernels.gemm.requantize import BYTES, FLOATS, INTEGERS, SIGNED_BYTES, load_zero_point, requantize_columns
from .matmul_integer import matmul_integer, qlinear_matmul

F32, U8, I8 = np.dtype(np.float32), np.dtype(np.uint8), np.dtype(np.int8)
TALL = 96
"""Rows that a part computes at a time."""
SPARE_ROWS = 15
"""Rows of bytes after others that tiles may read."""


@range_kernel
def byte_rows(
    source: Address,
    signed: int,
    unsigned: int,
    rows: int,
    depth: int,
    wide: int,
    zero: Address,
    lines: Address,
    zeros: Address,
    sums: Address,
    part: int,
    parts: int,
) -> None:
    """Rows of bytes as lines of `wide` signed or `unsigned` bytes, padded with zeros, their zero points and sums."""
    turn = np.uint8(0 if signed != 0 else SIGN_OFFSET)
    own = load_zero_point(zero, signed) - (0 if signed != 0 else SIGN_OFFSET)
    flip, moved_by = np.uint8(SIGN_OFFSET if unsigned != 0 else 0), np.int32(SIGN_OFFSET if unsigned != 0 else 0)
    first, last = share(rows, part, parts)
    for row in range(first, last):
        line, made = u8(source + row * depth), u8(lines + row * wide)
        total = moved_by * np.int32(depth)
        for k in range(depth):
            moved = line[k] ^ turn
            made[k] = moved ^ flip
            total += np.int32(np.int8(moved))
        for k in range(depth, wide):
            made[k] = 0
        i32(zeros)[row], i32(sums)[row] = own + moved_by, total


class Multiplier(NamedTuple):
    """Kernels of products.

    Attributes:
        kernel: for rows and panels of a multiple of `quads` words.
        narrow: for others.
        panels: that both read.
    """

    kernel: Any
    narrow: Any
    quads: int
    panels: BytePanels


@inner
def _nothing() -> None:
    """Take or give back no tiles."""


def product_by(path: str) -> Multiplier:
    """The kernels of a row of `INTEGERS`."""
    panels = byte_panels(path)
    narrow = _product_kernel(TileColumn(_nothing, panels.column, _nothing))
    if path not in TILES:
        return Multiplier(narrow, narrow, 1, panels)
    return Multiplier(_product_kernel(tile_column(path)), narrow, TILE_QUADS, panels)


def _product_kernel(functions: TileColumn) -> Any:
    """The kernel by functions that make a column."""
    take, column, give_back = functions

    @range_kernel
    def product_of_bytes(
        a: Address,
        zeros: Address,
        sums: Address,
        b: Address,
        rows: int,
        columns: int,
        wide: int,
        panel_bytes: int,
        column_zeros: Address,
        column_terms: Address,
        b_scale: Address,
        integer_bias: Address,
        float_bias: Address,
        a_scale: Address,
        y_scale: Address,
        alpha: float,
        form: int,
        y_zero: Address,
        y: Address,
        room: Address,
        epilogue: EpilogueArguments,
        part: int,
        parts: int,
    ) -> None:
        """Rows, zero points and sums as `byte_rows` makes them, times panels; results have a form and a zero
        point."""
        common = np.float32(alpha)
        scratch = room + part * 4 * PANEL * (TALL + 1)
        factors = scratch + 4 * PANEL * TALL
        itemsize = 4 if form in (INTEGERS, FLOATS) else 1
        zero = np.float32(load_zero_point(y_zero, 1 if form == SIGNED_BYTES else 0))
        count, tall = (columns + PANEL - 1) // PANEL, (rows + TALL - 1) // TALL
        take()
        first, last = share(count * tall, part, parts)
        for unit in range(first, last):
            panel, start = unit // tall, unit % tall * TALL
            width, many = min(PANEL, columns - panel * PANEL), min(TALL, rows - start)
            column(a + start * wide, wide, b + panel * panel_bytes, wide // 4, scratch, many)
            at = 4 * panel * PANEL
            if form != INTEGERS:
                for j in range(PANEL):
                    factor = common * f32(a_scale)[0] * f32(b_scale + at)[j]
                    f32(factors)[j] = factor / f32(y_scale)[0] if y_scale != 0 else factor
            requantize_columns(
                scratch,
                many,
                width,
                form,
                zeros + 4 * start,
                sums + 4 * start,
                column_zeros + at,
                column_terms + at,
                factors,
                0,
                integer_bias + at if integer_bias != 0 else integer_bias,
                float_bias + at if float_bias != 0 else float_bias,
                zero,
                y + (start * columns + panel * PANEL) * itemsize,
                columns * itemsize,
            )
            place = 4 * (start * columns + panel * PANEL)
            added = start * epilogue.added_row + 4 * panel * PANEL
            apply_epilogue_rows(epilogue, y + place, 4 * columns, many, width, added, epilogue.added_row)
        give_back()

    return product_of_bytes


def column_product_by(path: str) -> Multiplier:
    """The kernels of products with a single column, by a row of `INTEGERS`."""
    dots = column_dots(path)
    kernel = _product_kernel(TileColumn(_nothing, dots.column, _nothing))
    return Multiplier(kernel, kernel, COLUMN_QUADS, dots)


product_of_bytes, product_with_column = product_by(PATH), column_product_by(PATH)


@dataclass(frozen=True)
class Factors:
    """A product: left factor, right one by its position among the inputs, and what becomes of the sums.

    Attributes:
        a_scale, a_zero: scalars, None for 1 and 0.
        b, b_scale, b_zero: positions; scales and zero points are for all or for each column, -1 if absent.
        transposed: whether the right factor is [columns, depth].
        integer_bias, float_bias: added to each column, constants.
        y_scale, y_zero: scalars that results are divided by and moved by.
    """

    a: Buffer
    a_zero: Buffer | None
    b: int
    b_zero: int
    form: int
    a_scale: Buffer | None = None
    b_scale: int = -1
    transposed: bool = False
    integer_bias: np.ndarray | None = None
    float_bias: np.ndarray | None = None
    y_scale: Buffer | None = None
    y_zero: Buffer | None = None
    alpha: float = 1.0


@dataclass(frozen=True)
class PackedBytes:
    """A matrix of bytes in panels.

    Attributes:
        sums: of the columns.
        scales, zeros: a scale and a zero point for each column of the panels.
    """

    panels: Buffer
    dtype: np.dtype[Any]
    sums: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray


def _columns(step: Step, index: int, columns: int, otherwise: float) -> np.ndarray | None:
    """A scale or zero point as one number for each column of the panels; None where it is not constant or has another
    shape."""
    if index < 0 or index >= len(step.inputs) or step.inputs[index] is None:
        found: np.ndarray | None = np.asarray(otherwise)
    else:
        found = step.constant(index)
    if found is None or found.size not in (1, columns) or (found.ndim > 1 and found.shape[-1] != found.size):
        return None
    return for_columns(found, columns, otherwise)


def for_columns(values: np.ndarray, columns: int, otherwise: float) -> np.ndarray:
    """One number, or one for each column, as one for each column of the panels."""
    whole = np.full(-(-columns // PANEL) * PANEL, otherwise, np.float64)
    whole[:columns] = values.reshape(-1)
    return whole


def zero_terms(
    sums: np.ndarray, depth: int, dtype: np.dtype[Any], zeros: np.ndarray, panels: BytePanels
) -> tuple[np.ndarray, np.ndarray]:
    """For each column of the panels of a matrix whose columns have these sums: its zero point as panels have it, and
    what `requantize_columns` takes as its term."""
    terms = np.zeros(len(zeros), np.int64)
    terms[: len(sums)] = sums - depth * zeros[: len(sums)].astype(np.int64)
    moved = (-SIGN_OFFSET if dtype == U8 else 0) if panels.unsigned_rows else (0 if dtype == U8 else SIGN_OFFSET)
    return (zeros + moved).astype(np.int32), terms.astype(np.int32)


def _scalar(buffer: Buffer | None) -> bool:
    return buffer is None or buffer.count == 1


def product(
    step: Step,
    y: Buffer,
    factors: Factors,
    multiplier: Multiplier = product_of_bytes,
    with_column: Multiplier = product_with_column,
) -> list[Launch] | None:
    """Launches of a product; None where the right factor is not constant, or scales are for something else than
    columns."""
    a, matrix = factors.a, step.inputs[factors.b]
    if matrix is None or not step.is_constant(factors.b) or len(matrix.shape) != 2 or not a.shape:
        return None
    if a.dtype not in (U8, I8) or matrix.dtype not in (U8, I8):
        return None
    depth, columns = reversed(matrix.shape) if factors.transposed else matrix.shape
    scales, zeros = _columns(step, factors.b_scale, columns, 1.0), _columns(step, factors.b_zero, columns, 0.0)
    singles = (factors.a_scale, factors.a_zero, factors.y_scale, factors.y_zero)
    if (
        scales is None
        or zeros is None
        or a.shape[-1] != depth
        or not all(map(_scalar, singles))
        or y.count != a.count // depth * columns
    ):
        return None
    if columns == 1:
        multiplier = with_column
    panels = step.packed(
        factors.b,
        ("bytes", factors.transposed, multiplier.quads),
        lambda array: multiplier.panels.pack(array.T if factors.transposed else array, multiplier.quads),
    )
    sums = step.derived_constant(
        factors.b, ("sums", factors.transposed), lambda array: array.sum(int(factors.transposed), dtype=np.int64)
    )
    return multiplied(step, y, factors, PackedBytes(panels, matrix.dtype, sums, scales, zeros), multiplier)


def multiplied(
    step: Step, y: Buffer, factors: Factors, packed: PackedBytes, multiplier: Multiplier = product_of_bytes
) -> list[Launch]:
    """Launches of a product with a packed matrix."""
    a, depth, columns, scales, zeros = factors.a, factors.a.shape[-1], len(packed.sums), packed.scales, packed.zeros
    padding = (0, len(zeros) - columns)
    moved, terms = zero_terms(packed.sums, depth, packed.dtype, zeros, multiplier.panels)
    rows, wide = a.count // depth, -(-depth // (4 * multiplier.quads)) * 4 * multiplier.quads
    lines, own = step.scratch((rows + SPARE_ROWS) * wide), step.scratch(8 * rows)
    units = -(-columns // PANEL) * -(-rows // TALL)
    parts = step.parts(units, rows * columns * depth / 64)

    def held(bias: np.ndarray | None) -> Buffer | int:
        return 0 if bias is None else step.constant_buffer(np.pad(bias.reshape(-1), padding))

    known = {"rows": rows, "wide": wide, "zeros": own, "sums": own.view((4 * rows,), 4 * rows)}
    of_columns = {
        "column_zeros": step.constant_buffer(moved),
        "column_terms": step.constant_buffer(terms),
        "b_scale": step.constant_buffer(scales.astype(np.float32)),
        "integer_bias": held(factors.integer_bias),
        "a_scale": _or(factors.a_scale, step.constant_buffer(np.ones(1, np.float32))),
    }
    scratch = step.scratch(parts * 4 * PANEL * (TALL + 1))

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        needed = int(epilogue.added is not None or epilogue.kind is not None)
        return Launch(
            multiplier.narrow if wide % (4 * multiplier.quads) else multiplier.kernel,
            parts,
            a=lines,
            **known,
            b=packed.panels,
            columns=columns,
            panel_bytes=multiplier.panels.panel_bytes(wide // 4),
            **of_columns,
            float_bias=held(epilogue.bias),
            y_scale=_or(factors.y_scale, 0),
            alpha=factors.alpha,
            form=factors.form,
            y_zero=_or(factors.y_zero, 0),
            y=result,
            room=scratch,
            epilogue=epilogue.arguments(columns)._replace(needed=needed),
        )

    before = Launch(
        byte_rows,
        step.parts(rows, a.count / 8),
        source=a,
        depth=depth,
        signed=int(a.dtype == I8),
        unsigned=int(multiplier.panels.unsigned_rows),
        zero=_or(factors.a_zero, 0),
        lines=lines,
        **known,
    )
    after = Epilogue(bias=factors.float_bias)
    if factors.form != FLOATS:
        return [before, launch(after, y)]
    return [before, launch_with_epilogue(launch, y, columns, after)]


def _or(buffer: Buffer | None, other: Any) -> Any:
    return other if buffer is None else buffer


def form_of(dtype: np.dtype[Any]) -> int:
    """The form of results of a dtype, as `requantize_columns` takes it."""
    return {"int32": INTEGERS, "float32": FLOATS, "uint8": BYTES, "int8": SIGNED_BYTES}[dtype.name]


def padded_inputs(step: Step, count: int) -> list[Buffer | None]:
    """`count` inputs, None for those that are left out at the end."""
    return [*step.inputs, *[None] * (count - len(step.inputs))]


@native(matmul_integer)
def plan_matmul_integer(step: Step) -> Planned:
    """Plan constant weights."""
    a, _, a_zero, _ = padded_inputs(step, 4)
    return None if a is None else product(step, step.output(), Factors(a, a_zero, 1, 3, INTEGERS))


@native(qlinear_matmul)
def plan_qlinear_matmul(step: Step) -> Planned:
    """Plan constant weights and f32 scales."""
    a, a_scale, a_zero, _, _, _, y_scale, y_zero = step.inputs
    y = step.output()
    if a is None or a_scale is None or y_scale is None or a_scale.dtype != F32 or y.dtype not in (U8, I8):
        return None
    return product(step, y, Factors(a, a_zero, 3, 5, form_of(y.dtype), a_scale, 4, y_scale=y_scale, y_zero=y_zero))
