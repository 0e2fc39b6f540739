"""Zero-shot image classification: which of the labels that are given fits a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....runtime.base.errors import UsageError
from ....preprocess.picture import Picture
from ....preprocess.preparation import Preparation
from ...image.image_pipeline import listed
from ...task_model import Progress
from .dual_encoder_model import DualEncoderModel

TEMPLATE = "This is a photo of {}."
"""The text of a label, as transformers' pipeline has it."""


class ZeroShotImageClassification:
    """Scores labels by the similarity of their text to a picture."""

    def __init__(self, model: DualEncoderModel) -> None:
        self._model = model

    def predict(
        self,
        inputs: Picture | Sequence[Picture],
        *,
        classes: str | Sequence[str] = (),
        template: str = TEMPLATE,
        top: int | None = None,
        batch: int = 8,
        preparation: Preparation | None = None,
        progress: Progress | None = None,
    ) -> Any:
        """``label`` and ``score`` of the labels, the most probable first; a list for each of several pictures.

        Args:
            classes: labels of what may be in a picture; of a string, the parts between commas.
            template: the text that is compared, with ``{}`` for the label.
            top: how many labels, None for all.
            batch: pictures of one run.
            preparation: how pictures are prepared, in place of what the model's files state.
            progress: called with how many pictures are done, and of how many.

        Raises UsageError without labels, and for a template without a placeholder.
        """
        labels = [name.strip() for name in (classes.split(",") if isinstance(classes, str) else classes)]
        if not any(labels):
            raise UsageError("E-OPTION", None, "missing labels to choose from", hint='Pass --labels "a cat,a dog"')
        if "{}" not in template:
            raise UsageError("E-OPTION", None, "the template has no {} for the label", found=template)
        single, pictures = listed(inputs)
        texts = [template.replace("{}", label) for label in labels]
        scores = self._model.scores(pictures, texts, batch=batch, preparation=preparation, progress=progress)
        found = []
        for row in scores:
            best = np.argsort(-row, kind="stable")[:top]
            found.append([{"label": labels[index], "score": float(row[index])} for index in best])
        return found[0] if single else found


PIPELINE = ZeroShotImageClassification
