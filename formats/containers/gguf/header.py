"""GGUF header: key-value pairs, tensor infos, and the offset of the tensor data.

Source: the GGUF specification (ggml, docs/gguf.md); gguf.cpp for what readers accept.
"""

from __future__ import annotations

import math
from dataclasses import field

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.base.units import counted
from ....runtime.ir.graph import Meta
from ....runtime.tensor.dtype import BY_GGML, BlockType, DType
from ....runtime.tensor.element_packing import nbytes
from ....runtime.tensor.file import Source
from ....runtime.tensor.storage import Region, Storage
from ....runtime.tensor.stored_tensor import StoredTensor
from ....runtime.tensor.strided import swapped
from .byte_order import NO_BYTE_ORDER, swapped_blocks
from .cursor import DAMAGED, TRUNCATED, Cursor
from .values import ARRAY, MAX_KEY, STRING, U8, ValueType

MAGIC = b"GGUF"
VERSIONS = (1, 2, 3)
MAX_DIMS = 4
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
ALIGNMENT_KEY = "general.alignment"
FILE_PREFIX = "candle_convert.file."
"""Prefix of the keys of attached files."""
KEY_COST = 192
TENSOR_COST = 512
"""Memory overhead of a key with its value, and of a tensor, in bytes."""
REMOVED_TYPES = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}


