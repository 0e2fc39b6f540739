"""A runnable model that writes text about pictures: an encoder of pictures, and of a prompt if it reads one, and a
decoder of text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ...generation.generate import Generation, written
from ...schema.network_hyperparameters import IMAGE_TO_TEXT
from ...seq2seq.encoder_decoder_model import EncoderDecoderModel
from ...seq2seq.generation_settings import GenerationSettings
from ...seq2seq.source_tokens import source_tokens
from ...seq2seq.text_to_text import pieces, requested
from ..image.image_model import RANK

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ....runtime.contract.architecture import RunOptions
    from ....runtime.ir.graph import Graph
    from ...generation.kv_cache import Cache
    from ...seq2seq.cross_language_model import CrossLanguageModel
    from ...seq2seq.exported_decoder import ExportedDecoder

PIXELS, PROMPT = "pixel_values", "input_ids"
"""Inputs of the encoder."""


class PictureTextModel(EncoderDecoderModel):
    """TrOCR, BLIP and their relatives.

    Attributes:
        prompted: whether the encoder reads a text about the picture, such as a question.
    """

    takes = "pictures"

    def __init__(self, encoder: Graph, decoder: CrossLanguageModel | ExportedDecoder, options: RunOptions) -> None:
        super().__init__(encoder, decoder, options)
        inputs = {value.name: value for value in encoder.inputs if value.name not in encoder.weights}
        self.prompted = PROMPT in inputs
        self._pixels = inputs[PIXELS] if self.prompted else next(iter(inputs.values()))

    @property
    def verbs(self) -> tuple[str, ...]:
        """The methods that the model supports."""
        return ("predict",)

    @property
    def task(self) -> str:
        """Hugging Face's name of the task."""
        return self.options.task or IMAGE_TO_TEXT

    @functools.cached_property
    def settings(self) -> GenerationSettings:
        """Defaults of generation; a text ends with the token that the model's configuration names, if it does."""
        found, config = super().settings, self.options.config
        end = None if config is None else config.values.get("end")
        return found if end is None else replace(found, ends=(int(end),))

    @memory_limited
    def __call__(  # type: ignore[override]
        self,
        pixel_values: ArrayLike,
        decoder_input_ids: ArrayLike | None = None,
        *,
        input_ids: ArrayLike | None = None,
        attention_mask: ArrayLike | None = None,
    ) -> dict[str, np.ndarray]:
        """``logits`` [batch, target, vocabulary] and ``encoder_last_hidden_state`` [batch, source, hidden], as
        transformers names them.

        Args:
            pixel_values: prepared images, f32 [batch, channels, height, width], or one without the batch.
            decoder_input_ids: integers [batch, length] or [length].
            input_ids: integers [batch, length] or [length]: what a `prompted` model reads; of others another name of
                `decoder_input_ids`, as BLIP has it.
            attention_mask: 1 for tokens of `input_ids`, 0 for padding; None if all are tokens.

        Raises UsageError for shapes that do not fit.
        """
        prompt = input_ids if self.prompted else None
        ids = input_ids if decoder_input_ids is None and not self.prompted else decoder_input_ids
        return self._outputs(*self.encode(pixel_values, attention_mask, input_ids=prompt), ids, None)

    def encode(  # type: ignore[override]
        self,
        pixel_values: ArrayLike,
        attention_mask: ArrayLike | None = None,
        activations: str = "f32",
        *,
        input_ids: ArrayLike | None = None,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Hidden states f32 [batch, source, hidden], and the inputs that the decoder has of them."""
        pixels = np.asarray(pixel_values, np.float32)
        pixels = pixels[None] if pixels.ndim == RANK - 1 else pixels
        shape = self._pixels.shape or ("batch", "channels", "height", "width")
        if pixels.ndim != RANK or any(
            isinstance(length, int) and length != given for length, given in zip(shape, pixels.shape, strict=True)
        ):
            expected = f"[{', '.join(map(str, shape))}]"
            why = "pixel_values have another shape than the model's"
            raise UsageError("E-RUN-SHAPE", None, why, expected=expected, found=list(pixels.shape))
        feeds = {self._pixels.name: pixels}
        if not self.prompted:
            return self._encoded(feeds, None, activations)
        if input_ids is None:
            raise UsageError("E-RUN-INPUT", None, "input_ids is missing", expected=f"{PIXELS}, {PROMPT}")
        ids, mask = source_tokens(input_ids, attention_mask)
        if len(ids) != len(pixels):
            why = f"{PIXELS} and {PROMPT} have different numbers of rows"
            raise UsageError("E-RUN-SHAPE", None, why, expected=len(pixels), found=len(ids))
        self._check_prompt(ids, pixels)
        return self._encoded({**feeds, PROMPT: ids, "attention_mask": mask}, mask, activations)

    def _check_prompt(self, ids: np.ndarray, pixels: np.ndarray) -> None:
        """UsageError for token ids that do not fit the pictures."""

    def write(
        self, pixel_values: np.ndarray, prompts: Sequence[str | Sequence[int]] | None = None, /, **options: Any
    ) -> list[Generation]:
        """The text of each prepared image.

        Args:
            prompts: what a `prompted` model reads with each image, as text or token ids.
            options: as of `EncoderDecoderModel.generate`.
        """
        texts = [[self.settings.start]] * len(pixel_values) if prompts is None else prompts
        return written(pieces(_GivenPictures(self, pixel_values), requested(self, texts, options)), None)


class _GivenPictures:
    """A model with given pictures, for generation: its texts are the prompts; of a model without they stand for the
    pictures, and are not read."""

    def __init__(self, model: PictureTextModel, pixel_values: np.ndarray) -> None:
        self.decoder, self.tokenizer = model.decoder, model.tokenizer
        self.settings, self.positions = model.settings, model.positions
        self._model, self._pixels = model, pixel_values

    def start(self, input_ids: ArrayLike, attention_mask: ArrayLike, *, activations: str) -> Cache:
        """As of `EncoderDecoderModel`."""
        prompt = {PROMPT: input_ids} if self._model.prompted else {}
        hidden, source = self._model.encode(self._pixels, attention_mask, activations, **prompt)
        return self._model.decoder.start(len(hidden), source)
