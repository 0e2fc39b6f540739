"""Rewrite rules of simplification, in the order in which they are tried at a node.

Fusion rules are found by existence: every module of `fuse` that declares ``FUSION_RULES`` takes part.
"""

from __future__ import annotations

from ..plugin.discovery import below
from .fuse import __name__ as fuse
from .fuse import conv_neighbours
from .pattern.rewrite_rules import Rule
from .simplify import pad_sum, redundant, reshape, transpose

CLEANUP_RULES = (*redundant.RULES, *reshape.RULES, *transpose.RULES, *pad_sum.RULES, *conv_neighbours.RULES)
"""Rules that remove or merge nodes."""
FUSION_RULES: tuple[Rule, ...] = tuple(rule for rules in below(fuse, "FUSION_RULES").all() for rule in rules)
"""Rules that fuse subgraphs into the operators that exporters decompose."""
