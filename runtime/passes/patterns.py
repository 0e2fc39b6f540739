"""The patterns that simplifying looks for, in the order in which they are tried at a node."""

from __future__ import annotations

from . import activations, attention, layer_norm, redundant, reshapes, rotary, transposes

TIDYING = (*redundant.RULES, *reshapes.RULES, *transposes.RULES)
"""What can be left out or merged."""
MEANINGS = (*rotary.RULES, *attention.RULES, *layer_norm.RULES, *activations.RULES)
"""Operators that exporters take apart."""
