"""PyTorch archives of nested values: dictionaries, lists, numbers, strings and tensors, in the opcodes that
torch.load(weights_only=True) reads."""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.contract.format import FileLayout
from ....runtime.tensor.dtype import DType
from ....runtime.tensor.stored_tensor import StoredTensor
from ..zip import layout
from .writer import ALIGNMENT, MARK, REDUCE, STOP, TUPLE, PickleWriter, archive_entries, integer, text

CODE = "E-TENSOR-SAVE"
MAX_DEPTH = 200
EXPECTED = "dictionaries, lists, tuples, sets, tensors, arrays, numbers, strings, bytes and None"
CONSTANTS = {None: b"N", True: b"\x88", False: b"\x89"}


def nested_file(name: str, value: Any, tensor_of: Callable[[Any], StoredTensor | None]) -> FileLayout:
    """An archive of a nested value.

    Args:
        tensor_of: the tensor that an object is, or None for one that is not a tensor.

    Raises:
        UsageError: it holds something that such an archive cannot, or itself.
    """
    writer = _NestedWriter(tensor_of)
    data = b"".join([b"\x80\x02", writer.value(value, ()), STOP])
    return layout(name, archive_entries(data, writer.tensors), alignment=ALIGNMENT)


class _NestedWriter(PickleWriter):
    """Tensors that occur twice share their storage."""

    def __init__(self, tensor_of: Callable[[Any], StoredTensor | None]) -> None:
        super().__init__()
        self.tensor_of = tensor_of
        self.tensors: list[StoredTensor] = []
        self._keys: dict[int, int] = {}
        self._kept: list[Any] = []

    def value(self, item: Any, path: tuple[str, ...]) -> bytes:
        """The opcodes that make a value."""
        if len(path) > MAX_DEPTH:
            raise UsageError(CODE, None, f"{'.'.join(path[:4])} is nested deeper than {MAX_DEPTH}, or holds itself")
        item = item.item() if isinstance(item, np.generic) and item.dtype.kind in "biufc" else item
        kind = type(item)
        if item is None or kind is bool:
            return CONSTANTS[item]
        if kind in PLAIN:
            return PLAIN[kind](item)
        if isinstance(item, Mapping):
            return self._mapping(item, path)
        if isinstance(item, list | tuple | set | frozenset):
            return self._members(item, path)
        if isinstance(item, DType) and item.torch is not None:
            return self.name("torch", item.torch)
        if isinstance(item, bytes | bytearray):
            return self._called("_codecs", "encode", text(bytes(item).decode("latin1")), text("latin1"))
        if isinstance(item, complex):
            return self._called("builtins", "complex", _float(item.real), _float(item.imag))
        tensor = self.tensor_of(item)
        if tensor is not None:
            return self._tensor(item, tensor, path)
        for base in (int, float, str):
            if isinstance(item, base):
                return PLAIN[base](base(item))
        why = f"{'.'.join(path) or 'the value'} is {kind.__name__}, which a PyTorch file cannot hold"
        hint = "Save its state_dict()" if hasattr(item, "state_dict") else None
        raise UsageError(CODE, None, why, expected=EXPECTED, hint=hint)

    def _mapping(self, item: Mapping[Any, Any], path: tuple[str, ...]) -> bytes:
        kind = next((each for each in (OrderedDict, Counter) if isinstance(item, each)), None)
        start = b"}" if kind is None else self.name("collections", kind.__name__) + b")R"
        pairs = [self.value(key, path) + self.value(each, (*path, str(key))) for key, each in item.items()]
        return b"".join([start, MARK, *pairs, b"u"])

    def _members(self, item: Any, path: tuple[str, ...]) -> bytes:
        members = b"".join([self.value(each, (*path, str(index))) for index, each in enumerate(item)])
        if isinstance(item, list):
            return b"".join([b"]", MARK, members, b"e"])
        if isinstance(item, tuple):
            return b"".join([MARK, members, TUPLE])
        return self._called("builtins", "set", b"".join([b"]", MARK, members, b"e"]))

    def _called(self, module: str, name: str, *arguments: bytes) -> bytes:
        return b"".join([self.name(module, name), MARK, *arguments, TUPLE, REDUCE])

    def _tensor(self, item: Any, tensor: StoredTensor, path: tuple[str, ...]) -> bytes:
        if id(item) not in self._keys:
            self._keys[id(item)] = len(self.tensors)
            self._kept.append(item)
            self.tensors.append(tensor)
        recorded = bool(getattr(item, "requires_grad", False))
        made = self.tensor(".".join(path), tensor, str(self._keys[id(item)]), requires_grad=recorded)
        if type(item).__name__ != "Parameter":
            return made
        return self._called("torch._utils", "_rebuild_parameter", made, CONSTANTS[recorded], self.empty())


def _float(value: float) -> bytes:
    return b"G" + struct.pack(">d", value)


PLAIN: dict[type, Callable[[Any], bytes]] = {int: integer, float: _float, str: text}
