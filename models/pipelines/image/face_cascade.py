"""A runnable cascade of three networks that finds faces: proposal, refinement and output network of MTCNN."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import RunOptions
from ....runtime.ir.graph import Graph
from ....runtime.session import Session
from ...postprocess.face_windows import Judged
from ..task_model import TaskModel, opened

PROPOSAL, REFINEMENT, OUTPUT = "pnet", "rnet", "onet"
"""Names of the graphs."""
PIXELS, JUDGED, LANDMARKS = "pixel_values", frozenset(("scores", "offsets")), "landmarks"
"""The input, and outputs of the graphs; the last graph has landmarks too."""
BATCH = 512
"""Windows of one run."""


class FaceCascade(TaskModel):
    """A model with a graph that scans images of any size, and two that judge windows.

    Args:
        graphs: made by `candle_convert.models.load`, by name.
        options: threads, device and activations.

    Raises UsageError for graphs with other inputs or outputs.
    """

    takes = "pictures"

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        for name, graph in graphs.items():
            expected = JUDGED | {LANDMARKS} if name == OUTPUT else JUDGED
            inputs, outputs = ({value.name for value in values} for values in (graph.inputs, graph.outputs))
            if inputs != {PIXELS} or outputs != expected:
                path = graph.files[0] if graph.files else None
                shown = (f"{PIXELS} to {', '.join(sorted(expected))}", ", ".join(sorted(inputs | outputs)))
                why = f"not the network {name} of MTCNN"
                raise UsageError("E-MODEL-OUTPUT", path, why, expected=shown[0], found=shown[1])
        self._graphs = dict(graphs)
        self.graph, self.options = graphs[PROPOSAL], options
        self._sessions: dict[str, Session] = {}

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs by name."""
        return self._graphs

    @memory_limited
    def judge(self, name: str, pixels: np.ndarray) -> Judged:
        """What a network says of images f32 [count, 3, height, width] in -1 to 1.

        Args:
            name: `PROPOSAL`, `REFINEMENT` or `OUTPUT`.
        """
        if name not in self._sessions:
            self._sessions[name] = opened(self._graphs[name], self.options)
        names = [value.name for value in self._graphs[name].outputs]
        batches = (pixels[start : start + BATCH] for start in range(0, len(pixels), BATCH))
        results = [self._sessions[name].run(None, {PIXELS: each}) for each in batches]
        arrays = dict(zip(names, (np.concatenate(each) for each in zip(*results, strict=True)), strict=True))
        return Judged(arrays["scores"], arrays["offsets"], arrays.get(LANDMARKS))
