"""Depth estimation: the depth of every pixel, as the model scales it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...postprocess.maps import depth_map
from ...preprocess.picture import Picture
from ...preprocess.preparation import Preparation
from ..task_model import Progress
from .image_pipeline import ImagePipeline, listed

OUTPUTS = ({"predicted_depth": None},)


class DepthEstimation(ImagePipeline):
    """Finds depth."""

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        batch: int = 1,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """``depth`` f32 [height, width] with its ``least``, ``mean`` and ``most``, in a list of one; a list for
        each of several pictures.

        Args:
            inputs: pictures as `picture_of` takes them: paths, bytes, arrays or images of Pillow.
            batch: pictures of one run.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with the number of pictures done.
        """
        single, pictures = listed(inputs)
        found: list[list[dict[str, Any]]] = []
        for seen in self._seen(pictures, batch, preparation, progress):
            depths = np.asarray(seen.outputs["predicted_depth"], np.float32)
            for row, at in enumerate(seen.placements):
                depth = depth_map(depths[row].reshape(depths.shape[-2:]), at.size)
                extremes = {"least": float(depth.min()), "mean": float(depth.mean()), "most": float(depth.max())}
                found.append([{**extremes, "depth": depth}])
        return found[0] if single else found


PIPELINE = DepthEstimation
