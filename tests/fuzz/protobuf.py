"""Mutations of Protocol Buffers messages: of any field, by reflection over descriptors, and of their bytes as they are
encoded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

EXTREME = (0, 1, -1, 2, 3, 7, 255, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"), 2.0**31)
TEXTS = (
    "",
    "x",
    "y",
    "ai.onnx",
    "com.microsoft",
    "../../etc/passwd",
    "\x1b[31m",
    "a" * 1000,
    "\u202e",
    "Loop",
    "If",
    "Add",
    "Constant",
)
CODES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 21, 23, 24, 26, 99)
"""Numbers of dtypes and attribute types."""
INT32_KINDS = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_SINT32)
FLOAT_KINDS = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)
Place = tuple[Any, FieldDescriptor]


def places(message: Any) -> list[Place]:
    """Every message inside one, itself included, with each field that is set."""
    found = []
    pending = [message]
    while pending:
        inner = pending.pop()
        for field, value in inner.ListFields():
            found.append((inner, field))
            if field.message_type is not None:
                pending += value if field.is_repeated else [value]
    return found


def mutate(message: Any, donor: Any, draw: random.Random) -> None:
    """Change one field of a message in place; `donor` gives parts to splice in."""
    inner, field = draw.choice(places(message))
    if draw.random() < 0.1:
        field = draw.choice(inner.DESCRIPTOR.fields)
    value = getattr(inner, field.name)
    if field.message_type is not None:
        _submessage(inner, field, value, message, donor, draw)
    elif field.is_repeated:
        _numbers(field, value, message, draw)
    elif draw.random() < 0.15:
        inner.ClearField(field.name)
    else:
        setattr(inner, field.name, _scalar(field, value, message, draw))


def _submessage(inner: Any, field: FieldDescriptor, value: Any, message: Any, donor: Any, draw: random.Random) -> None:
    """Drop, duplicate, swap, move or splice messages."""
    others = [one for root in (message, donor) for one in _of_kind(root, field.message_type)]
    other = draw.choice(others) if others else None
    if not field.is_repeated:
        if draw.random() < 0.3 or other is None:
            inner.ClearField(field.name)
        else:
            copy = type(other)()
            copy.CopyFrom(other)
            getattr(inner, field.name).CopyFrom(copy)
        return
    how = draw.randrange(5)
    if how == 0 and len(value):
        del value[draw.randrange(len(value))]
    elif how == 1 and len(value):
        value.add().CopyFrom(value[draw.randrange(len(value))])
    elif how == 2 and len(value) > 1:
        one, two = draw.randrange(len(value)), draw.randrange(len(value))
        copy = type(value[one])()
        copy.CopyFrom(value[one])
        value[one].CopyFrom(value[two])
        value[two].CopyFrom(copy)
    elif other is not None and len(value) and how == 3:
        copy = type(other)()
        copy.CopyFrom(other)
        value[draw.randrange(len(value))].CopyFrom(copy)
    elif other is not None:
        copy = type(other)()
        copy.CopyFrom(other)
        value.add().CopyFrom(copy)


def _of_kind(root: Any, kind: Any) -> Iterator[Any]:
    for inner, field in places(root):
        if field.message_type is kind:
            value = getattr(inner, field.name)
            yield from value if field.is_repeated else [value]


def _numbers(field: FieldDescriptor, value: Any, message: Any, draw: random.Random) -> None:
    """Change one of repeated numbers or texts, add or drop some, or shuffle them."""
    how = draw.randrange(8)
    if how == 0 and len(value):
        del value[draw.randrange(len(value))]
    elif how == 1:
        value.insert(draw.randint(0, len(value)), _scalar(field, _any(field), message, draw))
    elif how == 2:
        items = list(value)
        draw.shuffle(items)
        value[:] = items
    elif how == 3 and len(value):
        value.extend([value[draw.randrange(len(value))]] * draw.choice((1, 2, 70)))
    elif how == 4:
        value[:] = [_scalar(field, _any(field), message, draw)] * len(value)
    elif len(value):
        index = draw.randrange(len(value))
        value[index] = _scalar(field, value[index], message, draw)


def _any(field: FieldDescriptor) -> Any:
    return b"" if field.type == FieldDescriptor.TYPE_BYTES else "" if field.type == FieldDescriptor.TYPE_STRING else 0


def _scalar(field: FieldDescriptor, value: Any, message: Any, draw: random.Random) -> Any:
    """Another value of a field: an extreme one, one near, or one that stands elsewhere."""
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _bytes(value, draw)
    if field.type == FieldDescriptor.TYPE_STRING:
        names = [
            each
            for inner, other in places(message)
            if other.type == FieldDescriptor.TYPE_STRING
            for each in (getattr(inner, other.name) if other.is_repeated else [getattr(inner, other.name)])
        ]
        return draw.choice(names) if names and draw.random() < 0.6 else draw.choice(TEXTS)
    if field.type in FLOAT_KINDS:
        return draw.choice(FLOATS)
    number = draw.choice(
        (value + 1, value - 1, value * 2, draw.choice(CODES), draw.choice(EXTREME), draw.choice(EXTREME))
    )
    low, high = (-(2**31), 2**31 - 1) if field.type in INT32_KINDS else (-(2**63), 2**63 - 1)
    if field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_UINT32):
        low, high = 0, 2**64 - 1 if field.type == FieldDescriptor.TYPE_UINT64 else 2**32 - 1
    number = min(max(number, low), high)
    known = field.enum_type
    return number if known is None or number in known.values_by_number else draw.choice(list(known.values_by_number))


def _bytes(value: bytes, draw: random.Random) -> bytes:
    how = draw.randrange(6)
    if how == 0:
        return value[: draw.randint(0, len(value))]
    if how == 1:
        return value + bytes(draw.choice((1, 8, 1000)))
    if how == 2 and value:
        number = draw.choice(EXTREME) % 2**64
        at = draw.randrange(0, len(value), 8) if len(value) >= 8 else 0
        return (value[:at] + number.to_bytes(8, "little") + value[at + 8 :])[: len(value)]
    if how == 3:
        return draw.choice((b"", b"\xff" * len(value), bytes(len(value)), draw.choice(TEXTS).encode()))
    return garbled(value, draw)


def varint(value: int) -> bytes:
    """A natural number as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


