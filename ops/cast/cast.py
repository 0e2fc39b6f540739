"""Cast, CastLike and BitCast: the same elements in another dtype."""

from __future__ import annotations

import numpy as np

from ...runtime.base.errors import UnsupportedError
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import BY_ONNX, DType
from ..rules.shape_rules import model_error
from .conversion_rules import cast_to

ONNX_NAMES = {
    "FLOAT": 1,
    "UINT8": 2,
    "INT8": 3,
    "UINT16": 4,
    "INT16": 5,
    "INT32": 6,
    "INT64": 7,
    "STRING": 8,
    "BOOL": 9,
    "FLOAT16": 10,
    "DOUBLE": 11,
    "UINT32": 12,
    "UINT64": 13,
    "COMPLEX64": 14,
    "COMPLEX128": 15,
}


TYPES = "See TensorProto.DataType in the ONNX specification"


def element_type(number: int) -> DType:
    """The dtype by its number in ONNX's TensorProto.DataType; raises UnsupportedError for unknown ones."""
    found = BY_ONNX.get(number)
    if found is None:
        raise UnsupportedError("E-OP-DTYPE", None, f"unknown element type {number}", hint=TYPES)
    return found


def as_asked(node: Inference) -> None:
    """The dtype that `to` names; elements of integers stay known."""
    dtype, known = element_type(node.attributes["to"]), node.data(0)
    source = node.dtype(0)
    keeps = (
        known is not None
        and source is not None
        and dtype.kind in ("int", "uint")
        and source.kind in ("int", "uint", "bool")
    )
    node.set(0, dtype, node.shape(0), data=known if keeps else None)


def infer_cast_like(node: Inference) -> None:
    """The dtype of the second input."""
    node.set(0, node.dtype(1), node.shape(0))


@op(
    "Cast",
    since=28,
    types="number+f8+crumb+nibble+bool+f4+f8_e8m0+string",
    traits=(Trait.MOVES, Trait.KEEPS_F32),
    infer=as_asked,
    scalar=lambda x: x,
    examples=[
        case("f32[2,3]", to=7),
        case("i64[2,3]", to=1),
        case("f32[2,3]", to=17),
        case("f32[2,3]", to=19, saturate=0),
        case("f32[4]", to=8),
        case(np.array(["1.5", "-INF", "NaN", "3e2"], object), to=1),
        case("i32[5]", to=2),
        case("f32[5]", to=9),
        case("i32[5]", to=22),
        case(np.array([0.3, 1, 3.1], np.float32), to=24, round_mode="down"),
        case("f32[0,3]", to=10),
    ],
)
def cast(x: np.ndarray, *, to: int, saturate: int = 1, round_mode: str = "up") -> np.ndarray:
    """The values in the element type of that number in ONNX."""
    return cast_to(x, element_type(to), bool(saturate), round_mode)


@upgrade(cast, below=6)
def type_by_name(node: Node, build: Builder) -> None:
    """Before opset 6 the element type was named."""
    name = node.attributes["to"]
    if isinstance(name, str):
        if name.upper() not in ONNX_NAMES:
            raise UnsupportedError("E-OP-DTYPE", None, f"unknown element type {name!r}", hint=TYPES)
        node.attributes["to"] = ONNX_NAMES[name.upper()]


@op(
    "CastLike",
    since=25,
    types="number+f8+crumb+nibble+bool+f4+f8_e8m0+string number+f8+crumb+nibble+bool+f4+f8_e8m0+string",
    infer=infer_cast_like,
    scalar=lambda x, like: x,
    examples=[
        case("f32[2,3]", "i64[1]"),
        case("i64[2,3]", "f16[2]"),
        case("f32[3]", "f8_e4m3[1]", saturate=0),
        case("f32[0]", "f32[1]"),
        case("f32[3]", "string[1]"),
        case(np.array([0.3, 1, 3.1], np.float32), "f8_e8m0[1]", round_mode="nearest"),
    ],
)
def cast_like(x: np.ndarray, like: np.ndarray, *, saturate: int = 1, round_mode: str = "up") -> np.ndarray:
    """The values of `x` in the element type of `like`."""
    from ...runtime.tensor.dtype import STRING, of_numpy

    return cast_to(x, STRING if like.dtype.kind in "OUT" else of_numpy(like.dtype), bool(saturate), round_mode)


@op(
    "BitCast",
    since=26,
    types="number+f8+complex+crumb+nibble+bool+f4+f8_e8m0",
    infer=as_asked,
    examples=[case("f32[2,3]", to=6), case("i64[3]", to=11), case("i4[6]", to=21), case("u8[0]", to=3)],
)
def bit_cast(x: np.ndarray, *, to: int) -> np.ndarray:
    """The same bits in another element type of the same width."""
    from ...runtime.tensor.dtype import of_numpy

    source, wanted = of_numpy(x.dtype), element_type(to)
    if source.bits != wanted.bits:
        raise model_error(
            "BitCast keeps the width", "E-OP-DTYPE", expected=f"{source.bits} bits", found=f"{wanted.bits} bits"
        )
    numpy = wanted.as_numpy()
    if source.bits >= 8:
        return np.ascontiguousarray(x).view(numpy).reshape(x.shape)
    codes = np.ascontiguousarray(x).view(np.uint8).reshape(x.shape) & ((1 << source.bits) - 1)
    if wanted.kind == "int":
        half = 1 << (source.bits - 1)
        return ((codes ^ half).astype(np.int8) - half).astype(numpy)
    return codes.astype(numpy) if wanted.kind == "uint" else codes.view(numpy)
