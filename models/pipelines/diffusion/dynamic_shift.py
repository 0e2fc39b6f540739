"""Schedules of flow matching; dynamic shifting spends more steps on noise the more tokens a picture has."""

from __future__ import annotations

from typing import Any

from .text_to_image import Config, Request

PATCH = 2
"""Latents along each side of a token."""


def dynamic_shift(options: Config, request: Request, steps: int) -> dict[str, Any]:
    """`mu` for schedulers that shift by the number of tokens: linear between those of the least and the most."""
    if not options.get("use_dynamic_shifting"):
        return {}
    tokens = request.rows // PATCH * (request.columns // PATCH)
    first, last = options["base_image_seq_len"], options["max_image_seq_len"]
    low, high = options["base_shift"], options["max_shift"]
    return {"mu": float(low + (high - low) * (tokens - first) / (last - first))}


def even_steps(options: Config, request: Request, steps: int) -> dict[str, Any]:
    """Even sigmas down to one step above zero, shifted by the number of tokens."""
    return {"even_steps": True, **dynamic_shift(options, request, steps)}
