"""Hyper-parameters of models whose layers differ: which ones attend, rotate, or are mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import HF, Config
from ...runtime.contract.hyperparameter import COUNT, SIZE, Listed, checked, flag, word
from .hyperparameters import shared_heads

HEADS_KEY = "attention.head_count_kv"
KINDS = ("layer_types", "layers_block_type")
"""Keys of config.json that list the kind of each layer."""


NOPE_INTERVAL = 4


@dataclass(frozen=True)
class UsesRope:
    """Hyper-parameter: whether each layer has rotary embedding. GGUF files cannot store it: every fourth layer has no
    RoPE."""

    name: str = "uses_rope"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[bool]:
        said, every = (source.get(key) if names == HF else None for key in ("no_rope_layers", "no_rope_layer_interval"))
        if said:
            uses_rope: list[bool] = checked("no_rope_layers", said, Listed(flag, config.layers))
            return uses_rope[: config.layers]
        interval = checked("no_rope_layer_interval", every or NOPE_INTERVAL, COUNT)
        return [(i + 1) % interval != 0 for i in range(config.layers)]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"no_rope_layers": [int(each) for each in config.uses_rope]} if names == HF else {}


@dataclass(frozen=True)
class Every:
    """Layers with a constant distance, as keys of config.json.

    Attributes:
        offset, period: keys of the first layer and of the distance.
        first, distance: their defaults.
    """

    offset: str
    period: str
    first: int
    distance: int

    def __call__(self, source: Mapping[str, Any], config: Config) -> list[int]:
        """The indices."""
        first = checked(self.offset, source.get(self.offset, self.first), SIZE)
        distance = checked(self.period, source.get(self.period, self.distance), COUNT)
        return [i for i in range(config.layers) if i % distance == first]

    def keys(self, layers: list[int], count: int) -> dict[str, int]:
        """Values of the keys for the indices `layers` of `count` layers. UnsupportedError if no values give them."""
        first = layers[0] if layers else count
        distance = layers[1] - first if len(layers) > 1 else count + 1
        if layers != [i for i in range(count) if i % distance == first]:
            why = f"config.json cannot store the layers {layers}: they need one distance"
            raise UnsupportedError("E-ARCH-NAMES", None, why, hint="Write GGUF or ONNX")
        return {self.offset: first, self.period: distance}


@dataclass(frozen=True)
class AttentionLayers:
    """Hyper-parameter: indices of the attention layers; GGUF files give the other layers 0 KV heads.

    Attributes:
        other: what config.json calls the other layers.
        attention: what config.json calls attention layers.
        default: the indices where config.json does not list the kinds.
        every: how config.json states the indices instead.
    """

    other: str = ""
    attention: str = "full_attention"
    default: Callable[[Mapping[str, Any], Config], list[int]] = lambda source, config: []
    every: Every | None = None
    name: str = "attending"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int]:
        if names != HF:
            heads = source[HEADS_KEY]
            stated = heads if isinstance(heads, list) else [heads] * config.layers
            counts = checked(HEADS_KEY, stated, Listed(SIZE, config.layers))
            return [i for i in range(config.layers) if counts[i]]
        if self.every is not None:
            return self.every(source, config)
        key = next((key for key in KINDS if source.get(key) is not None), None)
        if key is None:
            return self.default(source, config)
        kinds = checked(key, source[key], Listed(word, config.layers))[: config.layers]
        return [i for i, kind in enumerate(kinds) if kind in (self.attention, "full_attention")]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        attending = getattr(config, self.name)
        if names != HF:
            return {HEADS_KEY: [config.kv_heads if i in attending else 0 for i in range(config.layers)]}
        if self.every is not None:
            return self.every.keys(attending, config.layers)
        return {KINDS[0]: [self.attention if i in attending else self.other for i in range(config.layers)]}


INTERVAL, RECURRENT = "full_attention_interval", "attention.recurrent_layers"


@dataclass(frozen=True)
class FullAttentionLayers:
    """Hyper-parameter: indices of the layers with full attention; GGUF files state their distance and list the
    others, the recurrent layers."""

    name: str = "attending"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int]:
        key, kind = (KINDS[0], word) if names == HF else (RECURRENT, flag)
        if source.get(key) is None:
            distance = checked(INTERVAL, source.get(INTERVAL, 4), COUNT)
            return [i for i in range(config.layers) if (i + 1) % distance == 0]
        listed = checked(key, source[key], Listed(kind, config.layers))[: config.layers]
        return [i for i, each in enumerate(listed) if each is False or each == "full_attention"]

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names != HF:
            return {
                RECURRENT: [recurs(config, i) for i in range(config.layers)],
                INTERVAL: config.attending[0] + 1 if config.attending else config.layers + 1,
            }
        return {KINDS[0]: ["linear_attention" if recurs(config, i) else "full_attention" for i in range(config.layers)]}


@dataclass(frozen=True)
class HybridKVHeads:
    """Hyper-parameter: KV heads of the attention layers; read after ``heads``."""

    name: str = "kv_heads"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        key = "num_key_value_heads" if names == HF else HEADS_KEY
        said = source[key] if names != HF else source.get(key)
        said = config.heads if said is None else said
        return shared_heads(key, max(checked(key, said, Listed(SIZE, 1))) if isinstance(said, list) else said, config)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {"num_key_value_heads": config.kv_heads} if names == HF else {}


def attends(config: Config, i: int) -> bool:
    """Whether layer `i` is an attention layer."""
    return i in config.attending


def recurs(config: Config, i: int) -> bool:
    """Whether layer `i` is not an attention layer."""
    return i not in config.attending
