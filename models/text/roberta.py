"""RoBERTa (Liu et al. 2019, arXiv:1907.11692) and XLM-RoBERTa (Conneau et al. 2019, arXiv:1911.02116): BERT whose
positions are counted past the padding; rerankers and multilingual sentence encoders."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, bert_embeddings, classify_first, masked_lm, post_norm_layer
from ..pipelines.encoder_tasks import ANSWERS, FEATURES, TOKENS, Head, encoder_tasks, sequence_head
from ..schema.encoder_hyperparameters import BERT, FILL_MASK
from ..schema.encoder_weights import DENSE_CLASSIFIER, bert_layers, embeddings, masked_lm_head, pooler

LM_HEAD = masked_lm_head("lm_head.dense", "lm_head.layer_norm", ("lm_head.bias", "lm_head.decoder.bias"))
WEIGHTS = (*embeddings("roberta."), *bert_layers("roberta."), *pooler("roberta.pooler.dense"))


def build(net: Encoder) -> Value:
    """Embeddings, then post-norm layers."""
    net.begin(types=net.config.types > 1)
    x = bert_embeddings(net, net.positions_past_padding(net.config.pad))
    for i in range(net.config.layers):
        x = post_norm_layer(net, x, f"layers.{i}")
    return x


TASKS = encoder_tasks(
    build,
    (
        FEATURES,
        Head(FILL_MASK, lambda net, x: masked_lm(net, x, "gelu"), LM_HEAD),
        sequence_head(classify_first, DENSE_CLASSIFIER),
        TOKENS,
        ANSWERS,
    ),
)
ARCHITECTURES = (
    Architecture(
        "roberta",
        "RoBERTa, XLM-RoBERTa",
        ("roberta", "xlm-roberta", "camembert"),
        (),
        BERT,
        WEIGHTS,
        TASKS,
        prefixes=("roberta.",),
        ignored=(r"position_ids$", r"^lm_head\.decoder\."),
    ),
)
