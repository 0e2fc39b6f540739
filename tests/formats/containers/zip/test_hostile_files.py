"""Zip archives that are hostile, broken, cut off or changed, made byte by byte."""

import dataclasses
import io
import random
import stat
import struct
import zipfile
import zlib

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.formats.containers.zip import Archive
from candle_convert.runtime.tensor.file import Source
from candle_convert.tests.builders.zip_files import NPY, foreign

UTF8, STREAMED, LINK = 0x800, 0x8, (stat.S_IFLNK | 0o777) << 16


def deflated(data):
    machine = zlib.compressobj(9, zlib.DEFLATED, -15)
    return machine.compress(data) + machine.flush()


@dataclasses.dataclass
class Part:
    """A member, and everything that can be wrong with it: `local` and `central` change fields of one header only."""

    name: bytes = b"x.npy"
    data: bytes = NPY
    packed: bytes | None = None
    method: int = 0
    flags: int = 0
    attributes: int = 0
    extra: bytes = b""
    local: dict = dataclasses.field(default_factory=dict)
    central: dict = dataclasses.field(default_factory=dict)
    after: bytes = b""

    def fields(self, changes):
        packed = self.data if self.packed is None else self.packed
        fields = {"name": self.name, "flags": self.flags, "method": self.method, "crc": zlib.crc32(self.data)}
        return {**fields, "compressed": len(packed), "nbytes": len(self.data), "extra": self.extra, **changes}

    def header(self):
        form = "<4s5H3I2H{}s{}s"
        f = self.fields({"extra": b"", **self.local})
        lengths = (len(f["name"]), len(f["extra"]))
        numbers = (20, f["flags"], f["method"], 0, 33, f["crc"], f["compressed"], f["nbytes"])
        packed = self.data if self.packed is None else self.packed
        return (
            struct.pack(form.format(*lengths), b"PK\3\4", *numbers, *lengths, f["name"], f["extra"])
            + packed
            + self.after
        )

    def entry(self, at):
        f = self.fields({"at": at, "attributes": self.attributes, **self.central})
        lengths = (len(f["name"]), len(f["extra"]))
        numbers = (
            3 << 8 | 20,
            20,
            f["flags"],
            f["method"],
            0,
            33,
            f["crc"],
            f["compressed"],
            f["nbytes"],
            *lengths,
            0,
            0,
            0,
        )
        form = "<4s6H3I5H2I{}s{}s".format(*lengths)
        return struct.pack(form, b"PK\1\2", *numbers, f["attributes"], f["at"], f["name"], f["extra"])


def end(count, size, start, comment=b""):
    return struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, size, start, len(comment)) + comment


def end64(count, size, start, at, *, length=44, where=None, disks=1):
    record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", length, 45, 45, 0, 0, count, count, size, start)
    return record + struct.pack("<4sIQI", b"PK\6\7", 0, at if where is None else where, disks)


def built(*parts, before=b"", gap=b"", close=None, shift=0):
    """An archive of parts; `close` makes what follows the directory of (count, size, start)."""
    body, directory = before, b""
    for number, part in enumerate(parts):
        body += gap if number else b""
        directory += part.entry(len(body) - shift)
        body += part.header()
    return body + directory + (close or end)(len(parts), len(directory), len(body) - shift)


def zipped(**options):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        archive.writestr("x.npy", NPY)
    return file.getvalue()


ONE = built(Part())
ZEROS = bytes(2 << 20)
INSIDE = Part(b"b.npy").header()
MANY = 100_001


def lying64(**changes):
    def close(count, size, start):
        right = {"count": count, "size": size, "start": start}
        large = end64(
            **{**right, **{key: changes[key] for key in right if key in changes}},
            at=start + size,
            **changes.get("record", {}),
        )
        return large + (end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF) if changes.get("small") is None else end(*changes["small"]))

    return close


