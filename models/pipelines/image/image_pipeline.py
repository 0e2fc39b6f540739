"""Base of the pipelines of image models: pictures, prepared and run in batches."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import LimitError, UsageError
from ....runtime.contract.architecture import Config
from ...preprocess.in_graph import InGraph
from ...preprocess.picture import Picture
from ...preprocess.placement import Placement
from ...preprocess.preparation import Padding, Preparation, Prepared
from ...preprocess.stated_preparation import letterbox_of, stated_preparation, states_preparation
from ..task_model import Progress, TaskModel
from .image_model import ImageModel

Edge = TypeVar("Edge", int, float)
MAX_SCALE = 8
"""Maximum ratio of the edges that files ask for to a model's own: SegFormer's ask for 4.6, others for up to 2."""
EDGES = ("xmin", "ymin", "xmax", "ymax")
"""Names of a box's left, upper, right and lower edge in results."""


@dataclass(frozen=True)
class Seen:
    """The outputs of a model for some pictures.

    Attributes:
        rows: the numbers of the pictures.
        placements: where each lies in the model's input.
        outputs: arrays [batch, ...] by name.
    """

    rows: Sequence[int]
    placements: Sequence[Placement]
    outputs: dict[str, np.ndarray]


class ImagePipeline:
    """Uses a model of images for a task."""

    def __init__(self, model: TaskModel) -> None:
        self._model = model

    @functools.cached_property
    def preparation(self) -> Preparation:
        """Preparation of pictures, as the model's files or its hyper-parameters state it."""
        options = self._model.options
        otherwise = letterbox_of(options.config)
        if otherwise is None and not states_preparation(options.source):
            otherwise = self._assumed()
        return stated_preparation(options.source, otherwise)

    def _assumed(self) -> Preparation | None:
        """The preparation of a model whose files state none; None if nothing tells it."""
        return None

    def _seen(
        self, pictures: Sequence[Picture], batch: int, preparation: Preparation | None, progress: Progress | None
    ) -> Iterator[Seen]:
        """The outputs of all pictures, `batch` of them in one run at most; pictures are read one batch at a time."""
        done = 0
        for rows, pixels, placements in self._prepared(pictures, batch, preparation):
            outputs = self._model(pixels)
            done += len(rows)
            if progress is not None:
                progress(done, len(pictures))
            yield Seen(rows, placements, dict(outputs))

    def _prepared(
        self, pictures: Sequence[Picture], batch: int, preparation: Preparation | None
    ) -> Iterator[tuple[list[int], np.ndarray, Sequence[Placement]]]:
        """The numbers of consecutive pictures, their pixels, and where each lies in them."""
        prepares = self._prepares(preparation)
        for rows, prepared in _batches(pictures, batch, prepares):
            feeds, placements = prepares.batch(prepared)
            yield rows, feeds["pixel_values"], placements

    def _prepares(self, preparation: Preparation | None) -> Preparation | InGraph:
        """Preparation of pictures outside of the graph."""
        if not (isinstance(self._model, ImageModel) and self._model.takes_bytes):
            if preparation is None:
                check_edges(self.preparation, self._model.options.config)
            chosen = preparation or self.preparation
            return chosen.grey() if isinstance(self._model, ImageModel) and self._model.channels == 1 else chosen
        if preparation is not None:
            why = "the model prepares pictures itself"
            raise UsageError("E-PREPROCESSOR-GRAPH", None, why, hint="Leave out --preprocessor")
        return InGraph(self.preparation)


def check_edges(preparation: Preparation, config: Config | None) -> None:
    """LimitError where files state a preparation that is out of proportion to the edges of a model."""
    stated = None if config is None else config.values.get("image_size")
    height, width = stated if isinstance(stated, list | tuple) and len(stated) == 2 else (stated, stated)
    if not isinstance(height, int) or not isinstance(width, int) or min(height, width) < 1:
        return
    at = preparation.placement((height, width))
    padding = preparation.padding or Padding()
    for what, size in (("resized to", at.resized), ("prepared as", padding.box([at.input]))):
        if max(size) > MAX_SCALE * max(height, width):
            why = f"pictures are {what} {size[0]:,} x {size[1]:,} for a model of {height:,} x {width:,}"
            hint = "Correct preprocessor_config.json, or give another with --preprocessor FILE"
            raise LimitError("E-PREPROCESSOR-SIZE", None, f"{why}, {MAX_SCALE} times as much at most", hint=hint)


def _batches(
    pictures: Sequence[Picture], count: int, preparation: Preparation | InGraph
) -> Iterator[tuple[list[int], list[Prepared]]]:
    """Consecutive pictures that fit into one batch."""
    rows: list[int] = []
    prepared: list[Prepared] = []
    for row, picture in enumerate(pictures):
        each = preparation.prepare(picture)
        other = prepared and preparation.same_sizes and prepared[0].values.shape != each.values.shape
        if len(rows) == count or other:
            yield rows, prepared
            rows, prepared = [], []
        rows.append(row)
        prepared.append(each)
    if rows:
        yield rows, prepared


def listed(inputs: Picture | Sequence[Picture]) -> tuple[bool, Sequence[Any]]:
    """Whether a single picture was given, and the pictures as a list."""
    single = not isinstance(inputs, list | tuple)
    return single, [inputs] if single else inputs


def named_edges(edges: Iterable[Edge]) -> dict[str, Edge]:
    """The edges of a box in the order of `EDGES`, by name."""
    return dict(zip(EDGES, edges, strict=True))
