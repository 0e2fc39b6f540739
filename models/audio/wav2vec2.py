"""wav2vec 2.0 (Baevski et al. 2020, arXiv:2006.11477) and the models of its layers: HuBERT (Hsu et al. 2021,
arXiv:2106.07447), WavLM (Chen et al. 2021, arXiv:2110.13900), UniSpeech and UniSpeech-SAT.

Convolutions make a frame of every 20 ms of samples, a wide convolution of the frames tells positions, and a transformer
follows. Base models normalize each channel of the first convolution over time and have their norms after sums; large
ones normalize the channels of each frame and may have norms in front. WavLM adds to attention scores a position bias
that each query scales by a gate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ...runtime.base.errors import FormatError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import HF, MODEL, Architecture, Config, GraphBuilder, Key, Row, Task
from ...runtime.contract.hyperparameter import COUNT, Choice, Integer, Listed, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.audio.conv1d import conv1d, kernel
from ..layers.audio.wave_encoder import WaveEncoder
from ..layers.image.kernels import affine
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS, plain
from ..layers.norm import layer_norm
from ..layers.relative_position import position_bias
from ..pipelines.audio.audio_tasks import run_audio_model
from ..schema.activation import activation
from ..schema.audio_hyperparameters import AUDIO_CLASSIFICATION, AUDIO_FEATURES, SPEECH_RECOGNITION
from ..schema.hyperparameters import ActivationKey
from ..schema.network_hyperparameters import LABELS, ClassTask, count_of, image_act, norm_eps, settle_labels
from ..schema.weight_norm import NormedModule, WeightNorm

CHANNELS, FRAMES = "group", "layer"
"""Axis of the convolutions' norms: each channel over time, or the channels of each frame."""
CONV_EPS = 1e-5
"""Epsilon of these norms."""
CLASSES = (
    ("ForCTC", SPEECH_RECOGNITION),
    ("ForSequenceClassification", AUDIO_CLASSIFICATION),
    ("Model", AUDIO_FEATURES),
)
CONVS = Integer(1, 1 << 16)


def keys(stem: str) -> tuple[Row, ...]:
    """The hyper-parameters of models whose classes in transformers begin with `stem`."""
    return (
        ClassTask(stem, CLASSES),
        *LABELS,
        Key("vocab", "vocab_size", "vocabulary_size", None, COUNT),
        Key("hidden", "hidden_size", "embedding_length", None, COUNT),
        Key("layers", "num_hidden_layers", "block_count", None, COUNT, at_most=("hidden",)),
        Key("heads", "num_attention_heads", "attention.head_count", 12, COUNT, at_most=("hidden",)),
        Key("head_dim", (), (), None),
        Key("intermediate", "intermediate_size", "feed_forward_length", None, COUNT),
        Key("conv_layers", "num_feat_extract_layers", (), None, COUNT),
        Key("conv_channels", "conv_dim", (), None, Listed(CONVS, 1, 64)),
        Key("conv_widths", "conv_kernel", (), None, Listed(CONVS, 1, 64)),
        Key("conv_bias", "conv_bias", (), None, flag),
        Key("strides", "conv_stride", "conv_stride", [5, 2, 2, 2, 2, 2, 2], Listed(Integer(1, 1 << 12), 1, 64)),
        Key("conv_norm", "feat_extract_norm", "conv_norm", CHANNELS, Choice((CHANNELS, FRAMES))),
        ActivationKey("conv_act", "feat_extract_activation", "conv_activation", "gelu", activation),
        Key("position_width", "num_conv_pos_embeddings", (), None, COUNT),
        Key("position_groups", "num_conv_pos_embedding_groups", "position_groups", 16, COUNT, at_most=("hidden",)),
        Key("stable", "do_stable_layer_norm", "pre_norm", False, flag),
        Key("weighted", "use_weighted_layer_sum", (), None, flag),
        Key("projected", "classifier_proj_size", (), None, COUNT),
        Key("adapter", "adapter_attn_dim", (), None, COUNT),
        Key("project_norm", "feat_proj_layer_norm", (), None, flag),
        Key("position_norm", "conv_pos_batch_norm", (), None, flag),
        Key("buckets", "num_buckets", (), None, Integer(4, 1 << 16)),
        Key("farthest", "max_bucket_distance", "max_bucket_distance", 800, Integer(8, 1 << 20)),
        norm_eps(1e-5, "layer_norm_eps"),
        image_act("gelu"),
    )


