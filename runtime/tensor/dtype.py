"""Dtypes: element and block types, with their names in every file format and library.

Sources: safetensors format specification; torch.dtype; ONNX TensorProto.DataType; ggml's type table (ggml.h,
ggml-common.h). Block types hold `block` elements of one row in `block_nbytes` bytes. Sub-byte types are packed, first
element in the lowest bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..base.dataclass import dataclass
from ..base.errors import UnsupportedError, UsageError
from ..base.nearest_name import did_you_mean
from ..base.process_cache import process_cache

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type.

    Attributes:
        name: our name, also on the command line.
        kind: float, int, uint, bool, complex, or block.
        bits: storage bits of one element (for blocks the average, rounded; use `nbytes`).
        numpy: numpy or ml_dtypes name, None where no library has it.
        safetensors, torch, ggml, onnx: the name or number in that format, None if the format lacks it.
    """

    name: str
    kind: str
    bits: int
    numpy: str | None = None
    safetensors: str | None = None
    torch: str | None = None
    ggml: int | None = None
    onnx: int | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return self.as_numpy().itemsize

    @property
    def is_floating_point(self) -> bool:
        """Whether elements are floats, by PyTorch's name."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        """Whether elements are complex numbers."""
        return self.kind == "complex"

    def to_real(self) -> DType:
        """The dtype of the parts of complex numbers; real ones as they are."""
        return {"c128": F64, "c64": F32, "c32": F16}.get(self.name, self)

    def to_complex(self) -> DType:
        """The dtype of complex numbers of such parts."""
        name = {"f64": "c128", "f32": "c64", "f16": "c32", "bf16": "c64"}.get(self.name, self.name)
        if DTYPES[name].kind != "complex":
            raise UsageError("E-DTYPE-NAME", None, f"no complex dtype has parts of {self}", expected="f16, f32 or f64")
        return DTYPES[name]

    @property
    def is_signed(self) -> bool:
        """Whether elements can be negative."""
        return self.kind in ("float", "int", "complex")

    @property
    def block(self) -> int:
        """Elements that share one indivisible run of bytes: 1 for whole-byte types, 2 for 4-bit ones."""
        return {4: 2, 6: 4, 2: 4, 1: 8}.get(self.bits, 1)

    @property
    def block_nbytes(self) -> int:
        """Bytes of one indivisible run."""
        return self.block * self.bits // 8

    def nbytes(self, count: int) -> int | None:
        """Bytes of `count` elements in a row, None when they do not fill whole runs."""
        runs, rest = divmod(count, self.block)
        return None if rest else runs * self.block_nbytes

    @property
    def is_float(self) -> bool:
        """Whether values are real floating-point numbers, block types included."""
        return self.kind in ("float", "block")

    @property
    def has_gradient(self) -> bool:
        """Whether gradients flow through elements: floats, block types, and complex numbers."""
        return self.kind in ("float", "block", "complex")

    def as_numpy(self) -> np.dtype:
        """The numpy dtype of one unpacked element; raises UnsupportedError if NumPy lacks it."""
        if self.numpy is None:
            raise UnsupportedError(
                "E-DTYPE-NUMPY", None, f"numpy has no dtype for {self.name}", hint="Use raw() for its bytes"
            )
        return _numpy_dtype(self.numpy)


@dataclass(frozen=True)
class BlockType(DType):
    """A quantized type: `length` elements of a row in `size` bytes."""

    length: int = 32
    size: int = 32

    @property
    def block(self) -> int:
        return self.length

    @property
    def block_nbytes(self) -> int:
        return self.size


@process_cache
def _numpy_dtype(name: str) -> np.dtype:
    import numpy

    if name in numpy.sctypeDict:
        return numpy.dtype(name)
    import ml_dtypes

    dtype: np.dtype = numpy.dtype(getattr(ml_dtypes, name))
    return dtype


def _row(
    name: str,
    kind: str,
    bits: int,
    numpy: str | None,
    safetensors: str | None,
    torch: str | None,
    ggml: int | None,
    onnx: int | None,
) -> DType:
    return DType(name, kind, bits, numpy, safetensors, torch, ggml, onnx)


ELEMENT_TYPES = tuple(
    _row(*row)
    for row in (
        ("f64", "float", 64, "float64", "F64", "float64", 28, 11),
        ("f32", "float", 32, "float32", "F32", "float32", 0, 1),
        ("f16", "float", 16, "float16", "F16", "float16", 1, 10),
        ("bf16", "float", 16, "bfloat16", "BF16", "bfloat16", 30, 16),
        ("f8_e4m3", "float", 8, "float8_e4m3fn", "F8_E4M3", "float8_e4m3fn", None, 17),
        ("f8_e4m3fnuz", "float", 8, "float8_e4m3fnuz", "F8_E4M3FNUZ", "float8_e4m3fnuz", None, 18),
        ("f8_e5m2", "float", 8, "float8_e5m2", "F8_E5M2", "float8_e5m2", None, 19),
        ("f8_e5m2fnuz", "float", 8, "float8_e5m2fnuz", "F8_E5M2FNUZ", "float8_e5m2fnuz", None, 20),
        ("f8_e8m0", "float", 8, "float8_e8m0fnu", "F8_E8M0", "float8_e8m0fnu", None, 24),
        ("f6_e2m3", "float", 6, "float6_e2m3fn", "F6_E2M3", None, None, 27),
        ("f6_e3m2", "float", 6, "float6_e3m2fn", "F6_E3M2", None, None, 28),
        ("f4", "float", 4, "float4_e2m1fn", "F4", "float4_e2m1fn_x2", None, 23),
        ("i64", "int", 64, "int64", "I64", "int64", 27, 7),
        ("i32", "int", 32, "int32", "I32", "int32", 26, 6),
        ("i16", "int", 16, "int16", "I16", "int16", 25, 5),
        ("i8", "int", 8, "int8", "I8", "int8", 24, 3),
        ("i4", "int", 4, "int4", None, None, None, 22),
        ("i2", "int", 2, "int2", None, None, None, 26),
        ("u64", "uint", 64, "uint64", "U64", "uint64", None, 13),
        ("u32", "uint", 32, "uint32", "U32", "uint32", None, 12),
        ("u16", "uint", 16, "uint16", "U16", "uint16", None, 4),
        ("u8", "uint", 8, "uint8", "U8", "uint8", None, 2),
        ("u4", "uint", 4, "uint4", None, None, None, 21),
        ("u2", "uint", 2, "uint2", None, None, None, 25),
        ("bool", "bool", 8, "bool", "BOOL", "bool", None, 9),
        ("c128", "complex", 128, "complex128", None, "complex128", None, 15),
        ("c64", "complex", 64, "complex64", "C64", "complex64", None, 14),
        ("c32", "complex", 32, None, None, "complex32", None, None),
    )
)

BLOCK_TYPES = tuple(
    BlockType(name, "block", max(1, size * 8 // length), ggml=ggml, length=length, size=size)
    for name, ggml, length, size in (
        ("q4_0", 2, 32, 18),
        ("q4_1", 3, 32, 20),
        ("q5_0", 6, 32, 22),
        ("q5_1", 7, 32, 24),
        ("q8_0", 8, 32, 34),
        ("q8_1", 9, 32, 36),
        ("q2_k", 10, 256, 84),
        ("q3_k", 11, 256, 110),
        ("q4_k", 12, 256, 144),
        ("q5_k", 13, 256, 176),
        ("q6_k", 14, 256, 210),
        ("q8_k", 15, 256, 292),
        ("iq2_xxs", 16, 256, 66),
        ("iq2_xs", 17, 256, 74),
        ("iq3_xxs", 18, 256, 98),
        ("iq1_s", 19, 256, 50),
        ("iq4_nl", 20, 32, 18),
        ("iq3_s", 21, 256, 110),
        ("iq2_s", 22, 256, 82),
        ("iq4_xs", 23, 256, 136),
        ("iq1_m", 29, 256, 56),
        ("tq1_0", 34, 256, 54),
        ("tq2_0", 35, 256, 66),
        ("mxfp4", 39, 32, 17),
        ("nvfp4", 40, 64, 36),
        ("q1_0", 41, 128, 18),
        ("q2_0", 42, 64, 18),
    )
)

LEGACY_BLOCK_TYPES = tuple(
    BlockType(name, "block", max(1, size * 8 // length), length=length, size=size)
    for name, length, size in (
        ("q4_0_v1", 32, 20),
        ("q4_1_v1", 32, 24),
        ("q4_2", 16, 10),
        ("q4_3", 16, 12),
        ("q5_0_v1", 32, 22),
        ("q5_1_v1", 32, 24),
        ("q8_0_v1", 32, 36),
        ("q4_0_v2", 32, 20),
        ("q4_1_v2", 32, 24),
    )
)
"""Block types of GGML files before GGUF, whose layouts `ops/quants/pre_gguf.py` has: ``_v1`` up to GGJT 1 (q8_0_v1 up
to 2), ``_v2`` in GGJT 2."""

GROUPED_BLOCK_TYPES = tuple(
    BlockType(f"{kind}{bits}_g{group}", "block", bits, length=128, size=16 * bits + 512 * factors // group)
    for bits in (4, 8)
    for kind, factors in (("i", 1), ("u", 2))
    for group in (16, 32, 64, 128)
)
"""Block types of weights in memory, whose layouts `ops/quants/grouped.py` has: integers of 4 or 8 bits, with an f32
scale for each group of neighbours, and in ``u`` types a minimum."""

DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in (*ELEMENT_TYPES, *BLOCK_TYPES, *LEGACY_BLOCK_TYPES)}
"""Dtypes of tensors in files, by name."""
STORAGE_TYPES: dict[str, DType] = {**DTYPES, **{dtype.name: dtype for dtype in GROUPED_BLOCK_TYPES}}
"""Dtypes of files, and of weights in memory that kernels take."""
STRING = DType("string", "text", 0, "object", onnx=8)
"""Text: only in graphs, where it is an array of str objects; no weights format of ours stores it."""

BY_SAFETENSORS = {dtype.safetensors: dtype for dtype in DTYPES.values() if dtype.safetensors is not None}
BY_TORCH = {dtype.torch: dtype for dtype in DTYPES.values() if dtype.torch is not None}
BY_ONNX = {dtype.onnx: dtype for dtype in (*DTYPES.values(), STRING) if dtype.onnx is not None}
BY_GGML = {dtype.ggml: dtype for dtype in DTYPES.values() if dtype.ggml is not None}

F64, F32, F16, BF16 = (DTYPES[name] for name in ("f64", "f32", "f16", "bf16"))
I64, I32, I16, I8 = (DTYPES[name] for name in ("i64", "i32", "i16", "i8"))
U64, U32, U16, U8 = (DTYPES[name] for name in ("u64", "u32", "u16", "u8"))
BOOL, C64, C128 = DTYPES["bool"], DTYPES["c64"], DTYPES["c128"]

SPELLINGS = {
    **{name: dtype.name for dtype in ELEMENT_TYPES for name in (dtype.numpy, dtype.torch) if name is not None},
    **{f"fp{bits}": f"f{bits}" for bits in (64, 32, 16)},
    **{f"uint{bits}": f"u{bits}" for bits in (64, 32, 16, 8, 4, 2)},
    "double": "f64", "float": "f32", "single": "f32", "half": "f16", "bfloat": "bf16",
    "fp8": "f8_e4m3", "fp8_e4m3": "f8_e4m3", "fp8_e4m3fn": "f8_e4m3", "f8_e4m3fn": "f8_e4m3", "fp8_e5m2": "f8_e5m2",
    "long": "i64", "int": "i32", "short": "i16", "byte": "u8",
}  # fmt: skip
"""Other names of element types: those of NumPy and torch, and what people type."""


def dtype_named(given: Any, code: str = "E-DTYPE-NAME", further: Iterable[str] = ()) -> DType:
    """The dtype of a name in any case, ours, NumPy's or torch's (``f16``, ``float16``, ``fp16``, ``half``), or of a
    NumPy or torch dtype.

    Raises UsageError with the error code `code` for an unknown name; the nearest of the known and `further` names is
    suggested.
    """
    if isinstance(given, DType):
        return given
    name = given if isinstance(given, str) else str(getattr(given, "name", None) or getattr(given, "__name__", given))
    word = plain_name(name)
    dtype = DTYPES.get(word)
    if dtype is None:
        what = "type" if "TYPE" in code.split("-") else "dtype"
        hint = did_you_mean(name, (*DTYPES, *further, *SPELLINGS), "candle-convert types lists them")
        raise UsageError(code, None, f"{name[:80]!r} is not a known {what}", hint=hint)
    return dtype


def plain_name(name: str) -> str:
    """Our name, in lower case, for any spelling of a dtype's name; other names only lose their case."""
    word = name.lower().removeprefix("torch.").removeprefix("numpy.").removeprefix("np.")
    return SPELLINGS.get(word, word)


_BY_NUMPY = {dtype.numpy: dtype for dtype in ELEMENT_TYPES if dtype.numpy is not None}


def of_numpy(dtype: np.dtype) -> DType:
    """Our dtype for a numpy dtype of any byte order; raises UnsupportedError for structured, object and text dtypes."""
    found = _BY_NUMPY.get(dtype.name)
    if found is None:
        raise UnsupportedError("E-DTYPE-NUMPY", None, f"numpy dtype {dtype} is not numeric")
    return found