# number, id, the archive's bytes, our error code ("" where it opens)
HOSTILE = [
    (50, "no-end-record", ONE[:-22], "E-ZIP-END"),
    (50, "half-an-end-record", ONE[:-3], "E-ZIP-END"),
    (50, "only-a-local-header", Part().header(), "E-ZIP-END"),
    (50, "two-end-records", ONE[:-2] + struct.pack("<H", 22) + end(0, 0, 0), "E-ZIP-END-TWICE"),
    (50, "an-end-record-after-the-end-record", ONE + end(1, 51, len(NPY) + 35), "E-ZIP-DIRECTORY"),
    (50, "two-archives", ONE + ONE, "E-ZIP-DIRECTORY"),
    (50, "count-of-members-too-high", built(Part(), close=lambda n, s, o: end(n + 1, s, o)), "E-ZIP-DIRECTORY"),
    (
        50,
        "count-of-members-too-low",
        built(Part(), Part(b"y.npy"), close=lambda n, s, o: end(1, s, o)),
        "E-ZIP-DIRECTORY",
    ),
    (50, "two-counts-of-members", ONE[:-14] + struct.pack("<H", 2) + ONE[-12:], "E-ZIP-DISKS"),
    (50, "directory-beyond-the-file", built(Part(), close=lambda n, s, o: end(n, s, o + 100)), "E-ZIP-DIRECTORY"),
    (50, "directory-before-the-file", built(Part(), close=lambda n, s, o: end(n, o + s, 0)), "E-ZIP-DIRECTORY"),
    (50, "zip64-that-is-right", built(Part(), close=lying64()), ""),
    (50, "zip64-missing", built(Part(), close=lambda n, s, o: end(n, s, 0xFFFFFFFF)), "E-ZIP-END64"),
    (50, "zip64-count-missing", built(Part(), close=lambda n, s, o: end(0xFFFF, s, o)), "E-ZIP-END64"),
    (50, "zip64-count-2^63", built(Part(), close=lying64(count=1 << 63)), "E-ZIP-DIRECTORY"),
    (50, "zip64-size-2^64-1", built(Part(), close=lying64(size=(1 << 64) - 1)), "E-ZIP-DIRECTORY"),
    (50, "zip64-start-2^63", built(Part(), close=lying64(start=1 << 63)), "E-ZIP-DIRECTORY"),
    (50, "zip64-elsewhere", built(Part(), close=lying64(record={"where": 0})), "E-ZIP-END64"),
    (50, "zip64-of-another-length", built(Part(), close=lying64(record={"length": 45})), "E-ZIP-END64"),
    (50, "zip64-of-two-disks", built(Part(), close=lying64(record={"disks": 2})), "E-ZIP-END64"),
    (50, "zip64-and-not", built(Part(), close=lying64(small=(2, 51, 163))), "E-ZIP-END64"),
    (50, "zip64-member-sizes-missing", built(Part(central={"nbytes": 0xFFFFFFFF})), "E-ZIP-EXTRA"),
    (
        50,
        "zip64-member-sizes-cut",
        built(Part(central={"nbytes": 0xFFFFFFFF}, extra=struct.pack("<HHI", 1, 4, 1))),
        "E-ZIP-EXTRA",
    ),
    (
        50,
        "zip64-member-of-2^63",
        built(Part(central={"nbytes": 0xFFFFFFFF}, extra=struct.pack("<HHQ", 1, 8, 1 << 63))),
        "E-ZIP-SIZE",
    ),
    (
        50,
        "zip64-member-at-2^63",
        built(Part(central={"at": 0xFFFFFFFF}, extra=struct.pack("<HHQ", 1, 8, 1 << 63))),
        "E-ZIP-RANGE",
    ),
    (50, "extra-block-too-long", built(Part(extra=struct.pack("<HH", 9, 100))), "E-ZIP-EXTRA"),
    (51, "two-of-a-name", built(Part(), Part()), "E-ZIP-TWICE"),
    (51, "two-entries-of-one-member", built(Part(), Part(central={"at": 0}, name=b"x.npy")), "E-ZIP-TWICE"),
    (52, "parent-folder", built(Part(b"../x.npy")), "E-ZIP-PATH"),
    (52, "parent-folder-inside", built(Part(b"a/../../x.npy")), "E-ZIP-PATH"),
    (52, "absolute", built(Part(b"/x.npy")), "E-ZIP-PATH"),
    (52, "backslash", built(Part(b"..\\x.npy")), "E-ZIP-PATH"),
    (52, "nul", built(Part(b"x\0.npy")), "E-ZIP-PATH"),
    (52, "nameless", built(Part(), Part(b"")), "E-ZIP-PATH"),
    (52, "symlink", built(Part(attributes=LINK)), "E-ZIP-LINK"),
    (52, "device", built(Part(attributes=(stat.S_IFBLK | 0o600) << 16)), "E-ZIP-LINK"),
    (52, "not-utf8", built(Part(b"\xff.npy", flags=UTF8)), "E-ZIP-NAME"),
    (
        52,
        "second-name",
        built(Part(extra=struct.pack("<HHBI5s", 0x7075, 10, 1, zlib.crc32(b"x.npy"), b"y.npy"))),
        "E-ZIP-NAME",
    ),
    (53, "other-name", built(Part(local={"name": b"y.npy"})), "E-ZIP-LOCAL"),
    (53, "other-length-of-name", built(Part(local={"name": b"x.np"})), "E-ZIP-LOCAL"),
    (53, "other-flags", built(Part(local={"flags": UTF8})), "E-ZIP-LOCAL"),
    (53, "other-method", built(Part(local={"method": 8})), "E-ZIP-LOCAL"),
    (53, "other-crc", built(Part(local={"crc": 1})), "E-ZIP-LOCAL"),
    (53, "other-size", built(Part(local={"nbytes": 1})), "E-ZIP-LOCAL"),
    (53, "other-compressed-size", built(Part(local={"compressed": 1})), "E-ZIP-LOCAL"),
    (
        53,
        "other-size-in-zip64",
        built(Part(local={"nbytes": 0xFFFFFFFF, "extra": struct.pack("<HHQQ", 1, 16, 9, 9)})),
        "E-ZIP-LOCAL",
    ),
    (53, "sizes-later-without-the-flag", built(Part(local={"crc": 0, "nbytes": 0, "compressed": 0})), "E-ZIP-LOCAL"),
    (53, "no-local-header", built(Part(central={"at": 1})), "E-ZIP-RANGE"),
    (53, "local-header-in-the-directory", built(Part(central={"at": len(NPY) + 20})), "E-ZIP-RANGE"),
    (53, "data-into-the-directory", built(Part(local={"extra": bytes(8)}, packed=NPY[:-8])), "E-ZIP-SIZE"),
    (53, "streamed-without-its-record", built(Part(flags=STREAMED)), ""),
    (
        53,
        "streamed-with-another-record",
        built(Part(flags=STREAMED, after=struct.pack("<4I", 0x8074B50, 1, 2, 3))),
        "E-ZIP-GAP",
    ),
    (54, "encrypted", built(Part(flags=1)), "E-ZIP-ENCRYPTED"),
    (54, "strongly-encrypted", built(Part(flags=0x41)), "E-ZIP-ENCRYPTED"),
    (54, "directory-encrypted", built(Part(flags=0x2000)), "E-ZIP-ENCRYPTED"),
    (54, "bzip2", zipped(compression=zipfile.ZIP_BZIP2), "E-ZIP-METHOD"),
    (54, "lzma", zipped(compression=zipfile.ZIP_LZMA), "E-ZIP-METHOD"),
    (54, "ratio-of-1000", built(Part(data=NPY + ZEROS, packed=deflated(NPY + ZEROS), method=8)), "E-ZIP-RATIO"),
    (
        54,
        "declared-ratio",
        built(Part(packed=deflated(NPY), method=8, central={"nbytes": 1 << 31}, local={"nbytes": 1 << 31})),
        "E-ZIP-RATIO",
    ),
    (
        55,
        "one-inside-another",
        built(Part(data=NPY + INSIDE), Part(b"b.npy", central={"at": 35 + len(NPY)})),
        "E-ZIP-OVERLAP",
    ),
    (
        55,
        "all-in-one-place",
        built(*(Part(name=b"%d.npy" % n, central={"at": 0}, local={"name": b"0.npy"}) for n in range(9))),
        "E-ZIP-LOCAL",
    ),
    (
        55,
        "100001-members",
        built(Part(), close=lambda n, s, o: bytes(46 * MANY) + lying64()(MANY, s + 46 * MANY, o)),
        "E-ZIP-MEMBERS",
    ),
    (55, "folder-with-data", built(Part(), Part(b"a/")), "E-ZIP-SIZE"),
    (55, "bytes-before", built(Part(), before=b"#!/bin/sh\n"), "E-ZIP-GAP"),
    (55, "bytes-before-not-counted", built(Part(), before=b"PK\3\4junk", shift=8), "E-ZIP-DIRECTORY"),
    (55, "bytes-between", built(Part(), Part(b"y.npy"), gap=b"junk"), "E-ZIP-GAP"),
    (55, "bytes-before-the-directory", built(Part(after=b"junk")), "E-ZIP-GAP"),
    (55, "bytes-after-the-directory", built(Part(), close=lambda n, s, o: b"junk" + end(n, s, o)), "E-ZIP-DIRECTORY"),
    (55, "bytes-in-the-directory", built(Part(), close=lambda n, s, o: b"junk" + end(n, s + 4, o)), "E-ZIP-DIRECTORY"),
    (55, "bytes-after-the-end", ONE + b"junk", "E-ZIP-TRAILING"),
    (55, "comment-cut", built(Part(), close=lambda n, s, o: end(n, s, o, b"four")[:-1]), "E-ZIP-TRAILING"),
    (55, "comment", built(Part(), close=lambda n, s, o: end(n, s, o, b"four")), ""),
    (55, "folder", built(Part(), Part(b"a/", b"")), ""),
]


