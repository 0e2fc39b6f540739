"""Mask generation: masks of what is clicked on in a picture, by Segment Anything."""

from __future__ import annotations

from ....models.schema.network_hyperparameters import MASK_GENERATION
from ..kind import Kind
from ..npm_packages import ONNXRUNTIME_WEB
from ..picture_preparation import preparation_of

KIND = Kind((MASK_GENERATION,), "Cut out objects", ONNXRUNTIME_WEB, facts=preparation_of)
