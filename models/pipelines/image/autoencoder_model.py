"""A runnable autoencoder: pictures become latents, latents become pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import RunOptions
from ....runtime.ir.graph import Graph
from ....runtime.session import Session
from ...postprocess.finite_results import finite
from ..task_model import TaskModel, opened

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

AUTOENCODER, ENCODER, DECODER = "autoencoder", "encoder", "decoder"
"""Names of the task and of its graphs."""


class AutoencoderModel(TaskModel):
    """An autoencoder whose latents are a normal distribution."""

    takes = "pictures"

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        self._graphs = dict(graphs)
        self.graph, self.options = graphs[ENCODER], options
        self._sessions: dict[str, Session] = {}

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs by name."""
        return self._graphs

    @memory_limited
    def encode(self, pixel_values: ArrayLike) -> dict[str, np.ndarray]:
        """``mean`` and ``logvar`` f32 [batch, channels, height / f, width / f] of the latents, not scaled, of pictures
        f32 [batch, 3, height, width] in -1 .. 1. UsageError for another shape."""
        return self._run(ENCODER, pixel_values)

    @memory_limited
    def decode(self, latents: ArrayLike) -> dict[str, np.ndarray]:
        """``sample`` f32 [batch, 3, height, width], pictures of latents that are not scaled. UsageError for another
        shape."""
        return self._run(DECODER, latents)

    def _run(self, name: str, values: ArrayLike) -> dict[str, np.ndarray]:
        graph, given = self._graphs[name], np.asarray(values, np.float32)
        (taken,) = graph.inputs
        expected = taken.shape or ()
        if given.ndim != len(expected) or given.shape[1] != expected[1]:
            why = f"{taken.name} have another shape than the model's"
            raise UsageError("E-RUN-SHAPE", None, why, expected=expected, found=given.shape)
        if name not in self._sessions:
            self._sessions[name] = opened(graph, self.options)
        names = [value.name for value in graph.outputs]
        dtype = np.dtype(np.float32) if taken.dtype is None else taken.dtype.as_numpy()
        found = finite(self._sessions[name].run(None, {taken.name: given.astype(dtype, copy=False)}), names)
        return dict(zip(names, found, strict=True))
