"""Audio spectrogram transformer (AST; Gong et al. 2021, arXiv:2104.01778): DeiT on overlapping patches of a spectrogram
of Kaldi's filter banks."""

from __future__ import annotations

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import COUNT, Integer, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.image_net import ImageNet
from ..layers.image.transformer import block
from ..layers.image.vision_transformer import token, with_prefixes
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.audio.audio_tasks import run_audio_model
from ..pipelines.image.image_tasks import image_graph
from ..schema.audio_hyperparameters import AUDIO_CLASSIFICATION, AUDIO_FEATURES
from ..schema.network_hyperparameters import LABELS, ClassTask, image_act, norm_eps, settle_labels
from ..schema.vit import HF_LAYERS, settle_vit, vit_modules

SPECTROGRAM = "input_values"
LENGTH = Integer(1, 1 << 14)
KEYS = (
    ClassTask("AST", (("ForAudioClassification", AUDIO_CLASSIFICATION), ("Model", AUDIO_FEATURES))),
    *LABELS,
    Key("hidden", "hidden_size", "embedding_length", None, COUNT),
    Key("layers", "num_hidden_layers", "block_count", None, COUNT, at_most=("hidden",)),
    Key("heads", "num_attention_heads", "attention.head_count", 12, COUNT, at_most=("hidden",)),
    Key("intermediate", "intermediate_size", "feed_forward_length", None, COUNT),
    Key("patch", "patch_size", "patch_size", None, COUNT),
    Key("qkv_bias", "qkv_bias", (), None, flag),
    Key("image_size", (), (), None),
    Key("frames", "max_length", "frame_count", 1024, LENGTH),
    Key("bands", "num_mel_bins", "band_count", 128, LENGTH),
    Key("time_stride", "time_stride", "time_stride", 10, LENGTH),
    Key("band_stride", "frequency_stride", "band_stride", 10, LENGTH),
    norm_eps(1e-12, "layer_norm_eps"),
    image_act("gelu"),
)
MODULES = (
    Module("head_norm", hf="classifier.layernorm"),
    Module("head", hf="classifier.dense"),
    *(part for part in vit_modules("encoder.layer.", HF_LAYERS) if part.name != "head"),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. FormatError for position embeddings that do not fit the spectrogram."""
    settle_vit(config, weights)
    settle_labels(config, weights, "head.weight")
    sides = (config.bands, config.band_stride), (config.frames, config.time_stride)
    rows, columns = ((length - config.patch) // stride + 1 for length, stride in sides)
    found = weights["pos_embed"].shape[1] if "pos_embed" in weights else 0
    if found != rows * columns + 2:
        why = f"{found} position embeddings do not fit {rows} x {columns} patches"
        raise FormatError("E-ARCH-SHAPE", config.path, why)


def features(net: ImageNet) -> Value:
    """Normalized tokens [batch, 2 + patches, hidden] of spectrograms [batch, frames, bands]."""
    config = net.config
    x = net.input(SPECTROGRAM, "f32", ("batch", config.frames, config.bands))
    x = net.Unsqueeze(net.Transpose(x, perm=[0, 2, 1]), [1])
    name = "patch_embed.proj"
    given = [x, net.vector(f"{name}.weight"), net.vector(f"{name}.bias")]
    patches = net.Conv(*given, strides=[config.band_stride, config.time_stride])
    x = net.Add(with_prefixes(net, net.flatten(patches)), net.vector("pos_embed"))
    for i in range(config.layers):
        x = block(net, x, f"blocks.{i}", config.heads)
    return layer_norm(net, x, "norm", config.eps)


def pooled(net: ImageNet, x: Value) -> Value:
    """The mean of the class and the distillation token, [batch, hidden]."""
    value: Value = net.Mul(net.Add(token(net, x), token(net, x, 1)), 0.5)
    return value


def classes(net: ImageNet) -> None:
    """``logits`` [batch, labels]."""
    x = layer_norm(net, pooled(net, features(net)), "head_norm", net.config.eps)
    net.output("logits", linear(net, x, "head"))


def vectors(net: ImageNet) -> None:
    """``last_hidden_state`` and ``pooler_output`` [batch, hidden]."""
    x = features(net)
    net.output("last_hidden_state", x)
    net.output("pooler_output", pooled(net, x))


ARCHITECTURES = (
    Architecture(
        "audio_spectrogram_transformer",
        "Audio spectrogram transformer",
        ("audio-spectrogram-transformer",),
        ("audio-spectrogram-transformer",),
        KEYS,
        (),
        (
            Task(AUDIO_CLASSIFICATION, {MODEL: image_graph(classes)}, run_audio_model, aliases=("classification",)),
            Task(
                AUDIO_FEATURES,
                {MODEL: image_graph(vectors)},
                run_audio_model,
                unneeded=("head",),
                aliases=("hidden", "feature-extraction"),
            ),
        ),
        settle=settle,
        prefixes=("audio_spectrogram_transformer.",),
        ignored=(),
        modules=MODULES,
    ),
)
