"""Protocol buffers for ONNX: messages decoded without reading tensor data, and encoded around it.

Source: the encoding guide of Protocol Buffers. Groups, which ONNX never used, are rejected.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from ....runtime.base.errors import FormatError, LimitError
from ....runtime.base.limits import Budget, current
from ....runtime.base.units import counted
from ....runtime.tensor.file import Source
from ....runtime.tensor.stored_tensor import StoredTensor
from .schema import ELEMENT_WIRE, MESSAGES, Field, Message

WINDOW = 1 << 13
MAX_DEPTH = 80
"""Limit of nested graphs, whatever the configured limits; a level takes a few Python stack frames."""
LEVELS = 3
"""Message levels from a graph to a graph inside it: node, attribute, graph."""
SLACK = 16
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIRE = {"int": VARINT, "float": FIXED32}
MASK = (1 << 64) - 1
NUMBER_COST = 40
"""Memory of a Python number in a list, in bytes."""


class Span(NamedTuple):
    """A byte range of the file."""

    at: int
    nbytes: int


_COUNT = itertools.count()
"""Counter that names in-memory models; an address could be reused."""


class Memory(Source):
    """An in-memory model in place of a file."""

    def __init__(self, data: bytes) -> None:
        self.path = ""
        self.data = data
        self.fd = -1
        self._open = False
        self.size = len(data)
        self.identity = (0, next(_COUNT), len(data), 0)
        self.budget = Budget("", current())

    def read(self, offset: int, nbytes: int) -> bytes:
        self._need(offset, nbytes)
        return self.data[offset : offset + nbytes]

    def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = self.read(offset, len(buffer))

    def close(self) -> None:
        """Nothing to close."""


def decode(source: Source, kind: str = "Model") -> Message:
    """The message in a file.

    Raises:
        FormatError: the encoding is broken; `at` says where.
        LimitError: it is nested too deep or holds more than the limits allow.
    """
    return _Decoder(source).run(Message(kind), 0, source.size)


def decode_part(source: Source, kind: str, at: int, end: int) -> Message:
    """The message between two offsets of a file; raises as `decode` does."""
    return _Decoder(source).run(Message(kind), at, end)


class _Decoder:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.at = 0
        self.window = b""
        self.start = 0
        self.held = 0
        self.count = 0
        self.nesting = LEVELS * min(source.budget.limits.depth, MAX_DEPTH) + SLACK

    def run(self, root: Message, at: int, end: int) -> Message:
        """Decode the fields between two offsets into `root`, and the messages inside it."""
        self.at = at
        message, fields = root, MESSAGES[root.kind]
        stack: list[tuple[Message, dict[int, Field], int]] = []
        while True:
            while self.at >= end:
                if self.at > end:
                    self.malformed(f"a field crosses the end of its {message.kind} message", end)
                if not stack:
                    self.settle()
                    return root
                message, fields, end = stack.pop()
            key = self.varint()
            wire, field = key & 7, fields.get(key >> 3)
            if field is None:
                self.skip(message, key, wire, end)
            elif wire == BYTES:
                length = self.length(end)
                if field.kind not in MESSAGES:
                    self.content(message, field, length)
                    continue
                inner = self.child(message, field, len(stack))
                stack.append((message, fields, end))
                message, fields, end = inner, MESSAGES[field.kind], self.at + length
            elif wire == WIRE.get(field.kind, ELEMENT_WIRE.get(field.name)):
                self.number(message, field, wire)
            else:
                self.malformed(f"field {field.name!r} of a {message.kind} message has the wrong wire type {wire}")

    def child(self, message: Message, field: Field, depth: int) -> Message:
        """A nested message, not yet decoded."""
        self.count += 1
        if depth >= self.nesting:
            why = f"graphs or types are nested more than {self.nesting // LEVELS} deep"
            hint = "If you trust the file, raise it with --limit depth=80"
            raise LimitError("E-ONNX-DEPTH", self.source.path, why, at=self.at, hint=hint)
        inner = Message(field.kind)
        inner.at = self.at
        if field.many:
            message.setdefault(field.name, []).append(inner)
        elif field.name in message:
            self.malformed(f"a {message.kind} message has two {field.name!r} fields")
        else:
            message[field.name] = inner
        return inner

    def content(self, message: Message, field: Field, length: int) -> None:
        """Bytes, strings, packed numbers, or data that is skipped."""
        name, kind = field.name, field.kind
        if kind == "data":
            if name == "raw_data" and name in message:
                self.malformed("a tensor has two 'raw_data' fields")
            message.setdefault(name, []).append(Span(self.at, length))
            self.count += 1
            self.at += length
            return
        if kind in WIRE:
            self.packed(message, field, length)
            return
        self.held += length + NUMBER_COST
        if length > WINDOW:
            self.settle()
        data = self.take(length)
        value: bytes | str = data
        if kind == "text":
            try:
                value = data.decode()
            except UnicodeDecodeError:
                self.malformed(f"{name!r} of a {message.kind} message is not UTF-8", self.at - length)
        elif kind == "doc":
            value = data.decode("utf-8", "surrogateescape")
        if field.many:
            message.setdefault(name, []).append(value)
        else:
            message[name] = value

    def packed(self, message: Message, field: Field, length: int) -> None:
        """Repeated numbers in one field."""
        end = self.at + length
        if field.kind == "float":
            self.held += length // 4 * NUMBER_COST
            self.settle()
            if length % 4:
                self.malformed(f"{field.name!r} holds {counted(length, 'byte')} of 4-byte numbers")
            numbers: list[Any] = list(struct.unpack(f"<{length // 4}f", self.take(length)))
        else:
            self.held += length * NUMBER_COST
            self.settle()
            numbers = []
            while self.at < end:
                numbers.append(_signed(self.varint()))
        if not field.many:
            self.malformed(
                f"field {field.name!r} of a {message.kind} message has the wrong wire type {BYTES}", end - length
            )
        message.setdefault(field.name, []).extend(numbers)

    def number(self, message: Message, field: Field, wire: int) -> None:
        """One unpacked number."""
        value: int | float | Span
        begin = self.at
        if wire == VARINT:
            value = _signed(self.varint())
        else:
            data = self.take(4 if wire == FIXED32 else 8)
            value = struct.unpack("<f", data)[0] if wire == FIXED32 else 0
        if field.kind == "data":
            value = Span(begin, self.at - begin)
        if field.many:
            self.held += NUMBER_COST
            message.setdefault(field.name, []).append(value)
        else:
            message[field.name] = value

    def skip(self, message: Message, key: int, wire: int, end: int) -> None:
        """A field of a later version of the standard, kept as raw bytes."""
        begin = self.at
        if key >> 3 == 0 or wire not in (VARINT, FIXED64, BYTES, FIXED32):
            self.malformed(f"wire type {wire} of field {key >> 3} does not occur in ONNX files")
        if wire == VARINT:
            self.varint()
        else:
            nbytes = {FIXED64: 8, FIXED32: 4}.get(wire) or self.length(end)
            self.at += nbytes
        if self.at > end:
            self.malformed("an unknown field crosses the end of its message")
        stop, self.at = self.at, begin
        self.held += stop - begin + NUMBER_COST
        self.settle()
        message.unknown += varint(key) + self.take(stop - begin)

    def length(self, end: int) -> int:
        """The length of the field that follows."""
        begin = self.at
        length = self.varint()
        if length > end - self.at:
            why = f"a field claims {counted(length, 'byte')}, {max(0, end - self.at):,} are left"
            hint = "The file is truncated or damaged; download it again"
            raise FormatError("E-ONNX-LENGTH", self.source.path, why, at=begin, hint=hint)
        return length

    def varint(self) -> int:
        """The next varint."""
        place = self.at - self.start
        if not 0 <= place < len(self.window) - 10:
            self.fill(10)
            place = 0
        window = self.window
        value = shift = 0
        for index in range(place, min(place + 10, len(window))):
            byte = window[index]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at += index + 1 - place
                if value >= 1 << 64:
                    self.malformed("a number has more than 64 bits")
                return value
            shift += 7
        why = "a number has more than 10 bytes" if len(window) - place >= 10 else "the file ends inside a number"
        raise FormatError("E-ONNX-WIRE", self.source.path, why, at=self.at)

    def take(self, nbytes: int) -> bytes:
        """The next `nbytes` bytes."""
        place = self.at - self.start
        if nbytes > self.source.size - self.at:
            self.malformed("the file ends inside a field")
        if not 0 <= place <= len(self.window) - nbytes:
            self.fill(nbytes)
            place = 0
        self.at += nbytes
        return self.window[place : place + nbytes]

    def fill(self, nbytes: int) -> None:
        """Read ahead from the position."""
        left = self.source.size - self.at
        self.window = self.source.read(self.at, min(left, max(nbytes, WINDOW)))
        self.start = self.at
        self.settle()

    def settle(self) -> None:
        """Charge the memory of decoded values to the budget."""
        self.source.budget.charge(self.held, "the model's structure", at=self.at)
        self.source.budget.entry(self.count, "messages", at=self.at)
        self.held = self.count = 0

    def malformed(self, why: str, at: int | None = None) -> NoReturn:
        raise FormatError("E-ONNX-WIRE", self.source.path, why, at=self.at if at is None else at)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def looks_like(source: Source) -> bool:
    """Whether a file consists of a model message's fields, including a version and a graph."""
    fields, at = MESSAGES["Model"], 0
    seen: set[str] = set()
    while at < source.size:
        head = source.read(at, min(20, source.size - at))
        key, used = leading(head)
        field = fields.get(key >> 3)
        if not used or field is None or len(seen) > SLACK * 1000:
            return False
        value, more = leading(head[used:])
        if not more or key & 7 != (VARINT if field.kind == "int" else BYTES):
            return False
        at += used + more + (value if key & 7 == BYTES else 0)
        seen.add(field.name)
    return at == source.size and "ir_version" in seen and bool(seen & {"graph", "functions", "opset_import"})


