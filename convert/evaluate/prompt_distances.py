"""Outputs of two models on the same prompts: tokens of a text model, or the first denoising step of one that draws."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.ir.graph import Graph
from ..open.diffusion.single_file import split
from .same_step import draws, step_distances
from .same_tokens import OutputDistance, output_distances


def prompt_distances(
    before: Graph, after: Graph, prompts: Sequence[str], threads: int | None = None
) -> list[OutputDistance]:
    """How far the outputs of `after` are from those of `before`."""
    before, after = split(before), split(after)
    distances = step_distances if draws(before) else output_distances
    return distances(before, after, prompts, threads)
