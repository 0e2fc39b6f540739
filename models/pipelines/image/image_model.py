"""A runnable image model: a session over its graph, called with pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....runtime.base.errors import UnsupportedError, UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import RunOptions
from ....runtime.ir.graph import Graph
from ....runtime.tensor.dtype import U8
from ...postprocess.finite_results import finite
from ...preprocess.picture import Picture
from ...preprocess.preparation import Preparation
from ..task_model import Progress, TaskModel, opened

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

RANK = 4
MASK = "pixel_mask"
"""The input that says which pixels are of pictures: 1, and which are padding: 0."""


class ImageModel(TaskModel):
    """A model whose graph takes pixels [batch, channels, height, width], or bytes of pictures of one size, and perhaps
    `MASK`.

    Attributes:
        takes_bytes: whether the graph prepares pictures itself.

    Args:
        graph: made by `candle_convert.models.load`.
        options: threads, device and activations.
    """

    takes = "pictures"

    def __init__(self, graph: Graph, options: RunOptions) -> None:
        self.graph, self.options = graph, options
        required = [value for value in graph.inputs if value.name not in graph.weights]
        pixels, *others = [value for value in required if value.name != MASK]
        if others:
            names = ", ".join(value.name for value in others)
            why = f"the model takes {names} beside {pixels.name}"
            raise UnsupportedError("E-MODEL-INPUT", None, why, hint="Run it with candle-convert run")
        self._needs_mask = len(required) > 1
        self._pixels = pixels.name
        self.takes_bytes = pixels.dtype is U8
        self._outputs = [value.name for value in graph.outputs]
        self._session = opened(graph, options)

    @property
    def channels(self) -> int | None:
        """Channels of the images, None if the graph leaves them open."""
        shape = self.graph.values[self._pixels].shape or ()
        axis = RANK - 1 if self.takes_bytes else 1
        length = shape[axis] if len(shape) == RANK else None
        return length if isinstance(length, int) else None

    @memory_limited
    def __call__(self, pixel_values: ArrayLike, pixel_mask: ArrayLike | None = None) -> dict[str, np.ndarray]:
        """The outputs by name: ``logits``, or ``last_hidden_state`` and ``pooler_output``.

        Args:
            pixel_values: prepared images, f32 [batch, channels, height, width], or one image without the batch; bytes
                [batch, height, width, channels] for a graph that prepares pictures itself.
            pixel_mask: 1 for pixels of pictures, 0 for padding, int64 [batch, height, width], of models that take it;
                None if nothing is padding.

        Raises UsageError for arrays of other shapes.
        """
        pixels = np.asarray(pixel_values, np.uint8 if self.takes_bytes else np.float32)
        pixels = pixels[None] if pixels.ndim == RANK - 1 else pixels
        shape = self.graph.values[self._pixels].shape or ("batch", "channels", "height", "width")
        if pixels.ndim != RANK or any(
            isinstance(length, int) and length != found for length, found in zip(shape, pixels.shape, strict=True)
        ):
            why = "pixel_values have another shape than the model's"
            expected = f"[{', '.join(map(str, shape))}]"
            raise UsageError("E-RUN-SHAPE", None, why, expected=expected, found=list(pixels.shape))
        feeds = {self._pixels: pixels, **self._mask(pixel_mask, pixels.shape)}
        results = finite(self._session.run(None, feeds), self._outputs)
        return dict(zip(self._outputs, results, strict=True))

    def _mask(self, given: ArrayLike | None, pixels: tuple[int, ...]) -> dict[str, np.ndarray]:
        """The mask as a feed, empty if the graph has its own. UsageError for one that does not fit the pixels."""
        if given is None and not self._needs_mask:
            return {}
        if MASK not in self.input_names:
            raise UsageError("E-RUN-INPUT", None, f"the model takes no {MASK}")
        value = self.graph.values[MASK]
        kind = np.dtype(np.int64) if value.dtype is None else np.dtype(value.dtype.numpy)
        expected = pixels[:3] if self.takes_bytes else (pixels[0], *pixels[2:])
        if given is None:
            sides = zip(value.shape or expected, expected, strict=True)
            return {MASK: np.ones([each if isinstance(each, int) else own for each, own in sides], kind)}
        mask = np.asarray(given, kind)
        if mask.shape != expected:
            why = f"{MASK} does not have the batch, height and width of the pixels"
            raise UsageError("E-RUN-SHAPE", None, why, expected=list(expected), found=list(mask.shape))
        return {MASK: mask}

    @memory_limited
    def embed(
        self,
        pictures: Picture | Sequence[Picture],
        batch: int = 8,
        *,
        normalize: bool | None = None,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> np.ndarray:
        """Vectors of pictures, f32 [pictures, width], or [width] for a single picture: ``image_embeds`` or
        ``pooler_output``, else the first hidden state.

        Args:
            pictures: paths, encoded bytes, arrays of bytes [height, width, channels] or images of Pillow.
            batch: pictures of one run.
            normalize: whether vectors have length 1; they are as the model makes them by default.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with the number of pictures done.

        Raises UsageError if the model makes no vectors, FormatError for damaged pictures.
        """
        found: np.ndarray = self._verb("embed")(
            pictures, batch, normalize=normalize, preparation=preparation, progress=progress
        )
        return found
