"""GGUF files, made byte by byte (also such as no writer makes) or by our writer."""

import struct

import numpy as np
from candle_convert.formats.gguf import FORMAT
from candle_convert.runtime.contract.format import WriteOptions
from candle_convert.runtime.contract.metadata import to_json
from candle_convert.runtime.ir.graph import Graph
from candle_convert.runtime.tensor.dtype import BLOCK_TYPES, DTYPES
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.oracles import libggml

NAMES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64")
TYPES = {name: number for number, name in enumerate(NAMES)}
FORMS = {
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "f32": "f",
    "bool": "B",
    "u64": "Q",
    "i64": "q",
    "f64": "d",
}


class Maker:
    """Packs the parts of a file of one version and byte order."""

    def __init__(self, version=3, big=False):
        self.version = version
        self.order = ">" if big else "<"
        self.count_form = "I" if version == 1 else "Q"

    def pack(self, form, *values):
        return struct.pack(self.order + form, *values)

    def count(self, value):
        return self.pack(self.count_form, value)

    def string(self, value, length=None):
        data = value if isinstance(value, bytes) else value.encode()
        return self.count(len(data) if length is None else length) + data

    def value(self, kind, value):
        return self.string(value) if kind == "string" else self.pack(FORMS[kind], value)

    def pair(self, key, kind, value):
        return self.string(key) + self.pack("I", TYPES[kind]) + self.value(kind, value)

    def content(self, kind, values, count=None):
        """An array behind the number of its type."""
        return (
            self.pack("I", TYPES[kind])
            + self.count(len(values) if count is None else count)
            + b"".join(self.value(kind, item) for item in values)
        )

    def array(self, key, kind, values, count=None):
        return self.raw_pair(key, "array", self.content(kind, values, count))

    def raw_pair(self, key, kind, payload=b""):
        return self.string(key) + self.pack("I", TYPES.get(kind, kind)) + payload

    def info(self, name, dims, kind=0, offset=0, n_dims=None):
        """`dims` in the file's order, fastest first."""
        head = self.string(name) + self.pack("I", len(dims) if n_dims is None else n_dims)
        return head + b"".join(map(self.count, dims)) + self.pack("IQ", kind, offset)

    def file(self, pairs=(), infos=(), data=b"", n_infos=None, n_pairs=None, alignment=32):
        counts = self.count(len(infos) if n_infos is None else n_infos) + self.count(
            len(pairs) if n_pairs is None else n_pairs
        )
        head = b"GGUF" + self.pack("I", self.version) + counts + b"".join(pairs) + b"".join(infos)
        return head + bytes(-len(head) % alignment) + data


BLOCKS = [dtype for dtype in BLOCK_TYPES if dtype.ggml is not None]
PLAIN = [DTYPES[name] for name in ("f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64")]
GGML = libggml.load()


def random_tensor(dtype, seed=0):
    shape = (3, 2 * dtype.block) if dtype in BLOCKS else (2, 3, 5)
    count = 6 * dtype.block_nbytes if dtype in BLOCKS else 30 * dtype.bits // 8
    return StoredTensor(dtype, shape, Held(np.random.default_rng(seed).bytes(count)))


def write(path, weights, metadata=None, attachments=None, **options):
    """Lay a graph out and write the files as the layout says; their paths."""
    graph = Graph(weights=weights, metadata=metadata or {}, attachments=attachments or {})
    files = FORMAT.layout(graph, WriteOptions(stem=path.stem, **options))
    for file in files:
        data = bytearray(file.nbytes)
        for piece in file.pieces:
            data[piece.offset : piece.offset + piece.nbytes] = (
                piece.data if isinstance(piece.data, bytes) else piece.data.raw()
            )
        (path.parent / file.name).write_bytes(data)
    return [path.parent / file.name for file in files]


def same(left, right):
    """Equal metadata, types included."""
    return list(left) == list(right) and to_json(left) == to_json(right)
