"""RoBERTa (Liu et al. 2019, arXiv:1907.11692) and XLM-RoBERTa (Conneau et al. 2019, arXiv:1911.02116): BERT whose
positions are counted past the padding; rerankers and multilingual sentence encoders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.contract.architecture import GGUF, Architecture, Config, Key
from ...runtime.contract.hyperparameter import COUNT
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, bert_embeddings, classify_first, masked_lm, post_norm_layer
from ..pipelines.encoder_tasks import ANSWERS, FEATURES, TOKENS, Head, encoder_tasks, sequence_head
from ..schema.encoder_hyperparameters import BERT, BERT_BASE, CONTEXT, FILL_MASK, PAD, of_class, settle_gguf
from ..schema.encoder_weights import DENSE_CLASSIFIER, GGUF_CLASSIFIER, bert_layers, embeddings, masked_lm_head, pooler
from ..schema.hyperparameters import matrix
from ..schema.weight_layout import RowsFrom

LM_HEAD = masked_lm_head(
    "lm_head.dense", "lm_head.layer_norm", ("lm_head.bias", "lm_head.decoder.bias"), "lm_head.decoder.weight"
)
PADDING = replace(PAD, default=lambda config: 1 if config.names == GGUF else 0)


@dataclass(frozen=True)
class PositionsPastPadding(Key):
    """Hyper-parameter: rows of the position embedding. GGUF files have those after the padding token's."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Any:
        return super().read(names, source, config) + (first_position(config) if names == GGUF else 0)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        cut = first_position(config) if names == GGUF else 0
        return {key: value - cut for key, value in super().write(names, config).items()}


def first_position(config: Config) -> int:
    """Index of the first token's row in the position embedding."""
    return int(config.pad) + 1


KEYS = (
    PADDING,
    *(
        PositionsPastPadding(row.name, row.hf, row.gguf, row.default, row.kind) if row is CONTEXT else row
        for row in of_class("Roberta", BERT)
        if row is not PAD
    ),
    Key("first_position", (), (), first_position, COUNT),
)
WEIGHTS = (
    *embeddings("roberta.", gguf_positions=RowsFrom(first_position)),
    *bert_layers("roberta."),
    *pooler("roberta.pooler.dense"),
    *matrix("classifier_dense", (), "cls", shape=("hidden", "hidden"), optional=True),
    *GGUF_CLASSIFIER,
)


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
        ("bert",),
        KEYS,
        WEIGHTS,
        TASKS,
        accepts=lambda source: "model_type" in source or source.get("tokenizer.ggml.model", "bert") != "bert",
        settle=settle_gguf,
        prefixes=("roberta.",),
        ignored=(r"position_ids$", r"^lm_head\.decoder\."),
        tied=True,
        defaults={kind: {**BERT_BASE, "pad_token_id": 1} for kind in ("camembert", "roberta", "xlm-roberta")},
    ),
)
