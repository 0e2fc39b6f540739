"""Runner of a ControlNet: residuals for a UNet from noisy latents and a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import MODEL, RunOptions
from ....runtime.ir.graph import Graph
from ...postprocess.finite_results import finite
from ..task_model import opened
from .denoiser import feeds

DOWN, MIDDLE = "down_block_res_samples", "mid_block_res_sample"
PICTURE, SCALE = "controlnet_cond", "conditioning_scale"
LOWEST_GUESS = -1.0
"""Logarithm to the base of 10 of the first residual's factor in guess mode; that of the last one is 0."""


class ControlNetwork:
    """A ControlNet, called with its inputs by name."""

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        self.graph = graphs[MODEL]
        self.session = opened(self.graph, options)
        self.pooled = bool(options.config and options.config.pooled)

    @memory_limited
    def __call__(self, *, conditioning_scale: float = 1.0, guess_mode: bool = False, **inputs: Any) -> dict[str, Any]:
        """``down_block_res_samples``, a list of f32 [batch, channels, height, width] from the highest resolution to the
        lowest, and ``mid_block_res_sample``.

        Args:
            conditioning_scale: factor of all residuals.
            guess_mode: whether factors also rise from 0.1 to 1 with the depth, as diffusers has it for pictures without
                a prompt; it changes nothing where the model pools residuals.
            inputs: ``sample``, ``timestep``, ``encoder_hidden_states``, ``controlnet_cond`` f32 [batch, 3, height,
                width] in 0 .. 1, and what the configuration adds.

        Raises UsageError for other inputs or a scale that is not finite, UnsupportedError where a result is not finite.
        """
        if not np.isfinite(conditioning_scale):
            raise UsageError("E-OPTION", None, f"{SCALE} {conditioning_scale} is not a finite number")
        names = [value.name for value in self.graph.outputs]
        guessed = np.logspace(LOWEST_GUESS, 0, len(names)) if guess_mode and not self.pooled else np.ones(len(names))
        factors = (guessed * conditioning_scale).astype(np.float32)
        found = finite(self.session.run(names, {**feeds(self.graph, inputs), SCALE: factors}), names, masked=False)
        return {DOWN: found[:-1], MIDDLE: found[-1]}
