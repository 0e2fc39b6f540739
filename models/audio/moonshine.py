"""Moonshine (Jeffries et al. 2024, arXiv:2410.15608): an encoder of samples as they are, of any length, and a decoder.

Three convolutions make a frame of every 24 ms of samples. Encoder and decoder have rotary positions in a part of each
head, and norms in front; the feed-forward networks of the decoder are gated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import HF, Architecture, Config, Key, RunOptions, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, SIZE
from ...runtime.ir.graph import Graph, Value
from ..layers.audio.conv1d import conv1d
from ..layers.audio.wave_encoder import WaveEncoder
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS, plain
from ..layers.norm import layer_norm
from ..layers.rope import Rotary, Scaling
from ..schema.activation import activation
from ..schema.audio_hyperparameters import SPEECH_RECOGNITION, own_keys, own_names
from ..schema.hyperparameters import LAYERS, OWN_HEAD_DIM, ROTARY, THETA, ActivationKey, matrix, partial
from ..seq2seq.decoder import DECODER, ENCODER, WITH_PAST, CrossDecoder
from ..seq2seq.tasks import decoder_model, encoder_decoder_graphs
from ..seq2seq.transformer import POSITIONS

if TYPE_CHECKING:
    from ..pipelines.audio.sample_speech_model import SampleSpeechModel

EPS = 1e-5
"""Epsilon of every norm."""
STRIDES = {"conv1": 64, "conv2": 3, "conv3": 2}


@dataclass(frozen=True)
class OneHeadCount:
    """Hyper-parameter: a key of config.json that states heads, of which there are as many everywhere.

    Attributes:
        key: of config.json.
        name: ours.
    """

    key: str
    name: str

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        said = source.get(self.key) or config.heads
        if said != config.heads:
            why = f"{self.key} differs from the encoder's number of heads"
            raise UnsupportedError("E-ARCH-HEADS", config.path, why, expected=config.heads, found=said)
        return int(said)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {self.key: config.heads} if names == HF else {}


KEYS = own_keys(
    Key("vocab", "vocab_size", kind=COUNT),
    Key("positions", "max_position_embeddings", (), 512, POSITIONS),
    Key("hidden", "hidden_size", (), kind=COUNT),
    Key("twice", (), (), lambda config: 2 * config.hidden),
    Key("layers", "encoder_num_hidden_layers", (), kind=LAYERS),
    Key("decoder_layers", "decoder_num_hidden_layers", (), kind=LAYERS),
    Key("heads", "encoder_num_attention_heads", (), kind=COUNT),
    OneHeadCount("decoder_num_attention_heads", "decoder_heads"),
    OneHeadCount("encoder_num_key_value_heads", "kv_heads"),
    OneHeadCount("decoder_num_key_value_heads", "decoder_kv_heads"),
    OWN_HEAD_DIM,
    Key("intermediate", "intermediate_size", (), kind=COUNT),
    Key("both", (), (), lambda config: 2 * config.intermediate),
    ActivationKey("act", "encoder_hidden_act", (), "gelu", activation),
    Key("decoder_act", "decoder_hidden_act", (), "silu", activation),
    THETA,
    Scaling(),
    partial(0.9),
    ROTARY,
    Key("decoder_start", "decoder_start_token_id", (), 1, SIZE, at_most=("vocab",)),
)


def _layer_weights(side: str, layers: str, norms: Mapping[str, str], inner: str) -> tuple[Weight, ...]:
    """Bindings of the layers of the encoder or decoder (`side`), whose feed-forward networks are `inner` wide."""
    name, hf = f"{side}.layers.{{i}}.", f"model.{side}.layers.{{i}}."
    found = [
        row
        for block, theirs in (("attn", "self_attn"), *((("cross", "encoder_attn"),) if side == "decoder" else ()))
        for part in "qkvo"
        for row in matrix(f"{name}{block}.{part}", f"{hf}{theirs}.{part}_proj", None, shape=("hidden", "hidden"))
    ]
    for own, theirs in norms.items():
        found += matrix(f"{name}{own}_norm", f"{hf}{theirs}", None, shape=("hidden",))
    found += matrix(f"{name}mlp.up", f"{hf}mlp.fc1", None, shape=(inner, "hidden"))
    found += matrix(f"{name}mlp.down", f"{hf}mlp.fc2", None, shape=("hidden", "intermediate"))
    return tuple(replace(row, layers=layers) for row in found)


WEIGHTS = own_names(
    *matrix("encoder.conv1", "model.encoder.conv1", None, shape=("hidden", 1, 127)),
    *matrix("encoder.conv2", "model.encoder.conv2", None, shape=("twice", "hidden", 7)),
    *matrix("encoder.conv3", "model.encoder.conv3", None, shape=("hidden", "twice", 3)),
    *matrix("encoder.conv_norm", "model.encoder.groupnorm", None, shape=("hidden",)),
    *_layer_weights(
        "encoder", "layers", {"attn": "input_layernorm", "mlp": "post_attention_layernorm"}, "intermediate"
    ),
    *matrix("encoder.norm", "model.encoder.layer_norm", None, shape=("hidden",)),
    Weight("embed.weight", "model.decoder.embed_tokens.weight", shape=("vocab", "hidden")),
    *_layer_weights(
        "decoder",
        "decoder_layers",
        {"attn": "input_layernorm", "cross": "post_attention_layernorm", "mlp": "final_layernorm"},
        "both",
    ),
    *matrix("decoder.norm", "model.decoder.norm", None, shape=("hidden",)),
    Weight("head.weight", "proj_out.weight", shape=("vocab", "hidden"), optional=True, repeats="embed.weight"),
)


def rotary(config: Config) -> Rotary:
    """The positions of encoder and decoder."""
    return Rotary(config.rotary, config.theta, config.scaling, config.positions, interleaved=True)


def encode(net: WaveEncoder) -> Value:
    """The encoder's hidden states [batch, frames, hidden]."""
    x = net.Tanh(conv1d(net, net.begin(), "encoder.conv1", stride=STRIDES["conv1"]))
    scale, shift = (net.vector(f"encoder.conv_norm.{part}") for part in ("weight", "bias"))
    x = net.GroupNormalization(x, scale, shift, num_groups=1, epsilon=EPS)
    for name in ("conv2", "conv3"):
        x = net.Gelu(conv1d(net, x, f"encoder.{name}", stride=STRIDES[name]))
    x = net.frames = net.Transpose(x, perm=[0, 2, 1])
    places = rotary(net.config)
    for i in range(net.config.layers):
        name = f"encoder.layers.{i}"
        y = layer_norm(net, x, f"{name}.attn_norm", EPS)
        x = net.Add(x, net.self_attention(y, f"{name}.attn", rotary=places))
        x = net.Add(x, plain(net, layer_norm(net, x, f"{name}.mlp_norm", EPS), f"{name}.mlp", net.config.act))
    return layer_norm(net, x, "encoder.norm", EPS)


