"""PyTorch zip writer, without torch: a `data.pkl` that torch's restricted unpickler reads, and one member per tensor.

Source: `_save` of torch's `torch/serialization.py`, and what torch itself writes for each dtype.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from ....runtime.base.errors import UnsupportedError
from ....runtime.contract.format import FileLayout
from ....runtime.tensor.dtype import DType
from ....runtime.tensor.stored_tensor import StoredTensor
from ..zip import Entry, layout
from .tensor_records import STORAGES

ALIGNMENT = 64
ROOT = "archive"
VERSION = b"3\n"
CLASSES = {dtype: f"{name}Storage" for name, dtype in STORAGES.items()}
PERSISTENT, REDUCE, MARK, TUPLE, STOP = b"Q", b"R", b"(", b"t", b"."


def file(name: str, tensors: Sequence[tuple[str, StoredTensor]], metadata: dict[str, str]) -> FileLayout:
    """An archive of tensors, in order, and of metadata that torch ignores."""
    entries = archive_entries(pickled(tensors), [tensor for _, tensor in tensors], metadata)
    return layout(name, entries, alignment=ALIGNMENT)


def archive_entries(
    data: bytes, tensors: Sequence[StoredTensor], metadata: dict[str, str] | None = None
) -> list[Entry]:
    """The members of an archive: a pickle, and the storages 0, 1, 2 ... that it refers to."""
    entries = [Entry(f"{ROOT}/data.pkl", data, None), Entry(f"{ROOT}/byteorder", b"little", None)]
    entries += [Entry(f"{ROOT}/data/{key}", b"", tensor) for key, tensor in enumerate(tensors)]
    if metadata:
        entries.append(Entry(f"{ROOT}/metadata.json", json.dumps(metadata, sort_keys=True, indent=1).encode(), None))
    return [*entries, Entry(f"{ROOT}/version", VERSION, None)]


def pickled(tensors: Sequence[tuple[str, StoredTensor]]) -> bytes:
    """The pickle (protocol 2) of an OrderedDict of tensors whose storages are called 0, 1, 2 ..."""
    writer = PickleWriter()
    parts = [b"\x80\x02", writer.empty(), MARK]
    for key, (name, tensor) in enumerate(tensors):
        parts += [text(name), writer.tensor(name, tensor, str(key))]
    return b"".join([*parts, b"u", STOP])


class PickleWriter:
    """Names and strings that repeat are memoized at their first use."""

    def __init__(self) -> None:
        self.memo: dict[bytes, int] = {}

    def once(self, code: bytes) -> bytes:
        """`code` and a memo entry for what it pushes; afterwards the memo entry."""
        if code in self.memo:
            return b"h" + bytes([self.memo[code]])
        self.memo[code] = len(self.memo)
        return code + b"q" + bytes([self.memo[code]])

    def name(self, module: str, name: str) -> bytes:
        return self.once(f"c{module}\n{name}\n".encode())

    def empty(self) -> bytes:
        """An empty OrderedDict."""
        return self.name("collections", "OrderedDict") + b")R"

    def tensor(self, name: str, tensor: StoredTensor, key: str, *, requires_grad: bool = False) -> bytes:
        """The call that rebuilds a tensor; dtypes that torch got lately name themselves next to an untyped storage."""
        assert tensor.dtype.torch is not None
        typed = CLASSES.get(tensor.dtype.torch)
        shape = torch_shape(name, tensor)
        count = tensor.nbytes if typed is None else tensor.count
        storage = self.name("torch.storage", "UntypedStorage") if typed is None else self.name("torch", typed)
        reference = [
            MARK,
            self.once(text("storage")),
            storage,
            text(key),
            self.once(text("cpu")),
            integer(count),
            TUPLE,
            PERSISTENT,
        ]
        view = [
            integer(0),
            _integers(shape),
            _integers(_strides(shape)),
            b"\x88" if requires_grad else b"\x89",
            self.empty(),
        ]
        dtype = [] if typed is not None else [self.name("torch", tensor.dtype.torch)]
        function = self.name("torch._utils", "_rebuild_tensor_v2" if typed is not None else "_rebuild_tensor_v3")
        return b"".join([function, MARK, *reference, *view, *dtype, TUPLE, REDUCE])


def torch_shape(name: str, tensor: StoredTensor) -> tuple[int, ...]:
    """The shape as torch counts it: it holds two 4-bit numbers in one element."""
    shape, dtype = tensor.shape, tensor.dtype
    if not _is_paired(dtype):
        return shape
    if not shape or shape[-1] % 2:
        why, hint = (
            f"tensor {name!r} of {dtype} {list(shape)} needs an even last dimension in torch",
            "Write safetensors, or cast it",
        )
        raise UnsupportedError("E-PTH-PAIRS", None, why, hint=hint)
    return (*shape[:-1], shape[-1] // 2)


def _is_paired(dtype: DType) -> bool:
    return dtype.bits == 4


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for length in reversed(shape[1:]):
        strides.append(strides[-1] * max(1, length))
    return tuple(reversed(strides)) if shape else ()


def text(value: str) -> bytes:
    """The opcode that pushes a string."""
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value: int) -> bytes:
    """The opcode that pushes an integer."""
    if 0 <= value < 1 << 8:
        return b"K" + struct.pack("<B", value)
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    head = b"\x8a" + bytes([len(data)]) if len(data) < 1 << 8 else b"\x8b" + struct.pack("<i", len(data))
    return head + data


def _integers(values: tuple[int, ...]) -> bytes:
    """A tuple of non-negative integers."""
    return MARK + b"".join(map(integer, values)) + TUPLE if values else b")"