LAYER = {
    **{f"attn.{own}": f"attention.{theirs}_proj" for own, theirs in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "out"))},
    "attn.gate": "attention.gru_rel_pos_linear",
    "attn.gate_scale": "attention.gru_rel_pos_const",
    "attn.bias": "attention.rel_attn_embed",
    "attn_norm": "layer_norm",
    "mlp.up": "feed_forward.intermediate_dense",
    "mlp.down": "feed_forward.output_dense",
    "mlp_norm": "final_layer_norm",
    "adapter.up": "adapter_layer.linear_1",
    "adapter.down": "adapter_layer.linear_2",
    "adapter_norm": "adapter_layer.norm",
}
"""Names of a layer's modules by ours."""
POSITION_NORM = (".pos_conv_embed.batch_norm.weight", "positions.norm.weight")
"""Suffixes of a norm that replaces weight normalization, in transformers and of our own."""


def parts(names: str, weights: Collection[str]) -> tuple[Module, ...]:
    """The modules of a file with weights of these names."""
    normed = () if any(name.endswith(POSITION_NORM) for name in weights) else (HF,)
    return (
        Module("convs.{i}.conv", hf="feature_extractor.conv_layers.{i}.conv"),
        Module("convs.{i}.norm", hf="feature_extractor.conv_layers.{i}.layer_norm"),
        Module("project_norm", hf="feature_projection.layer_norm"),
        Module("project", hf="feature_projection.projection"),
        NormedModule("positions.conv", hf="encoder.pos_conv_embed.conv", normed=normed, norm=WeightNorm(axis=2)),
        Module("positions.norm", hf="encoder.pos_conv_embed.batch_norm"),
        *(Module(f"layers.{{i}}.{own}", hf=f"encoder.layers.{{i}}.{theirs}") for own, theirs in LAYER.items()),
        Module("norm", hf="encoder.layer_norm"),
        Module("layer_weights"),
        Module("projector"),
        Module("classifier"),
        Module("ctc", hf="lm_head"),
    )


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. FormatError for layers that do not fit each other."""
    settle_labels(config, weights, "classifier.weight")
    convs = [weights[f"convs.{i}.conv.weight"].shape for i in range(count_of(weights, "convs.{i}.conv.weight"))]
    places, first = weights["positions.conv.weight"].shape, weights["layers.0.mlp.up.weight"].shape
    if any(len(shape) != 3 for shape in (*convs, places)) or len(convs) != len(config.strides):
        why = f"{counted(len(convs), 'convolution')} along time do not fit {counted(len(config.strides), 'stride')}"
        raise FormatError("E-ARCH-SHAPE", config.path, why)
    if places[0] % config.heads or places[0] % config.position_groups:
        why = f"a width of {places[0]} is not a multiple of {config.heads} heads and {config.position_groups} groups"
        raise FormatError("E-ARCH-KEY", config.path, why)
    adapter, bias = weights.get("layers.0.adapter.up.weight"), weights.get("layers.0.attn.bias.weight")
    if bias is not None and bias.shape[0] >= 4 * config.farthest:
        why = f"{bias.shape[0]} buckets do not fit distances up to {config.farthest}"
        raise FormatError("E-ARCH-KEY", config.path, why)
    config.values |= {
        "vocab": weights["ctc.weight"].shape[0] if "ctc.weight" in weights else None,
        "hidden": places[0],
        "head_dim": places[0] // config.heads,
        "layers": count_of(weights, "layers.{i}.mlp.up.weight"),
        "intermediate": first[0],
        "conv_layers": len(convs),
        "conv_channels": [shape[0] for shape in convs],
        "conv_widths": [shape[2] for shape in convs],
        "conv_bias": "convs.0.conv.bias" in weights,
        "position_width": places[2],
        "weighted": "layer_weights" in weights,
        "projected": weights["projector.weight"].shape[0] if "projector.weight" in weights else None,
        "adapter": None if adapter is None else adapter.shape[0],
        "project_norm": "project_norm.weight" in weights,
        "position_norm": "positions.norm.weight" in weights,
        "buckets": None if bias is None else bias.shape[0],
    }


def frames(net: WaveEncoder) -> Value:
    """Convolutional features of samples, [batch, frames, channels]."""
    x = net.begin()
    for i, stride in enumerate(net.config.strides):
        x = conv1d(net, x, f"convs.{i}.conv", stride=stride)
        if net.has(f"convs.{i}.norm.weight"):
            x = _conv_norm(net, x, f"convs.{i}.norm")
        x = ACTIVATIONS[net.config.conv_act](net, x)
    net.frames = net.Transpose(x, perm=[0, 2, 1])
    return net.frames


def _conv_norm(net: WaveEncoder, x: Value, name: str) -> Value:
    if net.config.conv_norm == CHANNELS:
        scale, shift = (net.vector(f"{name}.{part}") for part in ("weight", "bias"))
        y = net.InstanceNormalization(x, scale, shift, epsilon=CONV_EPS)
    else:
        y = net.Transpose(layer_norm(net, net.Transpose(x, perm=[0, 2, 1]), name, CONV_EPS), perm=[0, 2, 1])
    value: Value = y
    return value


def with_positions(net: WaveEncoder, x: Value) -> Value:
    """The sum of frames [batch, frames, hidden] and what a convolution over the frames around each makes of them."""
    y = net.Transpose(x, perm=[0, 2, 1])
    if net.has("positions.norm.weight"):
        parts = affine(net, "positions.norm", net.config.hidden, CONV_EPS)
        factor, shift = (
            net.named(f"positions.norm.{part}", each.astype("float32").reshape(-1, 1))
            for part, each in zip(("factor", "shift"), parts, strict=True)
        )
        y = net.Add(net.Mul(y, factor), shift)
    width = kernel(net, "positions.conv").shape[2]
    pads = (width // 2, width - 1 - width // 2)
    y = conv1d(net, y, "positions.conv", groups=net.config.position_groups, pads=pads)
    value: Value = net.Add(x, net.Transpose(ACTIVATIONS[net.config.conv_act](net, y), perm=[0, 2, 1]))
    return value


def hidden_states(net: WaveEncoder) -> list[Value]:
    """[batch, frames, hidden]: what the first layer takes, and what each layer makes of it, the last one normalized."""
    config = net.config
    x = frames(net)
    x = net.norm(x, "project_norm") if net.has("project_norm.weight") else x
    x = with_positions(net, linear(net, x, "project"))
    found = [x if config.stable else net.norm(x, "norm")]
    for i in range(config.layers):
        found.append((_pre_norm_layer if config.stable else _post_norm_layer)(net, found[-1], f"layers.{i}"))
    return [*found[:-1], net.norm(found[-1], "norm")] if config.stable else found


def _attention(net: WaveEncoder, x: Value, name: str) -> Value:
    return net.self_attention(x, name, _gated_bias(net, x, name) if net.has(f"{name}.gate.weight") else None)


def _gated_bias(net: WaveEncoder, x: Value, name: str) -> Value:
    """WavLM's bias of attention scores, [batch, heads, frames, frames]: the bias of the first layer, by the distance
    between key and query, scaled by a gate of each query."""
    farthest = net.config.farthest
    bias = net.once("bias", lambda: position_bias(net, net.distances(), "layers.0.attn.bias", farthest))
    both = linear(net, net.heads(x, net.config.heads), f"{name}.gate")
    sums = net.ReduceSum(net.Reshape(both, [0, 0, 0, 2, 4]), [-1], keepdims=0)
    first, second = net.split(net.Sigmoid(sums), [1, 1])
    scale = net.vector(f"{name}.gate_scale")
    gate = net.Add(net.Mul(first, net.Sub(net.Mul(second, scale), 1.0)), 2.0)
    value: Value = net.Mul(gate, bias)
    return value


def _post_norm_layer(net: WaveEncoder, x: Value, name: str) -> Value:
    x = net.norm(net.Add(x, _attention(net, x, f"{name}.attn")), f"{name}.attn_norm")
    return net.norm(net.Add(x, plain(net, x, f"{name}.mlp", net.config.act)), f"{name}.mlp_norm")


def _pre_norm_layer(net: WaveEncoder, x: Value, name: str) -> Value:
    """As in the paper of Xiong et al. 2020 (arXiv:2002.04745), with the adapters of MMS, if the model has them."""
    x = net.Add(x, _attention(net, net.norm(x, f"{name}.attn_norm"), f"{name}.attn"))
    x = net.Add(x, plain(net, net.norm(x, f"{name}.mlp_norm"), f"{name}.mlp", net.config.act))
    if net.has(f"{name}.adapter.up.weight"):
        normed = layer_norm(net, x, f"{name}.adapter_norm", CONV_EPS)
        x = net.Add(x, plain(net, normed, f"{name}.adapter", "relu"))
    return x


def ctc(net: WaveEncoder) -> None:
    """``logits`` [batch, frames, vocabulary]."""
    net.output("logits", linear(net, hidden_states(net)[-1], "ctc"))


def classes(net: WaveEncoder) -> None:
    """``logits`` [batch, labels] of the mean over frames: of the last layer, or of a weighted sum of all."""
    found = hidden_states(net)
    x = found[-1]
    if net.has("layer_weights"):
        shares = net.Softmax(net.vector("layer_weights"), axis=0)
        stacked = net.Concat(*(net.Unsqueeze(each, [0]) for each in found), axis=0)
        x = net.ReduceSum(net.Mul(stacked, net.Reshape(shares, [-1, 1, 1, 1])), [0], keepdims=0)
    mean = net.ReduceMean(linear(net, x, "projector"), [1], keepdims=0)
    net.output("logits", linear(net, mean, "classifier"))


def vectors(net: WaveEncoder) -> None:
    """``last_hidden_state`` [batch, frames, hidden]."""
    net.output("last_hidden_state", hidden_states(net)[-1])


def graph(build: Callable[[WaveEncoder], None]) -> dict[str, GraphBuilder]:
    """The only graph of a task, whose nodes `build` adds."""

    def built(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        build(WaveEncoder(graph, config, weights))

    return {MODEL: built}


HEADS = ("ctc", "projector", "classifier", "layer_weights")


def architecture(name: str, title: str, model_type: str, stem: str, prefix: str) -> Architecture:
    """One model; `stem` and `prefix`: how transformers' names of its classes and weights begin."""
    return Architecture(
        name,
        title,
        (model_type,),
        (model_type,),
        keys(stem),
        (),
        (
            Task(SPEECH_RECOGNITION, graph(ctc), run_audio_model, aliases=("asr", "ctc")),
            Task(AUDIO_CLASSIFICATION, graph(classes), run_audio_model, aliases=("classification",)),
            Task(
                AUDIO_FEATURES,
                graph(vectors),
                run_audio_model,
                unneeded=HEADS,
                aliases=("hidden", "feature-extraction"),
            ),
        ),
        settle=settle,
        prefixes=(prefix,),
        ignored=(r"masked_spec_embed$", r"^(quantizer|project_(q|hid)|label_embeddings_concat|ctc_proj|dropout)\b"),
        modules=parts,
    )


ARCHITECTURES = (
    architecture("wav2vec2", "wav2vec 2.0", "wav2vec2", "Wav2Vec2", "wav2vec2."),
    architecture("hubert", "HuBERT", "hubert", "Hubert", "hubert."),
    architecture("wavlm", "WavLM", "wavlm", "WavLM", "wavlm."),
    architecture("unispeech", "UniSpeech", "unispeech", "UniSpeech", "unispeech."),
    architecture("unispeech_sat", "UniSpeech-SAT", "unispeech-sat", "UniSpeechSat", "unispeech_sat."),
)
