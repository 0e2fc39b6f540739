"""MetaVoice-1B (metavoiceio 2024): speech of a text in a speaker's voice, in two stages.

The first stage writes the codes of EnCodec's first two codebooks, one after the other, after the text. The second
stage reads whole sequences of both and predicts the codes of the other codebooks at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.contract.architecture import HF, Architecture, Config, Key, Part, Row, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, Integer, Listed, Only, flag
from ...runtime.contract.part_rows import plain_keys, plain_weights
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.attention import self_attention
from ..layers.decoder import LENGTH, Decoder
from ..layers.linear import embedding, linear
from ..layers.mlp import gated, plain
from ..layers.net import Net
from ..layers.norm import layer_norm, norm
from ..pipelines.audio.synthesis.synthesis_tasks import (
    metavoice_files,
    run_first_stage,
    run_metavoice,
    run_second_stage,
)
from ..schema.hyperparameters import LAYERS, OWN_HEAD_DIM, RMS_EPS_5, kv_heads_key, matrix
from ..schema.network_hyperparameters import count_of

FIRST, SECOND = "metavoice_first_stage", "metavoice_second_stage"
SPEAKER = "speaker_embedding"
"""Input: a vector of the speaker's voice, zeros for none."""
EPS = 1e-5
"""Epsilon of the second stage's norms."""
VOCABULARIES = Listed(COUNT, 1, 64)
SWIGLU_MULTIPLE = 256
ARGUMENTS = "model_args."
"""Prefix of the hyper-parameters in the metadata of the authors' checkpoints."""
HEAD = {FIRST: 128, SECOND: 64}
"""Elements of a head of the published stages."""


