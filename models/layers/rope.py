"""Rotary position embedding (RoPE; Su et al. 2021, arXiv:2104.09864) and its context-extension scalings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, UnsupportedError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import HF, Config, Key, Weight
from ...runtime.contract.hyperparameter import (
    NOT_NEGATIVE,
    POSITIVE,
    Kind,
    Listed,
    ParameterError,
    checked,
    flag,
    shown,
)
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..schema.gguf.rope_scaling import FACTOR, ORIGINAL, GgufScaling
from ..schema.hyperparameters import FREQUENCY_BASE
from ..schema.rope.stated_parameters import ALL_LAYERS, FULL_LAYERS, OLDER, SLIDING_LAYERS, FrequencyBase, RopeSection
from ..schema.rope.yarn import attention_factor
from .net import Net

PLAIN: dict[str, Any] = {"type": "default"}
FACTORS = "factors"
"""The type of a scaling known only by its factors."""


@dataclass(frozen=True)
class Scaling:
    """Hyper-parameter: RoPE scaling, a dict whose ``type`` is default, linear, dynamic, llama3, yarn or longrope; the
    other keys are those of config.json.

    Attributes:
        section: the layers that it belongs to.
        gguf_keys: how GGUF files state it; None for layers that they do not scale.
    """

    name: str = "scaling"
    section: RopeSection = ALL_LAYERS
    gguf_keys: GgufScaling | None = GgufScaling()

    @property
    def hf(self) -> str:
        """Key of the setting in older files."""
        return self.section.path if self.section.name else OLDER

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        if names != HF:
            return self._from_gguf(source)
        path, stated = self.section.stated(source)
        kind = _kind(
            f"{path}.type",
            stated.get("rope_type") or stated.get("type") or "default",
            {"su": "longrope", "mrope": "default"},
        )
        scaling = {
            key: checked(f"{path}.{key}", value, PARAMETERS.get(key, _unchanged))
            for key, value in stated.items()
            if not key.endswith("type") and key not in OTHERS and value is not None
        }
        original = source.get(ORIGINAL_KEY)
        if kind in OF_ORIGINAL:
            scaling |= self._original(original, config, kind == "llama3" and ORIGINAL_KEY not in scaling)
        _check_complete(path, kind, scaling)
        return {"type": kind, **scaling} if kind != "default" else dict(PLAIN)

    def _original(self, stated: Any, config: Config, needed: bool) -> dict[str, Any]:
        """The context length before it was extended, where it is not that of the parameters: a `stated` top-level key
        goes before the parameters of all layers, as in transformers; the model's length if it is `needed`."""
        if stated and not self.section.name:
            return {ORIGINAL_KEY: checked(ORIGINAL_KEY, stated, ORIGINAL)}
        return {ORIGINAL_KEY: config.context} if needed and "context" in config.values else {}

    def write(self, names: str, config: Config) -> dict[str, Any]:
        scaling = getattr(config, self.name)
        if scaling["type"] == "default":
            return {}
        if names == HF and scaling["type"] == FACTORS:
            raise UnsupportedError("E-ARCH-ROPE", None, "config.json cannot store this model's RoPE frequency factors")
        if names == HF:
            stated = {"rope_type": scaling["type"], **{key: value for key, value in scaling.items() if key != "type"}}
            nested = {f"{self.section.path}.{key}": value for key, value in stated.items()} if self.section.name else {}
            return {**({OLDER: stated} if self.section.scaled else {}), **nested}
        # GGUF stores llama3 and factors as the tensor rope_freqs, and has no dynamic scaling
        if self.gguf_keys is None or scaling["type"] in ("llama3", FACTORS, "dynamic"):
            return {}
        return {TYPE: scaling["type"], **self.gguf_keys.write(scaling)}

    def _from_gguf(self, source: Mapping[str, Any]) -> dict[str, Any]:
        stated = source.get(TYPE) or ("linear" if source.get("rope.scaling.factor") else "default")
        kind = _kind(TYPE, stated, {"none": "default"})
        if self.gguf_keys is None or kind == "default":
            return dict(PLAIN)
        found = self.gguf_keys.read(kind, source)
        if kind in ("linear", "dynamic", "yarn") and "factor" not in found:
            raise ParameterError("rope.scaling.factor", f"missing; RoPE scaling {kind} needs it")
        return {"type": kind, **found}


