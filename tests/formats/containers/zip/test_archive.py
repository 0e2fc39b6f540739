"""Zip archives: what zipfile and torch write, and what we write, with zipfile as the oracle for both directions."""

import dataclasses
import zipfile
import zlib

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert.formats.containers.zip import Archive, Entry, layout
from candle_convert.runtime.tensor.dtype import U8
from candle_convert.runtime.tensor.file import Source
from candle_convert.runtime.tensor.storage import Derived, Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.zip_files import foreign

MANY = 100_001


def assert_same(path):
    archive = Archive(Source(path))
    with zipfile.ZipFile(path) as oracle:
        files = [info for info in oracle.infolist() if not info.is_dir()]
        assert [info.filename for info in files] == list(archive.members)
        for info in files:
            member = archive.members[info.filename]
            archive.check_crc(member)
            assert archive.read(member) == bytes(archive.storage(member).read(0, member.nbytes)) == oracle.read(info)
            assert (member.crc, member.at, member.comment, member.method) == (
                info.CRC,
                info.header_offset,
                info.comment,
                info.compress_type,
            )


@pytest.mark.parametrize(
    ("limit", "force_zip64"), [(zipfile.ZIP64_LIMIT, False), (zipfile.ZIP64_LIMIT, True), (10, True), (200, True)]
)
@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archives_of_zipfile(compression, one_way, force_zip64, limit, tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", limit)
    (tmp_path / "x.zip").write_bytes(foreign(compression, one_way=one_way, force_zip64=force_zip64))
    assert_same(tmp_path / "x.zip")


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_archives_of_torch(tmp_path):
    torch.save({"a": torch.arange(99), "b": torch.zeros(0), "c": torch.ones(2, 2)}, tmp_path / "plain.pth")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "script.pt")
    assert_same(tmp_path / "plain.pth")
    assert_same(tmp_path / "script.pt")


def written(path, file):
    """Write a layout, a hole where a tensor is all zeros."""
    with open(path, "wb") as out:
        out.truncate(file.nbytes)
        for piece in file.pieces:
            if isinstance(piece.data, bytes):
                out.seek(piece.offset)
                out.write(piece.data)
        for piece in file.pieces:
            if isinstance(piece.data, StoredTensor) and piece.checksum is not None and piece.nbytes < 1 << 30:
                out.seek(piece.offset)
                out.write(piece.data.raw())
                for at in piece.checksum.at:
                    out.seek(at)
                    out.write(zlib.crc32(piece.data.raw(), piece.checksum.seed).to_bytes(4, "little"))


def test_what_we_write(tmp_path):
    data = np.arange(1000.0)
    entries = [
        Entry("a/b", b"h" * 64, StoredTensor.of(data), b"a comment"),
        Entry("grüße", b"x", b"literal"),
        Entry("empty", b"", None),
        Entry("headed", b"h" * 64, StoredTensor.of(np.zeros((0, 3)))),
    ]
    file = layout("x.zip", entries, alignment=64)
    written(tmp_path / "x.zip", file)
    assert_same(tmp_path / "x.zip")
    with zipfile.ZipFile(tmp_path / "x.zip") as oracle:
        assert oracle.testzip() is None
        first = oracle.infolist()[0]
        assert (first.filename, first.comment, first.date_time) == ("a/b", b"a comment", (1980, 1, 1, 0, 0, 0))
        assert oracle.read("a/b") == b"h" * 64 + data.tobytes()
    assert all(member.offset % 64 == 0 for member in Archive(Source(tmp_path / "x.zip")).members.values())
    assert [dataclasses.replace(piece, data=b"") for piece in file.pieces] == [
        dataclasses.replace(piece, data=b"") for piece in layout("x.zip", entries, alignment=64).pieces
    ]


def test_over_4_gib(tmp_path):
    """Members and offsets that take eight bytes, in a file of holes."""
    size = (1 << 32) + 5
    huge = StoredTensor(U8, (size,), Derived(size, 1, lambda start, stop: bytes(stop - start)))
    entries = [
        Entry("huge", b"", huge),
        Entry("edge", b"", StoredTensor(U8, (9,), Held(b"123456789"))),
        Entry("last", b"", b"end"),
    ]
    file = layout("x.zip", entries, alignment=64)
    written(tmp_path / "x.zip", file)
    archive = Archive(Source(tmp_path / "x.zip"))
    with zipfile.ZipFile(tmp_path / "x.zip") as oracle:
        found = [(info.filename, info.file_size, info.header_offset) for info in oracle.infolist()]
        assert found == [(member.name, member.nbytes, member.at) for member in archive.members.values()]
        assert found[0][1] == size
        assert found[1][2] > 1 << 32
        assert oracle.read("edge") == archive.read(archive.members["edge"]) == b"123456789"
        assert oracle.read("last") == archive.read(archive.members["last"]) == b"end"
        with oracle.open("huge") as member:
            assert member.read(10) == bytes(10)


@pytest.mark.parametrize("name", ["", "../x", "/x", "a\\b", "a\0b", "a/", "half \ud800", "x" * 70_000])
def test_names_that_no_archive_can_hold(name):
    with pytest.raises(cc.UnsupportedError) as caught:
        layout("x.zip", [Entry(name, b"", b"")])
    assert caught.value.code == "E-ZIP-NAME"


def test_too_many_members_are_not_written():
    for entries, code in (
        ([Entry("a", b"", b"")] * 2, "E-ZIP-NAME"),
        ([Entry(str(n), b"", b"") for n in range(MANY)], "E-ZIP-MEMBERS"),
    ):
        with pytest.raises(cc.UnsupportedError) as caught:
            layout("x.zip", entries)
        assert caught.value.code == code
