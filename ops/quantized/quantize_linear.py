"""QuantizeLinear and DequantizeLinear: linear quantization per tensor, per axis or per block.

Source: the ONNX operator descriptions, opsets 10 to 28.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.base.units import counted
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import CHECK, Inference
from ...runtime.tensor.dtype import U8, DType, of_numpy
from ..cast.cast import element_type
from ..cast.conversion_rules import cast_to
from ..rules.shape_rules import shape_error


def integer_range(dtype: DType) -> tuple[int, int]:
    """Lowest and highest value of an integer dtype."""
    return (
        (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)
    )


def spread(scale: np.ndarray, shape: tuple[int, ...], axis: int, block: int, what: str) -> np.ndarray:
    """A scale or zero point in a shape that broadcasts to `shape`; FormatError where it fits neither tensor, axis nor
    blocks."""
    if scale.size == 1 and not block:
        return scale.reshape(())
    if -len(shape) <= axis < len(shape):
        axis %= len(shape)
        if scale.ndim == 1 and not block and scale.size == shape[axis]:
            return scale.reshape(-1, *(1,) * (len(shape) - 1 - axis))
        if block > 0 and scale.shape == (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :]):
            return np.repeat(scale, block, axis)[(*(slice(None),) * axis, slice(shape[axis]))]
    why = f"{what}: a scale or zero point of shape {scale.shape} does not fit {shape} along axis {axis}" + (
        f" in blocks of {block}" if block else ""
    )
    raise FormatError("E-OP-SHAPE", None, why, hint=CHECK)


def quantized(ratio: np.ndarray, zero: np.ndarray | None, dtype: DType, saturate: bool = True) -> np.ndarray:
    """``x / scale`` as `dtype`: to the nearest integer (half to even) and saturated, or as a small float. NaN becomes
    the lowest integer."""
    ratio = ratio if ratio.dtype in (np.float32, np.float64) else ratio.astype(np.float32)
    if dtype.kind == "float":
        return cast_to(ratio if zero is None else ratio + zero.astype(ratio.dtype), dtype, saturate)
    low, high = integer_range(dtype)
    whole = np.rint(ratio)
    if zero is not None:
        whole += zero.astype(whole.dtype)
    made: np.ndarray = np.fmin(np.fmax(whole, low), high).astype(np.int32).astype(dtype.as_numpy())
    return made


def _agreeing(node: Inference, dtype: DType | None) -> None:
    """Refuse a zero point of another dtype than the quantized values, and blocks that do not divide the axis into the
    scale's length."""
    zero, size = node.dtype(2), node.attributes["block_size"]
    if zero is not None and dtype is not None and zero is not dtype:
        node.fail(f"the zero point is {zero.name}, the quantized values are {dtype.name}")
    if size < 0:
        node.fail(f"block_size is {size}")
    shape, scale, axis = node.shape(0), node.shape(1), node.attributes["axis"]
    if (
        size
        and shape is not None
        and scale is not None
        and len(shape) == len(scale)
        and -len(shape) <= axis < len(shape)
    ):
        length, blocks = shape[axis], scale[axis]
        if isinstance(length, int) and isinstance(blocks, int) and -(-length // size) != blocks:
            node.fail(f"{counted(length, 'value')} in blocks of {size} do not need {blocks} scales")


def _quantized_type(node: Inference) -> None:
    asked = node.attributes["output_dtype"]
    _agreeing(node, element_type(asked) if asked else None)
    given = node.dtype(2)
    node.set(
        0, given if len(node) > 2 and node.value(2) is not None else element_type(asked) if asked else U8, node.shape(0)
    )


def grid(dtype: str, scale: Any, zero: Any) -> tuple[Any, Any]:
    """Scale and zero point of codes, as inputs of an example."""
    zeros = np.asarray(zero, {"u8": np.uint8, "i8": np.int8}[dtype])
    return np.asarray(scale, np.float32)[()], zeros[()]


def coded(codes: str, scale: Any, zero: Any) -> tuple[str, Any, Any]:
    """A quantized tensor, such as ``"u8[2,3]"``, with its scale and zero point, as inputs of an example."""
    return (codes, *grid(codes[:2], scale, zero))


@op(
    "QuantizeLinear",
    since=28,
    types="real+i32 real+f8_e8m0+i32 f8+byte+crumb+nibble+short+f4",
    traits=(Trait.KEEPS_F32,),
    infer=_quantized_type,
    examples=[
        case("f32[2,3,4]", np.float32(0.03), np.uint8(100)),
        case("f32[2,3,4]", np.array([0.3, 0.02, 0.05], np.float32), np.array([1, -3, 90], np.int8)),
        case("f32[2,3]", np.array([0.3, 0.02], np.float32), axis=-2, output_dtype=5),
        case(
            "f32[3,5]",
            np.array([[0.3, 0.02, 0.1]] * 3, np.float32),
            np.array([[1, 3, 9]] * 3, np.uint8),
            axis=1,
            block_size=2,
        ),
        case("f32[7]", np.float32(0.001), np.zeros((), "i1"), precision=10),
        case("f32[6]", np.float32(0.002), output_dtype=17, saturate=0),
        case("i32[2,5]", np.float32(0.7), np.uint8(3)),
        case("f32[4]", np.float32(0.3), output_dtype=22),
        case("f16[2,0]", np.float16(2), np.int8(1)),
    ],
)
def quantize_linear(
    x: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> np.ndarray:
    """``saturate(round(x / y_scale) + y_zero_point)``, divided in `precision` or else in the scale's dtype."""
    dtype = (
        of_numpy(y_zero_point.dtype) if y_zero_point is not None else element_type(output_dtype) if output_dtype else U8
    )
    if output_dtype and element_type(output_dtype) is not dtype:
        why = (
            f"QuantizeLinear: output_dtype {element_type(output_dtype).name} contradicts the zero point's {dtype.name}"
        )
        raise FormatError("E-OP-DTYPE", None, why, hint=CHECK)
    wide = element_type(precision).as_numpy() if precision else y_scale.dtype
    wide = (
        np.dtype(np.float64)
        if wide.kind in "iu"
        else np.dtype(np.float32)
        if wide.kind == "V" and wide.itemsize == 1
        else wide
    )
    scale = spread(y_scale, x.shape, axis, block_size, "QuantizeLinear").astype(wide)
    zero = None if y_zero_point is None else spread(y_zero_point, x.shape, axis, block_size, "QuantizeLinear")
    with np.errstate(all="ignore"):
        return quantized(x.astype(wide) / scale, zero, dtype, bool(saturate))


def _real_type(node: Inference) -> None:
    asked = node.attributes["output_dtype"]
    _agreeing(node, node.dtype(0))
    node.set(0, element_type(asked) if asked else node.dtype(1), node.shape(0))


@op(
    "DequantizeLinear",
    since=28,
    types="T=f8+byte+crumb+nibble+short+f4+i32 real+f8_e8m0 T",
    traits=(Trait.KEEPS_F32,),
    infer=_real_type,
    examples=[
        case("u8[2,3,4]", np.float32(0.03), np.uint8(100)),
        case("i8[2,3,4]", np.array([0.3, 0.02, 0.05], np.float32), np.array([1, -3, 90], np.int8)),
        case("i32[2,3]", np.array([0.3, 0.02], np.float32), axis=0),
        case("i16[3,2]", np.float32(0.1), np.int16(-900)),
        case(
            "u8[3,5]",
            np.array([[0.3, 0.02, 0.1]] * 3, np.float32),
            np.array([[1, 3, 9]] * 3, np.uint8),
            axis=1,
            block_size=2,
        ),
        case("f8_e4m3[6]", np.float32(2)),
        case("i4[3,2]", np.array([0.5, 2], np.float16), output_dtype=1),
        case("u8[0,2]", np.float16(2)),
    ],
)
def dequantize_linear(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> np.ndarray:
    """``(x - x_zero_point) * x_scale`` in `output_dtype` or else the scale's dtype."""
    wanted = element_type(output_dtype).as_numpy() if output_dtype else x_scale.dtype
    if x_zero_point is not None and x_zero_point.dtype != x.dtype:
        raise shape_error(
            "DequantizeLinear", f"the zero point is {x_zero_point.dtype}, the values are {x.dtype}", "E-OP-DTYPE"
        )
    real = of_numpy(x.dtype).kind == "float"
    centred = x.astype(np.float32) if real or x_zero_point is None else x.astype(np.int32)
    if x_zero_point is not None:
        centred = centred - spread(x_zero_point, x.shape, axis, block_size, "DequantizeLinear").astype(centred.dtype)
    with np.errstate(all="ignore"):
        made = centred.astype(np.float32, copy=False) * spread(
            x_scale, x.shape, axis, block_size, "DequantizeLinear"
        ).astype(np.float32)
    return np.asarray(made).astype(wanted, copy=False)