def decode(net: CrossDecoder) -> None:
    """The decoder's logits."""
    x, places = net.begin("embed"), rotary(net.config)
    for i in range(net.config.decoder_layers):
        name = f"decoder.layers.{i}"
        y = layer_norm(net, x, f"{name}.attn_norm", EPS)
        x = net.Add(x, net.attend_to_itself(y, i, f"{name}.attn", rotary=places))
        x = net.Add(x, net.attend_to_source(layer_norm(net, x, f"{name}.cross_norm", EPS), i, f"{name}.cross"))
        x = net.Add(x, _gated(net, layer_norm(net, x, f"{name}.mlp_norm", EPS), f"{name}.mlp"))
    net.end(layer_norm(net, x, "decoder.norm", EPS), None, tied="embed")


def _gated(net: CrossDecoder, x: Value, name: str) -> Value:
    """A feed-forward network whose first layer is projection and gate in one."""
    up, gate = net.split(linear(net, x, f"{name}.up"), [net.config.intermediate] * 2)
    return linear(net, net.Mul(ACTIVATIONS[net.config.decoder_act](net, gate), up), f"{name}.down")


def run_sample_speech(graphs: Mapping[str, Graph], options: RunOptions) -> SampleSpeechModel:
    """Both graphs as one model."""
    from ..pipelines.audio.sample_speech_model import SampleSpeechModel

    return SampleSpeechModel(graphs[ENCODER], decoder_model(graphs[DECODER], options), options)


def run_exported_samples(graphs: Mapping[str, Graph], options: RunOptions) -> SampleSpeechModel:
    """The graphs of ONNX files as one model; UsageError where one is not what its name says."""
    from ..pipelines.audio.sample_speech_model import SampleSpeechModel
    from ..seq2seq.exported_decoder import ExportedDecoder

    decoder = ExportedDecoder(graphs[DECODER], graphs.get(WITH_PAST), options)
    return SampleSpeechModel(graphs[ENCODER], decoder, replace(options, task=SPEECH_RECOGNITION))


ARCHITECTURES = (
    Architecture(
        "moonshine",
        "Moonshine",
        ("moonshine",),
        ("moonshine",),
        KEYS,
        WEIGHTS,
        (
            Task(
                SPEECH_RECOGNITION,
                encoder_decoder_graphs(WaveEncoder, encode, decode, padded=False),
                run_sample_speech,
                aliases=("asr",),
            ),
        ),
        prefixes=("model.",),
        tied=True,
    ),
)
