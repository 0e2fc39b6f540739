"""DistilBERT (Sanh et al. 2019, arXiv:1910.01108): BERT with half the layers and without segments."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, bert_embeddings, classify_first, masked_lm, post_norm_layer
from ..pipelines.encoder_tasks import ANSWERS, FEATURES, TOKENS, Head, encoder_tasks, sequence_head
from ..schema.encoder_hyperparameters import ENCODER, FILL_MASK
from ..schema.encoder_weights import classifier, embeddings, masked_lm_head, norm
from ..schema.hyperparameters import act, matrix

KEYS = (
    *ENCODER,
    Key("intermediate", "hidden_dim", "feed_forward_length", kind=COUNT),
    act("gelu", "activation"),
    Key("types", (), (), 1),
)
HF, GGUF, NAME, SQUARE = "distilbert.transformer.layer.{i}.", "blk.{i}.", "layers.{i}.", ("hidden", "hidden")
WEIGHTS = (
    *embeddings("distilbert."),
    *matrix(f"{NAME}attn.q", f"{HF}attention.q_lin", f"{GGUF}attn_q", shape=SQUARE),
    *matrix(f"{NAME}attn.k", f"{HF}attention.k_lin", f"{GGUF}attn_k", shape=SQUARE),
    *matrix(f"{NAME}attn.v", f"{HF}attention.v_lin", f"{GGUF}attn_v", shape=SQUARE),
    *matrix(f"{NAME}attn.o", f"{HF}attention.out_lin", f"{GGUF}attn_output", shape=SQUARE),
    *norm(f"{NAME}attn_norm", f"{HF}sa_layer_norm", f"{GGUF}attn_output_norm"),
    *matrix(f"{NAME}mlp.up", f"{HF}ffn.lin1", f"{GGUF}ffn_up", shape=("intermediate", "hidden")),
    *matrix(f"{NAME}mlp.down", f"{HF}ffn.lin2", f"{GGUF}ffn_down", shape=("hidden", "intermediate")),
    *norm(f"{NAME}mlp_norm", f"{HF}output_layer_norm", f"{GGUF}layer_output_norm"),
)
LM_HEAD = masked_lm_head("vocab_transform", "vocab_layer_norm", ("vocab_projector.bias",), "vocab_projector.weight")
CLASSIFIER = (*matrix("classifier_dense", "pre_classifier", None, shape=SQUARE), *classifier())


def build(net: Encoder) -> Value:
    """Embeddings, then post-norm layers."""
    net.begin()
    x = bert_embeddings(net, net.positions())
    for i in range(net.config.layers):
        x = post_norm_layer(net, x, f"layers.{i}")
    return x


ARCHITECTURES = (
    Architecture(
        "distilbert",
        "DistilBERT",
        ("distilbert",),
        ("bert",),
        KEYS,
        WEIGHTS,
        encoder_tasks(
            build,
            (
                FEATURES,
                Head(FILL_MASK, masked_lm, LM_HEAD),
                sequence_head(lambda net, x: classify_first(net, x, "relu"), CLASSIFIER),
                TOKENS,
                ANSWERS,
            ),
        ),
        accepts=lambda source: "model_type" in source,
        prefixes=("distilbert.",),
        ignored=(r"position_ids$", r"^vocab_projector\.weight$"),
        tied=True,
    ),
)
