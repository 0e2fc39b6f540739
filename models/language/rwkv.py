"""RWKV 5 and 6, Eagle and Finch (Peng et al. 2024, arXiv:2404.05892): matrix-valued states with per-channel decay."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.contract.architecture import Architecture, Key, Stored, Weight
from ...runtime.contract.hyperparameter import COUNT
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.decoder import Decoder
from ..layers.linear import linear
from ..layers.net import Net
from ..layers.norm import bias_norm
from ..layers.recurrent.recurrence import scan
from ..layers.recurrent.rwkv import (
    DIVISOR,
    KEYS,
    SINGLETON_AXES,
    either,
    halved,
    heads_normed,
    infer_config,
    lerp,
    part,
    shifted,
    split_heads,
    squared,
)
from ..schema.weight_layout import Permuted, Reshaped, Stacked, Transposed

LONG = {"k": "key", "v": "value", "r": "receptance", "g": "gate"}
KEYS_5 = (
    *KEYS,
    Key(
        "intermediate",
        "intermediate_size",
        "feed_forward_length",
        lambda config: int(config.hidden * 3.5) // 32 * 32,
        COUNT,
    ),
    *DIVISOR,
)
KEYS_6 = (
    *KEYS_5,
    Key("mix_rank", (), "time_mix_extra_dim", None, COUNT),
    Key("decay_rank", (), "time_decay_extra_dim", None, COUNT),
)
BLOCK, GGUF = ("rwkv.blocks.{i}.", "blocks.{i}."), "blk.{i}."
ATT, FFN = ("rwkv.blocks.{i}.attention.", "blocks.{i}.att."), ("rwkv.blocks.{i}.feed_forward.", "blocks.{i}.ffn.")


def _all(prefixes: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(prefix + name for prefix in prefixes)


def _mixes(name: str, letters: str, *ways: Callable[[str], str], gguf: str | None) -> Weight:
    """Weight binding of all token-shift mixes [count, 1, 1, hidden]; each of `ways` maps a letter to a file's name of
    that mix."""
    return Weight(name, tuple(Stored(tuple(way(letter) for letter in letters), Stacked()) for way in ways), gguf or (),
                  shape=(len(letters), 1, 1, "hidden"))  # fmt: skip


SHARED = (
    *part("embed", ("rwkv.embeddings", "emb"), "token_embd", shape=("vocab", "hidden")),
    *part("embed_norm", ("rwkv.blocks.0.pre_ln", "blocks.0.ln0"), "token_embd_norm", shape=("hidden",), biased=True),
    *part("layers.{i}.att_norm", _all(BLOCK, "ln1"), f"{GGUF}attn_norm", shape=("hidden",), biased=True),
    *part("layers.{i}.ffn_norm", _all(BLOCK, "ln2"), f"{GGUF}attn_norm_2", shape=("hidden",), biased=True),
    *(
        row
        for name in ("receptance", "key", "value", "gate", "output")
        for row in part(
            f"layers.{{i}}.att.{name}",
            _all(ATT, name),
            f"{GGUF}time_mix_{name}",
            shape=("hidden", "hidden"),
            factor=halved if name == "output" else None,
        )
    ),
    *part("layers.{i}.att.norm", _all(ATT, "ln_x"), f"{GGUF}time_mix_ln", shape=("heads*head_size",), biased=True),
    Weight(
        "layers.{i}.att.first",
        either(*_all(ATT, "time_faaaa")),
        f"{GGUF}time_mix_first.weight",
        shape=("heads", "head_size"),
    ),
    *part(
        "layers.{i}.ffn.receptance",
        _all(FFN, "receptance"),
        f"{GGUF}channel_mix_receptance",
        shape=("hidden", "hidden"),
    ),
    *part("layers.{i}.ffn.key", _all(FFN, "key"), f"{GGUF}channel_mix_key", shape=("intermediate", "hidden")),
    *part(
        "layers.{i}.ffn.value",
        _all(FFN, "value"),
        f"{GGUF}channel_mix_value",
        shape=("hidden", "intermediate"),
        factor=halved,
    ),
    *part("norm", ("rwkv.ln_out", "ln_out"), "output_norm", shape=("hidden",), biased=True),
    *part("head", ("head", "lm_head"), "output", shape=("vocab", "hidden")),
)
WEIGHTS_5 = (
    *SHARED,
    _mixes(
        "layers.{i}.att.mix",
        "kvrg",
        lambda x: f"{ATT[0]}time_mix_{LONG[x]}",
        lambda x: f"{ATT[1]}time_mix_{x}",
        gguf=None,
    ),
    *(
        Weight(
            f"layers.{{i}}.ffn.mix_{x}",
            either(f"{FFN[0]}time_mix_{LONG[x]}", f"{FFN[1]}time_mix_{x}", layout=SINGLETON_AXES),
            shape=("hidden",),
        )
        for x in "kr"
    ),
    Weight("layers.{i}.att.decay", either(*_all(ATT, "time_decay")), shape=("heads", "head_size")),
)
VECTOR = Reshaped(("hidden",), ("hidden",))
WEIGHTS_6 = (
    *SHARED,
    Weight(
        "layers.{i}.att.mix_x",
        either(*_all(ATT, "time_maa_x"), f"{ATT[0]}time_mix_x", layout=SINGLETON_AXES),
        Stored((f"{GGUF}time_mix_lerp_x.weight",), VECTOR),
        shape=("hidden",),
    ),
    _mixes(
        "layers.{i}.att.mix",
        "wkvrg",
        lambda x: f"{ATT[0]}time_maa_{x}",
        lambda x: f"{ATT[1]}time_maa_{x}",
        lambda x: f"{ATT[0]}time_mix_{LONG.get(x, x)}",
        gguf=f"{GGUF}time_mix_lerp_fused.weight",
    ),
    Weight(
        "layers.{i}.att.mix_up",
        either(*_all(ATT, "time_maa_w2"), f"{ATT[0]}time_mix_w2"),
        Stored((f"{GGUF}time_mix_w2.weight",), Permuted((0, 2, 1))),
        shape=(5, "mix_rank", "hidden"),
    ),
    Weight(
        "layers.{i}.att.mix_down.weight",
        either(*_all(ATT, "time_maa_w1"), f"{ATT[0]}time_mix_w1", layout=Transposed()),
        f"{GGUF}time_mix_w1.weight",
        shape=("5*mix_rank", "hidden"),
    ),
    Weight(
        "layers.{i}.att.decay",
        either(*_all(ATT, "time_decay"), layout=SINGLETON_AXES),
        Stored((f"{GGUF}time_mix_decay.weight",), VECTOR),
        shape=("hidden",),
    ),
    Weight(
        "layers.{i}.att.decay_down.weight",
        either(*_all(ATT, "time_decay_w1"), layout=Transposed()),
        f"{GGUF}time_mix_decay_w1.weight",
        shape=("decay_rank", "hidden"),
    ),
    Weight(
        "layers.{i}.att.decay_up.weight",
        either(*_all(ATT, "time_decay_w2"), layout=Transposed()),
        f"{GGUF}time_mix_decay_w2.weight",
        shape=("hidden", "decay_rank"),
    ),
    *(
        Weight(
            f"layers.{{i}}.ffn.mix_{x}",
            either(*_all(FFN, f"time_maa_{x}"), f"{FFN[0]}time_mix_{LONG[x]}", layout=SINGLETON_AXES),
            Stored((f"{GGUF}channel_mix_lerp_{x}.weight",), VECTOR),
            shape=("hidden",),
        )
        for x in "kr"
    ),
)

Mixed = Callable[[Decoder, Value, Value, str], tuple[list[Value], Value]]
"""Maps (x, x_prev - x) to the inputs of key, value, receptance and gate, and the decay of each channel."""


def build_5(net: Decoder) -> None:
    """RWKV 5."""
    _build(net, _fixed, complement=True)


def build_6(net: Decoder) -> None:
    """RWKV 6."""
    _build(net, _by_tokens, complement=False)


def _build(net: Decoder, mixed: Mixed, *, complement: bool) -> None:
    config = net.config
    x = bias_norm(net, net.begin(), "embed_norm")
    for i in range(config.layers):
        x = net.Add(x, _attention(net, bias_norm(net, x, f"layers.{i}.att_norm"), i, mixed))
        x = net.Add(x, _feed_forward(net, bias_norm(net, x, f"layers.{i}.ffn_norm"), i, complement))
        if config.halving and (i + 1) % config.halving == 0:
            x = net.Mul(x, 0.5)
    net.end(x, bias_norm)


def _fixed(net: Decoder, x: Value, difference: Value, name: str) -> tuple[list[Value], Value]:
    """RWKV 5: constant token-shift mixes and decay."""
    parts = net.Split(net.Sub(1.0, net.Reshape(net.vector(f"{name}.mix"), [4, -1])), [1] * 4, axis=0, outputs=4)
    decay = net.Exp(net.Neg(net.Exp(net.Unsqueeze(net.vector(f"{name}.decay"), [2]))))
    return [net.Add(x, net.Mul(difference, part)) for part in parts], decay


def _by_tokens(net: Decoder, x: Value, difference: Value, name: str) -> tuple[list[Value], Value]:
    """RWKV 6: token-shift mixes and decay computed from the token."""
    config = net.config
    down = net.Tanh(linear(net, lerp(net, x, difference, f"{name}.mix_x"), f"{name}.mix_down"))
    down = net.Transpose(net.Reshape(down, [0, 0, 5, config.mix_rank]), perm=[0, 2, 1, 3])
    up = net.Add(net.MatMul(down, net.vector(f"{name}.mix_up")), net.Reshape(net.vector(f"{name}.mix"), [5, 1, -1]))
    every = net.Add(net.Unsqueeze(x, [1]), net.Mul(net.Unsqueeze(difference, [1]), up))
    w, *parts = (net.Squeeze(part, [1]) for part in net.split(every, [1] * 5, axis=1))
    decay = net.Add(
        linear(net, net.Tanh(linear(net, w, f"{name}.decay_down")), f"{name}.decay_up"), net.vector(f"{name}.decay")
    )
    return parts, split_heads(net, net.Exp(net.Neg(net.Exp(decay))), column=True)


def _attention(net: Decoder, x: Value, i: int, mixed: Mixed) -> Value:
    config, name = net.config, f"layers.{i}.att"
    parts, decay = mixed(net, *shifted(net, x, f"att.{i}"), name)
    k, v, r, g = (linear(net, part, f"{name}.{LONG[letter]}") for part, letter in zip(parts, "kvrg", strict=True))
    first = net.Unsqueeze(net.vector(f"{name}.first"), [2])
    entries = [split_heads(net, r), split_heads(net, k, column=True), split_heads(net, v)]
    own = mixed is _by_tokens

    def step(inner: Net, states: list[Value], entries: list[Value]) -> tuple[list[Value], list[Value]]:
        added = inner.Mul(entries[1], entries[2])
        read = inner.MatMul(entries[0], inner.Add(inner.Mul(first, added), states[0]))
        return [inner.Add(added, inner.Mul(entries[3] if own else decay, states[0]))], [read]

    past = net.past(f"state.{i}", (config.heads, config.head_size, config.head_size))
    state, y = scan(net, [past], [*entries, decay] if own else entries, step)
    net.present(f"state.{i}", state)
    return linear(net, net.Mul(heads_normed(net, y, f"{name}.norm"), net.Mul(g, net.Sigmoid(g))), f"{name}.output")


def _feed_forward(net: Decoder, x: Value, i: int, complement: bool) -> Value:
    name = f"layers.{i}.ffn"
    x, difference = shifted(net, x, f"ffn.{i}")
    mixes = (net.vector(f"{name}.mix_{letter}") for letter in "kr")
    k, r = (net.Add(x, net.Mul(difference, net.Sub(1.0, mix) if complement else mix)) for mix in mixes)
    y: Value = net.Mul(net.Sigmoid(linear(net, r, f"{name}.receptance")), squared(net, k, name))
    return y


ARCHITECTURES = (
    Architecture(
        "rwkv5",
        "RWKV 5",
        ("rwkv5",),
        (),
        KEYS_5,
        WEIGHTS_5,
        decoder_tasks(build_5),
        prefixes=(),
        implied=lambda said, graph: infer_config(graph, "blocks.0.att.time_mix_g", "rwkv5", "blocks.0.att.time_decay"),
    ),
    Architecture(
        "rwkv6",
        "RWKV 6",
        ("rwkv6",),
        ("rwkv6",),
        KEYS_6,
        WEIGHTS_6,
        decoder_tasks(build_6),
        prefixes=(),
        implied=lambda said, graph: infer_config(graph, "blocks.0.att.time_maa_w1", "rwkv6", "blocks.0.att.time_faaaa"),
    ),
)
