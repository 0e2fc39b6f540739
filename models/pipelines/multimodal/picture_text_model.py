"""A runnable model that writes text about pictures: an encoder of pictures and a decoder of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ...generation.generate import Generation, written
from ...schema.network_hyperparameters import IMAGE_TO_TEXT
from ...seq2seq.encoder_decoder_model import EncoderDecoderModel
from ...seq2seq.text_to_text import pieces, requested
from ..image.image_model import RANK

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ....runtime.contract.architecture import RunOptions
    from ....runtime.ir.graph import Graph
    from ...generation.kv_cache import Cache
    from ...seq2seq.cross_language_model import CrossLanguageModel
    from ...seq2seq.exported_decoder import ExportedDecoder


class PictureTextModel(EncoderDecoderModel):
    """TrOCR and its relatives."""

    takes = "pictures"

    def __init__(self, encoder: Graph, decoder: CrossLanguageModel | ExportedDecoder, options: RunOptions) -> None:
        super().__init__(encoder, decoder, options)
        (self._pixels,) = (value for value in encoder.inputs if value.name not in encoder.weights)

    @property
    def verbs(self) -> tuple[str, ...]:
        """What the model can do."""
        return ("predict",)

    @property
    def task(self) -> str:
        """Hugging Face's name of the task."""
        return IMAGE_TO_TEXT

    @memory_limited
    def __call__(  # type: ignore[override]
        self, pixel_values: ArrayLike, decoder_input_ids: ArrayLike | None = None, *, input_ids: ArrayLike | None = None
    ) -> dict[str, np.ndarray]:
        """``logits`` [batch, target, vocabulary] and ``encoder_last_hidden_state`` [batch, source, hidden], as
        transformers names them.

        Args:
            pixel_values: prepared images, f32 [batch, channels, height, width], or one without the batch.
            decoder_input_ids: integers [batch, length] or [length]; `input_ids`: another name, as BLIP has it.

        Raises UsageError for shapes that do not fit.
        """
        ids = input_ids if decoder_input_ids is None else decoder_input_ids
        return self._outputs(*self.encode(pixel_values), ids, None)

    def encode(
        self, pixel_values: ArrayLike, attention_mask: ArrayLike | None = None, activations: str = "f32"
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
        return self._encoded({self._pixels.name: pixels}, None, activations)

    def write(self, pixel_values: np.ndarray, **options: Any) -> list[Generation]:
        """The text of each prepared image; options as of `EncoderDecoderModel.generate`."""
        request = requested(self, [[self.settings.start]] * len(pixel_values), options)
        return written(pieces(_GivenPictures(self, pixel_values), request), None)


class _GivenPictures:
    """A model with given pictures, for generation: its texts stand for them, and are not read."""

    def __init__(self, model: PictureTextModel, pixel_values: np.ndarray) -> None:
        self.decoder, self.tokenizer = model.decoder, model.tokenizer
        self.settings, self.positions = model.settings, model.positions
        self._model, self._pixels = model, pixel_values

    def start(self, input_ids: ArrayLike, attention_mask: ArrayLike, *, activations: str) -> Cache:
        """As of `EncoderDecoderModel`."""
        hidden, source = self._model.encode(self._pixels, activations=activations)
        return self._model.decoder.start(len(hidden), source)
