"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864) and the ways in which models stretch it over longer contexts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.arch import HF, Config, dig
from ...runtime.errors import FormatError, UnsupportedError
from ...runtime.graph import Value
from ...runtime.parameter import NOT_NEGATIVE, Integer, Kind, Listed, ParameterError, Real, checked, flag, mapping, shown
from ...runtime.record import dataclass
from .net import Net

PLAIN: dict[str, Any] = {"type": "default"}
FACTORS = "factors"
"""The type of a scaling of which only the factors are known."""


@dataclass(frozen=True)
class Scaling:
    """Row of the scaling: a dict whose ``type`` is default, linear, dynamic, llama3, yarn or longrope, other keys being config.json's.

    Attributes:
        section: where transformers 5 keeps the parameters of this kind of layer (``rope_parameters.SECTION``), "" for all layers.
    """

    name: str = "scaling"
    section: str = ""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        if names != HF:
            return _from_gguf(source)
        path = f"rope_parameters.{self.section}" if self.section else "rope_parameters"
        path, found = next(((key, value) for key in (path, "rope_scaling") if (value := dig(source, key))), (path, {}))
        said = checked(path, found, mapping)
        kind = _kind(f"{path}.type", said.get("rope_type") or said.get("type") or "default", {"su": "longrope", "mrope": "default"})
        scaling = {
            key: checked(f"{path}.{key}", value, PARAMETERS.get(key, _as_it_is))
            for key, value in said.items() if not key.endswith("type") and value is not None
        }
        original = source.get(ORIGINAL_KEY)
        if original and not scaling.get(ORIGINAL_KEY):
            scaling[ORIGINAL_KEY] = checked(ORIGINAL_KEY, original, ORIGINAL)
        _check_complete(path, kind, scaling)
        return {"type": kind, **scaling}

    def write(self, names: str, config: Config) -> dict[str, Any]:
        scaling = getattr(config, self.name)
        if scaling["type"] == "default":
            return {}
        if names == HF and scaling["type"] == FACTORS:
            raise UnsupportedError("E-ARCH-ROPE", None, "config.json cannot store the factors by which this model scales its frequencies")
        if names == HF:
            return {"rope_scaling": {"rope_type": scaling["type"], **{key: value for key, value in scaling.items() if key != "type"}}}
        return _to_gguf(scaling)


FREQUENCY_BASE = Real(1, above=True)
"""The base of the angles."""
ORIGINAL_KEY = "original_max_position_embeddings"
ORIGINAL = Integer(2)
"""Tokens of the context before it was stretched."""
FACTOR = Real(1e-9, 1e9)
FACTOR_LIST = Listed(FACTOR, 1)
PARAMETERS: dict[str, Kind] = {
    "factor": FACTOR, "low_freq_factor": FACTOR, "high_freq_factor": FACTOR, ORIGINAL_KEY: ORIGINAL,
    "attention_factor": FACTOR,
    "beta_fast": FACTOR, "beta_slow": FACTOR, "mscale": NOT_NEGATIVE, "mscale_all_dim": NOT_NEGATIVE, "truncate": flag,
    "short_factor": FACTOR_LIST, "long_factor": FACTOR_LIST, "rope_theta": FREQUENCY_BASE,
    "llama_4_scaling_beta": NOT_NEGATIVE,
}  # fmt: skip
"""Kinds of the parameters of a scaling that are read; others are carried along."""
NEEDED = {
    "linear": ("factor",), "dynamic": ("factor",), "yarn": ("factor",), "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", ORIGINAL_KEY),
}  # fmt: skip
"""By the type of a scaling: what config.json has to say of it."""


def _as_it_is(value: Any) -> Any:
    return value


def _kind(key: str, said: Any, others: Mapping[str, str]) -> str:
    """The type of a scaling, some of which have other names too."""
    kind = others.get(said, said) if isinstance(said, str) else said
    if kind not in tuple(FREQUENCIES) or kind == FACTORS:
        raise ParameterError(key, f"the scaling {shown(kind)} of rotary embeddings is not known")
    return str(kind)


