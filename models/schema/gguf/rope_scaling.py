"""RoPE scaling in GGUF metadata, as llama.cpp computes with it.

llama.cpp multiplies rotated elements by ``rope.scaling.attn_factor`` times what YaRN implies, and ends the range of
YaRN's frequencies at whole pairs. Few of its architectures read YaRN's betas or a multiplier of its logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.hyperparameter import NOT_NEGATIVE, POSITIVE, Integer, Kind, Real, checked
from ..rope.yarn import attention_factor, magnitude, multiple_of, score_magnitude

ATTENTION, LOGARITHM = "rope.scaling.attn_factor", "rope.scaling.yarn_log_multiplier"
FACTOR = Real(1e-9, 1e9)
ORIGINAL = Integer(2)
KEYS: dict[str, tuple[str, Kind]] = {
    "factor": ("rope.scaling.factor", FACTOR),
    "original_max_position_embeddings": ("rope.scaling.original_context_length", ORIGINAL),
}
BETAS: dict[str, tuple[str, Kind]] = {
    "beta_fast": ("rope.scaling.yarn_beta_fast", FACTOR),
    "beta_slow": ("rope.scaling.yarn_beta_slow", FACTOR),
}


@dataclass(frozen=True)
class GgufScaling:
    """The keys of RoPE scaling that an architecture of llama.cpp reads.

    Attributes:
        betas: whether it reads YaRN's betas.
        own_attention_factor: whether files can state another multiplier of rotated elements than YaRN implies; not
            where llama.cpp would apply it to sliding-window layers too, which are not scaled.
    """

    betas: bool = False
    own_attention_factor: bool = True

    def read(self, kind: str, source: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a scaling of type `kind`, by config.json's names."""
        keys = KEYS | (BETAS if self.betas and kind == "yarn" else {})
        found = {ours: checked(key, source[key], valid) for ours, (key, valid) in keys.items() if source.get(key)}
        stated = self.stated_factor(source)
        if kind == "yarn" and "factor" in found:
            return found | self.read_yarn(float(found["factor"]), stated, source)
        return found if kind != "longrope" or stated is None else {**found, "attention_factor": stated}

    def write(self, scaling: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of a scaling."""
        yarn = scaling["type"] == "yarn"
        keys = KEYS | (BETAS if self.betas and yarn else {})
        found = {key: valid(scaling[ours]) for ours, (key, valid) in keys.items() if scaling.get(ours) is not None}
        if yarn:
            return found | self.write_yarn(scaling)
        stated = scaling.get("attention_factor") if scaling["type"] == "longrope" else None
        return found if stated is None else {**found, ATTENTION: float(stated)}

    def stated_factor(self, source: Mapping[str, Any]) -> float | None:
        """The factor that the file states."""
        return float(checked(ATTENTION, source[ATTENTION], POSITIVE)) if source.get(ATTENTION) else None

    def read_yarn(self, factor: float, stated: float | None, source: Mapping[str, Any]) -> dict[str, Any]:
        """YaRN's multipliers."""
        if stated is None or not self.own_attention_factor:
            return {}
        return {"attention_factor": stated * magnitude(factor)}

    def write_yarn(self, scaling: Mapping[str, Any]) -> dict[str, Any]:
        """The keys of YaRN's multipliers."""
        if not self.own_attention_factor:
            return {}
        return _unless_one(attention_factor(scaling) / magnitude(float(scaling["factor"])))


@dataclass(frozen=True)
class LogarithmScaling(GgufScaling):
    """Keys of Ministral 3, whose multiplier of YaRN's logarithm is ``mscale_all_dim``."""

    def read_yarn(self, factor: float, stated: float | None, source: Mapping[str, Any]) -> dict[str, Any]:
        multiple = checked(LOGARITHM, source.get(LOGARITHM) or 0.0, NOT_NEGATIVE)
        if not multiple:
            return super().read_yarn(factor, stated, source)
        implied = {"mscale": 1.0, "mscale_all_dim": multiple}
        return implied if stated is None else {"attention_factor": stated * _implied(factor, multiple)}

    def write_yarn(self, scaling: Mapping[str, Any]) -> dict[str, Any]:
        multiple, factor = float(scaling.get("mscale_all_dim") or 0), float(scaling["factor"])
        if not multiple:
            return super().write_yarn(scaling)
        return {LOGARITHM: multiple, **_unless_one(attention_factor(scaling) / _implied(factor, multiple))}


@dataclass(frozen=True)
class LatentScaling(GgufScaling):
    """Keys of models with latent attention (DeepSeek 2), which state the multiplier of attention scores relative to
    that of rotated elements, as a tenth of a multiplier of YaRN's logarithm. Linear scaling too multiplies scores by
    YaRN's multiplier."""

    def read(self, kind: str, source: Mapping[str, Any]) -> dict[str, Any]:
        found = super().read(kind, source)
        if kind == "linear" and "factor" in found:
            factor = float(found["factor"])
            scores = magnitude(factor) * (1 + _logarithm(source) * math.log(factor))
            multiple = round(multiple_of(scores, factor), 6)
            return found | ({"mscale_all_dim": multiple} if multiple > 0 else {})
        return found

    def write(self, scaling: Mapping[str, Any]) -> dict[str, Any]:
        found = super().write(scaling)
        if scaling["type"] == "linear":
            factor = float(scaling["factor"])
            return {**found, LOGARITHM: 0.1 * multiple_of(score_magnitude(scaling) / magnitude(factor), factor)}
        return found

    def read_yarn(self, factor: float, stated: float | None, source: Mapping[str, Any]) -> dict[str, Any]:
        logarithm = _logarithm(source)
        rotated = (1.0 if logarithm else magnitude(factor)) * (1.0 if stated is None else stated)
        scores = rotated * (1 + logarithm * math.log(factor))
        multiple = round(multiple_of(scores, factor), 6)
        if multiple and math.isclose(rotated, 1.0, rel_tol=1e-6):
            return {"mscale": multiple, "mscale_all_dim": multiple}
        return {"attention_factor": rotated, **({"mscale_all_dim": multiple} if multiple > 0 else {})}

    def write_yarn(self, scaling: Mapping[str, Any]) -> dict[str, Any]:
        factor, rotated = float(scaling["factor"]), attention_factor(scaling)
        multiple = multiple_of(score_magnitude(scaling) / rotated, factor)
        if abs(multiple) < 1e-7:
            return _unless_one(rotated / magnitude(factor))
        return {LOGARITHM: 0.1 * multiple, **_unless_one(rotated)}


def _logarithm(source: Mapping[str, Any]) -> float:
    """The stated tenth of a multiplier of YaRN's logarithm."""
    return float(checked(LOGARITHM, source.get(LOGARITHM) or 0.0, Real(-1e3, 1e3)))


def _implied(factor: float, multiple: float) -> float:
    """The multiplier of rotated elements that llama.cpp takes from a multiplier of YaRN's logarithm."""
    return magnitude(factor) / magnitude(factor, multiple)


def _unless_one(stated: float) -> dict[str, Any]:
    return {} if math.isclose(stated, 1.0, rel_tol=1e-7) else {ATTENTION: stated}
