"""ELECTRA (Clark et al. 2020, arXiv:2003.10555): BERT trained to find replaced tokens, with embeddings that may be
narrower than its layers."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, bert_embeddings, classify_first, masked_lm, post_norm_layer
from ..layers.linear import linear
from ..pipelines.encoder_tasks import ANSWERS, FEATURES, TOKENS, Head, encoder_tasks, sequence_head
from ..schema.encoder_hyperparameters import BERT, FILL_MASK
from ..schema.encoder_weights import DENSE_CLASSIFIER, bert_layers, embeddings, masked_lm_head
from ..schema.hyperparameters import matrix

KEYS = (*BERT, Key("width", "embedding_size", (), lambda config: config.hidden, COUNT))
WEIGHTS = (
    *embeddings("electra.", width="width"),
    *matrix("project", "electra.embeddings_project", None, shape=("hidden", "width"), optional=True),
    *bert_layers("electra."),
)
LM_HEAD = masked_lm_head(
    "generator_predictions.dense",
    "generator_predictions.LayerNorm",
    ("generator_lm_head.bias",),
    "generator_lm_head.weight",
    width="width",
)


def build(net: Encoder) -> Value:
    """Embeddings, widened where they are narrower than the layers, then post-norm layers."""
    net.begin(types=net.config.types > 1)
    x = bert_embeddings(net, net.positions())
    x = linear(net, x, "project") if net.has("project.weight") else x
    for i in range(net.config.layers):
        x = post_norm_layer(net, x, f"layers.{i}")
    return x


ARCHITECTURES = (
    Architecture(
        "electra",
        "ELECTRA",
        ("electra",),
        (),
        KEYS,
        WEIGHTS,
        encoder_tasks(
            build,
            (
                FEATURES,
                Head(FILL_MASK, lambda net, x: masked_lm(net, x, "gelu"), LM_HEAD),
                sequence_head(lambda net, x: classify_first(net, x, "gelu"), DENSE_CLASSIFIER),
                TOKENS,
                ANSWERS,
            ),
        ),
        prefixes=("electra.",),
        ignored=(r"position_ids$", r"^generator_lm_head\.weight$", r"^discriminator_predictions\."),
        tied=True,
        defaults={
            "electra": {
                "embedding_size": 128,
                "hidden_size": 256,
                "intermediate_size": 1024,
                "num_attention_heads": 4,
                "num_hidden_layers": 12,
            }
        },
    ),
)
