"""TensorBoardLogger: metrics as an event file that TensorBoard shows.

Source: TensorFlow's record_writer.h (length, masked CRC-32C of the length, data, masked CRC-32C of the data) and its
messages event.proto and summary.proto.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from .logger import FolderLogger

POLYNOMIAL = 0x82F63B78
"""Of CRC-32C (Castagnoli), bits reversed."""
MASK_DELTA = 0xA282EAD8
"""Constant that TFRecord adds to a checksum after a rotation by 15 bits."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of protocol buffers."""
_files = itertools.count()


class TensorBoardLogger(FolderLogger):
    """Writes ``events.out.tfevents.*``: one scalar for each metric and step.

    Args:
        save_dir, name, version: the folder; see `FolderLogger`.
    """

    def __init__(
        self, save_dir: str | os.PathLike[str], name: str | None = "lightning_logs", version: int | str | None = None
    ) -> None:
        super().__init__(save_dir, name, version)
        self._file: BinaryIO | None = None

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write one event with a scalar for each metric."""
        values = [
            field(1, BYTES, name.encode()) + field(2, FIXED32, struct.pack("<f", value))
            for name, value in metrics.items()
        ]
        self._write_summary(values, step)

    def write_value(self, value: bytes, step: int | None = None) -> None:
        """Write an event with one encoded value of a summary."""
        self._write_summary([value], step)

    def _write_summary(self, values: Sequence[bytes], step: int | None) -> None:
        summary = b"".join(field(1, BYTES, value) for value in values)
        self._write(field(2, VARINT, varint(step or 0)) + field(5, BYTES, summary))

    def save(self) -> None:
        """Flush written events to the operating system."""
        if self._file is not None:
            self._file.flush()

    def finalize(self, status: str) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, fields: bytes) -> None:
        now = time.time()
        if self._file is None:
            name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}.{next(_files)}"
            self._file = open(self.folder() / name, "wb")  # noqa: SIM115 (open until the run ends)
            self._file.write(record(_wall_time(now) + field(3, BYTES, b"brain.Event:2")))
        self._file.write(record(_wall_time(now) + fields))


def record(data: bytes) -> bytes:
    """Data framed by its length and check sums."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(crc32c(length))) + data + struct.pack("<I", _masked(crc32c(data)))


def crc32c(data: bytes) -> int:
    """The CRC-32C of bytes."""
    check = 0xFFFFFFFF
    for byte in data:
        check = (check >> 8) ^ _TABLE[(check ^ byte) & 0xFF]
    return check ^ 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = [_entry(byte) for byte in range(256)]


def _masked(check: int) -> int:
    return (((check >> 15) | (check << 17)) + MASK_DELTA) & 0xFFFFFFFF


def _wall_time(now: float) -> bytes:
    return field(1, FIXED64, struct.pack("<d", now))


def field(number: int, wire_type: int, data: bytes) -> bytes:
    """A field of a protocol buffer."""
    key = varint(number << 3 | wire_type)
    return key + varint(len(data)) + data if wire_type == BYTES else key + data


def varint(value: int) -> bytes:
    """An integer of a protocol buffer."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
