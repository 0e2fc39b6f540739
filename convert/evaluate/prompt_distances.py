"""Outputs of two models on the same prompts: tokens of a text model, or the first denoising step of one that draws."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.base.errors import UsageError
from ...runtime.ir.graph import Graph
from ..open.diffusion.single_file import split
from .same_step import draws, step_distances
from .same_tokens import OutputDistance, output_distances


def prompt_distances(
    before: Graph, after: Graph, prompts: Sequence[str], threads: int | None = None, images: Sequence[str] = ()
) -> list[OutputDistance]:
    """How far the outputs of `after` are from those of `before`; `images`: pictures of each prompt. UsageError for
    pictures with models that draw."""
    before, after = split(before), split(after)
    if not draws(before):
        return output_distances(before, after, prompts, threads, images)
    if images:
        raise UsageError("E-OPTION", None, "--image is for vision-language models", hint="Omit it")
    return step_distances(before, after, prompts, threads)