TYPE = "rope.scaling.type"
ORIGINAL_KEY = "original_max_position_embeddings"
OF_ORIGINAL = ("llama3", "yarn", "longrope")
"""Scaling types that depend on the context length before it was extended."""
FACTOR_LIST = Listed(FACTOR, 1)
PARAMETERS: dict[str, Kind] = {
    "factor": FACTOR, "low_freq_factor": FACTOR, "high_freq_factor": FACTOR, ORIGINAL_KEY: ORIGINAL,
    "attention_factor": FACTOR,
    "beta_fast": FACTOR, "beta_slow": FACTOR, "mscale": NOT_NEGATIVE, "mscale_all_dim": NOT_NEGATIVE, "truncate": flag,
    "short_factor": FACTOR_LIST, "long_factor": FACTOR_LIST,
    "llama_4_scaling_beta": NOT_NEGATIVE, "short_mscale": FACTOR, "long_mscale": FACTOR,
}  # fmt: skip
"""Checks of the scaling parameters that are read; others are passed through."""
OTHERS = ("rope_theta", "partial_rotary_factor")
"""Parameters besides the scaling, which other rows read."""
NEEDED = {
    "linear": ("factor",), "dynamic": ("factor",), "yarn": ("factor",), "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", ORIGINAL_KEY),
}  # fmt: skip
"""Parameters that config.json must have, by scaling type."""


def _unchanged(value: Any) -> Any:
    return value


def _kind(key: str, stated: Any, others: Mapping[str, str]) -> str:
    """The scaling type, with aliases resolved. ParameterError if it is unknown."""
    kind = others.get(stated, stated) if isinstance(stated, str) else stated
    if kind not in tuple(FREQUENCIES) or kind == FACTORS:
        raise ParameterError(key, f"unknown RoPE scaling type {shown(kind)}")
    return str(kind)


def _check_complete(path: str, kind: str, scaling: Mapping[str, Any]) -> None:
    """ParameterError if a parameter that the scaling type needs is missing, or two parameters contradict."""
    for key in NEEDED.get(kind, ()):
        if key not in scaling:
            raise ParameterError(path, f"RoPE scaling {kind} needs {key}")
    if kind == "llama3" and scaling["high_freq_factor"] < scaling["low_freq_factor"]:
        raise ParameterError(f"{path}.high_freq_factor", "must not be smaller than low_freq_factor")
    if kind == "longrope" and len(scaling["short_factor"]) != len(scaling["long_factor"]):
        raise ParameterError(f"{path}.short_factor", "must be as long as long_factor")


@dataclass(frozen=True)
class Rotary:
    """Rotary position embedding of queries and keys.

    Attributes:
        size: elements of each head that are rotated; the rest pass through.
        theta: the frequency base.
        scaling: see `Scaling`.
        context: context length of the model in tokens.
        interleaved: whether pairs are neighbours, or else elements i and i + size / 2.
        factors: weight [size / 2] that divides the frequencies, as GGUF stores the scaling "llama3".
    """

    size: int
    theta: float
    scaling: Mapping[str, Any]
    context: int
    interleaved: bool = False
    factors: str | None = None

    def angles(self, net: Net, positions: Value) -> tuple[Value, Value]:
        """Cosines and sines [batch, length, size / 2] at `positions` [batch, length], or [axes, batch, length] where
        the net has `axes`."""
        return net.once(("rotary", repr(self), positions.name), lambda: self._angles(net, positions))

    def _angles(self, net: Net, positions: Value) -> tuple[Value, Value]:
        if self.size % 2:
            why = f"rotary embedding needs an even number of elements per head, not {self.size}"
            raise FormatError("E-ARCH-ROPE", None, why, hint="Check that config.json belongs to this model")
        frequencies, scale = FREQUENCIES[self.scaling["type"]](net, self, positions)
        if self.factors and net.has(self.factors):
            frequencies = net.Div(frequencies, net.vector(self.factors))
        angles = net.Mul(net.Cast(self._by_pair(net, positions), to=1), frequencies)
        cosines, sines = net.Cos(angles), net.Sin(angles)
        unscaled = not isinstance(scale, Value) and scale == 1.0
        return (cosines, sines) if unscaled else (net.Mul(cosines, scale), net.Mul(sines, scale))

    def _by_pair(self, net: Net, positions: Value) -> Value:
        """The position of each rotated pair, [batch, length, size / 2], or [batch, length, 1] for one axis."""
        if not net.axes:
            one: Value = net.Unsqueeze(positions, [2])
            return one
        if len(net.axes) != self.size // 2:
            why, expected = (
                "positions of several axes need an axis for each rotated pair",
                f"{counted(self.size // 2, 'axis', 'axes')}",
            )
            raise FormatError("E-ARCH-ROPE", None, why, expected=expected, found=f"{len(net.axes):,}")
        found: Value = net.Gather(net.Transpose(positions, perm=[1, 2, 0]), list(net.axes), axis=2)
        return found

    def rotate(self, net: Net, x: Value, heads: int, positions: Value) -> Value:
        """`x` [batch, length, heads x size] rotated by its positions."""
        cosines, sines = self.angles(net, positions)
        y: Value = net.RotaryEmbedding(
            x, cosines, sines, num_heads=heads, rotary_embedding_dim=self.size, interleaved=int(self.interleaved)
        )
        return y