def _check_complete(path: str, kind: str, scaling: Mapping[str, Any]) -> None:
    """ParameterError where a parameter is missing that a scaling of this type needs, or two contradict each other."""
    for key in NEEDED.get(kind, ()):
        if key not in scaling:
            raise ParameterError(path, f"the scaling {kind} of rotary embeddings needs {key}")
    if kind == "llama3" and scaling["high_freq_factor"] <= scaling["low_freq_factor"]:
        raise ParameterError(f"{path}.high_freq_factor", "it has to be larger than low_freq_factor")
    if kind == "longrope" and len(scaling["short_factor"]) != len(scaling["long_factor"]):
        raise ParameterError(f"{path}.short_factor", "it has to be as long as long_factor")


GGUF_KEYS = {
    "factor": "rope.scaling.factor", "original_max_position_embeddings": "rope.scaling.original_context_length",
    "attention_factor": "rope.scaling.attn_factor", "beta_fast": "rope.scaling.yarn_beta_fast", "beta_slow": "rope.scaling.yarn_beta_slow",
}  # fmt: skip


def _from_gguf(source: Mapping[str, Any]) -> dict[str, Any]:
    kind = _kind("rope.scaling.type", source.get("rope.scaling.type") or "default", {"none": "default"})
    if kind == "default":
        return dict(PLAIN)
    found = {ours: checked(key, source[key], PARAMETERS[ours]) for ours, key in GGUF_KEYS.items() if source.get(key)}
    if kind in ("linear", "dynamic", "yarn") and "factor" not in found:
        raise ParameterError(GGUF_KEYS["factor"], f"the scaling {kind} of rotary embeddings needs it")
    return {"type": kind, **found}


def _to_gguf(scaling: dict[str, Any]) -> dict[str, Any]:
    if scaling["type"] in ("llama3", FACTORS, "dynamic"):  # the first two are in the tensor rope_freqs, the last is not known there
        return {}
    known = {key: _number(key, scaling[ours]) for ours, key in GGUF_KEYS.items() if scaling.get(ours) is not None}
    return {"rope.scaling.type": scaling["type"], **known}


def _number(key: str, value: Any) -> int | float:
    """A value of a GGUF key in its type."""
    return int(value) if key.endswith("length") else float(value)


@dataclass(frozen=True)
class Magnitude:
    """Row, behind `Scaling`, of how much a yarn scaling changes the scores, config.json's ``mscale_all_dim``; GGUF files have it times `per`."""

    per: float
    name: str = "magnitude"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> float | None:
        scaling = config.scaling
        if names == HF:
            return scaling.get("mscale_all_dim")
        key = "rope.scaling.yarn_log_multiplier"
        found = source.get(key)
        if found is None or scaling["type"] == "default":
            return None
        magnitude = round(checked(key, found, NOT_NEGATIVE) / self.per, 6)
        scaling.update(mscale=magnitude, mscale_all_dim=magnitude)
        return magnitude

    def write(self, names: str, config: Config) -> dict[str, Any]:
        said = config.magnitude is not None and config.scaling["type"] != "default" and names != HF
        return {"rope.scaling.yarn_log_multiplier": config.magnitude * self.per} if said else {}


