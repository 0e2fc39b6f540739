"""Zip archives as zipfile writes them."""

import io
import os
import zipfile

import numpy as np
from candle_convert.tests.builders.npy_files import saved

NPY = saved(np.arange(3.0))


class OneWay(io.RawIOBase):
    """A file that cannot be sought, so that zipfile writes sizes behind the data."""

    def __init__(self):
        self.file = io.BytesIO()

    def writable(self):
        return True

    def write(self, data):
        return self.file.write(data)


def foreign(compression, *, one_way=False, force_zip64=False):
    file = OneWay() if one_way else io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.comment = b"a comment"
        for name, data in (("a/x.npy", NPY), ("empty", b""), ("grüße", os.urandom(99)), ("long", b"abc" * 99999)):
            with archive.open(name, "w", force_zip64=force_zip64) as member:
                member.write(data)
        archive.mkdir("folder")
    return (file.file if one_way else file).getvalue()
