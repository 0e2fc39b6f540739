"""Text-to-image models in two stages: a prior draws semantic latents of the prompt, a decoder the picture's."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.architecture import Architecture, Part, RunOptions, Task
from ....runtime.contract.loaded_parts import LoadedParts
from ... import schedulers
from .noise_stream import normal
from .text_to_image import TEXT_TO_IMAGE, Floats, Request, TextToImage
from .text_to_image_model import Asked, Conditioning, TextToImageModel

STEPS_PER_STEP = 5
"""Steps of the prior for each one of the decoder."""
FOREIGN = ("image", "strength", "mask", "control", "controlnet")
"""Arguments of `TextToImageModel.draw` that these models do not take."""


@dataclass(frozen=True)
class Cascade:
    """A text-to-image model in two stages.

    Attributes:
        prior: draws semantic latents; steps and guidance are those of the whole model.
        decoder: draws the latents of a picture without guidance.
        semantic: the decoder's input of semantic latents.
        pixels: of a picture per semantic latent along each axis.
        finished: what the decoder takes, from the prior's latents.
    """

    prior: TextToImage
    decoder: TextToImage
    semantic: str
    pixels: float
    finished: Callable[[Floats], Floats]


class Prior(TextToImageModel):
    """The first stage; arguments as of `CascadeModel`."""

    def __init__(self, parts: LoadedParts, options: RunOptions, cascade: Cascade) -> None:
        super().__init__(parts, options, cascade.prior)
        self.pixels = cascade.pixels

    def latent_shape(self, size: tuple[int, int]) -> tuple[int, int, int]:
        """Channels, rows and columns of the semantic latents of a picture of a width and height."""
        width, height = (math.ceil(side / self.pixels) for side in size)
        return int(self.config["latent_channels"]), height, width

    def _request(self, size: tuple[int, int], guidance: float) -> Request:
        _, rows, columns = self.latent_shape(size)
        return Request(size[1], size[0], rows, columns, guidance)


class CascadeModel(TextToImageModel):
    """A text-to-image model in two stages, whose parts are loaded, used and dropped in turn.

    Args:
        parts: of both stages, by the names of their folders.
        options: as of `TextToImageModel`.
        cascade: the model as data.
    """

    def __init__(self, parts: LoadedParts, options: RunOptions, cascade: Cascade) -> None:
        decoder = replace(cascade.decoder, steps=cascade.prior.steps, guidance=cascade.prior.guidance)
        super().__init__(parts, options, decoder)
        self.cascade, self.prior = cascade, Prior(parts, options, cascade)

    @property
    def factor(self) -> int:
        """Pixels per latent along each axis."""
        config = self.autoencoder_config
        return int(config["patch"]) * 2 ** (int(config["levels"]) - 1)

    def draw(self, prompt: str, **options: Any) -> Any:
        """As of `TextToImageModel`: `steps` are those of the prior, a fifth as many are the decoder's; `guidance` is
        the prior's.

        Raises UsageError for pictures to begin with, ControlNets, and schedulers of other models.
        """
        foreign = next((name for name in FOREIGN if options.get(name) is not None), None)
        if foreign is not None:
            raise UsageError("E-OPTION", None, f"{self.pipeline.title} draws from a prompt alone, without {foreign}")
        own, name = self.scheduler, options.get("scheduler")
        if name is not None and schedulers.replaced(own, name).rule is not own.rule:
            raise UsageError("E-SCHEDULER", None, f"{self.pipeline.title} has a scheduler of its own", found=name)
        return super().draw(prompt, **options)

    def own_steps(self, steps: int) -> int:
        """Steps of the decoder."""
        return max(1, round(steps / STEPS_PER_STEP))

    def conditions(self, asked: Asked) -> tuple[int, Conditioning]:
        """The prior's steps, and the decoder's inputs with the semantic latents that they draw."""
        prior, steps, size = self.prior, asked.steps, asked.size
        run = prior.trajectory(prior.scheduler, steps, guidance=asked.guidance, size=size)
        given = prior.encode(asked.prompt, asked.negative, guidance=asked.guidance, size=size)
        noise = latents = normal(asked.streams, prior.latent_shape(size)) * np.float32(run.initial_noise_sigma)
        for done, found in enumerate(prior.steps(run, noise, given, asked.streams), 1):
            latents = found
            if asked.on_progress is not None:
                asked.on_progress(done, steps + self.own_steps(steps))
        self.parts.drop(prior.pipeline.denoiser)
        made = self.encode(asked.prompt, None, guidance=0.0, size=size)
        return steps, replace(made, prompt={**made.prompt, self.cascade.semantic: self.cascade.finished(latents)})

    @memory_limited
    def decode(self, latents: Floats) -> Floats:
        """Pictures f32 [batch, 3, height, width] in -1 .. 1 of latents [batch, channels, height / f, width / f]."""
        autoencoder, scale = self.parts[self.pipeline.autoencoder], np.float32(self.autoencoder_config["scaling"])
        found: Floats = autoencoder.decode(np.asarray(latents, np.float32) * scale)["sample"]
        return 2 * found - 1


def cascade_model(cascade: Cascade) -> Architecture:
    """The architecture of a text-to-image model in two stages whose parts have a folder each."""
    stages = (cascade.prior, cascade.decoder)
    folders = [name for stage in stages for name in (*(each.part for each in stage.encoders), stage.denoiser)]
    return Architecture(
        cascade.decoder.name,
        cascade.decoder.title,
        cascade.decoder.classes,
        (),
        (),
        (),
        (Task(TEXT_TO_IMAGE, {}, functools.partial(_run, cascade)),),
        parts={**{name: Part(None, "") for name in folders}, cascade.decoder.autoencoder: Part(None, "", stored=True)},
    )


def _run(cascade: Cascade, parts: Any, options: RunOptions) -> CascadeModel:
    return CascadeModel(parts, options, cascade)
