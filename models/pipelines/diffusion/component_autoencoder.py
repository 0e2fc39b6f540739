"""Runner of the graphs that Optimum exports of an autoencoder: encoder and decoder, which have a folder each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import COMPONENT, RunOptions
from ....runtime.ir.graph import Graph
from ..image.autoencoder_model import DECODER, ENCODER, AutoencoderModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

COMPONENT_ENCODER, COMPONENT_DECODER = f"{COMPONENT}_{ENCODER}", f"{COMPONENT}_{DECODER}"
"""Names of the graphs."""
SAMPLE, LATENT_PARAMETERS, LATENT_SAMPLE = "sample", "latent_parameters", "latent_sample"
"""Pictures; mean and logarithm of the variance in one array; latents: Optimum's names."""
LOGVAR_RANGE = (-30.0, 20.0)
"""What the logarithm of the variance is limited to."""


class ComponentAutoencoder(AutoencoderModel):
    """An autoencoder in the graphs of Optimum. A folder may lack the encoder."""

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        named = {COMPONENT_ENCODER: ENCODER, COMPONENT_DECODER: DECODER}
        super().__init__({ENCODER: Graph(), **{named[name]: graph for name, graph in graphs.items()}}, options)

    @memory_limited
    def encode(self, pixel_values: ArrayLike) -> dict[str, np.ndarray]:
        """As of `AutoencoderModel`; UsageError where the folder lacks the encoder, too."""
        if not self.graphs[ENCODER].nodes:
            raise UsageError("E-RUN-INPUT", None, "the folder has no vae_encoder", hint="Export the encoder too")
        parameters = self._run(ENCODER, pixel_values)[LATENT_PARAMETERS].astype(np.float32, copy=False)
        mean, variance = np.split(parameters, 2, axis=1)
        return {"mean": mean, "logvar": np.clip(variance, *LOGVAR_RANGE)}

    @memory_limited
    def decode(self, latents: ArrayLike) -> dict[str, np.ndarray]:
        """As of `AutoencoderModel`."""
        return {name: item.astype(np.float32, copy=False) for name, item in self._run(DECODER, latents).items()}
