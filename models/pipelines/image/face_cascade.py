"""A runnable cascade of three networks that finds faces: proposal, refinement and output network of MTCNN."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import RunOptions
from ....runtime.contract.graph_files import GraphFiles, Signature
from ....runtime.ir.graph import Graph
from ....runtime.session import Session
from ...postprocess.face_windows import Judged
from ...postprocess.finite_results import finite
from ...schema.network_hyperparameters import FACE_DETECTION
from ..task_model import TaskModel, opened

PROPOSAL, REFINEMENT, OUTPUT = "pnet", "rnet", "onet"
"""Names of the graphs."""
PIXELS, SCORES, OFFSETS, LANDMARKS = "pixel_values", "scores", "offsets", "landmarks"
"""The input, and outputs of the graphs; only the last graph has landmarks."""
BATCH = 512
"""Windows of one run."""


class FaceCascade(TaskModel):
    """A model with a graph that scans images of any size, and two that judge windows.

    Args:
        graphs: made by `candle_convert.models.load`, by name.
        options: threads, device and activations.
    """

    takes = "pictures"

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        self._graphs = dict(graphs)
        self.graph, self.options = graphs[PROPOSAL], options
        self._sessions: dict[str, Session] = {}

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs by name."""
        return self._graphs

    @memory_limited
    def judge(self, name: str, pixels: np.ndarray) -> Judged:
        """The results of a network for images f32 [count, 3, height, width] in -1 to 1.

        Args:
            name: `PROPOSAL`, `REFINEMENT` or `OUTPUT`.
        """
        if name not in self._sessions:
            self._sessions[name] = opened(self._graphs[name], self.options)
        names = [value.name for value in self._graphs[name].outputs]
        batches = (pixels[start : start + BATCH] for start in range(0, len(pixels), BATCH))
        results = [finite(self._sessions[name].run(None, {PIXELS: batch}), names) for batch in batches]
        arrays = dict(zip(names, (np.concatenate(each) for each in zip(*results, strict=True)), strict=True))
        return Judged(arrays[SCORES], arrays[OFFSETS], arrays.get(LANDMARKS))


_JUDGES = Signature(frozenset((PIXELS,)), frozenset((SCORES, OFFSETS)))
_DECIDES = Signature(_JUDGES.inputs, _JUDGES.outputs | {LANDMARKS})
GRAPH_FILES = GraphFiles(
    FACE_DETECTION, {PROPOSAL: _JUDGES, REFINEMENT: _JUDGES, OUTPUT: _DECIDES}, FaceCascade, modules=True
)
