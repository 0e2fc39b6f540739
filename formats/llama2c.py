"""llama2.c ``.bin`` checkpoints: seven int32 sizes, then weights in a fixed order without names.

Version 0 has a header of 28 bytes, and a negative vocabulary size if the classifier is not tied to the embedding; after
the last norm come tables of rotary cosines and sines, unused by llama2.c. Versions 1 and 2 begin with "ak42" and have a
header of 256 bytes. Version 2 stores matrices as int8 in groups with one f32 scale: ``NAME.q`` and ``NAME.scale``,
``value = q * scale`` of its group. (The first exports of version 2, which no released program reads, have all scales at
the end; they are rejected.) Rows of wq and wk are in the order of interleaved rotary pairs. Source: llama2.c's
export.py, run.c and runq.c.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from ..runtime.base.dataclass import dataclass
from ..runtime.base.errors import FormatError, UnsupportedError
from ..runtime.base.units import counted
from ..runtime.contract.format import Format, ReadOptions
from ..runtime.ir.graph import Graph
from ..runtime.tensor.dtype import F32, I8, DType
from ..runtime.tensor.file import Source
from ..runtime.tensor.storage import Region
from ..runtime.tensor.stored_tensor import StoredTensor

MAGIC = b"24ka"
SIZES = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
HEADERS = {0: 28, 1: 256, 2: 256}
MAX_SIZE = 1 << 24
"""Limit of every size; random bytes nearly always exceed it."""
SAMPLE = 64
NORMS = ("attention_norm", "ffn_norm")
ATTENTION = ("attention.wq", "attention.wk", "attention.wv", "attention.wo")
FEED_FORWARD = ("feed_forward.w1", "feed_forward.w2", "feed_forward.w3")
ORDERS: dict[int, tuple[str, ...]] = {
    0: (
        "tok_embeddings",
        "layers.attention_norm",
        *(f"layers.{name}" for name in ATTENTION),
        "layers.ffn_norm",
        *(f"layers.{name}" for name in FEED_FORWARD),
        "norm",
        "freq_cis_real",
        "freq_cis_imag",
        "output",
    ),
    1: (
        *(f"layers.{name}" for name in NORMS),
        "norm",
        "tok_embeddings",
        *(f"layers.{name}" for name in (*ATTENTION, *FEED_FORWARD)),
        "output",
    ),
}
ORDERS[2] = ORDERS[1]
"""Stored weights by version, in order; one that begins with ``layers.`` is stored for every layer."""


@dataclass(frozen=True)
class _Header:
    """Contents of the header.

    Attributes:
        sizes: by name, all positive.
        shared: whether the classifier is tied to the embedding, and not stored.
        group: elements per scale, 0 if not quantized.
    """

    version: int
    sizes: dict[str, int]
    shared: bool
    group: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes by weight name."""
        dim, hidden, _, heads, kv_heads, vocab, seq = self.sizes.values()
        head_dim = dim // heads
        kv = (kv_heads * head_dim, dim)
        return {
            "tok_embeddings": (vocab, dim),
            "output": (vocab, dim),
            "norm": (dim,),
            "layers.attention_norm": (dim,),
            "layers.ffn_norm": (dim,),
            "layers.attention.wq": (dim, dim),
            "layers.attention.wk": kv,
            "layers.attention.wv": kv,
            "layers.attention.wo": (dim, dim),
            "layers.feed_forward.w1": (hidden, dim),
            "layers.feed_forward.w2": (dim, hidden),
            "layers.feed_forward.w3": (hidden, dim),
            "freq_cis_real": (seq, head_dim // 2),
            "freq_cis_imag": (seq, head_dim // 2),
        }

    @property
    def order(self) -> list[str]:
        """Names of the stored weights."""
        return [name for name in ORDERS[self.version] if not (self.shared and name == "output")]

    @property
    def nbytes(self) -> int:
        """Size of the whole file in bytes."""
        shapes, layers = self.shapes, self.sizes["n_layers"]
        each = (self.weight_nbytes(shapes[name]) * (layers if name.startswith("layers.") else 1) for name in self.order)
        return HEADERS[self.version] + sum(each)

    def weight_nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of one weight, with its scales if it is quantized."""
        count = math.prod(shape)
        return count + count // self.group * 4 if self.quantizes(shape) else count * 4

    def quantizes(self, shape: tuple[int, ...]) -> bool:
        """Whether a weight of this shape is stored as int8."""
        return self.group > 0 and len(shape) > 1


def sniff(source: Source) -> bool:
    """The magic with a known version, or plausible sizes that add up to exactly the file's size."""
    head = source.head(HEADERS[0])
    if head[:4] == MAGIC and head[5:8] == bytes(3):
        return True
    if len(head) < HEADERS[0]:
        return False
    header = _version_0(head)
    return _fault(header) is None and header.nbytes == source.size


def read(source: Source, options: ReadOptions) -> Graph:
    """The weights as regions of the file, named as in llama2.c's own checkpoints; sizes as metadata."""
    header = _header(source)
    fault = _fault(header)
    if fault is not None:
        why = f"the sizes are not those of a model: {fault}"
        raise FormatError("E-LLAMA2C-SIZES", source.path, why, at=0 if header.version == 0 else 8)
    if header.nbytes != source.size:
        missing = header.nbytes - source.size
        why = (
            f"{counted(missing, 'byte', verb='is')} missing"
            if missing > 0
            else f"{counted(-missing, 'byte', verb='follows')} the last weight"
        )
        raise FormatError(
            "E-LLAMA2C-TRUNCATED" if missing > 0 else "E-LLAMA2C-TRAILING",
            source.path,
            why,
            at=min(source.size, header.nbytes),
            expected=f"{counted(header.nbytes, 'byte')}",
            found=f"{source.size:,}",
            hint="Download the file again",
        )
    graph = Graph(format="llama2c", files=[source.path])
    graph.metadata = {"llama2c.version": header.version} | {
        f"llama2c.{name}": size for name, size in header.sizes.items()
    }
    graph.metadata |= {"llama2c.shared_classifier": header.shared} | (
        {"llama2c.group_size": header.group} if header.group else {}
    )
    source.budget.entry(len(header.order) * header.sizes["n_layers"], "tensors", at=0)
    offset = HEADERS[header.version]
    for name, dtype, shape in _stored(header):
        size = math.prod(shape) * dtype.block_nbytes
        graph.weights[name] = StoredTensor(dtype, shape, Region(source, offset, size))
        offset += size
    if header.group:
        _check_scales(graph.weights["tok_embeddings.weight.scale"], source)
    return graph


def _header(source: Source) -> _Header:
    head = source.head(HEADERS[1])
    if len(head) < HEADERS[0]:
        raise _short(source, HEADERS[0])
    if head[:4] != MAGIC:
        return _version_0(head)
    version, *sizes = struct.unpack_from("<8i", head.ljust(HEADERS[1], b"\0"), 4)
    if version not in (1, 2):
        raise UnsupportedError("E-LLAMA2C-VERSION", source.path, f"unknown version {version}", at=4, expected="1 or 2")
    if len(head) < HEADERS[version]:
        raise _short(source, HEADERS[version])
    shared, group = struct.unpack_from("<Bi", head, 36)
    end = 41 if version == 2 else 37
    if shared > 1 or any(head[end:]) or (version == 2 and not 0 < group <= MAX_SIZE):
        why = f"the header goes on with classifier flag {shared} and group size {group}, or its rest is not zero"
        raise FormatError("E-LLAMA2C-HEADER", source.path, why, at=36)
    return _Header(version, dict(zip(SIZES, sizes, strict=True)), bool(shared), group if version == 2 else 0)


def _short(source: Source, header: int) -> FormatError:
    return FormatError(
        "E-LLAMA2C-TRUNCATED",
        source.path,
        "too short for a header",
        at=source.size,
        expected=f"{header} bytes",
        found=source.size,
        hint="The file is truncated; download it again",
    )


def _version_0(head: bytes) -> _Header:
    sizes = dict(zip(SIZES, struct.unpack_from("<7i", head), strict=True))
    shared = sizes["vocab_size"] > 0
    return _Header(0, sizes | {"vocab_size": abs(sizes["vocab_size"])}, shared, 0)


def _fault(header: _Header) -> str | None:
    """The contradiction among the sizes, or None."""
    for name, size in header.sizes.items():
        if not 0 < size <= MAX_SIZE:
            return f"{name} is {size:,}"
    dim, _, _, heads, kv_heads, _, _ = header.sizes.values()
    if dim % heads or dim // heads % 2 or heads % kv_heads:
        return f"{heads} heads, {kv_heads} of them with keys, do not divide {dim} dimensions evenly"
    if any(
        header.quantizes(shape) and math.prod(shape) % header.group
        for shape in map(header.shapes.__getitem__, header.order)
    ):
        return f"groups of {header.group} do not fill the matrices"
    return None


def _stored(header: _Header) -> Iterator[tuple[str, DType, tuple[int, ...]]]:
    """Name, dtype and shape of every stored tensor, in order."""
    shapes = header.shapes
    for kind in header.order:
        shape, suffix = shapes[kind], "" if kind.startswith("freq_cis") else ".weight"
        for layer in range(header.sizes["n_layers"] if kind.startswith("layers.") else 1):
            name = kind.replace("layers.", f"layers.{layer}.", 1) + suffix
            if not header.quantizes(shape):
                yield name, F32, shape
                continue
            rows, columns = shape
            whole = columns % header.group == 0
            yield f"{name}.q", I8, shape
            yield f"{name}.scale", F32, (rows, columns // header.group) if whole else (rows * columns // header.group,)


def _check_scales(scales: StoredTensor, source: Source) -> None:
    """Raise FormatError if the first scales are implausible."""
    count = min(SAMPLE, scales.count)
    values = struct.unpack(f"<{count}f", scales.storage.read(0, 4 * count))
    if not all(math.isfinite(value) and value >= 0 for value in values):
        at = scales.storage.offset if isinstance(scales.storage, Region) else None
        why = (
            "the scales of the embedding are not positive numbers: this is damaged, "
            "or an early version 2 with all scales at the end"
        )
        raise UnsupportedError(
            "E-LLAMA2C-SCALES", source.path, why, at=at, hint="Export it again with a current llama2.c"
        )


FORMAT = Format(
    name="llama2c", title="llama2.c checkpoints, versions 0 to 2", suffixes=(".llama2c.bin",), sniff=sniff, read=read
)
