"""npy and npz files, made byte by byte (also such as NumPy does not write) or by NumPy."""

import io
import zipfile

import numpy as np

RIGHT = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }"


def npy(text=RIGHT, data=bytes(16), version=(1, 0), length=None, magic=b"\x93NUMPY"):
    text = text.encode("latin-1") if isinstance(text, str) else text
    width = 2 if version == (1, 0) else 4
    return magic + bytes(version) + (len(text) if length is None else length).to_bytes(width, "little") + text + data


def saved(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def zipped(files, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


def patterns(dtype, *lengths):
    """An array of random bits (for bool, of random truth)."""
    dtype = np.dtype(dtype)
    data = np.random.default_rng(sum(lengths)).integers(0, 256, int(np.prod(lengths)) * dtype.itemsize, dtype=np.uint8)
    return ((data > 127) if dtype.kind == "b" else data.view(dtype)).reshape(lengths)


def assert_same(array, ours):
    """The bits, in rows and little-endian."""
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    assert (ours.dtype.as_numpy(), ours.shape) == (array.dtype.newbyteorder("="), array.shape)
    assert bytes(ours.raw()) == plain.tobytes()
    assert b"".join(bytes(part) for part in ours.chunks(64)) == plain.tobytes()


OBJECTS = saved(np.array([{}, []], dtype=object), allow_pickle=True)
STRUCTURE = saved(np.zeros(2, [("a", "<f4"), ("b", "<i4")]))
NESTED = saved(np.array([(1, {})], dtype=[("a", "<f4"), ("b", object)]), allow_pickle=True)
