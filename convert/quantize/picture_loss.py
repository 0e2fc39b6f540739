"""Pictures that two text-to-image models draw of the same prompt and noise: SNR of latents, PSNR of pixels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...models.pipelines.diffusion.text_to_image_model import TextToImageModel
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError
from ...runtime.base.units import signal_to_noise
from ...runtime.ir.graph import Graph
from ..load.load_model import load

PROMPT = "a photograph of a cat in the snow"
SEED, STEPS = 0, 4
SIDE = 512
"""Pixels along each side at most, rounded up to what the model draws."""


@dataclass(frozen=True)
class PictureLoss:
    """How far a picture is from that of the original model.

    Attributes:
        latent_snr_db: decibels of the original's last latents over their difference.
        psnr_db: decibels of white over the root mean square of differing pixels.
        width, height: of the picture.
    """

    latent_snr_db: float
    psnr_db: float
    width: int
    height: int
    steps: int = STEPS
    seed: int = SEED
    prompt: str = PROMPT

    def __str__(self) -> str:
        numbers = ["equal" if math.isinf(value) else f"{value:.1f} dB" for value in (self.latent_snr_db, self.psnr_db)]
        how = f"{self.width}x{self.height}, {self.steps} steps, seed {self.seed}"
        return f"latents SNR {numbers[0]}, picture PSNR {numbers[1]} ({how})"

    def to_json(self) -> dict[str, Any]:
        """Its fields; infinities, where nothing differs, are None."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in vars(self).items()
        }


def picture_loss(source: Graph, made: Graph, threads: int | None = None) -> PictureLoss:
    """Draw `PROMPT` with both models. UsageError for a model that does not draw."""
    (latents, pixels), (other, shown) = (_drawn(graph, threads) for graph in (source, made))
    height, width = pixels.shape[:2]
    noise = float(((latents - other) ** 2).sum())
    error = float(((pixels - shown) ** 2).mean())
    psnr = signal_to_noise(255.0**2, error)
    return PictureLoss(signal_to_noise(float((latents**2).sum()), noise), psnr, width, height)


def _drawn(graph: Graph, threads: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The latents and the pixels of a model's picture, f64."""
    model = load(graph, threads=threads)
    if not isinstance(model, TextToImageModel):
        path = graph.files[0] if graph.files else None
        raise UsageError("E-VERIFY-OUTPUTS", path, "not a model that draws", expected="a text-to-image model")
    unit = model.factor * model.pipeline.patch(model.config)
    width, height = (min(side, max(unit, SIDE // unit * unit)) for side in model.default_size)
    picture = model.draw(PROMPT, steps=STEPS, seed=SEED, size=(width, height))
    return picture.latents.astype(np.float64), np.asarray(picture).astype(np.float64)