@dataclass(frozen=True)
class Rotary:
    """How queries and keys are turned.

    Attributes:
        size: elements of each head that are turned; the rest stays.
        theta: the base.
        scaling: see `Scaling`.
        context: positions that the model was trained on.
        interleaved: whether neighbours are pairs, or element i and i + size / 2.
        factors: weight by which frequencies are divided ([size / 2]), as GGUF stores the scaling "llama3".
    """

    size: int
    theta: float
    scaling: Mapping[str, Any]
    context: int
    interleaved: bool = False
    factors: str | None = None

    def angles(self, net: Net, positions: Value) -> tuple[Value, Value]:
        """Cosines and sines [batch, length, size / 2] at `positions` [batch, length]."""
        return net.once(("rotary", repr(self), positions.name), lambda: self._angles(net, positions))

    def _angles(self, net: Net, positions: Value) -> tuple[Value, Value]:
        if self.size % 2:
            why = f"heads of {self.size} elements do not have pairs that rotary embeddings rotate"
            raise FormatError("E-ARCH-ROPE", None, why, hint="Is the configuration this model's?")
        frequencies, scale = FREQUENCIES[self.scaling["type"]](net, self, positions)
        if self.factors and net.has(self.factors):
            frequencies = net.Div(frequencies, net.vector(self.factors))
        at = net.Cast(net.Unsqueeze(positions, [2]), to=1)
        turned = net.Mul(at, frequencies)
        cosines, sines = net.Cos(turned), net.Sin(turned)
        return (cosines, sines) if scale == 1.0 else (net.Mul(cosines, scale), net.Mul(sines, scale))

    def turn(self, net: Net, x: Value, heads: int, positions: Value) -> Value:
        """`x` [batch, length, heads x size] turned by its positions."""
        cosines, sines = self.angles(net, positions)
        y: Value = net.RotaryEmbedding(x, cosines, sines, num_heads=heads, rotary_embedding_dim=self.size, interleaved=int(self.interleaved))
        return y


Frequencies = tuple[Any, float]


def inverse(size: int, theta: float) -> np.ndarray:
    """Angles per position, one for each pair, in f32."""
    return (1.0 / (np.float32(theta) ** (np.arange(0, size, 2, dtype=np.float32) / np.float32(size)))).astype(np.float32)


