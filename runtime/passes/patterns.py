"""The patterns that simplifying looks for, in the order in which they are tried at a node."""

from __future__ import annotations

from . import activations, layer_norm

PATTERNS = (*layer_norm.RULES, *activations.RULES)
