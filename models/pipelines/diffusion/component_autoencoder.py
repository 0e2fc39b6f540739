"""Runner of the graphs that Optimum exports of an autoencoder: encoder and decoder, which have a folder each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....runtime.base.errors import FormatError, UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import COMPONENT, RunOptions
from ....runtime.ir.graph import Dim, Graph
from ..image.autoencoder_model import DECODER, ENCODER, AutoencoderModel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

COMPONENT_ENCODER, COMPONENT_DECODER = f"{COMPONENT}_{ENCODER}", f"{COMPONENT}_{DECODER}"
"""Names of the graphs."""
SAMPLE, LATENT_PARAMETERS, LATENT_SAMPLE = "sample", "latent_parameters", "latent_sample"
"""Pictures; mean and logarithm of the variance in one array; latents: Optimum's names."""
LOGVAR_RANGE = (-30.0, 20.0)
"""Bounds of the logarithm of the variance."""


class ComponentAutoencoder(AutoencoderModel):
    """An autoencoder in the graphs of Optimum. A folder may lack the encoder.

    Raises FormatError for graphs with other inputs, outputs or numbers of channels.
    """

    def __init__(self, graphs: Mapping[str, Graph], options: RunOptions) -> None:
        named = {COMPONENT_ENCODER: ENCODER, COMPONENT_DECODER: DECODER}
        super().__init__({ENCODER: Graph(), **{named[name]: graph for name, graph in graphs.items()}}, options)
        channels = None if options.config is None else int(options.config.latent_channels)
        twice = None if channels is None else 2 * channels
        for name, graph in graphs.items():
            encodes = name == COMPONENT_ENCODER
            found = _output(graph, {LATENT_PARAMETERS: twice, LATENT_SAMPLE: channels} if encodes else {SAMPLE: None})
            if encodes:
                self._encoded, self._channels = found

    @memory_limited
    def encode(self, pixel_values: ArrayLike) -> dict[str, np.ndarray]:
        """As of `AutoencoderModel`; UsageError where the folder lacks the encoder, too. A graph that draws the latents
        itself has a variance of nearly 0."""
        graph = self.graphs[ENCODER]
        if not graph.nodes:
            raise UsageError("E-RUN-INPUT", None, "the folder has no vae_encoder", hint="Export the encoder too")
        latents = self._run(ENCODER, pixel_values)[self._encoded].astype(np.float32, copy=False)
        if latents.ndim != 4 or self._channels not in (None, latents.shape[1]):
            raise _unfit(graph, self._encoded, self._channels, latents.shape)
        if self._encoded == LATENT_SAMPLE:
            return {"mean": latents, "logvar": np.full_like(latents, LOGVAR_RANGE[0])}
        mean, variance = np.split(latents, 2, axis=1)
        return {"mean": mean, "logvar": np.clip(variance, *LOGVAR_RANGE)}

    @memory_limited
    def decode(self, latents: ArrayLike) -> dict[str, np.ndarray]:
        """As of `AutoencoderModel`."""
        return {name: item.astype(np.float32, copy=False) for name, item in self._run(DECODER, latents).items()}


def _output(graph: Graph, channels: Mapping[str, int | None]) -> tuple[str, int | None]:
    """The first output that a graph has of those named, and its channels, None for any number. FormatError for a graph
    of several inputs, without such an output, or with one of another shape."""
    path = graph.files[0] if graph.files else None
    if len(graph.inputs) != 1:
        why = "the graph of an autoencoder takes one input"
        raise FormatError("E-ARCH-SHAPE", path, why, found=", ".join(value.name for value in graph.inputs))
    outputs = {value.name: value for value in graph.outputs}
    name = next((name for name in channels if name in outputs), None)
    if name is None:
        why = f"the graph has no output {' or '.join(channels)}"
        raise FormatError("E-ARCH-SHAPE", path, why, found=", ".join(outputs), hint="Export it with Optimum")
    shape = outputs[name].shape
    width = shape[1] if shape is not None and len(shape) == 4 else None
    if (shape is not None and len(shape) != 4) or (isinstance(width, int) and channels[name] not in (None, width)):
        raise _unfit(graph, name, channels[name], shape)
    return name, channels[name]


def _unfit(graph: Graph, name: str, channels: int | None, shape: Sequence[Dim] | None) -> FormatError:
    expected = ["batch", "channels" if channels is None else channels, "height", "width"]
    hint = "Is the config.json this model's?"
    path = graph.files[0] if graph.files else None
    return FormatError(
        "E-ARCH-SHAPE", path, f"{name} has another shape", expected=expected, found=list(shape or ()), hint=hint
    )
