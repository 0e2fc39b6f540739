"""The image encoder inside multimodal models whose files call it ``vision_tower``, as a part that they have."""

from __future__ import annotations

from ....runtime.contract.architecture import Below, Part

VISION = "vision"
"""The name of the part."""
INSIDE = "vision_model."
"""Prefix of names in files of CLIP's and SigLIP's vision towers."""


def vision_tower(name: str = "vision_tower.", place: str = "vision_config") -> Part:
    """A part of the family that the object `place` of config.json names, whose weights are below `name` or
    ``model.NAME``; newer files have them there without ``vision_model.``."""
    return Part(
        None,
        place,
        (
            *(Below(f"{outer}{name}{INSIDE}", INSIDE) for outer in ("", "model.")),
            *(Below(f"{outer}{name}", inner) for inner in ("", INSIDE) for outer in ("", "model.")),
        ),
    )
