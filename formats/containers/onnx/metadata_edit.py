"""Metadata editing of ONNX models: only metadata changes; all other fields, unknown ones included, are copied byte by
byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ....runtime.base.errors import UsageError
from ....runtime.contract.format import FileLayout, Piece
from ....runtime.contract.metadata import TYPED_KEY, to_strings
from ....runtime.ir.graph import Graph, Meta
from ....runtime.tensor.dtype import U8
from ....runtime.tensor.file import Source
from ....runtime.tensor.storage import Region
from ....runtime.tensor.stored_tensor import StoredTensor
from .protobuf import BYTES, FIXED32, FIXED64, MASK, VARINT, decode_part, encode, leading
from .schema import MESSAGES, Message

FIELDS = ("producer_name", "producer_version", "domain", "model_version", "doc_string")
"""Model fields that are metadata in addition to `metadata_props`, under their own names."""
INTEGERS = frozenset({"model_version"})
ENTRY = "metadata_props"
NUMBERS = {field.name: number for number, field in MESSAGES["Model"].items()}
HEAD = 20
"""Maximum length of a tag and a length in bytes."""


class Part(NamedTuple):
    """A field of the model message: the span of its tag and value, and of its value alone."""

    number: int
    start: int
    value: int
    stop: int


def fields_of(graph: Graph) -> dict[str, Meta]:
    """The model's metadata fields that are present in the file."""
    carried = graph.carried or {}
    return {name: carried[name] for name in FIELDS if name in carried}


def rewritten(source: Source, graph: Graph, changes: Mapping[str, Meta], name: str) -> FileLayout:
    """The file `name` with other metadata.

    Args:
        graph: of the source, its metadata changed already.
        changes: keys and their new values, None for one that is removed.

    Raises UsageError for a value that a field cannot hold.
    """
    texts = _texts(graph, changes)
    scalars = {key: _scalar(key, value) for key, value in changes.items() if key in FIELDS}
    numbers = {NUMBERS[key]: made for key, made in scalars.items()}
    pieces: list[bytes | Part] = []
    last = 0
    for part in _parts(source):
        made: bytes | Part = part
        if part.number in numbers:
            made = numbers.pop(part.number)
        elif part.number == NUMBERS[ENTRY]:
            key = str(decode_part(source, "Entry", part.value, part.stop).get("key", ""))
            if key in texts:
                made = _entry(key, texts[key])
                texts[key] = None
        pieces.append(made)
        last = len(pieces) if part.number == NUMBERS[ENTRY] else last
    new = [*numbers.values(), *(_entry(key, text) for key, text in texts.items())]
    place = last or len(pieces)
    pieces[place:place] = new
    return _layout(source, name, pieces)


def _texts(graph: Graph, changes: Mapping[str, Meta]) -> dict[str, str | None]:
    """Changed entries: strings under their keys, all other values under one key of this package."""
    strings = to_strings(graph)
    keys = [key for key in changes if key not in FIELDS]
    return {key: strings.get(key) for key in (*keys, *([TYPED_KEY] if keys else []))}


def _entry(key: str, text: str | None) -> bytes:
    if text is None:
        return b""
    message = Message("Model", **{ENTRY: [Message("Entry", key=key, value=text)]})
    return b"".join(part for part in encode(message) if isinstance(part, bytes))


def _scalar(key: str, value: Meta) -> bytes:
    """An encoded field of the model."""
    if value is None:
        return b""
    if key in INTEGERS:
        try:
            value = int(value)
        except (TypeError, ValueError) as error:
            raise UsageError("E-META-VALUE", None, f"{key} is an integer, and {str(value)[:60]!r} is not") from error
        if not -(1 << 63) <= value < 1 << 63:
            raise UsageError("E-META-VALUE", None, f"{key} is an integer of 64 bits, and {value} is not")
        value &= MASK
    elif not isinstance(value, str):
        raise UsageError("E-META-VALUE", None, f"{key} is a string", hint="Omit --type")
    return b"".join(part for part in encode(Message("Model", **{key: value})) if isinstance(part, bytes))


def _parts(source: Source) -> Iterator[Part]:
    """The fields of the model in the file's order; the file has been validated by reading."""
    at = 0
    while at < source.size:
        head = source.read(at, min(HEAD, source.size - at))
        tag, used = leading(head)
        value, more = leading(head[used:])
        sizes = {VARINT: more, FIXED64: 8, FIXED32: 4, BYTES: more + value}
        stop = at + used + sizes[tag & 7]
        yield Part(tag >> 3, at, at + used + (more if tag & 7 == BYTES else 0), stop)
        at = stop


def _layout(source: Source, name: str, pieces: list[bytes | Part]) -> FileLayout:
    """The output file; unchanged parts are copied in the longest possible runs."""
    found: list[Piece] = []
    runs: list[bytes | tuple[int, int]] = []
    for piece in pieces:
        before = runs[-1] if runs else None
        if isinstance(piece, bytes):
            runs += [piece] if piece else []
        elif isinstance(before, tuple) and before[1] == piece.start:
            runs[-1] = (before[0], piece.stop)
        else:
            runs.append((piece.start, piece.stop))
    at = 0
    for run in runs:
        nbytes = len(run) if isinstance(run, bytes) else run[1] - run[0]
        found.append(
            Piece(at, run if isinstance(run, bytes) else StoredTensor(U8, (nbytes,), Region(source, run[0], nbytes)))
        )
        at += nbytes
    return FileLayout(name, at, tuple(found))
