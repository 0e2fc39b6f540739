"""Recipe of a picture: what it takes to draw it again, in the words that picture tools read."""

from __future__ import annotations

from dataclasses import replace

from ....runtime.base.dataclass import dataclass

KEY = "parameters"
"""The text chunk of PNG files in which AUTOMATIC1111's web UI and the tools that follow it keep recipes."""


@dataclass(frozen=True)
class Recipe:
    """The settings of a picture.

    Attributes:
        sampler: class name of the scheduler.
        size: width and height in pixels.
        noise: the stream of numbers that the seed begins.
    """

    prompt: str
    negative: str
    steps: int
    sampler: str
    guidance: float
    seed: int
    size: tuple[int, int]
    noise: str
    model: str = ""

    def of_seed(self, seed: int) -> Recipe:
        """The recipe with another seed."""
        return replace(self, seed=seed)

    def __str__(self) -> str:
        """The recipe as other tools spell it: prompt, negative prompt, and a line of settings."""
        settings = {
            "Steps": self.steps,
            "Sampler": self.sampler,
            "CFG scale": f"{self.guidance:g}",
            "Seed": self.seed,
            "Size": f"{self.size[0]}x{self.size[1]}",
            **({"Model": self.model} if self.model else {}),
            "RNG": {"torch": "CPU"}.get(self.noise, self.noise),
        }
        lines = [self.prompt, *([f"Negative prompt: {self.negative}"] if self.negative else [])]
        return "\n".join([*lines, ", ".join(f"{name}: {value}" for name, value in settings.items())])
