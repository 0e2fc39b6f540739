"""A runnable model that segments what prompts point to: an image is encoded once, each prompt is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import RunOptions
from ....runtime.contract.graph_files import GraphFiles, Signature
from ....runtime.ir.graph import Graph
from ....runtime.session import Session
from ...postprocess.finite_results import finite
from ...schema.network_hyperparameters import MASK_GENERATION
from ..task_model import TaskModel, opened

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

ENCODER, DECODER, MASK_ENCODER = "vision_encoder", "prompt_encoder_mask_decoder", "mask_encoder"
"""Names of the graphs."""
PIXELS, POINTS, LABELS, MASK = "pixel_values", "input_points", "input_labels", "input_masks"
EMBEDDINGS, PLACES, MASKED = "image_embeddings", "image_positional_embeddings", "mask_embeddings"
MASKS, SCORES, SINGLE_MASK, SINGLE_SCORE = "pred_masks", "iou_scores", "single_mask", "single_score"
PADDING, FIRST_CORNER, LAST_CORNER = -1, 2, 3
"""Labels of points that fill up, and of the corners of boxes."""


@dataclass(frozen=True)
class Prompts:
    """Points and boxes for segmentation; coordinates x, y are in pixels of the prepared image.

    Attributes:
        points: f32 [batch, prompts, points, 2].
        labels: integers [batch, prompts, points]: 1 for points of the object, 0 for points of others.
        boxes: f32 [batch, prompts, 4]: left, top, right, bottom.
        masks: f32 [batch, 1, height, width]: logits of masks, as the model returns them.
    """

    points: np.ndarray | None = None
    labels: np.ndarray | None = None
    boxes: np.ndarray | None = None
    masks: np.ndarray | None = None

    def marked(self, *, padded: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Points f32 and labels int64, the corners of boxes among them, or a point of padding without boxes and
        it is `padded`.

        Raises UsageError for arrays whose shapes do not fit each other, and if there are neither points nor boxes.
        """
        found: list[tuple[np.ndarray, np.ndarray]] = []
        if self.points is not None:
            points = np.asarray(self.points, np.float32)
            labels = np.ones(points.shape[:-1]) if self.labels is None else np.asarray(self.labels)
            if points.ndim != 4 or points.shape != (*labels.shape, 2):
                expected = "input_points [batch, prompts, points, 2] and input_labels [batch, prompts, points]"
                why = "points and labels do not fit"
                raise UsageError("E-RUN-SHAPE", None, why, expected=expected, found=points.shape)
            found.append((points, labels))
        if self.boxes is not None:
            boxes = np.asarray(self.boxes, np.float32)
            if boxes.ndim != 3 or boxes.shape[2] != 4:
                expected = "input_boxes [batch, prompts, 4]"
                raise UsageError("E-RUN-SHAPE", None, "boxes of a wrong shape", expected=expected, found=boxes.shape)
            corners = np.broadcast_to([FIRST_CORNER, LAST_CORNER], (*boxes.shape[:2], 2))
            found.append((boxes.reshape(*boxes.shape[:2], 2, 2), corners))
        elif found and padded:
            points, _ = found[0]
            found.append((np.zeros((*points.shape[:2], 1, 2)), np.full((*points.shape[:2], 1), PADDING)))
        if not found:
            raise UsageError("E-RUN-PROMPT", None, "there is no prompt", expected="points or boxes")
        if len({points.shape[:2] for points, _ in found}) > 1:
            raise UsageError("E-RUN-SHAPE", None, "there are not as many boxes as prompts of points")
        points, labels = (np.concatenate(arrays, 2) for arrays in zip(*found, strict=True))
        return points.astype(np.float32), labels.astype(np.int64)