def _intermediate(config: Config) -> int:
    """Two thirds of four times the width, rounded up."""
    return -(-int(2 * 4 * config.hidden / 3) // SWIGLU_MULTIPLE) * SWIGLU_MULTIPLE


HIDDEN = Key("hidden", ("dim", "n_embd"), kind=COUNT)
COMMON: tuple[Row, ...] = (
    Key("layers", "n_layer", kind=LAYERS),
    Key("heads", "n_head", kind=COUNT),
    Key("positions", "block_size", (), 2048, Integer(1, 1 << 20)),
    Key("speaker", "speaker_emb_dim", (), None, COUNT),
)
SPEAKER_WEIGHT = Weight("speaker.weight", "speaker_cond_pos.weight", shape=("hidden", "speaker"))


def layer(own: str, gpt_fast: str, original: str, shape: tuple[str, ...]) -> Weight:
    """A weight of each layer of the first stage, by its names in the authors' inference code and in their
    checkpoints."""
    names = (f"layers.{{i}}.{gpt_fast}.weight", f"transformer.h.{{i}}.{original}.weight")
    return Weight(f"layers.{{i}}.{own}.weight", names, shape=shape)


FIRST_KEYS: tuple[Row, ...] = (
    HIDDEN,
    *COMMON,
    kv_heads_key("n_local_heads"),
    OWN_HEAD_DIM,
    Key("vocab", "vocab_size", kind=COUNT),
    Key("intermediate", "intermediate_size", (), _intermediate, COUNT),
    Key("eps", ("norm_eps", "rmsnorm_eps"), (), 1e-5, RMS_EPS_5.kind),
    Key("fused", (), (), lambda config: (config.heads + 2 * config.kv_heads) * config.head_dim),
)
FIRST_WEIGHTS = (
    Weight("embed.weight", ("tok_embeddings.weight", "transformer.wtes.0.weight"), shape=("vocab", "hidden")),
    Weight("positions.weight", ("pos_embeddings.weight", "transformer.wpe.weight"), shape=("positions", "hidden")),
    SPEAKER_WEIGHT,
    layer("attn_norm", "attention_norm", "ln_1", ("hidden",)),
    layer("attn.qkv", "attention.wqkv", "attn.c_attn", ("fused", "hidden")),
    layer("attn.o", "attention.wo", "attn.c_proj", ("hidden", "heads*head_dim")),
    layer("mlp_norm", "ffn_norm", "ln_2", ("hidden",)),
    layer("mlp.gate", "feed_forward.swiglu.w1", "mlp.swiglu.w1", ("intermediate", "hidden")),
    layer("mlp.up", "feed_forward.swiglu.w3", "mlp.swiglu.w3", ("intermediate", "hidden")),
    layer("mlp.down", "feed_forward.w2", "mlp.c_proj", ("hidden", "intermediate")),
    Weight("norm.weight", ("norm.weight", "transformer.ln_f.weight"), shape=("hidden",)),
    Weight("head.weight", ("output.weight", "lm_heads.0.weight"), shape=("vocab", "hidden")),
)
SQUARE = ("hidden", "hidden")
SECOND_KEYS: tuple[Row, ...] = (
    HIDDEN,
    *COMMON,
    OWN_HEAD_DIM,
    Key("vocabularies", "vocab_sizes", kind=VOCABULARIES),
    Key("targets", "target_vocab_sizes", kind=VOCABULARIES),
    Key("inputs", (), (), lambda config: len(config.vocabularies)),
    Key("outputs", (), (), lambda config: len(config.targets)),
    Key("bias", "bias", (), False, flag),
    Key("causal", "causal", (), False, Only(False)),
    Key("norm_type", "norm_type", (), "layernorm", Only("layernorm")),
    Key("nonlinearity", "nonlinearity_type", (), "gelu", Only("gelu")),
)
SECOND_WEIGHTS = (
    Weight("embed.{i}.weight", "transformer.wtes.{i}.weight", shape=("vocabularies", "hidden"), layers="inputs"),
    Weight("positions.weight", "transformer.wpe.weight", shape=("positions", "hidden")),
    SPEAKER_WEIGHT,
    *matrix("layers.{i}.attn_norm", "transformer.h.{i}.ln_1", None, shape=("hidden",)),
    *matrix("layers.{i}.attn.qkv", "transformer.h.{i}.attn.c_attn", None, shape=("3*hidden", "hidden")),
    *matrix("layers.{i}.attn.o", "transformer.h.{i}.attn.c_proj", None, shape=SQUARE),
    *matrix("layers.{i}.mlp_norm", "transformer.h.{i}.ln_2", None, shape=("hidden",)),
    *matrix("layers.{i}.mlp.up", "transformer.h.{i}.mlp.c_fc", None, shape=("4*hidden", "hidden")),
    *matrix("layers.{i}.mlp.down", "transformer.h.{i}.mlp.c_proj", None, shape=("hidden", "4*hidden")),
    *matrix("norm", "transformer.ln_f", None, shape=("hidden",)),
    Weight("head.{i}.weight", "lm_heads.{i}.weight", shape=("targets", "hidden"), layers="outputs"),
)


def implied(kind: str, *marks: str) -> Callable[[Mapping[str, Any], Graph], tuple[str, Mapping[str, Any]] | None]:
    """Detects a stage by the names of weights that the other one does not have, one of them; what config.json does not
    say is taken from the checkpoint's arguments, and from shapes."""

    def found(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
        weights = {name.removeprefix("model.").removeprefix("_orig_mod."): each for name, each in graph.weights.items()}
        voice = weights.get("speaker_cond_pos.weight")
        if voice is None or len(voice.shape) != 2 or not any(mark in weights for mark in marks):
            return None
        return HF, {**_of_checkpoint(kind, graph, weights), **source, "model_type": kind}

    return found


def _of_checkpoint(kind: str, graph: Graph, weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Hyper-parameters that follow from shapes, and those of the authors' checkpoints."""
    hidden, speaker = weights["speaker_cond_pos.weight"].shape
    found: dict[str, Any] = {"n_embd": hidden, "speaker_emb_dim": speaker, "n_head": max(1, hidden // HEAD[kind])}
    found["n_layer"] = count_of(weights, "transformer.h.{i}.ln_1.weight") or None
    places = weights.get("transformer.wpe.weight")
    if places is not None:
        found["block_size"] = places.shape[0]
    gate = weights.get("transformer.h.0.mlp.swiglu.w1.weight")
    if gate is not None:
        found["intermediate_size"] = gate.shape[0]
    for key, name in (("vocab_sizes", "transformer.wtes.{i}.weight"), ("target_vocab_sizes", "lm_heads.{i}.weight")):
        rows = [weights[name.format(i=i)] for i in range(count_of(weights, name)) if name.format(i=i) in weights]
        found[key] = [tensor.shape[0] for tensor in rows]
    stated = {key.removeprefix(ARGUMENTS): value for key, value in graph.metadata.items() if key.startswith(ARGUMENTS)}
    found |= {key: value for key, value in stated.items() if value is not None}
    if kind == FIRST and found["vocab_sizes"]:
        found["vocab_size"] = found["vocab_sizes"][0]
    return {key: value for key, value in found.items() if value is not None and value != []}


def first_stage(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """Logits of the next token of text or audio."""
    net = Decoder(graph, config, weights, fixed=fixed)
    net.declare(("batch_size", LENGTH))
    x = net.Add(embedding(net, net.ids, "embed"), embedding(net, net.positions, "positions"))
    x = net.Add(x, net.Unsqueeze(voice(net), [1]))
    for i in range(config.layers):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, None))
        x = net.Add(x, gated(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp"))
    net.end(x, norm)


def voice(net: Net) -> Value:
    """The speaker's bias of every position, [batch, hidden]."""
    return linear(net, net.input(SPEAKER, "f32", ("batch_size", net.config.speaker)), "speaker")


def second_stage(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``logits.K`` [batch, length, vocabulary] of each codebook that is predicted, for ``input_ids`` [batch, codebooks,
    length] of those that are known."""
    net = Net(graph, config, weights)
    ids = net.input("input_ids", "i64", ("batch_size", config.inputs, LENGTH))
    rows = net.split(ids, [1] * config.inputs, 1) if config.inputs > 1 else [ids]
    zero, one = net.Constant(value_int=0), net.Constant(value_int=1)
    places = net.Range(zero, net.Squeeze(net.Shape(ids, start=2, end=3)), one)
    x = embedding(net, places, "positions")
    for i, row in enumerate(rows):
        x = net.Add(x, embedding(net, net.Squeeze(row, [1]), f"embed.{i}"))
    x = net.Add(x, net.Unsqueeze(voice(net), [1]))
    for i in range(config.layers):
        name = f"layers.{i}"
        x = net.Add(x, _attend(net, layer_norm(net, x, f"{name}.attn_norm", EPS), f"{name}.attn"))
        x = net.Add(x, plain(net, layer_norm(net, x, f"{name}.mlp_norm", EPS), f"{name}.mlp", "gelu"))
    x = layer_norm(net, x, "norm", EPS)
    for i in range(config.outputs):
        net.output(f"logits.{i}", linear(net, x, f"head.{i}"))


def _attend(net: Net, x: Value, name: str) -> Value:
    """Attention of every position to all others."""
    heads, size = net.config.heads, net.config.head_dim
    q, k, v = (
        net.Transpose(net.split_heads(part, heads, size), perm=[0, 2, 1, 3])
        for part in net.split(linear(net, x, f"{name}.qkv"), [heads * size] * 3)
    )
    return linear(net, net.merge_heads(net.Transpose(net.Attention(q, k, v), perm=[0, 2, 1, 3])), f"{name}.o")


ARCHITECTURES = (
    Architecture(
        FIRST,
        "MetaVoice first stage",
        (FIRST,),
        (FIRST,),
        plain_keys(FIRST_KEYS),
        plain_weights(FIRST_WEIGHTS),
        (Task("text-to-speech", {"model": first_stage}, run_first_stage),),
        implied=implied(FIRST, "layers.0.attention.wqkv.weight", "transformer.h.0.mlp.swiglu.w1.weight"),
        prefixes=("model.", "_orig_mod."),
    ),
    Architecture(
        SECOND,
        "MetaVoice second stage",
        (SECOND,),
        (SECOND,),
        plain_keys(SECOND_KEYS),
        plain_weights(SECOND_WEIGHTS),
        (Task("text-to-speech", {"model": second_stage}, run_second_stage),),
        implied=implied(SECOND, "lm_heads.1.weight"),
        prefixes=("model.", "_orig_mod."),
    ),
)
PARTS = {
    "first_stage": Part(FIRST, ""),
    "second_stage": Part(SECOND, ""),
    "speaker_encoder": Part("speaker_encoder", ""),
    "encodec": Part("encodec", ""),
}
FOLDER_MODELS = (
    Architecture(
        "metavoice",
        "MetaVoice-1B",
        (),
        (),
        (),
        (),
        (Task("text-to-speech", {}, run_metavoice),),
        folder_files=metavoice_files,
        parts=PARTS,
    ),
)