@pytest.mark.parametrize(("number", "name", "data", "code"), HOSTILE, ids=[f"{row[0]}-{row[1]}" for row in HOSTILE])
def test_hostile(number, name, data, code, tmp_path, sandbox):
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    outcome = sandbox.outcome(path)
    assert (outcome.code, outcome.quick) == (code, True), outcome
    if code:
        assert (outcome.file, outcome.offset is None, bool(outcome.hint)) == (str(path), False, True), outcome


PACKED = deflated(NPY)
INFLATED = [
    (54, "right", Part(packed=PACKED, method=8), ""),
    (54, "wrong-crc", Part(packed=PACKED, method=8, local={"crc": 1}, central={"crc": 1}), "E-ZIP-CRC"),
    (54, "no-deflate", Part(packed=b"\xff" * 99, method=8), "E-ZIP-DEFLATE"),
    (54, "cut", Part(packed=PACKED[:-4], method=8), "E-ZIP-SIZE"),
    (54, "bytes-after", Part(packed=PACKED + b"junk", method=8), "E-ZIP-SIZE"),
    (77, "more-than-it-says", Part(packed=deflated(NPY + bytes(9)), method=8), "E-ZIP-SIZE"),
    (77, "a-bomb-behind-it", Part(packed=deflated(NPY + bytes(64 << 20)), method=8), "E-ZIP-SIZE"),
    (77, "less-than-it-says", Part(packed=deflated(NPY[:-8]), method=8), "E-ZIP-SIZE"),
    (77, "nothing", Part(packed=b"", method=8), "E-ZIP-SIZE"),
]


