"""Folders of text-to-image models, as diffusers saves them: a folder for each part."""

from __future__ import annotations

import functools
from typing import Any

from ....runtime.contract.architecture import Architecture, Part, RunOptions, Task
from .text_to_image import CONTROLNET, TEXT_TO_IMAGE, TextToImage


def folder_model(pipeline: TextToImage) -> Architecture:
    """The architecture of a text-to-image model whose parts have a folder each."""
    parts = {
        **{encoder.part: Part(None, "", optional=encoder.optional) for encoder in pipeline.encoders},
        pipeline.denoiser: Part(None, ""),
        pipeline.autoencoder: Part(None, "", stored=True),
        CONTROLNET: Part(None, "", optional=True),
    }
    return Architecture(
        pipeline.name,
        pipeline.title,
        pipeline.classes,
        (),
        (),
        (),
        (Task(TEXT_TO_IMAGE, {}, functools.partial(_run, pipeline)),),
        parts=parts,
    )


def _run(pipeline: TextToImage, parts: Any, options: RunOptions) -> Any:
    from .text_to_image_model import TextToImageModel

    return TextToImageModel(parts, options, pipeline)