TWO_ROPES = (
    FrequencyBase("theta", "rope_theta", "rope.freq_base", 1e6, FREQUENCY_BASE, section=FULL_LAYERS),
    FrequencyBase(
        "local_theta",
        "rope_local_base_freq",
        ("rope.freq_base_swa", "rope.local.freq_base"),
        1e4,
        FREQUENCY_BASE,
        section=SLIDING_LAYERS,
    ),
    Scaling(section=FULL_LAYERS, gguf_keys=GgufScaling(own_attention_factor=False)),
    Scaling("local_scaling", SLIDING_LAYERS, gguf_keys=None),
)
"""Hyper-parameters: RoPE of layers with full attention and of those with a window."""


def rotaries(config: Config) -> tuple[Rotary, Rotary]:
    """RoPE of layers with full attention and of those with a window, which may have parameters of their own."""
    rotary = Rotary(config.head_dim, config.theta, config.scaling, config.context)
    if "local_theta" not in config.values:
        return rotary, rotary
    return rotary, Rotary(config.head_dim, config.local_theta, config.local_scaling, config.context)


Frequencies = tuple[Any, float | Value]


def inverse(size: int, theta: float) -> np.ndarray:
    """Inverse frequencies: angle per position of each pair, f32 [size / 2]."""
    return (1.0 / (np.float32(theta) ** (np.arange(0, size, 2, dtype=np.float32) / np.float32(size)))).astype(
        np.float32
    )


