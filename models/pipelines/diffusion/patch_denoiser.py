"""Runner of a denoising network that cuts latents into patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.contract.architecture import RunOptions
from ....runtime.ir.graph import Graph
from .denoiser import Denoiser


class PatchDenoiser(Denoiser):
    """A denoising network, called with its inputs by name.

    Args:
        patch: what the last two lengths of the first input, height and width, have to be divisible by.
    """

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions, patch: int) -> None:
        super().__init__(graphs, options)
        self.patch = patch

    def __call__(self, **inputs: Any) -> dict[str, np.ndarray]:
        """The prediction ``sample``, of the shape of the latents. UsageError for latents that do not divide into
        patches, and as `Denoiser`."""
        name = self.graph.inputs[0].name
        for axis, length in zip(
            ("height", "width"), np.shape(inputs[name])[-2:] if name in inputs else (), strict=False
        ):
            if length % self.patch:
                why = f"the {axis} of {name} is not divisible by {self.patch}"
                raise UsageError("E-RUN-SHAPE", None, why, found=length)
        return super().__call__(**inputs)
