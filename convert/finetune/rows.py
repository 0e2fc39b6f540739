"""Rows of training data: JSON lines, a JSON list, CSV or TSV with a header, lines of text, or folders of pictures."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UsageError
from ...runtime.base.units import counted
from ...runtime.base.untrusted.json import parse
from ...runtime.tensor.file import Source
from ..pictures.picture_inputs import pictures_by_folder
from .row_formats import sharegpt_messages

MESSAGES, COMPLETION, TEXT, TEXT_LABEL, IMAGE_LABEL = "messages", "completion", "text", "text_label", "image_label"
ALPACA = "alpaca"
PICTURE_MESSAGES, PICTURE_COMPLETION, PICTURE_TEXT = "picture_messages", "picture_completion", "picture_text"
OF_PICTURES = (PICTURE_MESSAGES, PICTURE_COMPLETION, PICTURE_TEXT)
KINDS = {
    PICTURE_MESSAGES: ("image", "messages"),
    PICTURE_COMPLETION: ("image", "prompt", "completion"),
    MESSAGES: ("messages",),
    ALPACA: ("instruction", "output"),
    COMPLETION: ("prompt", "completion"),
    IMAGE_LABEL: ("image", "label"),
    PICTURE_TEXT: ("image", "text"),
    TEXT_LABEL: ("text", "label"),
    TEXT: ("text",),
}
"""The keys that rows of each kind have; the first kind that fits counts."""
SHAREGPT = "conversations"
"""The key of ShareGPT rows, which become messages."""
SEPARATORS = {".csv": ",", ".tsv": "\t"}
SHOWN = 80
CORRECT = "Correct the row, or leave it out"


@dataclass(frozen=True)
class Row:
    """One example as its file has it.

    Attributes:
        line: its number in the file, from 1 on.
    """

    line: int
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """The rows of a file, all of one kind.

    Attributes:
        path: of the file or folder.
        kind: a key of `KINDS`.
    """

    path: str
    kind: str
    rows: tuple[Row, ...]

    def wrong(self, row: Row, why: str, **facts: Any) -> FormatError:
        """The error of a row."""
        return FormatError("E-DATA-ROW", self.path, f"line {row.line}: {why}", **{"hint": CORRECT, **facts})


def read_rows(path: str) -> Rows:
    """The rows of a file.

    Raises FormatError for a row that is not as the first one, with the number of its line, and for a file without rows.
    """
    if os.path.isdir(path):
        pictures = pictures_by_folder(path)
        found = [Row(n, {"image": picture, "label": label}) for n, (picture, label) in enumerate(pictures, 1)]
    else:
        found = list(_read(path))
    if not found:
        raise FormatError("E-DATA-EMPTY", path, "holds no rows", hint='Write one object a line: {"text": "..."}')
    found = [_with_messages(row, path) for row in found]
    kind = _kind(found[0], path)
    rows = Rows(path, kind, tuple(found))
    for row in rows.rows:
        _check(rows, row)
    return rows


def _read(path: str) -> Iterator[Row]:
    source = Source(path)
    source.budget.charge(source.size, "the rows")
    data = bytes(source.read(0, source.size)).removeprefix(b"\xef\xbb\xbf")
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        listed = parse(data, source, 0, "E-DATA-JSON")
        if not isinstance(listed, list):
            raise FormatError(
                "E-DATA-JSON", path, "is not a list of objects", hint="Or write one object a line (.jsonl)"
            )
        yield from (Row(number, _object(each, path, number)) for number, each in enumerate(listed, 1))
    elif suffix in SEPARATORS:
        yield from _table(_text(data, path), path, SEPARATORS[suffix])
    elif suffix == ".txt":
        lines = _text(data, path).split("\n")
        yield from (Row(n, {"text": line.removesuffix("\r")}) for n, line in enumerate(lines, 1) if line.strip())
    else:
        at = 0
        for number, line in enumerate(data.split(b"\n"), 1):
            if line.strip():
                yield Row(number, _object(_json(line, source, at, number), path, number))
            at += len(line) + 1


def _json(line: bytes, source: Source, at: int, number: int) -> Any:
    try:
        return parse(line.removesuffix(b"\r"), source, at, "E-DATA-ROW")
    except FormatError as error:
        error.why = f"line {number}: {error.why}"
        raise


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "Convert it, for example with iconv -t UTF-8"
        raise FormatError("E-TEXT-UTF8", path, "the text is not UTF-8", at=error.start, hint=hint) from error


def _table(text: str, path: str, separator: str) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header: list[str] | None = None
    try:
        for cells in reader:
            if header is None:
                header = [cell.strip() for cell in cells]
            elif cells:
                if len(cells) != len(header):
                    why = f"line {reader.line_num}: {counted(len(cells), 'cell')}, but the header has {len(header)}"
                    raise FormatError("E-DATA-ROW", path, why, hint=CORRECT)
                yield Row(reader.line_num, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise FormatError("E-DATA-ROW", path, f"line {reader.line_num}: {error}") from error


def _object(value: Any, path: str, line: int) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise FormatError("E-DATA-ROW", path, f"line {line}: not an object", hint='Such as {"text": "..."}')
    return value


def _with_messages(row: Row, path: str) -> Row:
    """The row, with messages in place of a ShareGPT conversation."""
    if SHAREGPT not in row.fields or "messages" in row.fields:
        return row
    messages = sharegpt_messages(row.fields)
    if isinstance(messages, str):
        raise FormatError("E-DATA-ROW", path, f"line {row.line}: {messages}", hint=CORRECT)
    return Row(row.line, {**row.fields, "messages": messages})


def _kind(row: Row, path: str) -> str:
    for kind, keys in KINDS.items():
        if all(key in row.fields for key in keys):
            return kind
    kinds = sorted(KINDS, key=lambda kind: kind in OF_PICTURES)
    known = " or ".join("+".join(keys) for keys in (*(KINDS[kind] for kind in kinds), (SHAREGPT,)))
    said = ", ".join(list(row.fields)[:8])[:SHOWN]
    why = f"line {row.line}: has the keys {said or 'of nothing'}"
    raise FormatError("E-DATA-KEYS", path, why, expected=known, hint="Rename the keys of the rows")


def _check(rows: Rows, row: Row) -> None:
    for key in KINDS[rows.kind]:
        value = row.fields.get(key)
        if value is None:
            raise rows.wrong(row, f"lacks {key!r}")
        if key == "messages":
            _check_messages(rows, row, value)
        elif key == "label":
            if not isinstance(value, str | int | bool) or value == "":
                raise rows.wrong(row, f"the label is {str(value)[:SHOWN]!r}", expected="a name or a number")
        elif not isinstance(value, str) or not (value.strip() or key == "prompt"):
            raise rows.wrong(row, f"{key!r} is not a text", found=str(value)[:SHOWN])
    given = row.fields.get("input")
    if rows.kind == ALPACA and given is not None and not isinstance(given, str):
        raise rows.wrong(row, "'input' is not a text", found=str(given)[:SHOWN])


def _check_messages(rows: Rows, row: Row, value: Any) -> None:
    fine = isinstance(value, list) and all(
        isinstance(each, dict) and isinstance(each.get("role"), str) and isinstance(each.get("content"), str)
        for each in value
    )
    if not fine:
        raise rows.wrong(row, "'messages' is not a list of objects with role and content")
    if not any(each["role"] == "assistant" for each in value):
        raise rows.wrong(row, "no message is the assistant's, so there is nothing to learn")


def split(rows: Rows, share: float, order: Iterable[int]) -> tuple[Rows, Rows]:
    """The rows to train with, and those to evaluate with, by a random order; all for both if the share is 0.

    Raises UsageError if nothing is left to train with.
    """
    count = round(len(rows.rows) * share) if share else 0
    if not count:
        return rows, rows
    if count >= len(rows.rows):
        why = f"an --eval-split of {share:g} leaves nothing of {counted(len(rows.rows), 'row')} to train with"
        raise UsageError("E-DATA-SPLIT", rows.path, why)
    held = set(list(order)[:count])
    parts = [tuple(row for n, row in enumerate(rows.rows) if (n in held) == there) for there in (False, True)]
    return Rows(rows.path, rows.kind, parts[0]), Rows(rows.path, rows.kind, parts[1])
