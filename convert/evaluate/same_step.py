"""Outputs of two text-to-image models on the same prompts and noise: the first step of the denoiser."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...models.pipelines.diffusion.kept_picture import shows_masks
from ...models.pipelines.diffusion.noise_stream import TORCH, NoiseStream, normal
from ...models.pipelines.diffusion.text_to_image_model import TextToImageModel
from ...runtime.base.errors import UsageError
from ...runtime.ir.graph import Graph
from ..load.load_model import load
from ..open.model_files import MODEL_INDEX
from .same_tokens import OutputDistance, distance

SIDE = 16
"""Latents along each side, a multiple of what every denoiser halves or joins."""
SEED = 0
STEPS = 2
"""Of the schedule whose first step is compared, at which all is noise."""


def draws(graph: Graph) -> bool:
    """Whether what was opened is a model of several parts that draws."""
    return bool(graph.parts) and MODEL_INDEX in graph.attachments


def step_distances(
    source: Graph, made: Graph, prompts: Sequence[str], threads: int | None = None
) -> list[OutputDistance]:
    """Run the first denoising step of two models on each prompt; the rows are positions of the latents.

    Raises UsageError for a model that does not draw, and for latents of different shapes.
    """
    first, second = (_predictions(graph, prompts, threads) for graph in (source, made))
    if first.shape != second.shape:
        why = "the models predict latents of different shapes"
        raise UsageError("E-VERIFY-SHAPE", None, why, expected=list(first.shape), found=list(second.shape))
    channels = first.shape[1]
    rows = [np.moveaxis(each, 1, -1).reshape(-1, channels) for each in (first, second)]
    return [distance("denoising step", [(rows[0], rows[1])])]


def _predictions(graph: Graph, prompts: Sequence[str], threads: int | None) -> np.ndarray:
    """Predictions of the first step, [prompts, channels, rows, columns]."""
    model = load(graph, threads=threads, activations="f32")
    if not isinstance(model, TextToImageModel):
        raise UsageError("E-VERIFY-OUTPUTS", None, "only one of the models draws", hint="Compare models of one task")
    size = (SIDE * model.factor, SIDE * model.factor)
    run = model.trajectory(model.scheduler, STEPS, size=size)
    conditions = [model.encode(prompt, size=size) for prompt in prompts]
    noise = normal([NoiseStream(TORCH, SEED)], model.latent_shape(size)) * np.float32(run.initial_noise_sigma)
    sample = run.scale_input(noise, 0).astype(np.float32)
    if shows_masks(model):
        channels, *sides = model.latent_shape(size)
        shown = normal([NoiseStream(TORCH, SEED + 1)], (channels + 1, *sides))
        sample = np.concatenate([sample, shown], 1, dtype=np.float32)
    found = np.concatenate([model.denoise(sample, float(run.timesteps[0]), condition) for condition in conditions])
    model.parts.drop(model.pipeline.denoiser)
    return found
