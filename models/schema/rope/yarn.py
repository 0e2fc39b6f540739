"""YaRN's multipliers of rotated elements and attention scores (Peng et al. 2023, arXiv:2309.00071)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def magnitude(factor: float, multiple: float = 1.0) -> float:
    """The multiplier of a context extension by `factor`; `multiple` is config.json's ``mscale`` or
    ``mscale_all_dim``."""
    return 0.1 * multiple * math.log(factor) + 1.0 if factor > 1 else 1.0


def attention_factor(scaling: Mapping[str, Any]) -> float:
    """Multiplier of cosines and sines under YaRN."""
    factor = float(scaling["factor"])
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return magnitude(factor, scaling["mscale"]) / magnitude(factor, scaling["mscale_all_dim"])
    return magnitude(factor)


def score_magnitude(scaling: Mapping[str, Any]) -> float:
    """Square root of the multiplier of attention scores in models with latent attention."""
    scaled = scaling["type"] != "default"
    return magnitude(float(scaling.get("factor") or 1), float(scaling.get("mscale_all_dim") or 0)) if scaled else 1.0


def multiple_of(magnitude: float, factor: float) -> float:
    """The multiple of which `magnitude` is the multiplier; 0 for factors that extend nothing."""
    return (magnitude - 1) / (0.1 * math.log(factor)) if factor > 1 else 0.0
