"""Nested values come back as they were; safetensors reads the file; what is damaged is refused."""

import json
import math
import os
import struct
import subprocess
import sys

import candle_convert as cc
import ml_dtypes
import numpy as np
import pytest
from candle_convert.tests.builders.paths import REPOSITORY
from candle_convert.training.checkpoint.nested_file import KEY, load_nested, save_nested
from safetensors.numpy import load_file

NESTED = {
    "state_dict": {"fc.weight": np.ones((2, 3), np.float32), "half": np.ones(2, ml_dtypes.bfloat16)},
    "optimizers": [{"state": {0: {"step": 3, "m": np.zeros(2)}}, "lr": 1e-3, "betas": (0.9, 0.999)}],
    "none": None,
    "text": 'quotes " and \\ and ü',
    "flags": [True, False],
    "worst": math.inf,
    "empty": [[], {}, ()],
    "scalar": np.array(4, np.int64),
    "state_dict.half": np.uint8([1]),
}


def same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def test_values_come_back(tmp_path):
    path = tmp_path / "new" / "a.ckpt"
    save_nested(NESTED, path)
    assert same(load_nested(path), NESTED)
    assert load_file(path)["state_dict.fc.weight"].tolist() == [[1, 1, 1]] * 2
    save_nested({"t": cc.ones(2, requires_grad=True), "n": np.float32(0.5), "b": cc.ones(2).bfloat16()}, path)
    assert same(load_nested(path), {"t": np.ones(2, np.float32), "n": 0.5, "b": np.ones(2, ml_dtypes.bfloat16)})
    assert [each.name for each in path.parent.iterdir()] == ["a.ckpt"]


@pytest.mark.parametrize("bad", [{"f": print}, {"s": {1, 2}}, {"d": {(1, 2): 3}}, {"o": object()}])
def test_values_that_a_file_cannot_hold(tmp_path, bad):
    with pytest.raises(cc.UsageError, match="E-CHECKPOINT"):
        save_nested(bad, tmp_path / "a.ckpt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "[",
        '"text"',
        '["tensor", "missing"]',
        '["dict", ["a"]]',
        '["dict", [["list"], 1]]',
        '["set", 1]',
        "[]",
        '["dict", ["a", ["tensor"]]]',
        "[" * 10000,
        "3",
    ],
)
def test_damage(tmp_path, text):
    header = json.dumps({"__metadata__": {KEY: text}}).encode()
    (tmp_path / "a.ckpt").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(cc.Error):
        load_nested(tmp_path / "a.ckpt")


def test_bits_that_have_changed(tmp_path):
    """In the JSON text, and in a tensor, which safetensors reads as it is."""
    path = tmp_path / "a.ckpt"
    save_nested(NESTED, path)
    raw = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    for place in (raw.index(b"none"), raw.index(b"state_dict.fc.weight"), len(raw) - 1, len(raw) - 9):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 4]) + raw[place + 1 :])
        load_file(path)
        with pytest.raises(cc.FormatError):
            load_nested(path)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_files_of_others(tmp_path):
    cc.save_file({"a": np.ones(2)}, tmp_path / "a.safetensors")
    with pytest.raises(cc.FormatError, match="not a checkpoint"):
        load_nested(tmp_path / "a.safetensors")
    with pytest.raises(cc.FileAccessError):
        load_nested(tmp_path / "missing")


def test_what_a_killed_process_leaves(tmp_path):
    """It is removed by the next one that writes there; what a living process writes stays."""
    script = (
        "import os, signal, sys\n"
        "from candle_convert.training.checkpoint import nested_file\n"
        "nested_file._write = lambda layout, file: (print('writing', flush=True), sys.stdin.read())\n"
        "nested_file.save_nested({'a': 1}, sys.argv[1])\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a.ckpt")]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY.parent)
    assert writer.stdout.readline() == "writing\n"
    (left,) = tmp_path.iterdir()
    os.utime(left, (0, 0))
    save_nested({"b": 2}, tmp_path / "b.ckpt")
    assert left.exists()
    writer.kill()
    writer.communicate()
    save_nested({"b": 2}, tmp_path / "b.ckpt")
    assert [each.name for each in tmp_path.iterdir()] == ["b.ckpt"]
