"""Names of `nn`: layers, losses, builders, adapters, Module and Parameter."""

from __future__ import annotations

from .core.module import Module
from .core.parameter import Buffer, Parameter
from .core.public_names import public_names

PUBLIC = {
    **{name: each for folder in ("layers", "build", "adapters") for name, each in public_names(f"nn.{folder}").items()},
    "Module": Module,
    "Parameter": Parameter,
    "Buffer": Buffer,
}
"""Attributes of `nn` besides its folders."""
