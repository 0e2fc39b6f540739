"""Drawing that begins with a picture: the latents of its first step, and what stays of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UsageError
from ....runtime.contract.loaded_parts import LoadedParts
from ...schedulers.scheduler import Trajectory
from .noise_stream import NoiseStream, normal
from .source_picture import Source, shrunk
from .text_to_image import AUTOENCODER, Config, Floats, TextToImage


class Drawing(Protocol):
    """A text-to-image model's data, parts and hyper-parameters, as image-to-image needs them."""

    pipeline: TextToImage
    parts: LoadedParts

    @property
    def config(self) -> Config:
        """Hyper-parameters of the denoiser."""
        ...

    @property
    def autoencoder_config(self) -> Config:
        """Hyper-parameters of the autoencoder."""
        ...

    def latent_shape(self, size: tuple[int, int]) -> tuple[int, int, int]:
        """Channels, rows and columns of latents of a picture of a width and height."""
        ...


@dataclass(frozen=True)
class Kept:
    """The part of an image that inpainting keeps.

    Attributes:
        latents: of the picture [batch, channels, rows, columns].
        noise: that they have at the beginning.
        mask: [1, 1, rows, columns], 1 where the picture is redrawn.
        shown: mask and latents [batch, channels + 1, rows, columns] that the denoiser takes; None for denoisers that do
            not, whose results are mixed with the picture.
    """

    latents: Floats
    noise: Floats
    mask: Floats
    shown: Floats | None


def begun(
    model: Drawing, run: Trajectory, steps: int, source: Source, streams: Sequence[NoiseStream]
) -> tuple[Trajectory, Floats, Kept | None]:
    """The rest of a trajectory that begins with a picture, the latents that it begins with, and the part that is
    kept."""
    share = steps * source.strength
    done = steps - int(steps - share) if model.pipeline.rounds_up else int(share)
    begin = (steps - done) * run.order
    if not done:
        raise UsageError("E-OPTION", None, "strength leaves no step", hint="Raise strength or steps")
    whole = source.strength == 1 and source.mask is not None
    plain = _in_latents(model, source.pixels, streams) if not (whole and shows_masks(model)) else None
    noise = normal(streams, model.latent_shape((source.pixels.shape[3], source.pixels.shape[2])))
    if whole:
        first = noise * np.float32(run.initial_noise_sigma)
    else:
        assert plain is not None
        first, run = run.noised(plain, noise, begin), run.after(begin)
    if source.mask is None:
        return run, first, None
    mask = shrunk(source.mask, *noise.shape[2:])
    if not shows_masks(model):
        assert plain is not None
        return run, first, Kept(plain, noise, mask, None)
    covered = _in_latents(model, source.pixels * (source.mask < 0.5), streams)
    shown = np.concatenate([np.repeat(mask, len(covered), 0), covered], 1)
    return run, first, Kept(covered, noise, mask, shown)


def shows_masks(model: Drawing) -> bool:
    """Whether the denoiser takes the mask and the rest of the picture besides latents."""
    channels = model.autoencoder_config["latent_channels"]
    return bool(model.config.get("channels", channels) == 2 * channels + 1)


def _in_latents(model: Drawing, pixels: Floats, streams: Sequence[NoiseStream]) -> Floats:
    """Scaled latents of a picture, drawn from their distribution for each stream."""
    config = model.autoencoder_config
    found = model.parts[AUTOENCODER].encode(pixels)
    model.parts.drop(AUTOENCODER)
    drawn = found["mean"] + np.exp(found["logvar"] / 2) * normal(streams, found["mean"].shape[1:])
    scaled: Floats = (drawn - np.float32(config["shift"] or 0)) * np.float32(config["scaling"])
    return scaled
