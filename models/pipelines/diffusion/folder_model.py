"""Folders of text-to-image models, as diffusers saves them: a folder for each part, in one or in two repositories."""

from __future__ import annotations

import functools
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import Architecture, Part, RunOptions, Task
from .text_to_image import CONTROLNET, TEXT_TO_IMAGE, TextToImage


@dataclass(frozen=True)
class ConnectedPipelines:
    """Pipelines of two stages in two repositories: diffusers' classes of the stages and of both together. A family
    lists its own as `CONNECTED`.

    Attributes:
        last: the class of the repository that is named: the stage that draws the picture.
        first: of the other repository, which the model card names as `key`.
        whole: of both.
        prefix: before names of the first stage's folders in those of the whole.
    """

    last: str
    first: str
    whole: str
    key: str = "prior"
    prefix: str = "prior_"


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
