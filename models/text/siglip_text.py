"""SigLIP's text encoder (Zhai et al. 2023, arXiv:2303.15343): pre-norm layers; a projection of the last token, padding
or not, is the text."""

from __future__ import annotations

from ...runtime.contract.architecture import FEATURE_EXTRACTION, Architecture, Key
from ...runtime.contract.hyperparameter import COUNT
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, pre_norm_encoder
from ..layers.linear import linear
from ..pipelines.encoder_tasks import Head, encoder_tasks
from ..schema.clip.towers import text_keys, text_weights
from ..schema.hyperparameters import matrix
from ..schema.network_hyperparameters import image_act

KEYS = (
    *text_keys(
        "SiglipTextModel", FEATURE_EXTRACTION, hidden=768, layers=12, heads=12, vocab=32000, context=64, eps=1e-6
    ),
    image_act("gelu_tanh"),
    Key("projection", "projection_size", "projection_length", lambda config: config.hidden, COUNT),
)


def build(net: Encoder) -> Value:
    """Embeddings, then pre-norm layers and a norm."""
    net.begin()
    return pre_norm_encoder(net)


def vectors(net: Encoder, x: Value) -> None:
    """Outputs ``last_hidden_state`` [batch, length, hidden] and ``pooler_output`` [batch, projection]."""
    net.output("last_hidden_state", x)
    net.output("pooler_output", linear(net, net.Gather(x, net.Constant(value_int=-1), axis=1), "head"))


ARCHITECTURES = (
    Architecture(
        "siglip_text",
        "SigLIP text encoder",
        ("siglip_text_model",),
        ("siglip_text",),
        KEYS,
        (*text_weights("text_model."), *matrix("head", "text_model.head", "head", shape=("projection", "hidden"))),
        encoder_tasks(build, (Head(FEATURE_EXTRACTION, vectors, aliases=("hidden",)),)),
        prefixes=("text_model.",),
        ignored=(r"position_ids$",),
    ),
)
