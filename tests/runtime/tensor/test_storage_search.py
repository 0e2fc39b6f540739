"""Windows over files: every byte that was written, in order, without the holes of sparse files and within a time."""

import json
import os
import time

import candle_convert as cc
import pytest
from candle_convert.convert.check.check import check
from candle_convert.runtime.base.limits import Budget, Limits
from candle_convert.runtime.tensor.file import Source
from candle_convert.runtime.tensor.storage import Held, Region
from candle_convert.runtime.tensor.storage_search import windows

SIZE, OVERLAP = 1 << 16, 16


def sparse(path, places, size=1 << 30):
    with open(path, "wb") as file:
        file.truncate(size)
        for at, data in places.items():
            file.seek(at)
            file.write(data)
    return Source(path)


def test_all_that_was_written_is_seen(tmp_path):
    places = {0: b"first", (1 << 20) - 3: b"across a block", (1 << 29) + 7: b"x" * 200_000, (1 << 30) - 4: b"last"}
    source = sparse(tmp_path / "a", places)
    seen = {}
    for start, data in windows(source, source.budget, SIZE, OVERLAP):
        assert len(data) <= SIZE + OVERLAP
        seen |= {start + at: byte for at, byte in enumerate(data) if byte}
    assert seen == {at + place: byte for at, data in places.items() for place, byte in enumerate(data)}


def test_holes_are_left_out(tmp_path):
    source = sparse(tmp_path / "a", {1 << 35: b"x"}, 1 << 40)
    read = sum(len(data) for _, data in windows(source, source.budget, SIZE, OVERLAP))
    if not any(True for first, last in source.written(0, source.size) if (first, last) == (0, source.size)):
        assert read < 1 << 21


def test_regions_count_from_their_beginning(tmp_path):
    source = sparse(tmp_path / "a", {1 << 20: b"abc"})
    found = list(windows(Region(source, 1 << 20, 3), source.budget, SIZE, OVERLAP))
    assert found == [(0, b"abc")]
    assert list(windows(Held(b"abc"), source.budget, 2, 1)) == [(0, b"abc"), (2, b"c")]


def test_time_is_bounded(tmp_path):
    source = sparse(tmp_path / "a", {0: b"abc"})
    budget = Budget(source.path, Limits(time=0.0))
    time.sleep(0.001)
    with pytest.raises(cc.LimitError) as caught:
        list(windows(source, budget, SIZE, OVERLAP))
    assert caught.value.code == "E-LIMIT-TIME"


@pytest.mark.parametrize("head", [b"", b"hello", b"\x80\x02}q\x00.", b"\x08\x07"])
def test_files_that_are_holes_are_scanned(head, tmp_path):
    source = sparse(tmp_path / "a.json", {0: head}, 1 << 40)
    if os.stat(source.path).st_blocks * 512 > 1 << 30:
        pytest.skip("the file system has no sparse files")
    began = time.process_time()
    cc.scan(source.path)
    assert time.process_time() - began < 5


def test_values_that_were_never_written_are_not_read(tmp_path):
    text = json.dumps({"a": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}}).encode()
    head = len(text).to_bytes(8, "little") + text
    path = sparse(tmp_path / "a.safetensors", {0: head}, len(head) + (1 << 40)).path
    if os.stat(path).st_blocks * 512 > 1 << 30:
        pytest.skip("the file system has no sparse files")
    calls = (
        lambda: cc.verify(path, path),
        lambda: list(cc.diff(path, path)),
        lambda: cc.convert(path, tmp_path / "o.gguf"),
        lambda: check(path),
    )
    for call in calls:
        with pytest.raises(cc.FormatError, match="were written") as caught:
            call()
        assert caught.value.code == "E-FILE-SPARSE"
