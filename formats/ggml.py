"""Pre-GGUF llama files: unversioned ``ggml``, ``ggmf`` 1 and ``ggjt`` 1 to 3, in one file or split into parts.

Magic and version, seven hyper-parameters, the vocabulary (with scores from ``ggmf`` on), then tensors; ``ggjt`` aligns
their data to 32. Tokens are kept as stored, with spaces and raw bytes instead of SentencePiece's escapes. Quantized
tensors of ``ggjt`` 3 have current types; older ones have block types of their own. (Unversioned Q4_1 files from before
17 March 2023 stored the scales of a row separately; they look alike.) Larger models were split, one file for
each of Meta's, into ``x.bin``, ``x.bin.1`` and so on: matrices by rows or by columns. Sources: llama.cpp's loader, its
convert.py and migrate-ggml-2023-03-30-pr613.py, pull requests 613, 1405, 1508.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..runtime.base.dataclass import dataclass
from ..runtime.base.errors import FormatError, UnsupportedError
from ..runtime.base.units import counted
from ..runtime.contract.format import Format, ReadOptions
from ..runtime.ir.graph import Graph, Meta
from ..runtime.tensor.file import Source, contained
from ..runtime.tensor.stored_tensor import StoredTensor
from .containers import ggml_records
from .containers.binary_fields import Fields
from .containers.ggml_records import FTYPES, LLAMA, TYPES, UNVERSIONED, Record
from .containers.stacked_tensor import concat_columns, concat_rows

MAGICS = {UNVERSIONED: "ggml", b"fmgg": "ggmf", b"tjgg": "ggjt"}
OTHERS = {
    b"algg": "a GGML LoRA adapter (ggla)",
    b"nsgg": "a saved llama.cpp session (ggsn)",
    b"ccgg": "a Falcon model of ggllm.cpp (ggcc)",
}
ALIGNMENT = 32
MAX_DIMS = 2
GLOBAL = ("tok_embeddings.weight", "norm.weight", "output.weight")
LAYER = (
    "attention.wq.weight", "attention.wk.weight", "attention.wv.weight", "attention.wo.weight", "attention_norm.weight",
    "feed_forward.w1.weight", "feed_forward.w2.weight", "feed_forward.w3.weight", "ffn_norm.weight",
)  # fmt: skip
BY_COLUMNS = re.compile(r"tok_embeddings\.weight|layers\.\d+\.(attention\.wo|feed_forward\.w2)\.weight")
"""Matrices split by columns over the parts of a model; all others are split by rows."""


@dataclass(frozen=True)
class _Part:
    """One file: its header, and its tensors by name."""

    source: Source
    magic: str
    version: int
    hparams: dict[str, int]
    tokenizer: dict[str, Meta]
    records: dict[str, Record]


def sniff(source: Source) -> bool:
    """A known magic number, and hyper-parameters other than whisper.cpp's."""
    magic = ggml_records.magic(source)
    return magic in OTHERS or (
        magic in MAGICS and not (magic == UNVERSIONED and ggml_records.family(source) == "whisper")
    )


def read(source: Source, options: ReadOptions) -> Graph:
    """The tensors in the file's order, hyper-parameters and vocabulary as metadata; the parts of a split model are
    merged."""
    first = _part(source)
    parts = _siblings(first, _part_count(first))
    first = parts[0]
    graph = Graph(format="ggml", files=[part.source.path for part in parts])
    graph.metadata = {"ggml.magic": first.magic, "ggml.version": first.version}
    graph.metadata |= {f"ggml.{name}": value for name, value in first.hparams.items()}
    graph.metadata |= first.tokenizer
    graph.weights = {name: _joined(parts, name) for name in first.records}
    return graph


def _part(source: Source) -> _Part:
    fields = Fields(source, "E-GGML-TRUNCATED")
    magic, version = _version(fields)
    at = fields.at
    hparams = dict(zip(LLAMA, fields.ints(len(LLAMA), "the hyper-parameters"), strict=True))
    _check_hparams(source, hparams, magic, at)
    tokens, scores = ggml_records.vocabulary(fields, hparams["n_vocab"], magic != "ggml")
    tokenizer: dict[str, Meta] = {"tokenizer.ggml.tokens": tokens} | (
        {} if scores is None else {"tokenizer.ggml.scores": scores}
    )
    types = TYPES[version - 1 if magic == "ggjt" else 0]
    found = ggml_records.records(fields, types, MAX_DIMS, ALIGNMENT if magic == "ggjt" else 1)
    part = _Part(source, magic, version, hparams, tokenizer, {record.name: record for record in found})
    _check_complete(part)
    return part


def _version(fields: Fields) -> tuple[str, int]:
    source = fields.source
    head = fields.bytes(4, "the magic number")
    if head in OTHERS:
        raise UnsupportedError("E-GGML-KIND", source.path, f"is {OTHERS[head]}, not a model that can be read", at=0)
    if head not in MAGICS:
        why = "does not start with a GGML magic number"
        raise FormatError("E-GGML-MAGIC", source.path, why, at=0, expected="lmgg, fmgg or tjgg", found=head)
    magic = MAGICS[head]
    if magic == "ggml":
        return magic, 0
    (version,) = fields.ints(1, "the version")
    known = {"ggmf": 1, "ggjt": len(TYPES)}[magic]
    if not 1 <= version <= known:
        family = ", as models of rwkv.cpp have" if magic == "ggmf" and version >= 100 else ""
        raise UnsupportedError(
            "E-GGML-VERSION", source.path, f"unknown {magic} version {version}{family}", at=4, expected=f"1 to {known}"
        )
    return magic, version


