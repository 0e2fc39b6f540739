"""Pre-GGUF records that llama and whisper files share: vocabulary and tensors, and detection of the two families.

A tensor record is three int32 (rank, length of the name, type), one int32 per dimension, fastest first, the name, and
the data. Sources: the loaders and converters of llama.cpp and whisper.cpp, March to June 2023.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, FormatError, UnsupportedError
from ...runtime.base.units import counted
from ...runtime.tensor.dtype import BY_GGML, DTYPES, F16, F32, DType
from ...runtime.tensor.element_packing import nbytes
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage import Region
from ...runtime.tensor.stored_tensor import StoredTensor
from .binary_fields import Fields

if TYPE_CHECKING:
    import numpy as np

UNVERSIONED = b"lmgg"
"""The magic number 0x67676d6c ("ggml") in little-endian order."""
LLAMA = ("n_vocab", "n_embd", "n_mult", "n_head", "n_layer", "n_rot", "ftype")
WHISPER = (
    "n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer",
    "n_text_ctx", "n_text_state", "n_text_head", "n_text_layer", "n_mels", "ftype",
)  # fmt: skip
FTYPES = range(19)
"""All file types ever written, 0 (all f32) to 18 (mostly q6_k)."""
MAX_NAME = 4096
PLAIN = {0: F32, 1: F16}
TYPES: tuple[Mapping[int, DType], ...] = (
    PLAIN | {2: DTYPES["q4_0_v1"], 3: DTYPES["q4_1_v1"], 4: DTYPES["q4_2"], 5: DTYPES["q4_3"]}
    | {6: DTYPES["q5_0_v1"], 7: DTYPES["q5_1_v1"], 8: DTYPES["q8_0_v1"]},
    PLAIN | {2: DTYPES["q4_0_v2"], 3: DTYPES["q4_1_v2"], 6: DTYPES["q5_0"], 7: DTYPES["q5_1"], 8: DTYPES["q8_0_v1"]},
    PLAIN | {number: BY_GGML[number] for number in (2, 3, 6, 7, 8, 10, 11, 12, 13, 14)},
)  # fmt: skip
"""Tensor types by quantization version: before May 14, before May 20 2023, and since."""


@dataclass(frozen=True)
class Record:
    """A tensor of a file and the offset of its data."""

    name: str
    offset: int
    tensor: StoredTensor


def magic(source: Source) -> bytes:
    """The first four bytes."""
    return source.head(4)


def family(source: Source) -> str | None:
    """The family whose hyper-parameters an unversioned file has: "llama", "whisper", or None if neither or both fit."""
    head = source.head(4 + 4 * len(WHISPER) + 8)
    values = [int.from_bytes(head[at : at + 4], "little", signed=True) for at in range(4, len(head) - 3, 4)]
    fits = [name for name, test in (("llama", fits_llama), ("whisper", fits_whisper)) if test(values)]
    return fits[0] if len(fits) == 1 else None


def fits_llama(values: list[int]) -> bool:
    """Whether int32 values are positive sizes and n_rot is the size of one head."""
    if len(values) < len(LLAMA) or min(values[:6]) <= 0:
        return False
    _, embd, _, head, _, rot = values[:6]
    return embd % head == 0 and rot == embd // head


def fits_whisper(values: list[int]) -> bool:
    """Whether int32 values are positive sizes, encoder and decoder have the same width, and the number of mel filters
    matches."""
    if len(values) < len(WHISPER) + 2 or min(values[:10]) <= 0 or values[12] <= 0:
        return False
    _, _, audio_state, audio_head, _, _, text_state, text_head, _, mels = values[:10]
    return audio_state == text_state and audio_state % audio_head == 0 == text_state % text_head and mels == values[11]


def vocabulary(fields: Fields, count: int, scored: bool) -> tuple[list[str | bytes], np.ndarray | None]:
    """`count` tokens (bytes if not UTF-8), and their scores as float32 [count] if `scored`."""
    import numpy

    source, entry = fields.source, 8 if scored else 4
    fields.need(count * entry, f"the vocabulary of {counted(count, 'token')}")
    source.budget.entry(count, "tokens", at=fields.at)
    source.budget.charge(count * 64, "the vocabulary", at=fields.at)
    tokens: list[str | bytes] = []
    scores = []
    for index in range(count):
        (length,) = fields.ints(1, "the length of a token")
        if not 0 <= length <= fields.left:
            why = f"token {index:,} claims {counted(length, 'byte')}, {fields.left:,} are left"
            raise _malformed(source, "E-GGML-TOKEN", why, fields.at - 4)
        source.budget.charge(length, "the vocabulary", at=fields.at)
        tokens.append(_text(fields.bytes(length, "a token")))
        if scored:
            scores.append(fields.bytes(4, "the score of a token"))
    return tokens, numpy.frombuffer(b"".join(scores), "<f4").astype(numpy.float32) if scored else None


def records(fields: Fields, types: Mapping[int, DType], max_dims: int, alignment: int) -> Iterator[Record]:
    """The tensors up to the end of the file, with data aligned to `alignment`."""
    source, seen = fields.source, set()
    while fields.left:
        at = fields.at
        source.budget.entry(1, "tensors", at=at)
        dims, length, kind = fields.ints(3, "the record of a tensor")
        if not 1 <= dims <= max_dims:
            raise _malformed(source, "E-GGML-DIMS", f"a tensor has {dims} dimensions", at, expected=f"1 to {max_dims}")
        if not 1 <= length <= MAX_NAME:
            raise _malformed(
                source,
                "E-GGML-NAME",
                f"the name of a tensor has {counted(length, 'byte')}",
                at,
                expected=f"1 to {MAX_NAME:,}",
            )
        shape = fields.ints(dims, "the shape of a tensor")[::-1]
        name = _text(fields.bytes(length, "the name of a tensor"))
        source.budget.charge(length + 256, "the tensor records", at=at)
        if isinstance(name, bytes):
            raise _malformed(source, "E-GGML-NAME", f"the name {name[:80]!r} of a tensor is not UTF-8", at)
        if name in seen:
            raise _malformed(source, "E-GGML-TWICE", f"tensor {name!r} appears twice in the file", at)
        seen.add(name)
        dtype = _dtype(source, types, kind, name, at)
        yield Record(name, at, _tensor(fields, name, dtype, shape, alignment))


def _tensor(fields: Fields, name: str, dtype: DType, shape: tuple[int, ...], alignment: int) -> StoredTensor:
    source = fields.source
    if min(shape) < 1:
        raise _malformed(source, "E-GGML-DIMS", f"tensor {name!r} has the shape {list(shape)}", fields.at)
    size = nbytes(dtype, shape)
    if size is None:
        why = f"a row of tensor {name!r} is not made of whole {dtype} blocks of {dtype.block}"
        raise _malformed(source, "E-GGML-BLOCK", why, fields.at, found=shape[-1])
    padding = fields.at
    if any(fields.bytes(-padding % alignment, f"the padding before tensor {name!r}")):
        raise _malformed(
            source,
            "E-GGML-ALIGNMENT",
            f"the data of tensor {name!r} is not at a multiple of {alignment}: its padding is not zero",
            padding,
            hint="The file was written without padding, or is damaged",
        )
    return StoredTensor(
        dtype, shape, Region(source, fields.skip(size, f"tensor {name!r}, {dtype} {list(shape)},"), size)
    )


def _dtype(source: Source, types: Mapping[int, DType], kind: int, name: str, at: int) -> DType:
    if kind not in types:
        raise UnsupportedError(
            "E-GGML-TYPE",
            source.path,
            f"tensor {name!r} has the type {kind}, which files of this version cannot have",
            at=at,
            expected=", ".join(f"{number} ({dtype})" for number, dtype in types.items()),
        )
    return types[kind]


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _malformed(
    source: Source,
    code: str,
    why: str,
    at: int,
    *,
    expected: object = None,
    found: object = None,
    hint: str | None = None,
) -> Error:
    return FormatError(
        code,
        source.path,
        why,
        at=at,
        expected=expected,
        found=found,
        hint=hint or "The file is damaged, or of another model family",
    )
