"""MPNet (Song et al. 2020, arXiv:2004.09297): BERT with RoBERTa's positions and a relative position bias that all
layers share."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key, Weight
from ...runtime.contract.hyperparameter import COUNT, Integer
from ...runtime.ir.graph import Value
from ..layers.encoder import Encoder, bert_embeddings, classify_first, masked_lm, post_norm_layer
from ..layers.relative_position import position_bias
from ..pipelines.encoder_tasks import ANSWERS, FEATURES, TOKENS, Head, encoder_tasks, sequence_head
from ..schema.encoder_hyperparameters import ENCODER, FILL_MASK
from ..schema.encoder_weights import DENSE_CLASSIFIER, embeddings, masked_lm_head, norm, pooler
from ..schema.hyperparameters import INTERMEDIATE, act, matrix

PAD = 1
"""Index of the padding token, which models of this family do not choose."""
FARTHEST = 128
"""Distance from which on all keys share the last bucket."""
KEYS = (
    *ENCODER,
    INTERMEDIATE,
    act("gelu"),
    Key("buckets", "relative_attention_num_buckets", (), 32, Integer(4, 2 * FARTHEST, 4)),
    Key("first_position", (), (), PAD + 1, COUNT),
)
HF, NAME, SQUARE = "mpnet.encoder.layer.{i}.", "layers.{i}.", ("hidden", "hidden")
WEIGHTS = (
    *embeddings("mpnet."),
    Weight("bias.weight", "mpnet.encoder.relative_attention_bias.weight", shape=("buckets", "heads")),
    *matrix(f"{NAME}attn.q", f"{HF}attention.attn.q", None, shape=SQUARE),
    *matrix(f"{NAME}attn.k", f"{HF}attention.attn.k", None, shape=SQUARE),
    *matrix(f"{NAME}attn.v", f"{HF}attention.attn.v", None, shape=SQUARE),
    *matrix(f"{NAME}attn.o", f"{HF}attention.attn.o", None, shape=SQUARE),
    *norm(f"{NAME}attn_norm", f"{HF}attention.LayerNorm"),
    *matrix(f"{NAME}mlp.up", f"{HF}intermediate.dense", None, shape=("intermediate", "hidden")),
    *matrix(f"{NAME}mlp.down", f"{HF}output.dense", None, shape=("hidden", "intermediate")),
    *norm(f"{NAME}mlp_norm", f"{HF}output.LayerNorm"),
    *pooler("mpnet.pooler.dense"),
)
LM_HEAD = masked_lm_head("lm_head.dense", "lm_head.layer_norm", ("lm_head.bias",), "lm_head.decoder.weight")


def build(net: Encoder) -> Value:
    """Embeddings, then post-norm layers with the bias added to all scores."""
    net.begin()
    x = bert_embeddings(net, net.positions_past_padding(PAD))
    mask = net.Add(position_bias(net, net.distances(), "bias", FARTHEST), net.hidden_scores())
    for i in range(net.config.layers):
        x = post_norm_layer(net, x, f"layers.{i}", mask)
    return x


ARCHITECTURES = (
    Architecture(
        "mpnet",
        "MPNet",
        ("mpnet",),
        (),
        KEYS,
        WEIGHTS,
        encoder_tasks(
            build,
            (
                FEATURES,
                Head(FILL_MASK, lambda net, x: masked_lm(net, x, "gelu"), LM_HEAD),
                sequence_head(classify_first, DENSE_CLASSIFIER),
                TOKENS,
                ANSWERS,
            ),
        ),
        prefixes=("mpnet.",),
        ignored=(r"position_ids$", r"^lm_head\.decoder\."),
        tied=True,
    ),
)
