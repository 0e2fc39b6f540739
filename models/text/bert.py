"""BERT (Devlin et al. 2018, arXiv:1810.04805) and sentence encoders of its architecture: MiniLM, BGE, E5, GTE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import Architecture
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, bert_embeddings, classify_pooled, masked_lm, post_norm_layer
from ..pipelines.encoder_tasks import ANSWERS, FEATURES, TOKENS, Head, encoder_tasks, sequence_head
from ..schema.encoder_hyperparameters import BERT, BERT_BASE, FILL_MASK, of_class, settle_gguf
from ..schema.encoder_weights import GGUF_CLASSIFIER, bert_layers, embeddings, masked_lm_head, pooler

LM_HEAD = masked_lm_head(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    ("cls.predictions.bias", "cls.predictions.decoder.bias"),
    "cls.predictions.decoder.weight",
)
WEIGHTS = (*embeddings("bert."), *bert_layers("bert."), *pooler("bert.pooler.dense", "cls"), *GGUF_CLASSIFIER)


def build(net: Encoder) -> Value:
    """Embeddings, then post-norm layers."""
    net.begin(types=net.config.types > 1)
    x = bert_embeddings(net, net.positions())
    for i in range(net.config.layers):
        x = post_norm_layer(net, x, f"layers.{i}")
    return x


def accepts(source: Mapping[str, Any]) -> bool:
    """Whether a configuration is BERT's, or a GGUF file has its vocabulary; those of other kinds are RoBERTa's."""
    plain = source.get("position_embedding_type", "absolute") == "absolute"
    return plain and source.get("tokenizer.ggml.model", "bert") == "bert"


ARCHITECTURES = (
    Architecture(
        "bert",
        "BERT",
        ("bert", "chinese_clip_text_model"),
        ("bert",),
        of_class("Bert", BERT),
        WEIGHTS,
        encoder_tasks(
            build, (FEATURES, Head(FILL_MASK, masked_lm, LM_HEAD), sequence_head(classify_pooled), TOKENS, ANSWERS)
        ),
        accepts=accepts,
        settle=settle_gguf,
        prefixes=("bert.",),
        ignored=(r"position_ids$", r"^cls\.seq_relationship\.", r"^cls\.predictions\.decoder\."),
        tied=True,
        defaults={"bert": BERT_BASE},
    ),
)