def _check_hparams(source: Source, hparams: dict[str, int], magic: str, at: int) -> None:
    shown = ", ".join(f"{name} {value}" for name, value in hparams.items())
    if not ggml_records.fits_llama(list(hparams.values())):
        if magic == "ggml" and min(hparams.values()) >= 0:
            hint = (
                "Files of the llama family and of whisper.cpp are read; those of gpt-2, gpt-j, mpt and others are not"
            )
            raise UnsupportedError(
                "E-GGML-FAMILY", source.path, "is a GGML file of another model family", at=at, hint=hint
            )
        raise FormatError(
            "E-GGML-HPARAMS", source.path, f"the hyper-parameters are not those of a llama model: {shown}", at=at
        )
    if hparams["ftype"] not in FTYPES:
        raise UnsupportedError(
            "E-GGML-FTYPE", source.path, f"unknown file type (ftype) {hparams['ftype']}", at=at, expected="0 to 18"
        )


def _check_complete(part: _Part) -> None:
    layers, have = part.hparams["n_layer"], part.records
    total = len(GLOBAL) + layers * len(LAYER)
    names = (*GLOBAL, *(f"layers.{layer}.{name}" for layer in range(min(layers, len(have) + 1)) for name in LAYER))
    missing = next((name for name in names if name not in have), None)
    if missing is not None:
        raise FormatError(
            "E-GGML-TRUNCATED",
            part.source.path,
            f"tensor {missing!r} is missing: the file ends after {counted(len(have), 'tensor')}",
            at=part.source.size,
            expected=f"{counted(total, 'tensor')} for {counted(layers, 'layer')}",
            hint="The file is truncated; download it again",
        )


def _part_count(part: _Part) -> int:
    """Number of files of the model: each stores an equal part of the embedding's columns."""
    record, width = part.records[GLOBAL[0]], part.hparams["n_embd"]
    columns = record.tensor.shape[-1]
    if width % columns:
        why = f"the embeddings have {counted(columns, 'column')}, which does not divide n_embd"
        raise FormatError("E-GGML-PARTS", part.source.path, why, at=record.offset, expected=f"a divisor of {width:,}")
    return width // columns


def _siblings(part: _Part, count: int) -> list[_Part]:
    """All parts of a model in order, from any of them."""
    if count == 1:
        return [part]
    path = Path(part.source.path)
    numbered = re.fullmatch(r"(.+)\.(\d+)", path.name)
    number = int(numbered[2]) if numbered is not None and len(numbered[2]) < 4 and 0 < int(numbered[2]) < count else 0
    stem = numbered[1] if numbered is not None and number else path.name
    hint = f"It is split into {counted(count, 'file')}: {stem}, {stem}.1 and so on must lie in one folder"
    parts = []
    for index in range(count):
        name = f"{stem}.{index}" if index else stem
        if index == number:
            parts.append(part)
        elif (path.parent / name).exists():
            parts.append(_part(Source(contained(path.parent, name, part.source.path))))
        else:
            why = f"part {name!r} of the model is missing"
            raise FormatError("E-GGML-PARTS", part.source.path, why, expected=counted(count, "file"), hint=hint)
    if (path.parent / f"{stem}.{count}").exists():
        why = f"{stem}.{count} is one part too many"
        raise FormatError("E-GGML-PARTS", part.source.path, why, expected=counted(count, "file"), hint=hint)
    for other in parts[1:]:
        _check_alike(parts[0], other)
    return parts


def _check_alike(first: _Part, other: _Part) -> None:
    def described(part: _Part) -> list[object]:
        return [
            part.magic,
            part.version,
            part.hparams,
            {name: (record.tensor.dtype, record.tensor.shape) for name, record in part.records.items()},
        ]

    if described(first) != described(other):
        why = f"is not a part of the same model as {Path(first.source.path).name}: hyper-parameters or tensors differ"
        raise FormatError("E-GGML-PARTS", other.source.path, why, hint="Copy all parts from one download")


def _joined(parts: list[_Part], name: str) -> StoredTensor:
    tensors = [part.records[name].tensor for part in parts]
    first, storages = tensors[0], [tensor.storage for tensor in tensors]
    if len(parts) == 1 or len(first.shape) == 1:
        return first
    rows, columns = first.shape
    if BY_COLUMNS.fullmatch(name):
        return StoredTensor(first.dtype, (rows, columns * len(parts)), concat_columns(storages, rows))
    return StoredTensor(first.dtype, (rows * len(parts), columns), concat_rows(storages))


FORMAT = Format(
    name="ggml",
    title="GGML before GGUF, llama family: ggml, ggmf, ggjt 1 to 3",
    suffixes=(".ggml", ".ggmf", ".ggjt"),
    sniff=sniff,
    read=read,
)
