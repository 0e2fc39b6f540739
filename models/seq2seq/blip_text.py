"""BLIP's text models (Li et al. 2022, arXiv:2201.12086): BERT whose layers attend to a source, as encoder of questions
and as decoder of texts."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.contract.architecture import OWN_HEAD, Architecture, Key, Weight
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, SIZE, flag
from ...runtime.ir.graph import Value
from ..layers.linear import embedding, linear
from ..layers.mlp import ACTIVATIONS
from ..layers.norm import layer_norm
from ..schema.encoder_weights import norm
from ..schema.hyperparameters import LAYERS, OWN_HEAD_DIM, act, matrix
from .cross_encoder import CrossEncoder
from .decoder import CrossDecoder
from .transformer import POSITIONS, Family, added

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
    Key("end", "sep_token_id", (), 102, SIZE, at_most=("vocab",)),
    Key("scaled", (), (), False, flag),
    Key("source_hidden", "encoder_hidden_size", (), 768, COUNT),
)
SQUARE = ("hidden", "hidden")


def text_rows(side: str, embed: str, prefix: str) -> tuple[Weight, ...]:
    """The rows of embeddings and layers: attention to the text, to a source, and a feed-forward network.

    Args:
        side: ``encoder`` or ``decoder``, with which own names begin.
        embed: own name of the token embedding.
        prefix: of transformers' names.
    """
    name, hf = f"{side}.layers.{{i}}.", f"{prefix}encoder.layer.{{i}}."
    rows: list[Weight] = []
    for own, theirs, width in (("attn", "attention", "hidden"), ("cross", "crossattention", "source_hidden")):
        rows += matrix(f"{name}{own}.q", f"{hf}{theirs}.self.query", None, shape=SQUARE)
        rows += matrix(f"{name}{own}.k", f"{hf}{theirs}.self.key", None, shape=("hidden", width))
        rows += matrix(f"{name}{own}.v", f"{hf}{theirs}.self.value", None, shape=("hidden", width))
        rows += matrix(f"{name}{own}.o", f"{hf}{theirs}.output.dense", None, shape=SQUARE)
        rows += norm(f"{name}{own}_norm", f"{hf}{theirs}.output.LayerNorm")
    rows += matrix(f"{name}mlp.up", f"{hf}intermediate.dense", None, shape=("intermediate", "hidden"))
    rows += matrix(f"{name}mlp.down", f"{hf}output.dense", None, shape=("hidden", "intermediate"))
    rows += norm(f"{name}mlp_norm", f"{hf}output.LayerNorm")
    return (
        Weight(f"{embed}.weight", f"{prefix}embeddings.word_embeddings.weight", shape=("vocab", "hidden")),
        Weight(
            f"{side}.positions.weight", f"{prefix}embeddings.position_embeddings.weight", shape=("positions", "hidden")
        ),
        *norm(f"{side}.embed_norm", f"{prefix}embeddings.LayerNorm"),
        *(replace(row, layers="decoder_layers") for row in rows),
    )


DECODER = Architecture(
    "blip_text_decoder",
    "BLIP text decoder",
    ("blip_text_model",),
    (),
    KEYS,
    (
        *text_rows("decoder", "embed", "bert."),
        *matrix("lm.dense", "cls.predictions.transform.dense", None, shape=SQUARE),
        *norm("lm.norm", "cls.predictions.transform.LayerNorm"),
        Weight(
            "head.weight",
            "cls.predictions.decoder.weight",
            shape=("vocab", "hidden"),
            optional=True,
            repeats="embed.weight",
        ),
        Weight("logits.bias", ("cls.predictions.bias", "cls.predictions.decoder.bias"), shape=("vocab",)),
        Weight(
            "logits.bias",
            "cls.predictions.decoder.bias",
            shape=("vocab",),
            when=lambda config, i: config.values.get(OWN_HEAD) is not None,
        ),
        Weight(
            "head.bias",
            "cls.predictions.decoder.bias",
            shape=("vocab",),
            when=lambda config, i: config.values.get(OWN_HEAD) is None,
            optional=True,
            repeats="logits.bias",
        ),
    ),
    (),
    ignored=(r"position_ids$",),
)


def read(net: CrossEncoder) -> Value:
    """The hidden states of the encoder's tokens, which attend to its source."""
    return Family(pre_norm=False, eps=net.config.eps).decoded(net, embedding(net, net.ids, "encoder.embed"), "encoder")


def decode(net: CrossDecoder) -> None:
    """The decoder's logits: BERT's head for masked tokens on its hidden states."""
    config = net.config
    x = Family(pre_norm=False, eps=config.eps).decoded(net, net.begin())
    y = layer_norm(net, ACTIVATIONS[config.act](net, linear(net, x, "lm.dense")), "lm.norm", config.eps)
    net.end(y, None, change=None if net.has("head.bias") else added(net))
