"""Recipe of a picture: what it takes to draw it again, in the words that picture tools read and write."""

from __future__ import annotations

import re
from dataclasses import replace

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError

KEY = "parameters"
"""The text chunk of PNG files in which AUTOMATIC1111's web UI and the tools that follow it keep recipes."""
NEGATIVE = "Negative prompt: "
_SETTING = re.compile(r'(\w[\w \-/]{0,60}):[ \t]{0,8}("(?:\\.|[^\\"])*"|[^,]*)(?:,|$)')
NUMBERS = ("Steps", "CFG scale", "Seed")
USUAL = ("Automatic", "Normal", "Uniform", "Simple")
"""Schedule types that stand for the usual sigmas of a sampler."""
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{0,20})?")
_SIZE = re.compile(r"(\d{1,6})x(\d{1,6})")
NOISES = {"CPU": "torch", "numpy": "numpy"}
"""Streams of random numbers by the word for their source."""


@dataclass(frozen=True)
class Recipe:
    """The settings of a picture.

    Attributes:
        sampler: as AUTOMATIC1111's web UI calls the scheduler, or its class.
        schedule: the schedule type, empty for the usual one.
        size: width and height in pixels.
        noise: the stream of numbers that the seed begins.
        strength: the share of the steps that are done on a picture, None without one.
    """

    prompt: str
    negative: str
    steps: int
    sampler: str
    schedule: str
    guidance: float
    seed: int
    size: tuple[int, int]
    noise: str
    strength: float | None = None

    def of_seed(self, seed: int) -> Recipe:
        """The recipe with another seed."""
        return replace(self, seed=seed)

    @property
    def scheduler(self) -> str:
        """The sampler with its schedule type, such as ``DPM++ 2M Karras``."""
        return f"{self.sampler} {self.schedule}".strip()

    def __str__(self) -> str:
        """The recipe as other tools spell it: prompt, negative prompt, and a line of settings."""
        words = {noise: word for word, noise in NOISES.items()}
        settings = {
            "Steps": self.steps,
            "Sampler": self.sampler,
            **({"Schedule type": self.schedule} if self.schedule else {}),
            "CFG scale": f"{self.guidance:g}",
            "Seed": self.seed,
            "Size": f"{self.size[0]}x{self.size[1]}",
            **({} if self.strength is None else {"Denoising strength": f"{self.strength:g}"}),
            "RNG": words.get(self.noise, self.noise),
        }
        lines = [self.prompt, *([NEGATIVE + self.negative] if self.negative else [])]
        return "\n".join([*lines, ", ".join(f"{name}: {value}" for name, value in settings.items())])


def read_recipe(text: str) -> Recipe:
    """The recipe that another tool spelled. FormatError for other texts."""
    *lines, last = text.strip().split("\n")
    settings = {match[1]: match[2].strip('"') for match in _SETTING.finditer(last)}
    size = _SIZE.fullmatch(settings.get("Size", ""))
    if size is None or not all(_NUMBER.fullmatch(settings.get(name, "")) for name in NUMBERS):
        why = "the text is not a recipe: its last line lacks Steps, CFG scale, Seed or Size"
        raise FormatError("E-DRAW-RECIPE", None, why, hint="Use a PNG file whose text chunk 'parameters' has them")
    begin = next((index for index, line in enumerate(lines) if line.startswith(NEGATIVE.rstrip())), len(lines))
    negative = "\n".join(lines[begin:]).removeprefix(NEGATIVE.rstrip()).strip()
    steps, guidance, seed = (float(settings[name]) for name in NUMBERS)
    kind, share = settings.get("Schedule type", ""), settings.get("Denoising strength", "")
    return Recipe(
        "\n".join(lines[:begin]).strip(),
        negative,
        int(steps),
        settings.get("Sampler", ""),
        "" if kind in USUAL else kind,
        guidance,
        int(seed),
        (int(size[1]), int(size[2])),
        NOISES.get(settings.get("RNG", "CPU"), "torch"),
        float(share) if _NUMBER.fullmatch(share) else None,
    )
