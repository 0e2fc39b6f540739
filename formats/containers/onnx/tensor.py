"""ONNX tensors: raw bytes, typed fields, external files, sparse tensors and strings, all read lazily."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....runtime.base.errors import FormatError, LimitError, UnsafeFileError, UnsupportedError
from ....runtime.base.limits import current
from ....runtime.tensor.dtype import BY_ONNX, I64, STRING, DType
from ....runtime.tensor.element_packing import nbytes
from ....runtime.tensor.file import Source, contained
from ....runtime.tensor.storage import Derived, Held, Region, Storage
from ....runtime.tensor.stored_tensor import StoredTensor
from .protobuf import Memory, Span
from .schema import ELEMENT_WIRE, Message

if TYPE_CHECKING:
    import numpy as np

MAX_DIMS = 64
MAX_ELEMENTS = 1 << 60
"""Limit of elements, also with zero-length dimensions: below what numpy can index."""
EXTERNAL = 1
TYPED = {
    "f32": "float_data",
    "c64": "float_data",
    "f64": "double_data",
    "c128": "double_data",
    "i64": "int64_data",
    "u64": "uint64_data",
    "u32": "uint64_data",
}
"""The typed field of each dtype; all others, and the bit patterns of small floats, are in int32_data."""
DATA_FIELDS = ("raw_data", *ELEMENT_WIRE, "string_data")
STRING_COST = 64
"""Memory of a string in an array, and overhead in storage, in bytes."""
EXTERNAL_KEYS = {"location", "offset", "length", "checksum", "basepath"}
NUMBER = re.compile(r"[0-9]{1,19}")


class Text(StoredTensor):
    """An in-memory string tensor. Its bytes are each string's UTF-8 after its length (8 bytes)."""

    __slots__ = ("texts",)

    def __init__(self, texts: np.ndarray) -> None:
        self.dtype = STRING
        self.shape = texts.shape
        encoded = [str(text).encode("utf-8", "surrogateescape") for text in texts.reshape(-1)]
        self.storage = Held(b"".join(len(text).to_bytes(8, "little") + text for text in encoded))
        self.texts = texts

    @property
    def unit(self) -> int:
        return 1

    def numpy(self) -> np.ndarray:
        return self.texts


class Sparse(StoredTensor):
    """A sparse tensor: only nonzero elements are stored.

    Attributes:
        values: one-dimensional.
        indices: where they are: counted in row-major order (1-D), or one coordinate for each dimension (2-D); in order.
    """

    __slots__ = ("indices", "values")

    def __init__(self, values: StoredTensor, indices: StoredTensor, shape: tuple[int, ...]) -> None:
        size = nbytes(values.dtype, shape)
        assert size is not None
        super().__init__(values.dtype, shape, Derived(size, max(1, size), self._dense))
        self.values = values
        self.indices = indices

    def _dense(self, start: int, stop: int) -> memoryview:
        """All elements; LimitError where they are more than may be held."""
        import numpy

        from ....runtime.tensor.element_packing import pack

        if self.nbytes > current().memory:
            why = (
                f"a sparse tensor of {self.dtype} {list(self.shape)} has {self.nbytes:,} bytes when it is dense, "
                f"{current().memory:,} are allowed"
            )
            raise LimitError("E-LIMIT-MEMORY", None, why, hint="Raise it with --limit memory=8GiB")
        dense = numpy.zeros(self.count, self.dtype.as_numpy())
        dense[positions(self.indices.numpy(), self.shape)] = self.values.numpy()
        return memoryview(pack(dense, self.dtype))[start:stop]