class PromptableModel(TaskModel):
    """A model with an encoder of images and a decoder of prompts.

    Decoders that Optimum exported take points only: they add the padding themselves, and return three masks of each
    prompt, not the one that is meant for prompts that leave no choice.

    Args:
        graphs: made by `candle_convert.models.load`, by name.
        options: threads, device and activations.

    Attributes:
        has_single_mask: whether the decoder is our own, which takes boxes and has the single mask.
    """

    takes = "pictures"

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        self._graphs = dict(graphs)
        self.graph, self.options = graphs[ENCODER], options
        self.has_single_mask = any(value.name == SINGLE_MASK for value in graphs[DECODER].outputs)
        self._sessions: dict[str, Session] = {}

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of prepared images; UsageError for an encoder that does not state them."""
        shape = self.graph.values[PIXELS].shape or ()
        sizes = [length for length in shape[1:] if isinstance(length, int)]
        if len(shape) != 4 or len(sizes) != 3:
            path = self.graph.files[0] if self.graph.files else None
            why = "the encoder of images does not state their size"
            raise UsageError("E-RUN-SHAPE", path, why, expected="[batch, 3, side, side]", found=shape)
        channels, height, width = sizes
        return channels, height, width

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs by name."""
        return self._graphs

    @memory_limited
    def encode(self, pixel_values: ArrayLike) -> dict[str, np.ndarray]:
        """``image_embeddings`` and ``image_positional_embeddings`` of prepared images [batch, channels, side, side]."""
        pixels = np.asarray(pixel_values, np.float32)
        expected = self.image_shape
        if pixels.ndim != 4 or pixels.shape[1:] != expected:
            why = "pixel_values have another shape than the model's"
            raise UsageError("E-RUN-SHAPE", None, why, expected=("batch", *expected), found=pixels.shape)
        return self._run(ENCODER, {PIXELS: pixels})

    @memory_limited
    def decode(
        self, embeddings: Mapping[str, np.ndarray], prompts: Prompts, *, multimask_output: bool = True
    ) -> dict[str, np.ndarray]:
        """``pred_masks`` [batch, prompts, masks, height, width] as logits, and ``iou_scores`` [batch, prompts, masks].

        Args:
            embeddings: what `encode` returned.
            prompts: points, boxes and a mask; several prompts are separate objects.
            multimask_output: whether to return three masks of an ambiguous prompt, or the one that is meant for
                prompts that leave no choice.

        Raises UsageError for prompts that an exported model does not take.
        """
        given = {
            "boxes": prompts.boxes is None or self.has_single_mask,
            "masks": prompts.masks is None or MASK_ENCODER in self._graphs,
            "multimask_output=False": multimask_output or self.has_single_mask,
        }
        missing = [name for name, takes in given.items() if not takes]
        if missing:
            why = f"the exported model does not take {', '.join(missing)}"
            raise UsageError("E-RUN-PROMPT", self.graph.files[0], why, expected="points and three masks of each prompt")
        points, labels = prompts.marked(padded=self.has_single_mask)
        image = embeddings[EMBEDDINGS]
        if prompts.masks is not None:
            image = image + self._run(MASK_ENCODER, {MASK: np.asarray(prompts.masks, np.float32)})[MASKED]
        feeds = {POINTS: points, LABELS: labels, EMBEDDINGS: image, PLACES: embeddings[PLACES]}
        found = self._run(DECODER, feeds)
        names = (MASKS, SCORES) if multimask_output else (SINGLE_MASK, SINGLE_SCORE)
        return {MASKS: found[names[0]], SCORES: found[names[1]]}

    def __call__(
        self,
        pixel_values: ArrayLike,
        input_points: ArrayLike | None = None,
        input_labels: ArrayLike | None = None,
        input_boxes: ArrayLike | None = None,
        input_masks: ArrayLike | None = None,
        *,
        multimask_output: bool = True,
    ) -> dict[str, np.ndarray]:
        """The embeddings of images and, for prompts, the outputs of `decode`; arguments are those of `Prompts`."""
        given = (input_points, input_labels, input_boxes, input_masks)
        prompts = Prompts(*(None if each is None else np.asarray(each) for each in given))
        embeddings = self.encode(pixel_values)
        if prompts.points is None and prompts.boxes is None:
            return embeddings
        return embeddings | self.decode(embeddings, prompts, multimask_output=multimask_output)

    def _run(self, name: str, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if name not in self._sessions:
            self._sessions[name] = opened(self._graphs[name], self.options)
        names = [value.name for value in self._graphs[name].outputs]
        return dict(zip(names, finite(self._sessions[name].run(None, feeds), names), strict=True))


_SIGNATURES = {
    ENCODER: Signature(frozenset((PIXELS,)), frozenset((EMBEDDINGS, PLACES))),
    MASK_ENCODER: Signature(frozenset((MASK,)), frozenset((MASKED,))),
    DECODER: Signature(frozenset((POINTS, LABELS, EMBEDDINGS, PLACES)), frozenset((MASKS, SCORES))),
}
GRAPH_FILES = GraphFiles(MASK_GENERATION, _SIGNATURES, PromptableModel, optional=(MASK_ENCODER,))
