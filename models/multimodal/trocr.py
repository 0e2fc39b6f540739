"""TrOCR (Li et al. 2021, arXiv:2109.10282): an encoder of pictures, of the family that the file names, and a decoder
that writes their text."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.contract.architecture import Architecture, Key, Part, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, SIZE, flag
from ...runtime.contract.part_graph import add_part
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.linear import linear
from ..layers.net import Net
from ..pipelines.multimodal.image_to_text_tasks import run_image_to_text
from ..schema.hyperparameters import LAYERS, OWN_HEAD_DIM, act, matrix
from ..schema.network_hyperparameters import IMAGE_FEATURES, IMAGE_TO_TEXT, Stated
from ..seq2seq.decoder import CrossDecoder
from ..seq2seq.tasks import encoder_decoder_graphs
from ..seq2seq.transformer import OFFSET, POSITIONS, POST_NORM, Family, fairseq_sinusoids, head_weights, layer_weights

ENCODER, BRIDGE = "vision", "enc_to_dec_proj"
KEYS = (
    Key("vocab", "vocab_size", (), 50265, COUNT),
    Key("positions", "max_position_embeddings", (), 512, POSITIONS),
    Key("hidden", ("d_model", "hidden_size"), (), 1024, COUNT),
    Key("decoder_layers", ("decoder_layers", "num_hidden_layers"), (), 12, LAYERS),
    Key("heads", ("decoder_attention_heads", "num_attention_heads"), (), 16, COUNT),
    OWN_HEAD_DIM,
    Key("decoder_intermediate", "decoder_ffn_dim", (), 4096, COUNT),
    act("gelu", "activation_function"),
    Key("scaled", "scale_embedding", (), False, flag),
    Key("learned", "use_learned_position_embeddings", (), True, flag),
    Key("embed_norm", "layernorm_embedding", (), True, flag),
    Key("tied", "tie_word_embeddings", (), True, flag),
    Key("pad", "pad_token_id", (), 1, SIZE, at_most=("vocab",)),
    Key("decoder_start", "decoder_start_token_id", (), 2, SIZE, at_most=("vocab",)),
    Key("source_hidden", "cross_attention_hidden_size", (), lambda config: config.hidden, COUNT, null=None),
    Key("learned_rows", (), (), lambda config: config.positions + OFFSET),
    Key("padded_rows", (), (), lambda config: config.positions + config.pad + 1),
)


def _cross(row: Weight) -> Weight:
    """The row of a weight; matrices of keys and values of the source take the encoder's width."""
    taken = row.name.endswith((".cross.k.weight", ".cross.v.weight"))
    return replace(row, shape=("hidden", "source_hidden")) if taken else row


DECODER = Architecture(
    "trocr_decoder",
    "TrOCR decoder",
    ("trocr",),
    (),
    KEYS,
    (
        Weight("embed.weight", "model.decoder.embed_tokens.weight", shape=("vocab", "hidden")),
        Weight(
            "decoder.positions.weight",
            "model.decoder.embed_positions.weight",
            shape=("learned_rows", "hidden"),
            when=lambda config, i: bool(config.learned),
        ),
        Weight(
            "decoder.positions.weight",
            shape=("padded_rows", "hidden"),
            optional=True,
            when=lambda config, i: not config.learned,
            compute=lambda config: StoredTensor.of(fairseq_sinusoids(config)),
        ),
        *(_cross(row) for row in layer_weights("decoder", "decoder_layers", "decoder_intermediate")),
        *(
            replace(row, when=lambda config, i: bool(config.embed_norm))
            for row in matrix("decoder.embed_norm", "model.decoder.layernorm_embedding", None, shape=("hidden",))
        ),
        *head_weights("output_projection.weight", "vocab"),
    ),
    (),
    ignored=(r"embed_positions\.weights$", r"embed_positions\._float_tensor$"),
)
LEARNED, SINUSOIDS = POST_NORM, Family(pre_norm=False, padded=True)


def encode(net: Net) -> Value:
    """The encoder's hidden states, of the decoder's width where the model projects them."""
    hidden = add_part(net.graph, net.config, net.weights, ENCODER, task=IMAGE_FEATURES)["last_hidden_state"]
    return linear(net, hidden, BRIDGE) if net.has(f"{BRIDGE}.weight") else hidden


def decode(net: CrossDecoder) -> None:
    """The decoder's logits."""
    (LEARNED if net.config.learned else SINUSOIDS).decode(net)


ARCHITECTURES = (
    Architecture(
        "trocr",
        "TrOCR",
        ("vision-encoder-decoder",),
        (),
        (Stated("architectures", ["VisionEncoderDecoderModel"]), Stated("is_encoder_decoder", True)),
        matrix(BRIDGE, BRIDGE, None, shape=("hidden", "vision.hidden"), optional=True),
        (Task(IMAGE_TO_TEXT, encoder_decoder_graphs(Net, encode, decode, padded=False), run_image_to_text),),
        accepts=lambda source: (source.get("decoder") or {}).get("model_type") == "trocr",
        prefixes=(),
        ignored=(),
        parts={"": Part(DECODER, "decoder"), ENCODER: Part(None, "encoder")},
    ),
)