@dataclass(frozen=True)
class TensorInfo:
    """A tensor info: its offset in the tensor data, and `at`, the offset of the info in the file."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    at: int


@dataclass
class Header:
    """Everything before the tensor data of one file.

    Attributes:
        metadata: keys and values in the file's order.
        where: byte offset of each value.
        files: attached files.
        start: offset of the tensor data.
    """

    source: Source
    version: int
    big: bool
    metadata: dict[str, Meta] = field(default_factory=dict)
    where: dict[str, int] = field(default_factory=dict)
    files: dict[str, Region] = field(default_factory=dict)
    tensors: list[TensorInfo] = field(default_factory=list)
    alignment: int = DEFAULT_ALIGNMENT
    start: int = 0

    @property
    def end(self) -> int:
        """Offset after the last tensor and its padding, which may be absent."""
        return self.start + max((padded(info.offset + info.nbytes, self.alignment) for info in self.tensors), default=0)

    def tensor(self, info: TensorInfo) -> StoredTensor:
        """The tensor as a region of the file, with little-endian elements."""
        region = Region(self.source, self.start + info.offset, info.nbytes)
        return StoredTensor(
            info.dtype, info.shape, _little_endian(region, info, self) if self.big and info.nbytes else region
        )


def padded(nbytes: int, alignment: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // alignment) * alignment


def read_header(source: Source) -> Header:
    """The header of a file, fully checked."""
    version, big = _version(source)
    cursor = Cursor(source, 8, version, big)
    header = Header(source, version, big)
    width = cursor.count_size
    n_tensors = cursor.items("E-GGUF-COUNT", "tensors", width + 16)
    n_pairs = cursor.items("E-GGUF-COUNT", "key-value pairs", width + 6)
    for _ in range(n_pairs):
        _pair(cursor, header)
    header.alignment = _alignment(header)
    names: set[str] = set()
    for _ in range(n_tensors):
        info = _tensor_info(cursor, header.alignment)
        if info.name in names:
            raise cursor.malformed("E-GGUF-DUPLICATE", f"tensor {info.name!r} appears twice in the header", info.at)
        names.add(info.name)
        header.tensors.append(info)
    header.start = padded(cursor.position, header.alignment)
    _check_cover(header)
    return header


def _version(source: Source) -> tuple[int, bool]:
    head = source.head(8)
    if head[:4] != MAGIC:
        why = "is not a GGUF file"
        hint = "Check the file suffix"
        raise FormatError("E-GGUF-MAGIC", source.path, why, at=0, expected=MAGIC, found=head[:4], hint=hint)
    if len(head) < 8:
        raise FormatError("E-GGUF-TRUNCATED", source.path, "ends within its version", at=4, hint=TRUNCATED)
    little, big = int.from_bytes(head[4:], "little"), int.from_bytes(head[4:], "big")
    if little in VERSIONS or big in VERSIONS:
        return (little, False) if little in VERSIONS else (big, True)
    version = min(little, big)
    if version == 0 or version > 1 << 16:
        raise FormatError(
            "E-GGUF-VERSION", source.path, "has an invalid version", at=4, expected="1 to 3", found=little, hint=DAMAGED
        )
    hint = "Upgrade candle-convert"
    raise UnsupportedError(
        "E-GGUF-VERSION", source.path, "is of an unknown version", at=4, expected="1 to 3", found=version, hint=hint
    )


def _pair(cursor: Cursor, header: Header) -> None:
    at = cursor.position
    cursor.source.budget.entry(1, "keys", at=at)
    cursor.source.budget.charge(KEY_COST, "a key", at=at)
    data = cursor.string("a key")
    try:
        key = data.decode()
    except UnicodeDecodeError as error:
        raise cursor.malformed("E-GGUF-KEY", "a key is not UTF-8", at) from error
    if not key or len(data) > MAX_KEY:
        raise cursor.malformed(
            "E-GGUF-KEY", f"a key has {counted(len(data), 'byte')}", at, expected=f"1 to {MAX_KEY:,}"
        )
    if key in header.where:
        raise cursor.malformed(
            "E-GGUF-DUPLICATE", f"the key {key!r} appears twice", at, hint="Remove one of the two values"
        )
    kind = cursor.kind()
    header.where[key] = cursor.position
    name = key.removeprefix(FILE_PREFIX)
    if name != key and _plain(name) and kind in (STRING, ARRAY):
        _file(cursor, header, key, kind)
    else:
        header.metadata[key] = cursor.value(kind, key)


def _plain(name: str) -> bool:
    """Whether a name is safe as a file name in a directory."""
    return name.isprintable() and not set(name) & set("/\\:") and name not in ("", ".", "..")


def _file(cursor: Cursor, header: Header, key: str, kind: ValueType) -> None:
    """An attached file, a string or an array of u8, as a region of the file."""
    element = cursor.kind() if kind is ARRAY else U8
    if element is not U8:
        raise cursor.malformed(
            "E-GGUF-VALUE-TYPE", f"the attached file {key!r} is an array of {element.name}", expected="u8"
        )
    length = cursor.items("E-GGUF-STRING", f"bytes of {key!r}", 1)
    header.files[key.removeprefix(FILE_PREFIX)] = Region(cursor.source, cursor.position, length)
    cursor.skip(length)


def _alignment(header: Header) -> int:
    import numpy

    value = header.metadata.get(ALIGNMENT_KEY)
    if value is None:
        return DEFAULT_ALIGNMENT
    if not isinstance(value, numpy.uint32) or not is_alignment(int(value)):
        raise FormatError(
            "E-GGUF-ALIGNMENT",
            header.source.path,
            f"{ALIGNMENT_KEY} is {str(value)[:40]!r}",
            at=header.where[ALIGNMENT_KEY],
            expected="a u32, a power of two up to 2^20",
            hint=DAMAGED,
        )
    return int(value)


def is_alignment(value: int) -> bool:
    """Whether tensor data can be aligned to a value."""
    return 0 < value <= MAX_ALIGNMENT and value & (value - 1) == 0


def _tensor_info(cursor: Cursor, alignment: int) -> TensorInfo:
    at = cursor.position
    cursor.source.budget.entry(1, "tensors", at=at)
    cursor.source.budget.charge(TENSOR_COST, "a tensor", at=at)
    try:
        name = cursor.string("a tensor name").decode()
    except UnicodeDecodeError as error:
        raise cursor.malformed("E-GGUF-NAME", "a tensor name is not UTF-8", at) from error
    n_dims = cursor.u32()
    if n_dims > MAX_DIMS:
        raise cursor.malformed(
            "E-GGUF-DIMS", f"tensor {name!r} has {counted(n_dims, 'dimension')}", at, expected=f"at most {MAX_DIMS}"
        )
    shape = tuple(reversed([cursor.count() for _ in range(n_dims)]))
    dtype = _dtype(cursor, name)
    offset = cursor.u64()
    if math.prod(max(1, length) for length in shape) >= 1 << 63:
        raise cursor.malformed(
            "E-GGUF-SHAPE", f"tensor {name!r} has the shape {list(shape)}", at, expected="fewer than 2^63 elements"
        )
    size = nbytes(dtype, shape)
    if size is None:
        row = shape[-1] if shape else 1
        why = f"rows of tensor {name!r} have {counted(row, 'element')}"
        raise cursor.malformed(
            "E-GGUF-BLOCK", why, at, expected=f"a multiple of {dtype.block}, the block of {dtype.name}"
        )
    if offset % alignment:
        raise cursor.malformed(
            "E-GGUF-ALIGN", f"tensor {name!r} begins at offset {offset:,}", at, expected=f"a multiple of {alignment}"
        )
    return TensorInfo(name, dtype, shape, offset, size, at)


def _dtype(cursor: Cursor, name: str) -> DType:
    number = cursor.u32()
    dtype = BY_GGML.get(number)
    if dtype is not None:
        return dtype
    if number in REMOVED_TYPES:
        why = f"tensor {name!r} is of type {REMOVED_TYPES[number]}, which ggml removed"
        hint = "Convert the original model again, or requantize with a llama.cpp of that time"
    else:
        why = f"tensor {name!r} is of the unknown type {number}"
        hint = (
            "Types from 97 on are those of ik_llama.cpp"
            if 97 <= number < 1000
            else "The file is damaged, or newer than this version of candle-convert"
        )
    raise UnsupportedError("E-GGUF-TYPE", cursor.source.path, why, at=cursor.position - 4, hint=hint)


def _check_cover(header: Header) -> None:
    """Check that tensors follow one another with only padding between them, and end within the file."""
    position, before = 0, "the header"
    for info in sorted(header.tensors, key=lambda info: (info.offset, info.nbytes)):
        if info.offset != position:
            code, what = (
                ("E-GGUF-OVERLAP", "begins within")
                if info.offset < position
                else ("E-GGUF-GAP", "leaves a gap after it")
            )
            why = f"tensor {info.name!r} {what} {before}"
            raise FormatError(
                code,
                header.source.path,
                why,
                at=info.at,
                expected=f"{position:,}",
                found=f"{info.offset:,}",
                hint=DAMAGED,
            )
        missing = header.start + info.offset + info.nbytes - header.source.size
        if missing > 0 and info.nbytes:
            raise FormatError(
                "E-GGUF-TRUNCATED",
                header.source.path,
                f"the last {counted(missing, 'byte')} of tensor {info.name!r} are missing",
                at=header.source.size,
                expected=f"{counted(header.source.size + missing, 'byte')}",
                found=f"{header.source.size:,}",
                hint=TRUNCATED,
            )
        position, before = padded(info.offset + info.nbytes, header.alignment), f"tensor {info.name!r}"


def _little_endian(region: Region, info: TensorInfo, header: Header) -> Storage:
    if not isinstance(info.dtype, BlockType):
        size = info.dtype.bits // 8
        return region if size == 1 else swapped(region, size)
    if info.dtype.name in NO_BYTE_ORDER:
        why = f"tensor {info.name!r} of type {info.dtype.name} has no known big-endian layout"
        hint = "Convert the original model again on a little-endian machine"
        raise UnsupportedError("E-GGUF-ENDIAN", header.source.path, why, at=info.at, hint=hint)
    return swapped_blocks(region, info.dtype)


def text_region(header: Header, key: str, value: Meta) -> Region | None:
    """Offset of the bytes of a string value; None for other values."""
    if not isinstance(value, str):
        return None
    start = header.where[key] + (4 if header.version == 1 else 8)
    return Region(header.source, start, len(value.encode()))