def leading(data: bytes) -> tuple[int, int]:
    """The varint at the start of `data` and its length; length 0 if it is incomplete."""
    value = 0
    for index, byte in enumerate(data[:10]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, index + 1
    return 0, 0


Part = bytearray | StoredTensor


def encode(message: Message) -> list[bytes | StoredTensor]:
    """The bytes of a message and the tensors among them, in order."""
    return [part if isinstance(part, StoredTensor) else bytes(part) for part in _message(message)[0]]


def _message(message: Message) -> tuple[list[Part], int]:
    """The parts and their total length. Messages nest only as deep as `decode` allows."""
    parts: list[Part] = []
    total = 0
    for number, field in MESSAGES[message.kind].items():
        if field.name in message:
            value = message[field.name]
            for item in _field(number, field, value if isinstance(value, list) else [value]):
                total += _append(parts, item)
    return parts, total + _append(parts, message.unknown)


def _field(number: int, field: Field, values: list[Any]) -> Iterator[bytes | Part]:
    tag = varint(number << 3 | WIRE.get(field.kind, BYTES))
    for value in values:
        if field.kind in MESSAGES:
            inner, nbytes = _message(value)
            yield tag + varint(nbytes)
            yield from inner
        elif field.kind in WIRE:
            yield tag + (varint(value & MASK) if field.kind == "int" else struct.pack("<f", value))
        else:
            data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
            yield tag + varint(data.nbytes if isinstance(data, StoredTensor) else len(data))
            yield data


def _append(parts: list[Part], item: bytes | Part) -> int:
    if isinstance(item, StoredTensor):
        parts.append(item)
        return item.nbytes
    if not parts or isinstance(parts[-1], StoredTensor):
        parts.append(bytearray())
    last = parts[-1]
    assert isinstance(last, bytearray)
    last += item
    return len(item)


def varint(value: int) -> bytes:
    """A non-negative integer as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