def _default(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    return inverse(rotary.size, rotary.theta), 1.0


def _linear(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    return inverse(rotary.size, rotary.theta) / np.float32(rotary.scaling["factor"]), 1.0


def _dynamic(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    """NTK-aware scaling: the base grows with the length beyond the original context."""
    if rotary.size == 2:
        raise FormatError("E-ARCH-ROPE", None, "dynamic RoPE scaling needs more than 2 rotated elements per head")
    factor = float(rotary.scaling["factor"])
    length = net.Max(_length(net, positions), float(rotary.context))
    grown = net.Sub(net.Mul(length, factor / rotary.context), factor - 1)
    theta = net.Mul(net.Pow(grown, rotary.size / (rotary.size - 2)), float(rotary.theta))
    powers = np.arange(0, rotary.size, 2, dtype=np.float32) / np.float32(rotary.size)
    return net.Reciprocal(net.Pow(theta, powers)), 1.0


def llama3_factors(scaling: Mapping[str, Any], size: int, theta: float) -> np.ndarray:
    """Divisors of the frequencies for the scaling "llama3" (Llama 3.1), f32 [size / 2]."""
    low, high, factor, original = (
        np.float32(scaling[key])
        for key in ("low_freq_factor", "high_freq_factor", "factor", "original_max_position_embeddings")
    )
    lengths = np.float32(2 * math.pi) / inverse(size, theta)
    smooth = (original / lengths - low) / ((high - low) or np.float32(1))
    between = np.float32(1) / ((np.float32(1) - smooth) / factor + smooth)
    return np.where(
        lengths < original / high, np.float32(1), np.where(lengths > original / low, factor, between)
    ).astype(np.float32)


def llama3_scaling(factors: np.ndarray, size: int, theta: float) -> dict[str, Any]:
    """Parameters of the scaling "llama3" that reproduce `factors` (f32 [size / 2], finite and above 0). They are
    determined up to a common multiple of the three lengths, so low_freq_factor is 1.

    If no parameters reproduce them, the type is "factors": the model can be run and written to GGUF.
    """
    try:
        with np.errstate(all="ignore"):
            found = _fitted(factors, size, theta)
            fits = np.allclose(llama3_factors(found, size, theta), factors, rtol=1e-5)
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        fits = False
    return found if fits else {"type": FACTORS}


def _fitted(factors: np.ndarray, size: int, theta: float) -> dict[str, Any]:
    """Parameters fitted to the factors. ArithmeticError or ValueError if none can be computed."""
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
    return {
        "type": "llama3",
        "factor": round(factor, 4),
        "low_freq_factor": 1.0,
        "high_freq_factor": round(float(high), 4),
        "original_max_position_embeddings": round(float(length)),
    }


def _llama3(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    own = 1 if rotary.factors and net.has(rotary.factors) else llama3_factors(rotary.scaling, rotary.size, rotary.theta)
    return inverse(rotary.size, rotary.theta) / own, 1.0


def _yarn(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    frequencies = yarn_frequencies(rotary.scaling, rotary.size, rotary.theta, rotary.context)
    return frequencies, attention_factor(rotary.scaling)


def yarn_frequencies(scaling: Mapping[str, Any], size: int, theta: float, context: int) -> np.ndarray:
    """Angle per position of each pair under YaRN (Peng et al. 2023, arXiv:2309.00071), f32 [size / 2]."""
    factor = float(scaling["factor"])
    original = scaling.get(ORIGINAL_KEY) or context

    def dimension(turns: float) -> float:
        return float(size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta)))

    low, high = dimension(scaling.get("beta_fast") or 32), dimension(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip(
        (np.arange(size // 2, dtype=np.float32) - low) / (high - low if high != low else 0.001), 0, 1
    ).astype(np.float32)
    frequencies = inverse(size, theta)
    found: np.ndarray = frequencies / np.float32(factor) * ramp + frequencies * (1 - ramp)
    return found


def _longrope(net: Net, rotary: Rotary, positions: Value) -> Frequencies:
    """LongRoPE: one set of factors up to the original context, another beyond it (Ding et al. 2024,
    arXiv:2402.13753)."""
    scaling = rotary.scaling
    original = scaling.get("original_max_position_embeddings") or rotary.context
    frequencies = inverse(rotary.size, rotary.theta)
    if net.has("rope.short") and net.has("rope.long"):
        short, long = (net.Div(frequencies, net.vector(name)) for name in ("rope.short", "rope.long"))
    else:
        lists = [np.asarray(scaling.get(f"{name}_factor", ()), np.float32) for name in ("short", "long")]
        if any(each.shape != frequencies.shape for each in lists):
            found = " and ".join(f"{len(each):,}" for each in lists)
            raise FormatError(
                "E-ARCH-ROPE",
                None,
                "longrope needs one short and one long factor per rotated pair",
                found=found,
                expected=f"{len(frequencies):,}",
                hint="Check that config.json belongs to this model",
            )
        short, long = (net.constant(frequencies / each) for each in lists)
    beyond = net.Greater(_length(net, positions), float(original))
    return net.Where(beyond, long, short), _longrope_attention(net, rotary, original, beyond)


def _longrope_attention(net: Net, rotary: Rotary, original: int, beyond: Value) -> float | Value:
    """Multiplier of cosines and sines under LongRoPE: stated for both sets of factors, for the model, or computed."""
    short, long = (rotary.scaling.get(f"{kind}_mscale") for kind in ("short", "long"))
    if short is not None and long is not None:
        found: float | Value = float(short) if short == long else net.Where(beyond, float(long), float(short))
        return found
    attention = rotary.scaling.get("attention_factor")
    return longrope_attention(rotary.scaling, rotary.context, original) if attention is None else float(attention)


def longrope_attention(scaling: Mapping[str, Any], context: int, original: int) -> float:
    """The attention factor of LongRoPE that follows from the context lengths."""
    factor = context / original if scaling.get("factor") is None else float(scaling["factor"])
    return math.sqrt(1 + math.log(factor) / math.log(max(original, ORIGINAL.low))) if factor > 1 else 1.0


def _length(net: Net, positions: Value) -> Value:
    """The largest position plus one, as f32."""
    length: Value = net.Cast(net.Add(net.ReduceMax(positions, keepdims=0), 1), to=1)
    return length


FREQUENCIES = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    FACTORS: _default,
}


def _llama3_weight(config: Config) -> StoredTensor | None:
    """RoPE frequency factors, which GGUF files store instead of the parameters of "llama3" scaling."""
    if config.scaling["type"] != "llama3":
        return None
    return StoredTensor.of(llama3_factors(config.scaling, config.rotary, config.theta))


LLAMA3_FACTORS = Weight(
    "rope.factors", (), "rope_freqs.weight", shape=("rotary_pairs",), optional=True, compute=_llama3_weight
)


def settle_llama3(config: Config, weights: Mapping[str, StoredTensor]) -> None:
    """Derive the RoPE scaling from the stored factors `LLAMA3_FACTORS`."""
    if "rope.factors" in weights and config.scaling["type"] == "default":
        factors = weights["rope.factors"].numpy()
        if not (np.isfinite(factors) & (factors > 0)).all():
            raise FormatError(
                "E-ARCH-ROPE", config.path, "rope_freqs.weight has elements that are not finite and positive"
            )
        config.values["scaling"] = llama3_scaling(factors, config.rotary, config.theta)


def _attention_factor(config: Config) -> float | None:
    """Scale of queries and keys under LongRoPE, or None. GGUF files store one for both sets of factors."""
    scaling = config.scaling
    if scaling["type"] != "longrope":
        return None
    if scaling.get("short_mscale") is None or scaling.get("long_mscale") is None:
        stated = scaling.get("attention_factor")
        return longrope_attention(scaling, config.context, config.original) if stated is None else float(stated)
    return float(scaling["long_mscale"])


LONGROPE = (
    Key(
        "original",
        (ORIGINAL_KEY, f"rope_parameters.{ORIGINAL_KEY}", f"rope_scaling.{ORIGINAL_KEY}"),
        "rope.scaling.original_context_length",
        lambda config: config.context,
        ORIGINAL,
    ),
    Key("attention_factor", (), "rope.scaling.attn_factor", _attention_factor, POSITIVE),
)
"""Hyper-parameters of LongRoPE besides `Scaling`, read after it."""


def _longrope_weight(kind: str) -> Weight:
    def value(config: Config) -> StoredTensor | None:
        factors = config.scaling.get(f"{kind}_factor")
        return None if factors is None else StoredTensor.of(np.asarray(factors, np.float32))

    return Weight(
        f"rope.{kind}", (), f"rope_factors_{kind}.weight", shape=("rotary_pairs",), optional=True, compute=value
    )


LONGROPE_FACTORS = (_longrope_weight("long"), _longrope_weight("short"))


def settle_longrope(config: Config, weights: Mapping[str, StoredTensor]) -> None:
    """Derive the RoPE scaling from the stored factors `LONGROPE_FACTORS`."""
    there = [name for name in ("rope.long", "rope.short") if name in weights]
    if len(there) == 1 or (config.scaling["type"] == "longrope" and not there):
        raise FormatError(
            "E-ARCH-ROPE", config.path, "longrope needs both rope_factors_long.weight and rope_factors_short.weight"
        )
    if there and "long_factor" not in config.scaling:
        lists = {f"{kind}_factor": weights[f"rope.{kind}"].numpy().tolist() for kind in ("long", "short")}
        stated = {} if config.attention_factor is None else {"attention_factor": config.attention_factor}
        config.values["scaling"] = {"type": "longrope", ORIGINAL_KEY: config.original, **stated, **lists}
