"""PyTorch tensors from inert pickle records: storage, view and dtype; data is read lazily.

Source: torch's `torch/_utils.py` (the `_rebuild_*` functions), `torch/_tensor.py`, `torch/storage.py` and
`torch/serialization.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.base.units import counted
from ....runtime.tensor.dtype import BY_TORCH, DType
from ....runtime.tensor.storage import Derived, Held, Region, Storage
from ....runtime.tensor.stored_tensor import StoredTensor
from ....runtime.tensor.strided import is_row_order, strided, swapped
from ..pickle.cursor import DAMAGED
from ..pickle.machine import Global, Persistent, Record
from ..pickle.numpy_records import array
from .quantized import QUANTIZED, QuantizedType, dequantized

MAX_DIMS = 64
STORAGES = {
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexDouble": "complex128",
    "ComplexFloat": "complex64",
    "QInt8": "qint8",
    "QInt32": "qint32",
    "QUInt8": "quint8",
    "QUInt4x2": "quint4x2",
    "QUInt2x4": "quint2x4",
}
UNTYPED = frozenset(
    {
        "torch.storage.UntypedStorage",
        "torch.storage._UntypedStorage",
        "torch.UntypedStorage",
        "torch.cuda.UntypedStorage",
    }
)
STORAGE_CLASSES = {
    f"{module}.{name}Storage": dtype
    for module in ("torch", "torch.cuda", "torch.storage")
    for name, dtype in STORAGES.items()
}
TENSOR_CLASSES = frozenset(
    [
        "torch.Tensor",
        *(
            f"{module}.{name}Tensor"
            for module in ("torch", "torch.cuda")
            for name in STORAGES
            if not name.startswith("Q")
        ),
    ]
)
NO_VALUES = {
    "torch._utils._rebuild_sparse_tensor": "a sparse tensor",
    "torch._utils._rebuild_sparse_csr_tensor": "a sparse tensor",
    "torch._utils._rebuild_nested_tensor": "a nested tensor",
    "torch._utils._rebuild_meta_tensor_no_storage": "a tensor on the meta device, which holds no values",
    "torch._utils._rebuild_wrapper_subclass": "a tensor subclass without storage",
}
WRAPPERS = {
    "torch._utils._rebuild_parameter": 0,
    "torch._utils._rebuild_parameter_with_state": 0,
    "torch.nn.parameter.Parameter": 0,
    "torch.nn.Parameter": 0,
    "torch.nn.parameter.Buffer": 0,
    "torch.autograd.variable.Variable": 0,
}
"""Records whose first argument is the tensor."""
TYPED = ("torch._tensor._rebuild_from_type_v2", "torch._tensor._rebuild_from_type")
COPIES = ("torch._utils._rebuild_device_tensor_from_cpu_tensor",)
FROM_NUMPY = ("torch._utils._rebuild_device_tensor_from_numpy", "torch._utils._rebuild_xla_tensor")
SHELLS = frozenset(
    [f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)]
    + ["bits8", "bits16", "bits1x8", "bits2x4", "bits4x2", *QUANTIZED]
)
SCHEMES = frozenset(
    f"torch.per_{kind}"
    for kind in (
        "tensor_affine",
        "tensor_symmetric",
        "channel_affine",
        "channel_symmetric",
        "channel_affine_float_qparams",
    )
)
SCRIPT_VALUES = frozenset(
    f"torch.jit._pickle.{name}"
    for name in (
        "build_intlist",
        "build_doublelist",
        "build_boollist",
        "build_tensorlist",
        "restore_type_tag",
        "build_complexlist",
    )
)
"""TorchScript's typed lists: the value is the first argument."""


@dataclass(frozen=True)
class StorageRef:
    """The fields of a storage's persistent id: torch dtype name (uint8 for an untyped one), key, elements, and the
    view."""

    dtype: str
    key: Any
    count: int
    first: int
    length: int

    @property
    def itemsize(self) -> int:
        return itemsize(self.dtype)


Reference = tuple[StorageRef, Persistent]
"""A storage and where it is named."""