WIRE = (
    b"\x0b\x0c",
    b"\x3b\x3c",
    b"\x08" + b"\xff" * 9 + b"\x01",
    b"\x08" + b"\x80" * 20 + b"\x00",
    b"\x08\x80\x80\x80\x00",
    b"\x0a\xff\xff\xff\xff\x0f",
    varint(99 << 3) + b"\x05",
    varint(99 << 3 | 2) + b"\x03abc",
    varint(536870911 << 3 | 5) + b"abcd",
    varint(99 << 3 | 1) + b"12345678",
    b"\x00\x00",
    b"\x0f",
    b"\x38\x01",
    b"\x3a\x00",
    b"\x42\x02\x10\x11",
)
"""Groups, overlong and overflowing varints, unknown fields of every wire type, field 0, wire type 7, known fields of
wrong types and twice."""


def garbled(data: bytes, draw: random.Random) -> bytes:
    """Encoded bytes changed in one place: flipped, cut, repeated, or with odd fields put in."""
    if not data:
        return data
    at, how = draw.randrange(len(data)), draw.randrange(7)
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
    if how == 2:
        return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
    if how == 3:
        end = draw.randint(at, min(len(data), at + 64))
        return data[:end] + data[at:]
    if how == 4:
        return data[:at] + data[min(len(data), at + draw.randint(1, 16)) :]
    where = draw.choice((0, at, len(data)))
    return data[:where] + draw.choice(WIRE) + data[where:]
