"""BLIP for captions (Li et al. 2022, arXiv:2201.12086): its image encoder, and BERT as a decoder that attends to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...runtime.contract.architecture import Architecture, Below, Key, Part, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, SIZE, flag
from ...runtime.contract.part_graph import add_part
from ...runtime.ir.graph import Value
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS
from ..layers.net import Net
from ..layers.norm import layer_norm
from ..pipelines.multimodal.image_to_text_tasks import run_image_to_text
from ..schema.encoder_weights import norm
from ..schema.hyperparameters import LAYERS, OWN_HEAD_DIM, act, matrix
from ..schema.network_hyperparameters import IMAGE_TO_TEXT, Stated
from ..seq2seq.decoder import CrossDecoder
from ..seq2seq.tasks import encoder_decoder_graphs
from ..seq2seq.transformer import POSITIONS, Family, added

VISION, CLASS = "vision", "BlipForConditionalGeneration"
KEYS = (
    Key("vocab", "vocab_size", (), 30524, COUNT),
    Key("positions", "max_position_embeddings", (), 512, POSITIONS),
    Key("hidden", "hidden_size", (), 768, COUNT),
    Key("decoder_layers", "num_hidden_layers", (), 12, LAYERS),
    Key("heads", "num_attention_heads", (), 8, COUNT),
    OWN_HEAD_DIM,
    Key("intermediate", "intermediate_size", (), 3072, COUNT),
    act("gelu"),
    Key("eps", "layer_norm_eps", (), 1e-12, NOT_NEGATIVE),
    Key("pad", "pad_token_id", (), 0, SIZE, at_most=("vocab",)),
    Key("decoder_start", "bos_token_id", (), 30522, SIZE, at_most=("vocab",)),
    Key("scaled", (), (), False, flag),
    Key("source_hidden", "encoder_hidden_size", (), 768, COUNT),
)
HF, NAME, SQUARE = "bert.encoder.layer.{i}.", "decoder.layers.{i}.", ("hidden", "hidden")


def _layers() -> tuple[Weight, ...]:
    """The rows of a layer: attention to the text, to the picture, and a feed-forward network."""
    rows: list[Weight] = []
    for own, theirs, width in (("attn", "attention", "hidden"), ("cross", "crossattention", "source_hidden")):
        rows += matrix(f"{NAME}{own}.q", f"{HF}{theirs}.self.query", None, shape=SQUARE)
        rows += matrix(f"{NAME}{own}.k", f"{HF}{theirs}.self.key", None, shape=("hidden", width))
        rows += matrix(f"{NAME}{own}.v", f"{HF}{theirs}.self.value", None, shape=("hidden", width))
        rows += matrix(f"{NAME}{own}.o", f"{HF}{theirs}.output.dense", None, shape=SQUARE)
        rows += norm(f"{NAME}{own}_norm", f"{HF}{theirs}.output.LayerNorm")
    rows += matrix(f"{NAME}mlp.up", f"{HF}intermediate.dense", None, shape=("intermediate", "hidden"))
    rows += matrix(f"{NAME}mlp.down", f"{HF}output.dense", None, shape=("hidden", "intermediate"))
    rows += norm(f"{NAME}mlp_norm", f"{HF}output.LayerNorm")
    return tuple(replace(row, layers="decoder_layers") for row in rows)


DECODER = Architecture(
    "blip_text_decoder",
    "BLIP text decoder",
    ("blip_text_model",),
    (),
    KEYS,
    (
        Weight("embed.weight", "bert.embeddings.word_embeddings.weight", shape=("vocab", "hidden")),
        Weight("decoder.positions.weight", "bert.embeddings.position_embeddings.weight", shape=("positions", "hidden")),
        *norm("decoder.embed_norm", "bert.embeddings.LayerNorm"),
        *_layers(),
        *matrix("lm.dense", "cls.predictions.transform.dense", None, shape=SQUARE),
        *norm("lm.norm", "cls.predictions.transform.LayerNorm"),
        Weight("logits.bias", ("cls.predictions.bias", "cls.predictions.decoder.bias"), shape=("vocab",)),
    ),
    (),
    ignored=(r"position_ids$", r"^cls\.predictions\.decoder\."),
)


def encode(net: Net) -> Value:
    """The hidden states of a picture."""
    return add_part(net.graph, net.config, net.weights, VISION)["last_hidden_state"]


def decode(net: CrossDecoder) -> None:
    """The decoder's logits: BERT's head for masked tokens on its hidden states."""
    config = net.config
    x = Family(pre_norm=False, eps=config.eps).decoded(net, net.begin())
    y = layer_norm(net, ACTIVATIONS[config.act](net, linear(net, x, "lm.dense")), "lm.norm", config.eps)
    net.end(y, None, change=added(net))


def captions(source: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a model of captions, not of questions or retrieval."""
    return source.get("architectures") in (None, [CLASS])


ARCHITECTURES = (
    Architecture(
        "blip",
        "BLIP",
        ("blip",),
        (),
        (Stated("architectures", [CLASS]),),
        (),
        (Task(IMAGE_TO_TEXT, encoder_decoder_graphs(Net, encode, decode, padded=False), run_image_to_text),),
        accepts=captions,
        prefixes=(),
        ignored=(r"^logit_scale$",),
        parts={
            "": Part(DECODER, "text_config", (Below("text_decoder."),)),
            VISION: Part("blip_vision", "vision_config", (Below("vision_model."),)),
        },
    ),
)
