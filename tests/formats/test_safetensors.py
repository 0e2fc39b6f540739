"""Safetensors: hostile headers, and the safetensors library as the oracle for both directions."""

import json
import struct

import pytest


def _file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HOSTILE = [
    (1, "empty", b"", "E-FILE-EMPTY"),
    (1, "seven-bytes", b"\x01" * 7, "E-ST-SHORT"),
    (2, "header-2^63", struct.pack("<Q", 1 << 63) + b"{}", "E-ST-HEADER-LENGTH"),
    (9, "overlap", _file({"a": A, "b": {**A, "data_offsets": [4, 12]}}, bytes(12)), "E-ST-OVERLAP"),
]


@pytest.mark.parametrize(("number", "name", "data", "code"), HOSTILE, ids=[f"{row[0]}-{row[1]}" for row in HOSTILE])
def test_hostile(number, name, data, code, tmp_path, sandbox):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    outcome = sandbox.outcome(path)
    assert (outcome.code, outcome.seconds < 1) == (code, True), outcome
