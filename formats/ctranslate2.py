"""CTranslate2 ``model.bin``, versions 4 to 6: variables of a model specification, and aliases.

A string is its length as u16, its bytes and a zero. The file has the version, the name and revision of the
specification, the variables (name, rank u8, dimensions, type u8, number of bytes, data), and pairs of alias and name.
Quantized matrices are int8 or int16 codes with ``NAME_scale``: a value is its code divided by the scale of its row.
Source: CTranslate2's python/ctranslate2/specs/model_spec.py and src/models/model.cc.
"""

from __future__ import annotations

import math
import struct

from ..runtime.base.errors import FormatError, UnsupportedError
from ..runtime.base.units import counted
from ..runtime.contract.format import Format, ReadOptions
from ..runtime.ir.graph import Graph
from ..runtime.tensor.dtype import BF16, F16, F32, I8, I16, I32
from ..runtime.tensor.file import Source
from ..runtime.tensor.storage import Region
from ..runtime.tensor.stored_tensor import StoredTensor
from .containers.binary_fields import Fields

VERSIONS = range(4, 7)
TYPES = (F32, I8, I16, I32, F16, BF16)
"""Dtypes by number."""
MAX_NAME, MAX_DIMS = 1024, 8
ENDING = b"Spec\0"
PREFIX = "ctranslate2."


def sniff(source: Source) -> bool:
    """A small version, and a name that ends in ``Spec``."""
    head = source.head(6)
    if len(head) < 6:
        return False
    version, length = struct.unpack("<IH", head)
    return version < 64 and len(ENDING) < length < MAX_NAME and source.head(6 + length)[6:].endswith(ENDING)


def read(source: Source, options: ReadOptions) -> Graph:
    """Variables as weights, aliases as the same tensors; the specification as metadata."""
    fields = Fields(source, "E-CT2-TRUNCATED")
    (version,) = fields.ints(1, "the version")
    if version not in VERSIONS:
        expected = f"{VERSIONS[0]} to {VERSIONS[-1]}"
        raise UnsupportedError("E-CT2-VERSION", source.path, f"unknown version {version}", expected=expected)
    graph = Graph(format="ctranslate2", files=[source.path])
    spec = _text(fields, "the specification")
    revision, count = fields.ints(2, "the number of variables")
    graph.metadata = {f"{PREFIX}version": version, f"{PREFIX}spec": spec, f"{PREFIX}revision": revision}
    for _ in range(_counted(fields, count, "variables")):
        name, tensor = _variable(fields)
        _add(graph, source, name, tensor)
    (aliases,) = fields.ints(1, "the number of aliases")
    for _ in range(_counted(fields, aliases, "aliases")):
        alias, name = _text(fields, "an alias"), _text(fields, "the name of an alias")
        if name not in graph.weights:
            raise FormatError("E-CT2-ALIAS", source.path, f"{alias!r} is an alias of {name!r}, which is missing")
        _add(graph, source, alias, graph.weights[name])
    if fields.left:
        raise FormatError(
            "E-CT2-END", source.path, f"{counted(fields.left, 'byte', verb='follows')} the last alias", at=fields.at
        )
    return graph


def _counted(fields: Fields, count: int, what: str) -> int:
    if count < 0:
        raise FormatError("E-CT2-COUNT", fields.source.path, f"the number of {what} is {count:,}", at=fields.at - 4)
    fields.source.budget.entry(count, what, at=fields.at)
    return count


def _text(fields: Fields, what: str) -> str:
    at = fields.at
    (length,) = struct.unpack("<H", fields.bytes(2, what))
    data = fields.bytes(length, what)
    if not 1 < length <= MAX_NAME or data[-1] or not data[:-1].isascii():
        raise FormatError("E-CT2-NAME", fields.source.path, f"{what} is not ASCII that ends in a zero", at=at)
    fields.source.budget.charge(length + 256, "the names")
    return data[:-1].decode("ascii")


def _variable(fields: Fields) -> tuple[str, StoredTensor]:
    name = _text(fields, "the name of a variable")
    at = fields.at
    (rank,) = fields.bytes(1, "the rank of a variable")
    if rank > MAX_DIMS:
        raise FormatError(
            "E-CT2-DIMS", fields.source.path, f"{name!r} has {counted(rank, 'dimension')}", at=at, expected=MAX_DIMS
        )
    shape = struct.unpack(f"<{rank}I", fields.bytes(4 * rank, "the shape of a variable"))
    kind, nbytes = struct.unpack("<BI", fields.bytes(5, "the type of a variable"))
    if kind >= len(TYPES):
        raise UnsupportedError("E-CT2-TYPE", fields.source.path, f"{name!r} has the unknown type {kind}", at=at)
    dtype = TYPES[kind]
    if nbytes != math.prod(shape) * dtype.block_nbytes:
        why = f"{name!r}, {dtype} {list(shape)}, has {counted(nbytes, 'byte')}"
        raise FormatError("E-CT2-SIZE", fields.source.path, why, at=at)
    return name, StoredTensor(dtype, shape, Region(fields.source, fields.skip(nbytes, f"variable {name!r}"), nbytes))


def _add(graph: Graph, source: Source, name: str, tensor: StoredTensor) -> None:
    if name in graph.weights:
        raise FormatError("E-CT2-TWICE", source.path, f"the name {name!r} appears twice")
    graph.weights[name] = tensor


FORMAT = Format(
    name="ctranslate2", title="CTranslate2 models (model.bin)", suffixes=(".ct2.bin",), sniff=sniff, read=read
)
