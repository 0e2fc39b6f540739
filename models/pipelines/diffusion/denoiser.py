"""Runner of a denoising network: one prediction for a batch of noisy latents."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import MODEL, RunOptions
from ....runtime.ir.graph import Graph
from ....runtime.session import Session
from ...postprocess.finite_results import finite
from ..task_model import opened

SAMPLE = "sample"
"""The network's output."""


class Denoiser:
    """A denoising network, called with its inputs by name."""

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        self.graph, self.options = graphs[MODEL], options

    @functools.cached_property
    def session(self) -> Session:
        """Runs the graph; opened at the first call."""
        return opened(self.graph, self.options)

    @memory_limited
    def __call__(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """The prediction ``sample``, of the shape of the latents. UnsupportedError where it is not finite."""
        return {SAMPLE: finite(self.session.run([SAMPLE], inputs), [SAMPLE], masked=False)[0]}
