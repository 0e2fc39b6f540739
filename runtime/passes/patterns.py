"""The patterns that simplifying looks for, in the order in which they are tried at a node."""

from __future__ import annotations

from . import activations, attention, convolutions, group_norm, layer_norm, redundant, reshapes, rotary, transposes

TIDYING = (*redundant.RULES, *reshapes.RULES, *transposes.RULES, *convolutions.RULES)
"""What can be left out or merged."""
MEANINGS = (*rotary.RULES, *attention.RULES, *layer_norm.RULES, *group_norm.RULES, *activations.RULES)
"""Operators that exporters take apart."""
