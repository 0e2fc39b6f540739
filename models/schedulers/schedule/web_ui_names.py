"""Samplers and schedule types of AUTOMATIC1111's web UI, whose words stand in the metadata of pictures: ``Euler a``,
``DPM++ 2M Karras``."""

from __future__ import annotations

from typing import Any

from .option_kinds import Config
from .sigma_schedule import SHAPES

MULTISTEP = {"algorithm_type": "dpmsolver++", "solver_order": 2}
SDE = {"algorithm_type": "sde-dpmsolver++", "solver_order": 2}
SAMPLERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Euler", "euler", {}),
    ("Euler", "flow_match_euler", {}),
    ("Euler a", "euler_ancestral", {}),
    ("LMS", "lms", {}),
    ("Heun", "heun", {}),
    ("DPM++ SDE", "dpm_sde", {}),
    ("DPM++ 2M", "dpmpp_2m", MULTISTEP),
    ("DPM++ 2M SDE", "dpmpp_2m", SDE | {"solver_type": "midpoint"}),
    ("DPM++ 2M SDE Heun", "dpmpp_2m", SDE | {"solver_type": "heun"}),
    ("DPM++ 3M SDE", "dpmpp_2m", {"algorithm_type": "sde-dpmsolver++", "solver_order": 3}),
    ("UniPC", "unipc", {}),
    ("LCM", "lcm", {}),
    ("DDIM", "ddim", {}),
    ("DDPM", "ddpm", {}),
    ("PLMS", "pndm", {"skip_prk_steps": True}),
)
"""The sampler, the module of its scheduler, and options that it implies; the first of several is the usual one."""
TYPES: dict[str, dict[str, Any]] = {
    "Karras": {"use_karras_sigmas": True},
    "Exponential": {"use_exponential_sigmas": True},
    "Beta": {"use_beta_sigmas": True},
    "Uniform": {"timestep_spacing": "linspace"},
}
"""Schedule types and the options that they stand for."""


def sampler_words(module: str, options: Config) -> tuple[str, str] | None:
    """The sampler and the schedule type of a scheduler, the latter empty for its usual sigmas; None for a scheduler
    that the web UI lacks."""
    words = next(
        (words for words, name, implied in SAMPLERS if name == module and implied.items() <= options.items()), None
    )
    kind = next((kind for kind, implied in TYPES.items() if implied.items() <= options.items()), "")
    return None if words is None else (words, kind)


def of_words(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The modules of schedulers that a sampler stands for, such as ``DPM++ 2M Karras``, with the options that it
    implies; empty for other words."""
    lower = " ".join(text.split()).lower()
    kind = next((kind for kind in TYPES if lower.endswith(f" {kind.lower()}")), None)
    sampler = lower if kind is None else lower[: -len(kind) - 1]
    shapes = dict.fromkeys(SHAPES, False) | ({} if kind is None else TYPES[kind])
    return [(module, {**implied, **shapes}) for words, module, implied in SAMPLERS if words.lower() == sampler]
