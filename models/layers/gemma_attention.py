"""Attention of Gemma 3n and 4: scores are not scaled, values are normalized too, and the last layers use the keys and
values of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.units import counted
from ...runtime.contract.architecture import Config, Key
from ...runtime.contract.hyperparameter import ParameterError
from ...runtime.ir.graph import Value
from .attention import Scores, attend_cached
from .decoder import Decoder
from .linear import linear
from .norm import head_norm
from .rope import Rotary


@dataclass(frozen=True)
class SharedLayers(Key):
    """Hyper-parameter, read after `Windows`: how many of the last layers use the keys and values of earlier ones."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        count: int = super().read(names, source, config)
        own, shared = config.windows[: config.layers - count], config.windows[max(0, config.layers - count) :]
        if count and not set(map(bool, shared)) <= set(map(bool, own)):
            raise ParameterError(
                self.keys(names)[0], f"{counted(count, 'layer', verb='has')} no earlier layer of their kind"
            )
        return count


def owns_keys(config: Config, i: int) -> bool:
    """Whether layer `i` computes its own keys and values."""
    return i < int(config.layers - config.shared)


def source_layer(config: Config, i: int) -> int:
    """The layer whose keys and values layer `i` uses: itself, or the last one of its kind that computes any."""
    if owns_keys(config, i):
        return i
    kind = bool(config.windows[i])
    return max(j for j in range(config.layers - config.shared) if bool(config.windows[j]) == kind)


def shared_attention(
    net: Decoder, x: Value, i: int, rotary: Rotary, size: int, kv_heads: int, kept: dict[int, tuple[Value, Value]]
) -> Value:
    """Attention of layer `i`, whose heads have `size` elements.

    Args:
        kept: cached keys and values of the layers so far, by layer; the layer's own are added.
    """
    config, name, window = net.config, f"layers.{i}.attn", net.config.windows[i]
    q = head_norm(net, linear(net, x, f"{name}.q"), f"{name}.q_norm", config.heads, size, config.eps)
    q = rotary.rotate(net, q, config.heads, net.positions)
    if owns_keys(config, i):
        k = linear(net, x, f"{name}.k")
        v = linear(net, x, f"{name}.v") if net.has(f"{name}.v.weight") else k
        k = head_norm(net, k, f"{name}.k_norm", kv_heads, size, config.eps)
        k = rotary.rotate(net, k, kv_heads, net.positions)
        ones = net.once(("ones", size), lambda: net.constant(np.ones(size, np.float32)))
        v = net.merge_heads(net.RMSNormalization(net.split_heads(v, kv_heads, size), ones, epsilon=config.eps))
        kept[i] = (
            net.cached(f"key_values.{i}.key", k, kv_heads, size, window),
            net.cached(f"key_values.{i}.value", v, kv_heads, size, window),
        )
    keys, values = kept[source_layer(config, i)]
    y = attend_cached(net, q, keys, values, size, window=window, scores=Scores(scale=1.0))
    return linear(net, y, f"{name}.o")
