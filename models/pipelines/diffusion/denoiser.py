"""Runner of a denoising network: one prediction for a batch of noisy latents."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....runtime.contract.architecture import MODEL, RunOptions
from ....runtime.ir.graph import Graph
from ....runtime.session import Session


class Denoiser:
    """A denoising network, called with its inputs by name."""

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        self.session = Session(graphs[MODEL], threads=options.threads, device=options.device)

    def __call__(self, **inputs: np.ndarray) -> np.ndarray:
        """The prediction ``sample``, of the shape of the latents."""
        sample: np.ndarray = self.session.run(["sample"], inputs)[0]
        return sample
