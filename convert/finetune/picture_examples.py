"""Examples of rows with pictures: answers about a picture, and texts that fit one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...models.generation.kv_cache import EmbeddedPrompt
from ...models.layers.decoder import EMBEDS
from ...models.pipelines.multimodal.multimodal_language_model import MultimodalLanguageModel, joined
from ...models.preprocess.stated_preparation import stated_preparation
from ...runtime.base.errors import Error, UsageError
from ...runtime.base.units import counted
from ..trainable.losses import IGNORED
from .examples import Example, chat_pieces, picture_path, prepared_pictures
from .rows import PICTURE_COMPLETION, PICTURE_MESSAGES, Row, Rows

if TYPE_CHECKING:
    from ...models.pipelines.multimodal.dual_encoders.dual_encoder_model import DualEncoderModel
    from ...models.tokenizer import Tokenizer

Feeds = dict[str, np.ndarray]


class Answers:
    """Texts that a vision-language model learns to write about pictures. Its encoder of pictures and its embeddings are
    not trained: a batch holds the vectors that they give."""

    def __init__(self, rows: Rows, model: MultimodalLanguageModel, limit: int) -> None:
        self._rows, self._model, self._limit = rows, model, limit

    def examples(self, rows: Rows) -> list[Example]:
        """The rows as tokens. UsageError for a row whose picture takes more tokens than `limit`, or that leaves nothing
        to predict."""
        return [self._example(row) for row in rows.rows]

    def _example(self, row: Row) -> Example:
        path = picture_path(self._rows, row)
        tokenizer = self._model.tokenizer
        chat = self._rows.kind == PICTURE_MESSAGES
        if chat:
            pieces = list(chat_pieces(row, _with_picture(row.fields["messages"]), tokenizer))
            prompt = "".join(piece for piece, _ in pieces)
        else:
            completion = self._rows.kind == PICTURE_COMPLETION
            prompt = row.fields["prompt"] if completion else ""
        ids = self._prompted(row, prompt, path).ids
        if chat:
            labels = _learned(ids, pieces, tokenizer)
        else:
            further = tokenizer.encode(row.fields["completion" if completion else "text"], add_bos=False, add_eos=False)
            further = [*further, *([] if tokenizer.eos is None else [tokenizer.eos])]
            ids, labels = [*ids, *further], [*[IGNORED] * len(ids), *further]
        first = next((at for at, label in enumerate(labels) if label != IGNORED), len(ids))
        if first >= self._limit:
            why = f"line {row.line}: {counted(first, 'token')} before the answer, at most {self._limit} are learned"
            raise UsageError("E-DATA-LENGTH", self._rows.path, why, hint="Raise --max-length")
        return Example(labels[: self._limit], ids[: self._limit], picture=path, row=row, prompt=prompt)

    def _prompted(self, row: Row | None, prompt: str, path: str) -> Any:
        try:
            return self._model.prompted(prompt, [path], add_bos=False if self._rows.kind == PICTURE_MESSAGES else None)
        except Error as error:
            error.why = f"{error.why} (line {0 if row is None else row.line} of {self._rows.path})"
            raise

    def batch(self, examples: Sequence[Example], length: int) -> Feeds:
        """A batch of examples, padded on the left: vectors of tokens and of pictures, and the tokens as labels."""
        found = joined([self._embedded(example) for example in examples], length)
        labels = [[IGNORED] * (length - len(example.ids)) + list(example.labels) for example in examples]
        counted_positions = np.maximum((found.mask != 0).cumsum(1) - 1, 0)
        positions = counted_positions if found.positions is None else found.positions
        return {
            **found.inputs,
            "attention_mask": found.mask,
            "position_ids": self._model.positions_feed(positions),
            "labels": np.array(labels, np.int64),
        }

    def _embedded(self, example: Example) -> EmbeddedPrompt:
        """The tokens up to the answer as a prompt, and those after it as generation adds them."""
        count = next(at for at, label in enumerate(example.labels) if label != IGNORED)
        ids = np.array([example.ids], np.int64)
        arrays = self._prompted(example.row, example.prompt, example.picture or "").arrays
        held = {
            name: array[:, :count] if name in self._model.rules.further else array for name, array in arrays.items()
        }
        prompt = self._model.embedded(ids[:, :count], None, held)
        vectors = self._model.embed_ids(ids[:, count:])
        further = vectors.shape[1]
        inputs = {
            name: np.concatenate([array, vectors if name == EMBEDS else np.zeros_like(vectors)], 1)
            for name, array in prompt.inputs.items()
        }
        mask = np.pad(prompt.mask, ((0, 0), (0, further)), constant_values=self._model.rules.answer_mask)
        if prompt.positions is None or prompt.following is None:
            return EmbeddedPrompt(inputs, mask)
        after = np.broadcast_to(prompt.following + np.arange(further), (len(prompt.positions), 1, further))
        return EmbeddedPrompt(inputs, mask, np.concatenate([prompt.positions, after], 2), prompt.following + further)


def _with_picture(messages: Sequence[Any]) -> list[Any]:
    """Messages whose first one of the user has a picture before its text, as chat templates take it."""
    found = [dict(message) for message in messages]
    first = next((message for message in found if message["role"] == "user"), found[0])
    first["content"] = [{"type": "image"}, {"type": "text", "text": first["content"]}]
    return found


def _learned(ids: Sequence[int], pieces: Sequence[tuple[str, bool]], tokenizer: Tokenizer) -> list[int]:
    """The tokens of learned pieces, else `IGNORED`. Borders are found from the end, where no placeholders are; a token
    across one is learned."""
    text = "".join(piece for piece, _ in pieces)
    labels, at = [IGNORED] * len(ids), 0
    for piece, learned in pieces:
        start, at = at, at + len(piece)
        if learned and piece:
            after = tokenizer.encode(text[start:], add_bos=False, add_eos=False)
            count = _common(ids, after)
            first = len(ids) - count - (count < len(after))
            last = len(ids) - _common(ids, tokenizer.encode(text[at:], add_bos=False, add_eos=False))
            labels[first:last] = ids[first:last]
    return labels


def _common(ids: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens at the ends of two texts are the same."""
    pairs = zip(reversed(ids), reversed(others), strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(ids), len(others)))


class Pairs:
    """Texts with pictures that they fit, for a model with an encoder of each."""

    def __init__(self, rows: Rows, model: DualEncoderModel) -> None:
        self._rows, self._model = rows, model
        self._preparation = stated_preparation(model.graph if model.options.source is None else model.options.source)

    def examples(self, rows: Rows) -> list[Example]:
        """The rows, all of one length."""
        return [
            Example(0, picture=picture_path(self._rows, row), row=row, prompt=row.fields["text"]) for row in rows.rows
        ]

    def batch(self, examples: Sequence[Example], length: int) -> Feeds:
        """A batch of pictures, of texts, and for each text the number of its picture."""
        order, feeds = self._model.text_feeds([example.prompt for example in examples])
        pixels = prepared_pictures(self._rows, examples, self._preparation)
        return {"pixel_values": pixels, **feeds, "labels": np.array(order, np.int64)}