def _default(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    return inverse(rotary.size, rotary.theta), 1.0


def _linear(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    return inverse(rotary.size, rotary.theta) / np.float32(rotary.scaling["factor"]), 1.0


def _dynamic(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    """The base grows with the length once it is past the trained context (NTK-aware scaling)."""
    if rotary.size == 2:
        raise FormatError("E-ARCH-ROPE", None, "dynamic scaling of rotary embeddings needs more than 2 rotated elements in each head")
    factor = float(rotary.scaling["factor"])
    length = net.Max(_length(net, positions), float(rotary.context))
    grown = net.Sub(net.Mul(length, factor / rotary.context), factor - 1)
    theta = net.Mul(net.Pow(grown, rotary.size / (rotary.size - 2)), float(rotary.theta))
    powers = np.arange(0, rotary.size, 2, dtype=np.float32) / np.float32(rotary.size)
    return net.Reciprocal(net.Pow(theta, powers)), 1.0


def llama3_factors(scaling: Mapping[str, Any], size: int, theta: float) -> np.ndarray:
    """What the scaling "llama3" (Llama 3.1) divides frequencies by."""
    low, high, factor, original = (
        np.float32(scaling[key]) for key in ("low_freq_factor", "high_freq_factor", "factor", "original_max_position_embeddings")
    )
    lengths = np.float32(2 * math.pi) / inverse(size, theta)
    smooth = (original / lengths - low) / (high - low)
    between = np.float32(1) / ((np.float32(1) - smooth) / factor + smooth)
    return np.where(lengths < original / high, np.float32(1), np.where(lengths > original / low, factor, between)).astype(np.float32)


def llama3_scaling(factors: np.ndarray, size: int, theta: float) -> dict[str, Any]:
    """Parameters of the scaling "llama3" that give these factors (f32 [size / 2], finite and above 0); they are the same for any multiple of all
    three lengths, so the low one is 1.

    Where no parameters do, the scaling has the type "factors": it can be run, and written to GGUF.
    """
    try:
        with np.errstate(all="ignore"):
            found = _fitted(factors, size, theta)
            fits = np.allclose(llama3_factors(found, size, theta), factors, rtol=1e-5)
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        fits = False
    return found if fits else {"type": FACTORS}


def _fitted(factors: np.ndarray, size: int, theta: float) -> dict[str, Any]:
    """Parameters that come near the factors where such exist. ArithmeticError or ValueError where none can be computed."""
    factor = float(factors[-1])
    turns = inverse(size, theta).astype(np.float64) / (2 * math.pi)
    between = (factors > 1) & (factors < factor)
    smooth = (1 / factors[between].astype(np.float64) - 1 / factor) / (1 - 1 / factor)
    if between.sum() > 1:
        slope, offset = np.polyfit(turns[between], smooth, 1)
        high = 1 - 1 / offset
        length = slope * (high - 1)
    elif between.any():
        high = 4.0
        length = float((3 * smooth[0] + 1) / turns[between][0])
    else:
        kept, scaled = turns[factors == 1].min(initial=1.0), turns[factors > 1].max(initial=0.0)
        length = max(1, round(1 / math.sqrt(kept * scaled)))
        high = min(4.0, kept * length * 0.999)
    return {"type": "llama3", "factor": round(factor, 4), "low_freq_factor": 1.0, "high_freq_factor": round(float(high), 4),
            "original_max_position_embeddings": round(float(length))}  # fmt: skip


def _llama3(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    own = 1 if rotary.factors and net.has(rotary.factors) else llama3_factors(rotary.scaling, rotary.size, rotary.theta)
    return inverse(rotary.size, rotary.theta) / own, 1.0


def _yarn(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    """Peng et al. 2023, arXiv:2309.00071."""
    scaling, size = rotary.scaling, rotary.size
    factor = float(scaling["factor"])
    original = scaling.get("original_max_position_embeddings") or rotary.context

    def dimension(turns: float) -> float:
        return float(size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rotary.theta)))

    low, high = dimension(scaling.get("beta_fast") or 32), dimension(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip((np.arange(size // 2, dtype=np.float32) - low) / (high - low if high != low else 0.001), 0, 1).astype(np.float32)
    frequencies = inverse(size, rotary.theta)
    return frequencies / np.float32(factor) * ramp + frequencies * (1 - ramp), yarn_attention(scaling)


def yarn_attention(scaling: Mapping[str, Any]) -> float:
    """What cosines and sines are multiplied by."""
    factor = float(scaling["factor"])

    def magnitude(multiple: float) -> float:
        return 0.1 * multiple * math.log(factor) + 1.0 if factor > 1 else 1.0

    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return magnitude(scaling["mscale"]) / magnitude(scaling["mscale_all_dim"])
    return magnitude(1)


def _longrope(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    """One set of factors up to the context of pre-training, another beyond (Ding et al. 2024, arXiv:2402.13753)."""
    scaling = rotary.scaling
    original = scaling.get("original_max_position_embeddings") or rotary.context
    frequencies = inverse(rotary.size, rotary.theta)
    if net.has("rope.short") and net.has("rope.long"):
        short, long = (net.Div(frequencies, net.vector(name)) for name in ("rope.short", "rope.long"))
    else:
        lists = [np.asarray(scaling.get(f"{name}_factor", ()), np.float32) for name in ("short", "long")]
        if any(each.shape != frequencies.shape for each in lists):
            found = " and ".join(f"{len(each):,}" for each in lists)
            raise FormatError("E-ARCH-ROPE", None, "longrope needs a short and a long factor for each pair of a head", found=found,
                              expected=f"{len(frequencies):,}", hint="Is the configuration this model's?")  # fmt: skip
        short, long = (net.constant(frequencies / each) for each in lists)
    factor = rotary.context / original if scaling.get("factor") is None else float(scaling["factor"])
    attention = scaling.get("attention_factor")
    if attention is None:
        attention = math.sqrt(1 + math.log(factor) / math.log(max(original, ORIGINAL.low))) if factor > 1 else 1.0
    return net.Where(net.Greater(_length(net, positions), float(original)), long, short), float(attention)


def _length(net: Net, positions: Value) -> Value:
    """Positions up to the last one, as f32."""
    length: Value = net.Cast(net.Add(net.ReduceMax(positions, keepdims=0), 1), to=1)
    return length


FREQUENCIES = {
    "default": _default, "linear": _linear, "dynamic": _dynamic, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope, FACTORS: _default,
}