def positions(indices: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Row-major indices from either form of sparse indices."""
    import numpy

    if indices.ndim == 1:
        return indices
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return indices @ numpy.array(strides, numpy.int64)


class Files:
    """The model file and the external files with its tensors' data, each opened once.

    Attributes:
        paths: those next to it, in the order in which they were met.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.paths: list[str] = []
        self._open: dict[str, Source] = {}

    def span(self, span: Span) -> Storage:
        """Bytes of the model file itself."""
        if isinstance(self.source, Memory):
            return Held(memoryview(self.source.data)[span.at : span.at + span.nbytes])
        return Region(self.source, span.at, span.nbytes)

    def beside(self, location: str, at: int) -> Source:
        """The opened external file of a tensor."""
        if location not in self._open:
            if isinstance(self.source, Memory):
                why = f"a model in memory has no folder that could hold {location!r}"
                raise FormatError("E-ONNX-EXTERNAL", self.source.path, why, at=at)
            path = contained(self.source.directory, location, self.source.path)
            opened = Source(path)
            if _links(opened) > 1:
                why = f"names the file {location!r}, which has a second name (a hard link) that may be anywhere"
                raise UnsafeFileError(
                    "E-PATH-ESCAPE", self.source.path, why, at=at, hint="Replace it by a copy of itself"
                )
            self._open[location] = opened
            self.paths.append(opened.path)
        return self._open[location]


def _links(source: Source) -> int:
    import os

    return os.fstat(source.fd).st_nlink


def tensor_of(message: Message, files: Files) -> StoredTensor:
    """The tensor of a TensorProto, its data still in the file."""
    shape = shape_of(message, files)
    number = message.get("data_type", 0)
    dtype = BY_ONNX.get(number)
    if dtype is None:
        if not number:
            raise _tensor_error(message, files, "lacks a data type")
        why = f"tensor {message.name()!r} has the unknown data type {number}"
        hint = "It may be from a later version of the standard"
        raise UnsupportedError("E-ONNX-DTYPE", files.source.path, why, at=message.at, hint=hint)
    if "segment" in message:
        why = f"tensor {message.name()!r} is stored in segments, which nothing reads"
        raise UnsupportedError("E-ONNX-SEGMENT", files.source.path, why, at=message.at)
    if message.get("data_location", 0) == EXTERNAL:
        return StoredTensor(dtype, shape, _external(message, dtype, shape, files))
    given = [
        name
        for name in DATA_FIELDS
        if any(item.nbytes if isinstance(item, Span) else True for item in message.get(name, ()))
    ]
    if len(given) > 1:
        raise _tensor_error(message, files, f"has its values twice, in {' and '.join(given)}")
    if dtype == STRING:
        return _texts(message, shape, files)
    spans = message.get(given[0], []) if given else []
    size = nbytes(dtype, shape)
    assert size is not None
    if not given or given == ["raw_data"]:
        have = spans[0].nbytes if spans else 0
        if have != size:
            raise _tensor_error(
                message,
                files,
                f"of {dtype.name} {list(shape)} has the wrong number of bytes",
                expected=f"{size:,}",
                found=f"{have:,}",
            )
        return StoredTensor(dtype, shape, files.span(spans[0]) if spans else Held(b""))
    wanted = TYPED.get(dtype.name, "int32_data")
    if given != [wanted]:
        raise _tensor_error(message, files, f"of {dtype.name} has its values in {given[0]}", expected=wanted)
    return StoredTensor(dtype, shape, _typed(message, spans, wanted, dtype, size, files))


def shape_of(message: Message, files: Files) -> tuple[int, ...]:
    """The dims of a tensor or sparse tensor."""
    dims = message.get("dims", [])
    if len(dims) > MAX_DIMS or any(dim < 0 for dim in dims) or math.prod(dim or 1 for dim in dims) >= MAX_ELEMENTS:
        raise _tensor_error(message, files, f"has the impossible shape {str(dims)[:80]}")
    return tuple(dims)


def _tensor_error(message: Message, files: Files, why: str, **sides: Any) -> FormatError:
    return FormatError("E-ONNX-TENSOR", files.source.path, f"tensor {message.name()!r} {why}", at=message.at, **sides)


def _texts(message: Message, shape: tuple[int, ...], files: Files) -> Text:
    import numpy

    texts = message.get("string_data", [])
    if len(texts) != math.prod(shape) or message.get("raw_data"):
        raise _tensor_error(
            message,
            files,
            f"of strings {list(shape)} has the wrong number of strings",
            expected=math.prod(shape),
            found=len(texts),
        )
    flat = numpy.empty(len(texts), object)
    flat[:] = [text.decode("utf-8", "surrogateescape") for text in texts]
    return Text(flat.reshape(shape))


def _typed(message: Message, spans: list[Span], name: str, dtype: DType, size: int, files: Files) -> Storage:
    """Elements of a typed field: floats as stored, integers as varints."""
    have = sum(span.nbytes for span in spans)
    entries = size if dtype.bits < 8 else math.prod(message.get("dims", []))
    fits = have == size if ELEMENT_WIRE[name] else entries <= have <= 10 * entries
    if not fits:
        raise _tensor_error(
            message, files, f"of {dtype.name} {message.get('dims', [])} does not have that many values in {name}"
        )
    if ELEMENT_WIRE[name] and len(spans) == 1:
        return files.span(spans[0])

    def read(start: int, stop: int) -> memoryview:
        data = b"".join(bytes(storage.read(0, storage.nbytes)) for storage in map(files.span, spans))
        if not ELEMENT_WIRE[name]:
            width = max(1, dtype.bits // 8)
            values = varints(data, entries)
            if values is None:
                raise _tensor_error(message, files, f"does not have {entries:,} values in {name}")
            if dtype.kind == "bool":
                values = (values != 0).astype("<u8")
            data = values.view("u1").reshape(-1, 8)[:, :width].tobytes()
        return memoryview(data)[start:stop]

    return Derived(size, max(1, size), read, key=(files.source.identity, *spans))


def varints(data: bytes, count: int) -> np.ndarray | None:
    """Exactly `count` varints as little-endian 64-bit integers; None if there are more, fewer, or overlong ones."""
    import numpy

    octets = numpy.frombuffer(data, numpy.uint8)
    ends = numpy.flatnonzero(octets < 0x80)
    if len(ends) != count or (len(octets) and octets[-1] >= 0x80):
        return None
    starts = numpy.concatenate(([0], ends[:-1] + 1))[:count]
    lengths = ends - starts + 1
    longest = int(lengths.max(initial=0))
    if longest > 10:
        return None
    values = numpy.zeros(count, "<u8")
    for index in range(longest):
        reaching = lengths > index
        values[reaching] |= (octets[starts[reaching] + index] & 0x7F).astype("<u8") << numpy.uint64(7 * index)
    return values


def _external(message: Message, dtype: DType, shape: tuple[int, ...], files: Files) -> Storage:
    entries: dict[str, str] = {}
    for entry in message.get("external_data", []):
        key = entry.get("key", "")
        if key not in EXTERNAL_KEYS or key in entries:
            raise _tensor_error(message, files, f"has the unknown or repeated key {key[:40]!r} in external_data")
        entries[key] = entry.get("value", "")
    if dtype == STRING or any(name in message for name in DATA_FIELDS):
        raise _tensor_error(
            message, files, "has its values in another file and cannot have them there, or has them here too"
        )
    offset, size = _number(message, entries, "offset", files), nbytes(dtype, shape)
    assert size is not None
    length = _number(message, entries, "length", files) if "length" in entries else size
    if length != size:
        why = f"of {dtype.name} {list(shape)} has the wrong length in external_data"
        raise _tensor_error(message, files, why, expected=f"{size:,}", found=f"{length:,}")
    if not entries.get("location"):
        raise _tensor_error(message, files, "does not name the file of its values")
    source = files.beside(entries["location"], message.at)
    if offset + size > source.size:
        why = f"tensor {message.name()!r} claims {size:,} bytes at {offset:,}, the file has {source.size:,}"
        hint = "The file is truncated, or belongs to another model; download both again"
        raise FormatError("E-ONNX-EXTERNAL", source.path, why, at=min(offset, source.size), hint=hint)
    return Region(source, offset, size)


def _number(message: Message, entries: dict[str, str], key: str, files: Files) -> int:
    text = entries.get(key, "0")
    if not NUMBER.fullmatch(text):
        raise _tensor_error(
            message, files, f"has the {key} {text[:40]!r} in external_data, which is not a non-negative integer"
        )
    return int(text)


def sparse_of(message: Message, files: Files) -> tuple[str, StoredTensor]:
    """The name and value of a SparseTensorProto, whose indices are read and checked; strings are dense, empty ones
    where none are given."""
    import numpy

    if "values" not in message or "indices" not in message:
        raise _tensor_error(message, files, "is sparse and lacks its values or indices")
    parts = [message["values"], message["indices"]]
    name, shape = parts[0].name(), shape_of(message, files)
    values, indices = (tensor_of(part, files) for part in parts)
    if (
        len(values.shape) != 1
        or indices.dtype != I64
        or indices.shape not in ((values.count,), (values.count, len(shape)))
    ):
        raise _tensor_error(parts[0], files, "is sparse and its indices do not match its values")
    files.source.budget.charge(indices.nbytes, f"the indices of {name!r}", at=message.at)
    places = indices.numpy()
    if places.ndim == 2 and ((places < 0) | (places >= shape)).any():
        raise _tensor_error(parts[0], files, "is sparse and has indices out of its shape")
    places = positions(places, shape)
    if places.size and (places.min() < 0 or places.max() >= math.prod(shape) or (places[1:] <= places[:-1]).any()):
        raise _tensor_error(
            parts[0], files, "is sparse and has indices that are out of its shape, repeated or out of order"
        )
    if not isinstance(values, Text):
        return name, Sparse(values, indices, shape)
    files.source.budget.charge(math.prod(shape) * STRING_COST, f"the strings of {name!r}", at=message.at)
    dense = numpy.full(math.prod(shape), "", object)
    dense[places] = values.texts
    return name, Text(dense.reshape(shape))
