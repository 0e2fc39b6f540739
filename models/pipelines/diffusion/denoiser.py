"""Runner of a denoising network: one prediction for a batch of noisy latents."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import COMPONENT, MODEL, RunOptions
from ....runtime.ir.graph import Graph
from ....runtime.session import Session
from ...postprocess.finite_results import finite
from ..task_model import opened

SAMPLE, TIMESTEP = "sample", "timestep"
"""The prediction, and the input that one value may stand for all rows of."""
COMPONENT_OUTPUT = "out_hidden_states"
"""The prediction of a transformer, as Optimum names it."""
CONTROLLED = "controlled"
"""The variant of a UNet's graph that takes residuals of a ControlNet."""
DOWN_RESIDUALS, MIDDLE_RESIDUAL = "down_block_additional_residuals", "mid_block_additional_residual"


class Denoiser:
    """A denoising network, called with its inputs by name."""

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        self.graph, self.options = graphs[MODEL], options

    @functools.cached_property
    def session(self) -> Session:
        """Runs the graph; opened at the first call."""
        return opened(self.graph, self.options)

    @functools.cached_property
    def _controlled(self) -> tuple[Graph, Session]:
        """The graph that takes residuals of a ControlNet, with the same packed weights."""
        graph = self.options.variant(CONTROLLED) if self.options.variant else None
        if graph is None:
            raise UsageError("E-RUN-INPUT", None, "the model takes no residuals of a ControlNet")
        return graph, opened(graph, self.options, shares_weights_with=self.session)

    @memory_limited
    def __call__(self, **inputs: Any) -> dict[str, np.ndarray]:
        """The prediction ``sample``, of the shape of the latents.

        Args:
            inputs: arrays by the names of the graph's inputs; one timestep serves all rows. A UNet also takes the
                residuals of a ControlNet, ``down_block_additional_residuals``, a list of arrays, and
                ``mid_block_additional_residual``.

        Raises UsageError for other inputs, UnsupportedError where the prediction is not finite.
        """
        controlled = inputs.get(DOWN_RESIDUALS) is not None or inputs.get(MIDDLE_RESIDUAL) is not None
        graph, session = self._controlled if controlled else (self.graph, self.session)
        names = [value.name for value in graph.outputs]
        found = finite(session.run(names, feeds(graph, inputs)), names, masked=False)[0]
        return {SAMPLE: found.astype(np.float32, copy=False)}


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


def run_component(graphs: Mapping[str, Graph], options: RunOptions) -> Denoiser:
    """The graph that Optimum exports of a denoising network, as a `Denoiser`."""
    return Denoiser({MODEL: graphs[COMPONENT]}, options)


def feeds(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays of the dtypes of the graph's inputs from arguments: None is left out, one timestep stands for all rows,
    residuals of skip connections are numbered. UsageError for shapes that do not fit each other."""
    given = {name: item for name, item in inputs.items() if item is not None}
    skips = given.pop(DOWN_RESIDUALS, ())
    given |= {f"{DOWN_RESIDUALS}.{i}": item for i, item in enumerate(skips)}
    dtypes = {value.name: value.dtype.as_numpy() for value in graph.inputs if value.dtype is not None}
    found = {name: np.asarray(item, dtypes.get(name, np.float32)) for name, item in given.items()}
    first = graph.inputs[0].name
    if TIMESTEP in found and first in found:
        found[TIMESTEP] = _times(found[TIMESTEP], graph, len(found[first]))
    _check_shapes(graph, found)
    return found


def _times(times: np.ndarray, graph: Graph, count: int) -> np.ndarray:
    """Timesteps of `count` rows, or the only one for a graph that takes one. UsageError for several."""
    declared = next((value.shape for value in graph.inputs if value.name == TIMESTEP), None)
    if declared == ():
        if times.size == 0 or (times != times.flat[0]).any():
            raise UsageError("E-RUN-INPUT", None, "the model takes one timestep for all rows", found=times.tolist())
        return times.reshape(-1)[0]
    return np.broadcast_to(times.reshape(1), (count,)) if times.size == 1 else times


def _check_shapes(graph: Graph, arrays: Mapping[str, np.ndarray]) -> None:
    """UsageError for the first array of another shape than its input, or of another length along a shared axis."""
    lengths: dict[Any, int] = {}
    for value in graph.inputs:
        if value.name not in arrays or value.shape is None:
            continue
        shape = arrays[value.name].shape
        expected = [dim if isinstance(dim, int) else lengths.get(dim, dim) for dim in value.shape]
        fits = (length == dim for length, dim in zip(shape, expected, strict=False) if isinstance(dim, int))
        if len(shape) != len(expected) or not all(fits):
            why = f"{value.name} has another shape than the model's"
            raise UsageError("E-RUN-SHAPE", None, why, expected=expected, found=list(shape))
        lengths |= {dim: length for dim, length in zip(value.shape, shape, strict=True) if not isinstance(dim, int)}
