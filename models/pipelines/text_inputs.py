"""Text inputs: token ids of texts and pairs, in batches of similar lengths."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from ...runtime.base.errors import FormatError, UsageError
from ...runtime.base.units import counted
from ..tokenizer.core.encoding import Encoding, PlainEncoding, Text
from ..tokenizer.readers.locate import settings
from .packed_batches import balanced, row_length
from .task_model import Progress
from .text_model import TextInput, TextModel, embedding_rows

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

UNLIMITED = 1 << 30
"""Lengths in tokenizer_config.json from here on mean no limit."""


class TruncationWarning(UserWarning):
    """Texts were cut to the tokens that a model takes.

    Args:
        cut: number of these texts.
        texts: number of all texts.
        limit: tokens that the model takes.
    """

    def __init__(self, cut: int, texts: int, limit: int) -> None:
        super().__init__(cut, texts, limit)

    def __str__(self) -> str:
        cut, texts, limit = self.args
        some = f"{counted(cut, 'text')} of {texts:,}" if texts > 1 else "the text"
        return f"{some} {'has' if cut == 1 else 'have'} more than {counted(limit, 'token')}; the rest is not used"


def token_limit(model: TextModel, stated: int | None = None) -> int | None:
    """The most tokens of a text that a model takes; None if nothing says it.

    Args:
        stated: what the model's files say of lengths; None for what its tokenizer's say.
    """
    config = model.options.config
    values: Mapping[str, Any] = {} if config is None else config.values
    context = values.get("context")
    positions = None if context is None else context - values.get("first_position", 0)
    if stated is None and model.options.source is not None:
        said = settings(model.options.source, "tokenizer_config.json").get("model_max_length")
        stated = int(said) if isinstance(said, int | float) and 0 < said < UNLIMITED else None
    limits = [limit for limit in (positions, stated) if limit is not None]
    return min(limits, default=None)


class TextInputs:
    """Makes token ids of texts for a model.

    Args:
        limit: tokens of a text, None for any number.
    """

    def __init__(self, model: TextModel, limit: int | None) -> None:
        self._model, self.limit = model, limit
        self._rows = embedding_rows(model.graph)
        config = model.options.config
        self._pad: int | None = None if config is None else config.values.get("pad")
        self._vetted = False

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. FormatError if it has more tokens than the embedding has rows."""
        found = self._model.tokenizer
        if not self._vetted and self._rows is not None and len(found) > self._rows:
            raise FormatError(
                "E-LM-VOCABULARY",
                None,
                "the tokenizer has more tokens than the model's embedding",
                expected=f"at most {self._rows:,}",
                found=f"{len(found):,}",
                hint="Check that the tokenizer belongs to this model",
            )
        self._vetted = True
        return found

    def cut(self, texts: Sequence[TextInput]) -> list[Encoding]:
        """The tokens of texts; those that are too long are cut, with a `TruncationWarning`."""
        found = self._encoded(texts, self.limit)
        long = sum(self.limit is not None and count > self.limit for _, count in found)
        if long:
            warnings.warn(TruncationWarning(long, len(texts), self.limit or 0), stacklevel=5)
        return [encoding for encoding, _ in found]

    def whole(self, texts: Sequence[TextInput]) -> list[Encoding]:
        """The tokens of texts. UsageError for a text that is too long."""
        found = self._encoded(texts, None)
        for _, count in found:
            if self.limit is not None and count > self.limit:
                raise UsageError(
                    "E-TEXT-LONG",
                    None,
                    "the text is longer than the model's positions",
                    expected=f"at most {counted(self.limit, 'token')}",
                    found=f"{count:,}",
                    hint="Split the text",
                )
        return [encoding for encoding, _ in found]

    def order(self, texts: Sequence[TextInput]) -> list[int]:
        """Indices of texts in the order in which `batches` takes them: the longest first."""
        lengths = [len(encoding.ids) for encoding, _ in self._encoded(texts, self.limit)]
        return sorted(range(len(lengths)), key=lambda index: -lengths[index])

    def _encoded(self, texts: Sequence[TextInput], limit: int | None) -> list[tuple[Encoding, int]]:
        written = {index: text for index, text in enumerate(texts) if _is_text(text)}
        encoded = self.tokenizer.encodings(list(written.values()), limit) if written else []
        found = dict(zip(written, encoded, strict=True))
        return [found[index] if index in found else self._given(ids) for index, ids in enumerate(texts)]

    def _given(self, ids: Sequence[Any]) -> tuple[Encoding, int]:
        """Ids that are given as they are, which are never cut."""
        if isinstance(ids, str) or not all(hasattr(token, "__index__") for token in ids):
            raise UsageError(
                "E-MODEL-INPUT", None, "a text, a pair of texts or token ids are expected", found=type(ids).__name__
            )
        return PlainEncoding([int(token) for token in ids], [0] * len(ids)), 0

    def batches(
        self, encodings: Sequence[Encoding], size: int, progress: Progress | None = None
    ) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
        """Indices and feeds of up to `size` texts at a time, the longest first.

        Raises UsageError for a text without tokens, FormatError for ids beyond the embedding.
        """
        ids = [encoding.ids for encoding in encodings]
        lengths = _lengths(ids, size)
        order = sorted(range(len(ids)), key=lambda index: -lengths[index])
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            yield chosen, self._feeds([encodings[index] for index in chosen], [ids[index] for index in chosen])
            if progress is not None:
                progress(start + len(chosen), len(order))

    def packable(self, encodings: Sequence[Encoding]) -> bool:
        """Whether no text holds the token of padding, which some models do not count as a position."""
        padding = self._padding()
        return not any(padding in encoding.ids for encoding in encodings)

    def packed_batches(
        self, encodings: Sequence[Encoding], size: int, threads: int
    ) -> Iterator[tuple[list[int], dict[str, np.ndarray]]]:
        """Indices and packed feeds of up to `size` texts at a time, all of the same shapes.

        Args:
            threads: a factor of the number of batches.

        Raises as `batches` does.
        """
        ids = [encoding.ids for encoding in encodings]
        lengths = _lengths(ids, size)
        batches = balanced(lengths, size, threads)
        most = max((sum(lengths[index] for index in chosen) for chosen in batches), default=0)
        shape = (1, row_length(most))
        for chosen in batches:
            tokens, places, types = (
                np.full(shape, self._padding(), np.int64),
                np.zeros(shape, np.int64),
                np.zeros(shape, np.int64),
            )
            ends = np.cumsum([lengths[index] for index in chosen])
            for index, end in zip(chosen, ends, strict=True):
                row = slice(end - lengths[index], end)
                tokens[0, row], places[0, row] = ids[index], np.arange(lengths[index])
                types[0, row] = encodings[index].type_ids
            self._check_ids(tokens)
            ends = np.pad(ends, (0, max(map(len, batches)) - len(ends)), mode="edge")
            feeds = {"input_ids": tokens, "position_ids": places, "token_type_ids": types, "sequence_ends": ends}
            yield chosen, feeds

    def _feeds(self, encodings: Sequence[Encoding], ids: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
        names = self._model.input_names
        shape = len(ids), max(map(len, ids))
        tokens, mask = np.full(shape, self._padding(), np.int64), np.zeros(shape, np.int64)
        types = np.zeros(shape, np.int64)
        for row, (encoding, each) in enumerate(zip(encodings, ids, strict=True)):
            tokens[row, : len(each)] = each
            mask[row, : len(each)] = 1
            if "token_type_ids" in names:
                types[row, : len(each)] = encoding.type_ids
        self._check_ids(tokens)
        feeds = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": types}
        return {name: array for name, array in feeds.items() if name in names}

    def _check_ids(self, tokens: np.ndarray) -> None:
        """FormatError for ids beyond the embedding."""
        if self._rows is not None and not 0 <= int(tokens.min()) <= int(tokens.max()) < self._rows:
            raise FormatError(
                "E-LM-VOCABULARY",
                None,
                "a token id is beyond the model's embedding",
                expected=f"0 to {self._rows - 1:,}",
                found=f"{int(tokens.max()):,}",
                hint="Check that the tokenizer belongs to this model",
            )

    def _padding(self) -> int:
        """The id that fills shorter rows: the model's, else that of the tokenizer that was used, else 0."""
        found = self._model.tokenizer.pad if self._pad is None and self._vetted else self._pad
        return found if found is not None and 0 <= found < (self._rows or found + 1) else 0


def _lengths(ids: Sequence[Sequence[int]], size: int) -> list[int]:
    """Lengths of texts. UsageError for a text without tokens, and for batches of less than one text."""
    if size < 1:
        raise UsageError("E-OPTION", None, "batch is less than 1", found=size)
    lengths = [len(each) for each in ids]
    if 0 in lengths:
        raise UsageError("E-TEXT-EMPTY", None, "a text has no tokens", hint="Leave out empty texts")
    return lengths


def _is_text(given: Any) -> TypeGuard[Text]:
    return isinstance(given, str) or (
        isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, str) for part in given)
    )
