"""Image feature extraction: vectors of pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.base.errors import UsageError
from ...preprocess.picture import Picture
from ...preprocess.preparation import Preparation
from ..pooling import normalized
from ..task_model import Progress
from .image_pipeline import ImagePipeline, listed

VECTORS = ("image_embeds", "pooler_output")
"""Outputs that are one vector of a picture, the first that a model has."""
HIDDEN = "last_hidden_state"
OUTPUTS = ({"image_embeds": None}, {HIDDEN: None})


class ImageFeatureExtraction(ImagePipeline):
    """Makes vectors of pictures."""

    def embed(
        self,
        pictures: Picture | Sequence[Picture],
        batch: int = 8,
        *,
        normalize: bool | None = None,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> np.ndarray:
        """Vectors; see `ImageModel.embed`."""
        single, given = listed(pictures)
        found: np.ndarray = np.empty((0, 0), np.float32)
        for seen in self._seen(given, batch, preparation, progress):
            vectors = _vectors(seen.outputs)
            if not found.size:
                found = np.empty((len(given), vectors.shape[-1]), np.float32)
            found[list(seen.rows)] = normalized(vectors) if normalize else vectors
        return found[0] if single else found


def _vectors(outputs: dict[str, np.ndarray]) -> np.ndarray:
    """[batch, width]: what the model pools, else its first hidden state, else the mean of a map."""
    name = next((name for name in VECTORS if name in outputs), None)
    if name is not None:
        return np.asarray(outputs[name], np.float32).reshape(len(outputs[name]), -1)
    if HIDDEN not in outputs:
        expected = " or ".join((*VECTORS, HIDDEN))
        raise UsageError(
            "E-MODEL-OUTPUT", None, "the model has no vectors", expected=expected, found=", ".join(outputs)
        )
    hidden = np.asarray(outputs[HIDDEN], np.float32)
    return hidden[:, 0] if hidden.ndim == 3 else hidden.mean((2, 3))


PIPELINE = ImageFeatureExtraction
