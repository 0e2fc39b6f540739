"""Valid files of every format cut at every byte: only errors of ours come out, and a download that was cut short is
called that."""

import random
import re

import candle_convert as cc
import pytest
from candle_convert.convert.open.detect_format import formats
from candle_convert.tests.builders.sample_files import SAMPLES, rows
from candle_convert.tests.fuzz.sandbox import attempt

CUTS = 60
SANDBOXED = 20
SAYS_SO = re.compile(r"cut short|missing|truncated|left|ends|did not finish|go past", re.IGNORECASE)
NAMELESS = {"llama2c version-0"}
"""Recognised by a size that fits the header, so that a part of it is just an unknown file."""
SIZELESS = {"darknet flat"}
"""Nothing in it says how long it is."""


def _values(path):
    return {name: (tensor.dtype, tensor.shape, bytes(tensor.raw())) for name, tensor in cc.open(path).weights.items()}


def test_every_format_has_a_sample():
    assert set(SAMPLES) == {format.name for format in formats()}


@pytest.mark.slow
@pytest.mark.parametrize(("format", "name"), rows())
def test_cut_at_every_byte(format, name, tmp_path, sandbox, full, seed):
    path = SAMPLES[format][name](tmp_path)
    data, whole = path.read_bytes(), _values(path)
    cuts = (
        range(len(data))
        if full
        else {0, 1, 3, 4, 7, 8, len(data) - 1, *random.Random(seed).sample(range(len(data)), min(len(data), CUTS))}
    )
    for number, cut in enumerate(cuts):
        path.write_bytes(data[:cut])
        error = attempt(path)
        if error is None:
            assert f"{format} {name}" in SIZELESS or _values(path) == whole, (
                f"{cut} of {len(data)} bytes are taken for all"
            )
        if number % SANDBOXED == 0:
            outcome = sandbox.outcome(path, "read")
            assert (outcome.code, outcome.quick) == ("" if error is None else error.code, True), outcome


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize(("format", "name"), [row for row in rows() if " ".join(row) not in SIZELESS | NAMELESS])
def test_a_cut_download_is_called_one(format, name, share, tmp_path):
    path = SAMPLES[format][name](tmp_path)
    data, whole = path.read_bytes(), _values(path)
    path.write_bytes(data[: int(len(data) * share)])
    error = attempt(path)
    if error is None:
        assert _values(path) == whole
    else:
        assert SAYS_SO.search(str(error)), str(error)
        assert error.hint, str(error)
        assert error.offset is not None, str(error)
