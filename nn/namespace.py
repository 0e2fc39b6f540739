"""Names of `nn`: layers, losses, Module and Parameter."""

from __future__ import annotations

from .core.module import Module
from .core.parameter import Buffer, Parameter
from .core.public_names import public_names

PUBLIC = {**public_names("nn.layers"), "Module": Module, "Parameter": Parameter, "Buffer": Buffer}
"""Attributes of `nn` besides its folders."""