@pytest.mark.parametrize(("number", "name", "part", "code"), INFLATED, ids=[f"{row[0]}-{row[1]}" for row in INFLATED])
@pytest.mark.parametrize("action", ["read", "convert", "check"])
def test_hostile_compression(number, name, part, code, action, tmp_path, sandbox):
    path = tmp_path / "x.npz"
    path.write_bytes(built(part))
    outcome = sandbox.outcome(path, action)
    assert outcome.quick
    if action == "check" and name not in ("nothing", "no-deflate"):  # those cannot be opened, the others can
        assert (outcome.code, code in outcome.detail) == ("", True), outcome
    else:
        assert outcome.code == code, outcome


def test_a_compression_ratio_can_be_allowed(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros(1 << 20))
    with pytest.raises(cc.Error) as caught:
        cc.open(path)
    assert (caught.value.code, caught.value.exit_code) == ("E-ZIP-RATIO", 6)
    with cc.limits(zip_ratio=1100):
        assert cc.open(path)["x"].numpy().sum() == 0


def test_what_two_readers_could_understand_differently_is_refused(tmp_path):
    """Whatever a change of bytes does: an archive that opens has the members, and the bytes, that zipfile finds."""
    path = tmp_path / "x.zip"
    samples = [foreign(zipfile.ZIP_DEFLATED, one_way=True), built(Part(), Part(b"y.npy"), close=lying64())]
    dice = random.Random(7)
    opened = refused = 0
    for round in range(1500):
        data = bytearray(samples[round % 2])
        edges = [*range(60), *range(len(data) - 400, len(data))]
        for _ in range(dice.choice((1, 1, 2, 4))):
            data[dice.choice(edges) % len(data)] = dice.choice((0, 1, 8, 255, dice.randrange(256)))
        path.write_bytes(data)
        try:
            archive = Archive(Source(path))
            ours = {name: archive.read(member) for name, member in archive.members.items()}
        except cc.Error as error:
            assert (error.file, error.offset is None, bool(error.hint)) == (str(path), False, True)
            refused += 1
            continue
        opened += 1
        try:
            with zipfile.ZipFile(path) as oracle:
                theirs = {info.filename: oracle.read(info) for info in oracle.infolist() if not info.is_dir()}
        except NotImplementedError:  # a version of the format that is yet to come
            continue
        assert ours == theirs
    assert min(opened, refused) > 100


def test_truncated_anywhere(tmp_path):
    data = built(Part(), Part(b"y.npy", packed=PACKED, method=8))
    for length in range(len(data)):
        (tmp_path / "x.npz").write_bytes(data[:length])
        with pytest.raises(cc.Error) as caught:
            cc.open(tmp_path / "x.npz")
        assert (caught.value.exit_code, bool(caught.value.hint)) == (3, True), length
