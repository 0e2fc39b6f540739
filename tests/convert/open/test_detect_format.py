"""Recognition: every format by its content whatever the name, and what is no model named as what it is."""

import bz2
import gzip
import io
import json
import lzma
import re
import shutil
import tarfile
import zipfile

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.convert.open.detect_format import by_name, by_suffix, detect, formats
from candle_convert.runtime.tensor.file import Source
from candle_convert.tests.builders.sample_files import SAMPLES, rows

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:8eb7%s\nsize 4900000000\n" % (b"0" * 60)


def zipped(*names):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, "x" * 100)
    return out.getvalue()


def tarred():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("README"))
    return out.getvalue()


OTHER_FILES = [
    ("lfs-pointer", POINTER, "E-LFS-POINTER", r"oid 8eb70000…, real size 4,900,000,000"),
    ("lfs-pointer-of-another-version", POINTER.replace(b"sha256:", b"md5:"), "E-LFS-POINTER", "git lfs pull"),
    ("html", b"<!DOCTYPE html>\n<html><body>Log in</body></html>", "E-FILE-HTML", "HTML"),
    ("html-after-a-comment", b"\n <!-- x -->\n<HTML>", "E-FILE-HTML", "HTML"),
    ("xml", b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "E-FILE-XML", "XML"),
    ("text", b"Invalid username or password.\n", "E-FILE-TEXT", "Invalid username"),
    ("json", b'{"error": "Repository not found"}', "E-FILE-JSON", "JSON"),
    ("json-with-a-list", b'[\n  {"a": 1}]', "E-FILE-JSON", "JSON"),
    ("gzip", gzip.compress(b"x" * 99), "E-FILE-ARCHIVE", "Unpack"),
    ("bzip2", bz2.compress(b"x" * 99), "E-FILE-ARCHIVE", "Unpack"),
    ("xz", lzma.compress(b"x" * 99), "E-FILE-ARCHIVE", "Unpack"),
    ("7z", b"7z\xbc\xaf\x27\x1c\0\4" + bytes(24), "E-FILE-ARCHIVE", "Unpack"),
    ("zstandard", b"\x28\xb5\x2f\xfd\x20\1\0\0", "E-FILE-ARCHIVE", "Unpack"),
    ("rar", b"Rar!\x1a\7\1\0", "E-FILE-ARCHIVE", "Unpack"),
    ("tar", tarred(), "E-FILE-ARCHIVE", "Unpack"),
    ("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(88), "E-FILE-HDF5", "Keras"),
    ("png", b"\x89PNG\r\n\x1a\n" + bytes(30), "E-FILE-IMAGE", "image"),
    ("jpeg", b"\xff\xd8\xff\xe0\0\x10JFIF", "E-FILE-IMAGE", "image"),
    ("pdf", b"%PDF-1.7\n%\xe2\xe3", "E-FILE-IMAGE", "document"),
    ("docx", zipped("[Content_Types].xml", "word/document.xml"), "E-FILE-ZIP", re.escape("'[Content_Types].xml'")),
    ("jar", zipped("META-INF/MANIFEST.MF", "Main.class"), "E-FILE-ZIP", "MANIFEST"),
    ("empty", b"", "E-FILE-EMPTY", "is empty"),
    ("zeros", bytes(4096), "E-FILE-EMPTY", "zeros"),
    ("few-zeros", bytes(12), "E-FILE-EMPTY", "zeros"),
    ("noise", np.random.default_rng(0).bytes(4096), "E-FORMAT-UNKNOWN", "--from"),
]


@pytest.mark.parametrize("suffix", [".bin", ".safetensors", ".gguf", ".pth", ".npz", ""])
@pytest.mark.parametrize(("name", "data", "code", "says"), OTHER_FILES, ids=[row[0] for row in OTHER_FILES])
def test_what_is_no_model_is_named(name, data, code, says, suffix, tmp_path, sandbox):
    path = tmp_path / f"model{suffix}"
    path.write_bytes(data)
    outcome = sandbox.outcome(path)
    if code == "E-FORMAT-UNKNOWN" and suffix not in ("", ".bin"):
        assert outcome.code.startswith("E-"), outcome
    else:
        assert (outcome.code, outcome.exit_code) == (code, 3), outcome
        assert re.search(says, outcome.detail), outcome.detail
    assert outcome.quick
    assert outcome.file == str(path)
    assert outcome.hint, outcome


def test_an_empty_archive_is_what_numpy_makes_of_no_arrays(tmp_path):
    np.savez(tmp_path / "x.npz")
    assert len(cc.open(tmp_path / "x.npz")) == 0


@pytest.mark.parametrize("suffix", [".bin", ".safetensors", ".gguf", ".PTH", ".txt", ""])
@pytest.mark.parametrize(("format", "name"), rows())
def test_content_decides_not_the_suffix(format, name, suffix, tmp_path):
    made = SAMPLES[format][name](tmp_path)
    path = made.with_name(f"other{suffix}")
    shutil.copyfile(made, path)
    for beside in tmp_path.glob(f"{made.stem}.cfg"):
        shutil.copyfile(beside, path.with_suffix(".cfg"))
    assert detect(Source(path)).name == format
    assert cc.open(path).format == format


@pytest.mark.parametrize(("format", "name"), rows())
def test_only_one_format_recognises_a_file(format, name, tmp_path):
    source = Source(SAMPLES[format][name](tmp_path))
    assert [known.name for known in formats() if known.sniff(source)] == [format]


@pytest.mark.parametrize("format", formats(), ids=lambda format: format.name)
def test_names_and_suffixes(format):
    assert by_name(format.name) is format
    assert all(suffix.startswith(".") and by_suffix(f"x{suffix}") is format for suffix in format.suffixes)


@pytest.mark.parametrize("wrong", [format.name for format in formats()])
def test_a_wrong_format_name_is_an_error_of_that_reader(wrong, tmp_path):
    path = tmp_path / "x.dat"
    path.write_bytes(json.dumps({"a": 1}).encode() * 20)
    with pytest.raises(cc.Error) as caught:
        cc.open(path, format=wrong)
    assert caught.value.file is not None


def test_unknown_format_names_are_told_the_known_ones(tmp_path):
    with pytest.raises(cc.UsageError, match="safetensors") as caught:
        cc.open(SAMPLES["npz"]["stored"](tmp_path), format="numpy")
    assert caught.value.code == "E-FORMAT-NAME"
