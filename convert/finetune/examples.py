"""Training examples: tokens with their target tokens, or pictures with a label."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...models.generation.chat_template import prompt
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, UnsupportedError, UsageError
from ..trainable.losses import IGNORED
from .row_formats import alpaca_messages, alpaca_prompt
from .rows import ALPACA, COMPLETION, MESSAGES, TEXT, Row, Rows

if TYPE_CHECKING:
    from ...models.preprocess.preparation import Preparation
    from ...models.tokenizer import Tokenizer

SHOWN = 6


@dataclass(frozen=True)
class Example:
    """Tokens or a picture, and the target.

    Attributes:
        ids: tokens; types: their segments, of pairs of texts.
        labels: for each token what it is as a label, `IGNORED` for those that are given; or the number of a class.
        picture: a path.
        prompt: the text about the picture.
    """

    labels: Any
    ids: Sequence[int] = ()
    types: Sequence[int] = ()
    picture: str | None = None
    row: Row | None = None
    prompt: str = ""


def label_names(rows: Rows) -> list[str]:
    """The labels of rows in alphabetical order, numbers in theirs."""
    found = {_label(row) for row in rows.rows}
    numbers = all(name.isdecimal() for name in found)
    return sorted(found, key=lambda name: (int(name), name) if numbers else (0, name))


def _label(row: Row) -> str:
    return str(row.fields["label"]).strip()


def classes(rows: Rows, names: Sequence[str]) -> list[int]:
    """The number of the label of each row, by its name or the number itself.

    Raises FormatError for a label that the model does not know, with the number of its line.
    """
    by_name = {name: number for number, name in enumerate(names)}
    found = []
    for row in rows.rows:
        label = _label(row)
        number = by_name.get(label, int(label) if label.isdecimal() and len(label) < 9 else len(names))
        if number >= len(names):
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            raise rows.wrong(
                row,
                f"the model has no label {label[:80]!r}",
                expected=", ".join(names[:SHOWN]) + more,
                hint="--new-head trains a head for the labels of the data",
            )
        found.append(number)
    return found


def labeled_texts(rows: Rows, names: Sequence[str], tokenizer: Tokenizer, limit: int) -> list[Example]:
    """Texts, or pairs where rows have a ``text_pair``, with the numbers of their labels."""
    texts = [_pair(rows, row) for row in rows.rows]
    encoded = tokenizer.encodings(texts, limit)
    return [
        Example(number, encoding.ids, encoding.type_ids, row=row)
        for number, (encoding, _), row in zip(classes(rows, names), encoded, rows.rows, strict=True)
    ]


def _pair(rows: Rows, row: Row) -> Any:
    other = row.fields.get("text_pair")
    if other is not None and not isinstance(other, str):
        raise rows.wrong(row, "'text_pair' is not a text")
    return row.fields["text"] if other is None else (row.fields["text"], other)


def labeled_pictures(rows: Rows, names: Sequence[str]) -> list[Example]:
    """Pictures with the numbers of their labels; relative paths are those next to the file.

    Raises FormatError for a picture that does not exist, with the number of its line.
    """
    return [
        Example(number, picture=picture_path(rows, row), row=row)
        for number, row in zip(classes(rows, names), rows.rows, strict=True)
    ]


def picture_path(rows: Rows, row: Row) -> str:
    """The path of the picture of a row; a relative one is that next to the file. FormatError if it does not exist."""
    beside = Path() if os.path.isdir(rows.path) else Path(rows.path).parent
    path = beside / row.fields["image"]
    if not path.is_file():
        raise rows.wrong(row, f"there is no picture {str(path)[:200]!r}")
    return str(path)


def language_examples(rows: Rows, tokenizer: Tokenizer, limit: int) -> list[Example]:
    """Texts whose tokens are predicted: all, those of the completion, or those of the assistant's messages.

    Raises UsageError if nothing is to be predicted within the first `limit` tokens of any row.
    """
    if rows.kind == MESSAGES and "default" not in tokenizer.templates:
        why = f"line {rows.rows[0].line}: holds a chat, and the model lacks a chat template"
        hint = "Add one to the model: candle-convert convert MODEL OUT --chat-template FILE"
        raise UnsupportedError("E-TEMPLATE-NONE", rows.path, why, hint=hint)
    made = [_language_example(rows, row, tokenizer, limit) for row in rows.rows]
    kept = [example for example in made if any(label != IGNORED for label in example.labels[1:])]
    if not kept:
        why = f"no row has anything to predict within its first {limit} tokens"
        raise UsageError("E-DATA-LENGTH", rows.path, why, hint="Raise --max-length")
    return kept


def _language_example(rows: Rows, row: Row, tokenizer: Tokenizer, limit: int) -> Example:
    chat = rows.kind == MESSAGES or (rows.kind == ALPACA and bool(tokenizer.templates))
    if chat:
        messages = row.fields["messages"] if rows.kind == MESSAGES else alpaca_messages(row.fields)
        pieces = chat_pieces(row, messages, tokenizer)
    elif rows.kind == ALPACA:
        pieces = iter([(alpaca_prompt(row.fields), False), (row.fields["output"], True)])
    elif rows.kind == COMPLETION:
        pieces = iter([(row.fields["prompt"], False), (row.fields["completion"], True)])
    else:
        assert rows.kind == TEXT
        pieces = iter([(row.fields["text"], True)])
    ids, labels = _labeled(list(pieces), functools.partial(_encoded, tokenizer, chat=chat))
    if not chat and tokenizer.eos is not None:
        ids, labels = [*ids, tokenizer.eos], [*labels, tokenizer.eos]
    return Example(labels[:limit], ids[:limit], row=row)


def _encoded(tokenizer: Tokenizer, text: str, *, chat: bool) -> list[int]:
    """The tokens of a text, with BOS unless a chat template has written all that the model expects."""
    return tokenizer.encode(text, add_bos=False if chat else None, add_eos=False)


def _labeled(pieces: Sequence[tuple[str, bool]], encoded: Callable[[str], list[int]]) -> tuple[list[int], list[int]]:
    """The tokens of a text, which is encoded as one, and their labels: those of its learned pieces, else `IGNORED`.
    A token on the border of a learned piece is learned."""
    text = "".join(piece for piece, _ in pieces)
    ids = encoded(text)
    labels, at = [IGNORED] * len(ids), 0
    for piece, learned in pieces:
        start, at = at, at + len(piece)
        if learned and piece:
            first, _ = _border(ids, encoded(text[:start]))
            _, last = _border(ids, encoded(text[:at]))
            labels[first:last] = ids[first:last]
    return ids, labels


def _border(ids: Sequence[int], before: Sequence[int]) -> tuple[int, int]:
    """How many tokens of a text lie before a border, without and with one across it.

    Args:
        before: the tokens of the text up to the border.
    """
    equal = next((n for n, (one, other) in enumerate(zip(ids, before, strict=False)) if one != other), None)
    count = min(len(ids), len(before)) if equal is None else equal
    return count, count if count == len(before) else count + 1


def chat_pieces(row: Row, messages: list[dict[str, Any]], tokenizer: Tokenizer) -> Iterator[tuple[str, bool]]:
    """The pieces of a chat as the template writes it, and whether each is the assistant's."""
    try:
        whole = prompt(tokenizer, messages, answer=False)
        at = 0
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = prompt(tokenizer, messages[:number], answer=True)
            after = prompt(tokenizer, messages[: number + 1], answer=False)
            if at <= len(before) <= len(after) and whole.startswith(after) and after.startswith(before):
                yield whole[at : len(before)], False
                yield after[len(before) :], True
                at = len(after)
    except Error as error:
        error.why = f"line {row.line}: {error.why}"
        raise
    if not at:
        yield whole, True
    else:
        yield whole[at:], False


