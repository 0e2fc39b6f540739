"""Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464): hyper-parameters, weight bindings and graph.

A layer has key heads, each shared by equally many value heads. A value head's state is a matrix [key size, value size].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....runtime.contract.architecture import HF, Config, Key
from ....runtime.contract.hyperparameter import COUNT
from ....runtime.ir.graph import Value
from ..decoder import Decoder
from ..linear import linear
from ..mlp import ACTIVATIONS
from ..norm import rms_norm
from .mamba import quotient
from .recurrence import short_conv, token_mask

UNIT_EPS = 1e-6
"""Added to the squared length of queries and keys."""


def _value_size(config: Config) -> int:
    """Default elements of a value head; in GGUF files it is a key head's."""
    return 128 if config.names == HF else int(config.key_size)


KEYS = (
    Key("taps", "linear_conv_kernel_dim", "ssm.conv_kernel", 4, COUNT),
    Key("key_size", "linear_key_head_dim", "ssm.state_size", 128, COUNT),
    Key("value_size", "linear_value_head_dim", (), _value_size, COUNT),
    Key("key_heads", "linear_num_key_heads", "ssm.group_count", 16, COUNT),
    Key("value_heads", "linear_num_value_heads", "ssm.time_step_rank", 32, COUNT),
    Key("sharing", (), (), quotient("value_heads", "key_heads"), COUNT),
    Key("inner", (), "ssm.inner_size", lambda config: config.value_heads * config.value_size, COUNT),
    Key("key_width", (), (), lambda config: config.key_heads * config.key_size),
    Key("channels", (), (), lambda config: 2 * config.key_width + config.inner),
)
"""Sizes: heads, elements of a head, the widths of all keys and values, and the channels of the convolution."""
Order = Callable[[Config], np.ndarray]


def interleaved_heads(size: str | int = 1, after: str | None = None) -> Order:
    """The order of value heads [key heads, sharing] in files that store them [sharing, key heads], which llama.cpp
    broadcasts: index of the file's row for each row, int64.

    Args:
        size: rows of a head, or the hyper-parameter that says so.
        after: the hyper-parameter with half the number of rows before the first head, which keep their positions.
    """

    def order(config: Config) -> np.ndarray:
        rows = getattr(config, size) if isinstance(size, str) else size
        kept = 2 * getattr(config, after) if after else 0
        heads = np.arange(config.value_heads * rows).reshape(config.key_heads, config.sharing, rows)
        return np.concatenate([np.arange(kept), kept + heads.swapaxes(0, 1).reshape(-1)])

    return order


def gated_delta_net(net: Decoder, x: Value, i: int, *, interleaved: bool) -> Value:
    """Layer `i`: short convolution of queries, keys and values, gated delta rule, gated norm.

    Args:
        interleaved: whether value heads are [sharing, key heads], or else [key heads, sharing].
    """
    config, name = net.config, f"layers.{i}"
    heads, size = config.value_heads, config.value_size
    x = net.Mul(x, token_mask(net))
    weight = net.vector(f"{name}.conv.weight")
    y = short_conv(net, linear(net, x, f"{name}.qkv"), weight, None, f"conv.{i}", config.channels, config.taps)
    q, k, v = net.split(ACTIVATIONS[config.act](net, y), [config.key_width, config.key_width, config.inner])
    q, k = (_shared(net, part, interleaved=interleaved) for part in (q, k))
    decay = net.Softplus(net.Add(linear(net, x, f"{name}.alpha"), net.vector(f"{name}.dt.bias")))
    y, state = net.LinearAttention(
        q,
        k,
        v,
        net.past(f"state.{i}", (heads, config.key_size, size)),
        net.Mul(decay, net.vector(f"{name}.decay")),
        net.Sigmoid(linear(net, x, f"{name}.beta")),
        q_num_heads=heads,
        kv_num_heads=heads,
        update_rule="gated_delta",
        outputs=2,
    )
    net.present(f"state.{i}", state)
    normed = net.merge_heads(rms_norm(net, net.split_heads(y, heads, size), f"{name}.inner_norm", config.eps))
    return linear(net, net.Mul(normed, ACTIVATIONS["silu"](net, linear(net, x, f"{name}.z"))), f"{name}.out")


def _shared(net: Decoder, x: Value, *, interleaved: bool) -> Value:
    """Heads of `x` [batch, length, key heads x key size] with length 1, each once for every value head."""
    config = net.config
    size, count = config.key_size, config.key_heads
    scale = net.once("unit_scale", lambda: net.constant(np.full(size, size**-0.5, np.float32)))
    x = net.RMSNormalization(net.split_heads(x, count, size), scale, epsilon=UNIT_EPS / size)
    if config.sharing > 1:
        axis = 2 if interleaved else 3
        lengths = [1, 1, 1, 1, 1]
        lengths[axis] = config.sharing
        x = net.Expand(net.Unsqueeze(x, [axis]), lengths)
    return net.Reshape(x, [0, 0, config.value_heads * size])