def itemsize(torch_dtype: str) -> int:
    """Bytes of one element as torch counts them; packed types count a byte."""
    if torch_dtype in QUANTIZED:
        return QUANTIZED[torch_dtype].itemsize
    return max(1, BY_TORCH[torch_dtype].bits // 8)


class Rebuilder:
    """Builds tensors from records.

    Args:
        file: the name for errors.
        locate: the storage of a key, with at least ``count * itemsize`` bytes, or the view of it that is meant.
        big_endian: whether the storages are.
        tensors: records of the tensors that persistent ids of the oldest format refer to.
    """

    def __init__(
        self,
        file: str,
        locate: Callable[[StorageRef, Persistent], Storage],
        *,
        big_endian: bool = False,
        tensors: Mapping[int, Record] | None = None,
    ) -> None:
        self.file = file
        self.locate = locate
        self.big_endian = big_endian
        self.tensors = tensors
        self._scheme: str | None = None

    def resolve(self, value: Any) -> Any:
        """The record of the tensor that a persistent id refers to; every other value as it is.

        Raises:
            FormatError: the id is neither a tensor's nor a storage's.
        """
        if not isinstance(value, Persistent):
            return value
        if self.tensors is None:
            storage_ref(value, self.file)
            return value
        key = int(value.id) if isinstance(value.id, str) and re.fullmatch(r"\d{1,20}", value.id) else value.id
        if type(key) is not int or key not in self.tensors:
            raise self.malformed("E-PKL-PERSISTENT", "refers to a tensor that is not in the archive", value)
        return self.tensors[key]

    def is_tensor(self, record: Record) -> bool:
        """Whether a record stands for a tensor, one that we cannot hold included."""
        name = record.name
        return (
            name in _REBUILD
            or name in NO_VALUES
            or name in WRAPPERS
            or name in TYPED
            or (name in TENSOR_CLASSES and record.state is not None)
        )

    def rebuild(self, record: Record) -> tuple[StoredTensor, str | None]:
        """The tensor of a record, and how it was quantized; UnsupportedError for kinds that have no plain values."""
        self._scheme = None
        return self._tensor(record), self._scheme

    def _tensor(self, record: Record, *, plain: bool = False) -> StoredTensor:
        """`plain` refuses tensors that are made of other tensors, so that none is made of itself."""
        seen = 0
        while record.name in WRAPPERS or record.name in TYPED:
            record, seen = self._inner(record), seen + 1
            if seen > MAX_DIMS:
                raise self.malformed("E-PTH-TENSOR", "a tensor is wrapped too many times", record)
        if record.name in NO_VALUES:
            why = f"holds {NO_VALUES[record.name]}"
            raise UnsupportedError("E-PTH-KIND", self.file, why, at=record.at, hint="Save it as a dense tensor")
        if record.name in TENSOR_CLASSES and isinstance(record.state, tuple) and len(record.state) >= 4:
            return self._plain(record, record.state[:4])
        if record.name not in _REBUILD or (plain and record.name in _OF_OTHERS):
            raise self.malformed(
                "E-PTH-TENSOR", f"makes a tensor of {record.name or 'something'}, which does not make one", record
            )
        return _REBUILD[record.name](self, record)

    def malformed(self, code: str, why: str, record: Record | Persistent, **sides: Any) -> FormatError:
        return FormatError(code, self.file, why, at=record.at, hint=DAMAGED, **sides)

    def _inner(self, record: Record) -> Record:
        inner: Any = record.arguments[WRAPPERS[record.name]] if record.name in WRAPPERS and record.arguments else None
        if record.name in TYPED and len(record.arguments) >= 3:
            function, _, arguments = record.arguments[:3]
            if isinstance(function, Global) and isinstance(arguments, tuple):
                inner = Record(function, arguments, {}, record.at)
        inner = self.resolve(inner)
        if not isinstance(inner, Record):
            raise self.malformed("E-PTH-TENSOR", "a parameter does not hold a tensor", record)
        return inner

    def reference(self, value: Any, record: Record) -> Reference:
        """The storage that a tensor names."""
        if not isinstance(value, Persistent):
            raise self.malformed("E-PTH-STORAGE-ID", "a tensor names no storage", record)
        return storage_ref(value, self.file), value

    def _plain(
        self, record: Record, arguments: tuple[Any, ...], dtype_name: str | None = None, metadata: Any = None
    ) -> StoredTensor:
        reference = self.reference(arguments[0], record)
        name = dtype_name or reference[0].dtype
        dtype = BY_TORCH.get(name)
        if dtype is None:
            hint = "Cast it to another dtype in torch first"
            raise UnsupportedError("E-PTH-DTYPE", self.file, f"holds a tensor of torch.{name}", at=record.at, hint=hint)
        shape, strides = self.view(record, arguments)
        storage = self.part(record, reference, itemsize(name), dtype, arguments[1], shape, strides)
        if isinstance(metadata, dict):
            storage = _flipped(storage, dtype, conj=bool(metadata.get("conj")), neg=bool(metadata.get("neg")))
        if dtype.bits == 4:
            shape = (*shape[:-1], shape[-1] * 2) if shape else (2,)
        return StoredTensor(dtype, shape, storage)

    def view(self, record: Record, arguments: tuple[Any, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides, when they and the offset are natural numbers that fit each other."""
        offset, shape, strides = arguments[1:4]
        good = (
            isinstance(shape, tuple | list)
            and isinstance(strides, tuple | list)
            and len(shape) == len(strides) <= MAX_DIMS
        )
        if not good or not all(type(number) is int and 0 <= number < 1 << 62 for number in (offset, *shape, *strides)):
            raise self.malformed(
                "E-PTH-VIEW", "a tensor has an offset, shape or strides that are not non-negative integers", record
            )
        if math.prod(shape) >= 1 << 60:
            raise self.malformed("E-PTH-VIEW", f"a tensor has {math.prod(shape):.3g} elements", record)
        return tuple(shape), tuple(strides)

    def part(
        self,
        record: Record,
        reference: Reference,
        size: int,
        dtype: DType,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> Storage:
        """The bytes of a view in row order, `size` bytes an element."""
        count = math.prod(shape)
        base = self.locate(*reference)
        last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
        if count and (last + 1) * size > base.nbytes:
            need, why = (
                f"{counted((last + 1) * size, 'byte')}",
                f"a tensor of shape {list(shape)} goes past its storage",
            )
            raise self.malformed("E-PTH-STORAGE", why, record, expected=need, found=f"{base.nbytes:,}")
        if not count:
            return Held(b"")
        unit = size // (2 if dtype.kind == "complex" else 1)
        if self.big_endian and unit > 1:
            whole = base if base.nbytes % unit == 0 else part_of(base, 0, base.nbytes // unit * unit)
            base = swapped(whole, unit)
        if is_row_order(shape, strides):
            return part_of(base, offset * size, count * size)
        return strided(base, size, shape, strides, offset)

    def _v2(self, record: Record) -> StoredTensor:
        return self._plain(
            record, self._arguments(record, 4), None, record.arguments[6] if len(record.arguments) > 6 else None
        )

    def _v3(self, record: Record) -> StoredTensor:
        arguments = self._arguments(record, 7)
        dtype = arguments[6]
        if not isinstance(dtype, Global) or not dtype.name.startswith("torch."):
            raise self.malformed("E-PTH-DTYPE", "a tensor lacks a dtype", record)
        return self._plain(
            record, arguments, dtype.name.removeprefix("torch."), arguments[7] if len(arguments) > 7 else None
        )

    def _arguments(self, record: Record, count: int) -> tuple[Any, ...]:
        if len(record.arguments) < count:
            raise self.malformed(
                "E-PTH-TENSOR",
                f"{record.name} has too few arguments",
                record,
                expected=count,
                found=len(record.arguments),
            )
        return record.arguments

    def _copied(self, record: Record) -> StoredTensor:
        """A tensor of a device without storages, saved as a numpy array or a tensor of the processor, and its dtype."""
        inner, dtype = self._arguments(record, 2)[:2]
        if not isinstance(inner, Record):
            raise self.malformed("E-PTH-TENSOR", "a tensor lacks values", record)
        made = array(inner, self.file) if record.name in FROM_NUMPY else self._tensor(inner, plain=True)
        wanted = BY_TORCH.get(dtype.name.removeprefix("torch.")) if isinstance(dtype, Global) else None
        return made if wanted is None or wanted is made.dtype else made.cast(wanted)

    def _quantized(self, record: Record) -> StoredTensor:
        arguments = self._arguments(record, 5)
        reference = self.reference(arguments[0], record)
        ref = reference[0]
        shape, strides = self.view(record, arguments)
        kind: QuantizedType | None = QUANTIZED.get(ref.dtype)
        parameters = arguments[4]
        if kind is None or not isinstance(parameters, tuple) or not parameters or not isinstance(parameters[0], Global):
            raise self.malformed("E-PTH-QUANTIZED", "a quantized tensor lacks a quantized storage or a scheme", record)
        made = [
            self._tensor(value, plain=True) if isinstance(value, Record) and self.is_tensor(value) else value
            for value in parameters[1:]
        ]
        if kind.packed > 1:
            if arguments[1] or not is_row_order(shape, strides):
                why = f"holds a view of a torch.{ref.dtype} tensor"
                raise UnsupportedError("E-PTH-KIND", self.file, why, at=record.at, hint="Save a contiguous copy")
            base = self.part(record, reference, 1, kind.codes, 0, (-(-math.prod(shape) // kind.packed),), (1,))
        else:
            base = self.part(record, reference, kind.itemsize, kind.codes, arguments[1], shape, strides)
        tensor, scheme = dequantized(
            base, kind, shape, made, lambda why: self.malformed("E-PTH-QUANTIZED", why, record)
        )
        self._scheme = f"torch.{ref.dtype}, {scheme}"
        return tensor


_REBUILD: Mapping[str, Callable[[Rebuilder, Record], StoredTensor]] = {
    "torch._utils._rebuild_tensor": Rebuilder._v2,
    "torch._utils._rebuild_tensor_v2": Rebuilder._v2,
    "torch._utils._rebuild_tensor_v3": Rebuilder._v3,
    "torch._utils._rebuild_qtensor": Rebuilder._quantized,
    **dict.fromkeys((*COPIES, *FROM_NUMPY), Rebuilder._copied),
}
_OF_OTHERS = frozenset(("torch._utils._rebuild_qtensor", *COPIES, *FROM_NUMPY))

TORCH_NAMES = (
    frozenset(STORAGE_CLASSES)
    | UNTYPED
    | TENSOR_CLASSES
    | SCHEMES
    | SCRIPT_VALUES
    | frozenset((*_REBUILD, *NO_VALUES, *WRAPPERS, *TYPED))
    | frozenset(f"torch.{name}" for name in (*BY_TORCH, *SHELLS))
)


def storage_ref(persistent: Persistent, file: str) -> StorageRef:
    """Parse a persistent id; FormatError if it is not a storage's."""
    given = persistent.id
    if not isinstance(given, tuple) or len(given) not in (5, 6) or given[0] != "storage":
        why = "refers to something outside the pickle that is not a storage"
        raise FormatError("E-PKL-PERSISTENT", file, why, at=persistent.at, hint=DAMAGED)
    _, kind, key, _, count = given[:5]
    name = kind.name if isinstance(kind, Global) else ""
    dtype = "uint8" if name in UNTYPED else STORAGE_CLASSES.get(name)
    if dtype is None or not isinstance(key, str | int) or type(count) is not int or not 0 <= count < 1 << 60:
        raise FormatError(
            "E-PKL-PERSISTENT", file, "refers to a storage without class, key or length", at=persistent.at, hint=DAMAGED
        )
    view = given[5] if len(given) == 6 else None
    if view is None:
        return StorageRef(dtype, key, count, 0, count)
    good = (
        isinstance(view, tuple) and len(view) == 3 and all(type(number) is int and number >= 0 for number in view[1:])
    )
    if not good or view[1] + view[2] > count:
        raise FormatError("E-PTH-VIEW", file, "a storage view goes past its storage", at=persistent.at, hint=DAMAGED)
    return StorageRef(dtype, key, count, view[1], view[2])


def part_of(storage: Storage, start: int, nbytes: int) -> Storage:
    """A byte range of a storage."""
    if (start, nbytes) == (0, storage.nbytes):
        return storage
    if isinstance(storage, Region):
        return Region(storage.source, storage.offset + start, nbytes)
    if isinstance(storage, Held):
        return Held(storage.read(start, start + nbytes))
    key = None if storage.key is None else (storage.key, start, nbytes)
    return Derived(
        nbytes,
        storage.step,
        lambda low, high: storage.read(start + low, start + high),
        key,
        sequential=storage.sequential,
    )


def _flipped(storage: Storage, dtype: DType, *, conj: bool, neg: bool) -> Storage:
    """The elements of a lazily conjugated or negated view: sign bits of the imaginary part, or of all parts,
    inverted."""
    if not conj and not neg:
        return storage
    size = dtype.bits // 16 if dtype.kind == "complex" else dtype.bits // 8
    step = math.lcm(storage.step, 2 * size if dtype.kind == "complex" else size)

    def read(start: int, stop: int) -> memoryview:
        import numpy

        parts = numpy.frombuffer(storage.read(start, stop), f"<u{size}").copy()
        sign = numpy.array(1 << (8 * size - 1), parts.dtype)
        if neg:
            parts ^= sign
        if conj:
            parts[1::2] ^= sign
        return parts.view(numpy.uint8).data

    key = None if storage.key is None else (storage.key, "conj", conj, neg)
    return Derived(storage.nbytes, step, read, key, sequential=storage.sequential)
