"""Prompts of text-to-image models: token ids in rows of a fixed length, and what the text encoders make of them."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.base.errors import UnsupportedError, UsageError
from ....runtime.base.units import counted
from ....runtime.contract.loaded_parts import LoadedParts
from ....runtime.ir.graph import Graph
from ...tokenizer.readers.locate import settings
from .text_to_image import ALL_STATES, PENULTIMATE, TEXT_CONDITIONING, Encoded, TextEncoder

ADDED = "added_tokens.json"
MOST_ROWS = 16
"""Rows of a chunked prompt; 16 of CLIP's are 1,200 tokens."""
Rows = list[list[int]]


def spelled_out(prompt: str, added: Mapping[str, Any]) -> str:
    """A prompt with every token of the words that stand for several, ``WORD WORD_1 WORD_2``, as diffusers names the
    tokens of textual inversion.

    Args:
        added: the tokens that are added to the vocabulary.
    """
    if not added:
        return prompt

    def tokens(match: re.Match[str]) -> str:
        following = (f"{match[0]}_{number}" for number in itertools.count(1))
        return " ".join([match[0], *itertools.takewhile(added.__contains__, following)])

    return re.sub("|".join(map(re.escape, sorted(added, key=len, reverse=True))), tokens, prompt)


class LongPromptWarning(UserWarning):
    """A prompt has more tokens than a text encoder takes at once."""


class PromptEncoder:
    """Encodes prompts with the text encoders of a model.

    Args:
        parts: of the model, the text encoders among them.
        source: what was opened, with the files of the tokenizers.
        encoders: of the model.
    """

    def __init__(self, parts: LoadedParts, source: Graph | None, encoders: Sequence[TextEncoder]) -> None:
        self._parts, self._source, self._encoders = parts, source, encoders
        self._pads: dict[str, int] = {}

    def __call__(self, prompts: Sequence[str]) -> list[list[Encoded | None]]:
        """The output of each encoder for each prompt, None for an encoder that the model lacks. Where prompts are
        padded, the hidden states of all have the same number of tokens.

        Raises UsageError for a prompt of more than `MOST_ROWS` rows.
        """
        rows = [[self._rows(encoder, prompt) for prompt in prompts] for encoder in self._encoders]
        chunked = [len(of) for per, each in zip(rows, self._encoders, strict=True) if each.chunked for of in per]
        most = max(chunked, default=1)
        columns = [
            self.encoded(each, [self._filled(each, of, most) for of in per])
            for each, per in zip(self._encoders, rows, strict=True)
        ]
        return [list(found) for found in zip(*columns, strict=True)]

    def encoded(self, encoder: TextEncoder, prompts: Sequence[Rows]) -> list[Encoded | None]:
        """The output of one encoder for prompts, each given as rows of ids without padding."""
        if encoder.part not in self._parts:
            return [None] * len(prompts)
        task = TEXT_CONDITIONING if encoder.states in (ALL_STATES, PENULTIMATE) else None
        model = self._parts.loaded(encoder.part, task)
        if not encoder.padded:
            return [Encoded(model(input_ids=np.array(rows))[encoder.states], None) for rows in prompts]
        every = [row for rows in prompts for row in rows]
        pad = self._pads.get(encoder.part, 0)
        ids = np.array([row + [pad] * (encoder.length - len(row)) for row in every])
        mask = np.arange(encoder.length) < np.array([[len(row)] for row in every])
        found = model(input_ids=ids, **({"attention_mask": mask.astype(np.int64)} if encoder.masked else {}))
        name = encoder.states
        if name == ALL_STATES:
            layers = sum(key.startswith(f"{ALL_STATES}.") for key in found)
            name = f"{ALL_STATES}.{layers + encoder.layer}"
        counts = np.cumsum([len(rows) for rows in prompts])[:-1]
        states = np.split(found[name], counts)
        vectors = [None] * len(prompts) if encoder.vector is None else np.split(found[encoder.vector], counts)
        return [
            Encoded(state.reshape(1, -1, state.shape[-1]), None if vector is None else vector[:1])
            for state, vector in zip(states, vectors, strict=True)
        ]

    def _files(self, encoder: TextEncoder) -> Graph:
        """The files of a tokenizer. UnsupportedError without any."""
        source = self._source or Graph()
        prefix = f"{encoder.tokenizer}/"
        files = {
            name.removeprefix(prefix): held for name, held in source.attachments.items() if name.startswith(prefix)
        }
        if not files:
            path = source.files[0] if source.files else None
            why = f"the model is without the tokenizer of {encoder.part}"
            hint = f"Put its tokenizer.json or spiece.model into a folder {encoder.tokenizer} next to the weights"
            raise UnsupportedError("E-TOKENIZER-NONE", path, why, hint=hint)
        return Graph(files=source.files, attachments=files)

    def _rows(self, encoder: TextEncoder, prompt: str) -> Rows:
        """The ids of a prompt between the tokens that open and close a text, in rows of at most `encoder.length`."""
        if encoder.part not in self._parts:
            return []
        from ...tokenizer import read

        files = self._files(encoder)
        tokenizer, prompt = read(files), spelled_out(prompt, settings(files, ADDED))
        opening, closing = list(tokenizer.opening), list(tokenizer.closing)
        if encoder.chat:
            from ...generation import chat_template

            prompt = chat_template.prompt(tokenizer, [{"role": "user", "content": prompt}], enable_thinking=True)
            opening = [] if chat_template.writes_bos(tokenizer, prompt) else opening
        bare = tokenizer.encode(prompt, add_bos=False, add_eos=False)
        room = encoder.length - len(opening) - len(closing)
        pieces = [bare[start : start + room] for start in range(0, max(len(bare), 1), room)]
        if len(pieces) > 1:
            self._tell(encoder, prompt, len(bare), room)
        pieces = pieces if encoder.chunked else pieces[:1]
        self._pads[encoder.part] = tokenizer.vocabulary.roles.get("pad", closing[-1] if closing else 0)
        return [[*opening, *piece, *closing] for piece in pieces]

    def _filled(self, encoder: TextEncoder, rows: Rows, count: int) -> Rows:
        """Rows of a chunked encoder with those of an empty text after them."""
        if not rows or not encoder.chunked or len(rows) == count:
            return rows
        return rows + self._rows(encoder, "") * (count - len(rows))

    def _tell(self, encoder: TextEncoder, prompt: str, count: int, room: int) -> None:
        if encoder.chunked and count > room * MOST_ROWS:
            raise UsageError(
                "E-DRAW-PROMPT", None, "the prompt is too long", expected=f"at most {room * MOST_ROWS:,} tokens",
                found=f"{count:,}", hint="Shorten it",
            )  # fmt: skip
        how = f"it is encoded in pieces of {room}" if encoder.chunked else "the rest is cut off"
        said = f"the prompt has {counted(count, 'token')}, and {encoder.part} takes {room}; {how}"
        warnings.warn(said, LongPromptWarning, stacklevel=4)
