"""Rewrite rules of simplification, in the order in which they are tried at a node."""

from __future__ import annotations

from .fuse import activation, attention, conv_neighbours, group_norm, layer_norm, rotary_embedding
from .simplify import redundant, reshape, transpose

CLEANUP_RULES = (*redundant.RULES, *reshape.RULES, *transpose.RULES, *conv_neighbours.RULES)
"""Rules that remove or merge nodes."""
FUSION_RULES = (*rotary_embedding.RULES, *attention.RULES, *layer_norm.RULES, *group_norm.RULES, *activation.RULES)
"""Rules that fuse subgraphs into the operators that exporters decompose."""