def padded(examples: Sequence[Example], size: int, length: int, pad: int) -> dict[str, np.ndarray]:
    """A batch of tokens of a fixed shape [size, length]; rows that are missing, and padding, have no label."""
    ids, mask = np.full((size, length), pad, np.int64), np.zeros((size, length), np.int64)
    types = np.zeros((size, length), np.int64)
    by_token = isinstance(examples[0].labels, list)
    labels = np.full((size, length) if by_token else size, IGNORED, np.int64)
    mask[len(examples) :, 0] = 1
    for row, example in enumerate(examples):
        count = len(example.ids)
        ids[row, :count], mask[row, :count] = example.ids, 1
        if example.types:
            types[row, :count] = example.types
        if by_token:
            labels[row, :count] = example.labels
        else:
            labels[row] = example.labels
    feeds = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {**feeds, "token_type_ids": types} if not by_token else feeds


def pictured(rows: Rows, examples: Sequence[Example], size: int, preparation: Preparation) -> dict[str, np.ndarray]:
    """A batch of pictures; those that are missing have no label."""
    pixels = prepared_pictures(rows, examples, preparation)
    missing = size - len(examples)
    labels = np.array([example.labels for example in examples] + [IGNORED] * missing, np.int64)
    return {
        "pixel_values": np.concatenate([pixels, np.zeros((missing, *pixels.shape[1:]), np.float32)]),
        "labels": labels,
    }


def prepared_pictures(rows: Rows, examples: Sequence[Example], preparation: Preparation) -> np.ndarray:
    """The pictures of examples, f32 [examples, channels, height, width]."""
    prepared = []
    for example in examples:
        try:
            prepared.append(preparation.prepare(example.picture))
        except Error as error:
            error.why = f"{error.why} (line {example.row.line if example.row else 0} of {rows.path})"
            raise
    feeds, _ = preparation.batch(prepared)
    pixels: np.ndarray = feeds["pixel_values"]
    return pixels
