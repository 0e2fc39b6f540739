"""RWKV 7, Goose (Peng et al. 2025, arXiv:2503.14456): states updated by the generalized delta rule; later layers mix in
the first layer's values."""

from __future__ import annotations

from collections.abc import Collection

from ...runtime.contract.architecture import Architecture, Config, Key, Row, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT, REAL
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..generation.decoder_tasks import decoder_tasks
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.net import Net
from ..layers.norm import bias_norm
from ..layers.recurrent.recurrence import scan
from ..layers.recurrent.rwkv import (
    KEYS,
    SINGLETON_AXES,
    either,
    heads_normed,
    infer_config,
    lerp,
    part,
    shifted,
    split_heads,
    squared,
)
from ..schema.weight_layout import Reshaped, Stacked, Transposed

RATES = {"w": "decay", "a": "iclr", "v": "value_residual_mix", "g": "gate"}
"""Vectors computed by low-rank projections, and their GGUF names."""
RANKS = {"w": "decay", "a": "a", "v": "v", "g": "gate"}
MIXED = "rwkvag"
LLAMA_CPP_VECTOR = 64
"""Elements that llama.cpp's kernel takes of a head at once, with AVX-512; no remainder is computed apart."""
MAX_LOG_DECAY = -0.606531
"""Logarithm of the strongest decay, -exp(-1/2), with the digits used in training."""
KEYS_7: tuple[Row, ...] = (
    *KEYS, Key("intermediate", "intermediate_size", "feed_forward_length", lambda config: 4 * config.hidden, COUNT),
    *(Key(f"rank_{letter}", f"{RANKS[letter]}_low_rank_dim", f"attention.{word}_lora_rank", None, COUNT) for letter,
      word in RATES.items()),
    Key("head_eps", (), (), 64e-5, REAL),
)  # fmt: skip
ATT, GGUF = ("blocks.{i}.att.", "model.layers.{i}.attention.", "model.layers.{i}.attn."), "blk.{i}."
FFN = ("blocks.{i}.ffn.", "model.layers.{i}.feed_forward.", "model.layers.{i}.ffn.")
MATRICES = {"receptance": "r_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
VECTOR = Reshaped(("hidden",), ("hidden",))
BONUS = Reshaped(("heads", "head_size"), ("hidden",))


def later(config: Config, i: int) -> bool:
    """Whether the layer has a predecessor, so that it mixes in the first layer's values."""
    return i > 0


def first(config: Config, i: int) -> bool:
    """Whether the layer is the first."""
    return i == 0


def _low_rank(letter: str) -> tuple[Weight, ...]:
    """Weight bindings of a low-rank projection: down, up and bias."""
    name, gguf, rank = f"layers.{{i}}.att.{letter}", f"{GGUF}time_mix_{letter}", f"rank_{letter}"
    lora = f"{ATT[2]}{letter}_lora.lora."
    when = later if letter == "v" else None
    published = tuple(prefix + letter for prefix in ATT[:2])
    rows = (
        Weight(
            f"{name}.down.weight",
            (*either(*(f"{way}1" for way in published), layout=Transposed()), f"{lora}0.weight"),
            f"{gguf}1.weight",
            shape=(rank, "hidden"),
            when=when,
        ),
        Weight(
            f"{name}.up.weight",
            (*either(*(f"{way}2" for way in published), layout=Transposed()), f"{lora}2.weight"),
            f"{gguf}2.weight",
            shape=("hidden", rank),
            when=when,
        ),
        Weight(
            f"{name}.up.bias",
            (*either(*(f"{way}0" for way in published), layout=SINGLETON_AXES), f"{lora}2.bias"),
            f"{gguf}0.weight",
            shape=("hidden",),
            when=when,
        ),
    )
    return rows[:2] if letter == "g" else rows


FIRST = {
    f"layers.0.att.unused{number}": f"layers.0.att.a.{part}"
    for number, part in enumerate(("up.bias", "down.weight", "up.weight"))
}
"""Tensors that llama.cpp requires in the first layer but never reads; its converter fills them with these weights."""


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Add the tensors of the first layer that only llama.cpp requires."""
    for name, other in FIRST.items():
        weights.setdefault(name, weights[other])


WEIGHTS = (
    *part("embed", ("emb", "model.embeddings"), "token_embd", shape=("vocab", "hidden")),
    *part(
        "embed_norm",
        ("blocks.0.ln0", "model.pre_ln", "model.layers.0.pre_norm"),
        "token_embd_norm",
        shape=("hidden",),
        biased=True,
    ),
    *part(
        "layers.{i}.att_norm",
        ("blocks.{i}.ln1", "model.layers.{i}.ln1", "model.layers.{i}.attn_norm"),
        f"{GGUF}attn_norm",
        shape=("hidden",),
        biased=True,
    ),
    *part(
        "layers.{i}.ffn_norm",
        ("blocks.{i}.ln2", "model.layers.{i}.ln2", "model.layers.{i}.ffn_norm"),
        f"{GGUF}attn_norm_2",
        shape=("hidden",),
        biased=True,
    ),
    Weight(
        "layers.{i}.att.mix",
        tuple(Stored(tuple(f"{prefix}x_{letter}" for letter in MIXED), Stacked()) for prefix in ATT),
        f"{GGUF}time_mix_lerp_fused.weight",
        shape=(6, 1, 1, "hidden"),
    ),
    *(row for letter in RATES for row in _low_rank(letter)),
    *(
        Weight(f"layers.{{i}}.att.unused{number}", (), f"{GGUF}time_mix_v{number}.weight", when=first, optional=True)
        for number in range(3)
    ),
    *(
        Weight(
            f"layers.{{i}}.att.{name}",
            either(*(prefix + name for prefix in ATT), layout=SINGLETON_AXES),
            Stored((f"{GGUF}time_mix_{name}.weight",), VECTOR),
            shape=("hidden",),
        )
        for name in ("k_k", "k_a")
    ),
    Weight(
        "layers.{i}.att.r_k",
        either(*(f"{prefix}r_k" for prefix in ATT)),
        Stored((f"{GGUF}time_mix_r_k.weight",), BONUS),
        shape=("heads", "head_size"),
    ),
    *(
        row
        for name, other in MATRICES.items()
        for row in part(
            f"layers.{{i}}.att.{name}",
            (*(prefix + name for prefix in ATT[:2]), ATT[2] + other),
            f"{GGUF}time_mix_{name}",
            shape=("hidden", "hidden"),
        )
    ),
    *part(
        "layers.{i}.att.norm",
        (*(f"{prefix}ln_x" for prefix in ATT[:2]), f"{ATT[2]}g_norm"),
        f"{GGUF}time_mix_ln",
        shape=("heads*head_size",),
        biased=True,
    ),
    Weight(
        "layers.{i}.ffn.mix",
        either(*(f"{prefix}x_k" for prefix in FFN), layout=SINGLETON_AXES),
        Stored((f"{GGUF}channel_mix_lerp_k.weight",), VECTOR),
        shape=("hidden",),
    ),
    *part(
        "layers.{i}.ffn.key",
        tuple(f"{prefix}key" for prefix in FFN),
        f"{GGUF}channel_mix_key",
        shape=("intermediate", "hidden"),
    ),
    *part(
        "layers.{i}.ffn.value",
        tuple(f"{prefix}value" for prefix in FFN),
        f"{GGUF}channel_mix_value",
        shape=("hidden", "intermediate"),
    ),
    *part("norm", ("ln_out", "model.ln_out", "model.norm"), "output_norm", shape=("hidden",), biased=True),
    *part("head", ("head", "lm_head"), "output", shape=("vocab", "hidden")),
)


def build(net: Decoder) -> None:
    """Layers of linear attention with the delta rule, then feed-forward networks."""
    x = bias_norm(net, net.begin(), "embed_norm")
    values: Value | None = None
    for i in range(net.config.layers):
        y, values = _attention(net, bias_norm(net, x, f"layers.{i}.att_norm"), i, values)
        x = net.Add(x, y)
        y, difference = shifted(net, bias_norm(net, x, f"layers.{i}.ffn_norm"), f"ffn.{i}")
        x = net.Add(x, squared(net, lerp(net, y, difference, f"layers.{i}.ffn.mix"), f"layers.{i}.ffn"))
    net.end(x, bias_norm)


def _attention(net: Decoder, x: Value, i: int, values: Value | None) -> tuple[Value, Value]:
    """The output of layer `i`, and the first layer's values."""
    config, name = net.config, f"layers.{i}.att"
    x, difference = shifted(net, x, f"att.{i}")
    mixes = net.Split(net.Reshape(net.vector(f"{name}.mix"), [6, -1]), [1] * 6, axis=0, outputs=6)
    seen = {letter: net.Add(x, net.Mul(difference, mix)) for letter, mix in zip(MIXED, mixes, strict=True)}
    r, k, v = (
        linear(net, seen[letter], f"{name}.{word}")
        for letter, word in zip("rkv", ("receptance", "key", "value"), strict=True)
    )
    low = {
        letter: linear(net, seen[letter], f"{name}.{letter}.down")
        for letter in RATES
        if letter != "v" or values is not None
    }
    decay = net.Exp(net.Mul(net.Sigmoid(linear(net, net.Tanh(low["w"]), f"{name}.w.up")), MAX_LOG_DECAY))
    rate = net.Sigmoid(linear(net, low["a"], f"{name}.a.up"))
    gate = linear(net, net.Sigmoid(low["g"]), f"{name}.g.up")
    if values is None:
        values = v
    else:
        v = net.Add(v, net.Mul(net.Sub(values, v), net.Sigmoid(linear(net, low["v"], f"{name}.v.up"))))
    taken = _l2_normalized(net, net.split_heads(net.Mul(k, net.vector(f"{name}.k_k")), config.heads, config.head_size))
    k = net.Mul(k, net.Add(net.Mul(net.Sub(rate, 1.0), net.vector(f"{name}.k_a")), 1.0))
    entries = [
        split_heads(net, r, column=True),
        split_heads(net, decay),
        split_heads(net, k),
        split_heads(net, v, column=True),
        net.Unsqueeze(net.Neg(taken), [4]),
        net.Mul(net.Unsqueeze(taken, [3]), split_heads(net, rate)),
    ]
    state, y = scan(net, [net.past(f"state.{i}", (config.heads, config.head_size, config.head_size))], entries, _step)
    net.present(f"state.{i}", state)
    apart = net.split_heads(net.Mul(r, k), config.heads, config.head_size)
    bonus = net.Mul(
        net.ReduceSum(net.Mul(apart, net.vector(f"{name}.r_k")), [3]),
        net.split_heads(v, config.heads, config.head_size),
    )
    y = net.Add(heads_normed(net, y, f"{name}.norm"), net.merge_heads(bonus))
    return linear(net, net.Mul(y, gate), f"{name}.output"), values


def _l2_normalized(net: Decoder, x: Value) -> Value:
    """`x` normalized to length 1 along its last axis; zeros stay zeros."""
    length = net.Sqrt(net.ReduceSum(net.Mul(x, x), [3]))
    y: Value = net.Div(x, net.Max(length, 1e-12))
    return y


def _step(net: Net, states: list[Value], entries: list[Value]) -> tuple[list[Value], list[Value]]:
    """The state [batch, heads, value size, key size] after one token, and the output [batch, heads, value size, 1]."""
    r, decay, k, v, taken, put = entries
    state = net.Add(net.Add(net.Mul(states[0], decay), net.Mul(net.MatMul(states[0], taken), put)), net.Mul(v, k))
    return [state], [net.MatMul(state, r)]


def _head_remainder(config: Config, names: Collection[str]) -> str | None:
    """Deviation of llama.cpp, whose vectors reach past the end of heads of other sizes."""
    if config.head_size % LLAMA_CPP_VECTOR == 0:
        return None
    return f"may compute other logits with heads whose size is not a multiple of {LLAMA_CPP_VECTOR}"


ARCHITECTURES = (
    Architecture(
        "rwkv7",
        "RWKV 7",
        ("rwkv7",),
        ("rwkv7",),
        KEYS_7,
        WEIGHTS,
        decoder_tasks(build),
        prefixes=(),
        settle=settle,
        ignored=(r"(blocks|layers)\.0\.att(ention)?\.v[012]$", r"layers\.0\.attn\.v_lora\."),
        implied=lambda said, graph: infer_config(graph, "blocks.0.att.r_k", "rwkv7", "blocks.0.att.r_k"),
        deviations=(_head_remainder,),
    ),
)
