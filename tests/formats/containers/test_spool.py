"""Temporary files that cannot be written: full disks, and too many open files, are known as such."""

import errno
import os
import tempfile

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.formats.containers.nested_file import spool
from candle_convert.formats.containers.spool import Spool
from candle_convert.runtime.tensor.file import Source

ERRORS = [
    (errno.ENOSPC, cc.LimitError, "E-OUT-FULL", "TMPDIR"),
    (errno.EMFILE, cc.LimitError, "E-FILES", "ulimit"),
    (errno.EROFS, cc.FileAccessError, "E-OUT-WRITE", None),
]


class Stream:
    """Four bytes."""

    nbytes = 4

    def read(self, start, stop):
        return bytes(stop - start)


@pytest.mark.parametrize(("number", "kind", "code", "hint"), ERRORS, ids=lambda value: str(value))
def test_temporary_files_that_cannot_be_made(tmp_path, monkeypatch, number, kind, code, hint):
    cc.save_file({"x": np.ones(3, np.float32)}, tmp_path / "m.safetensors")
    source = Source(tmp_path / "m.safetensors")

    def failing(*arguments, **words):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "TemporaryFile", failing)
    for reading in (lambda: Spool(Stream()).read(0, 4), lambda: spool(source, "member", [b"abcd"])):
        with pytest.raises(kind) as refused:
            reading()
        assert refused.value.code == code
        assert hint is None or hint in refused.value.hint
