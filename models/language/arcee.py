"""AFM (Arcee): a Llama variant with ungated ReLU-squared feed-forward networks."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.mlp import plain
from ..layers.norm import norm
from ..layers.rope import Rotary, Scaling
from ..schema.decoder_weights import ATTN_NORM, EMBED, HEAD, MLP_NORM, NORM, UNGATED, attention
from ..schema.gguf.deviations import BIAS, Unread
from ..schema.hyperparameters import DECODER, HEADS, INTERMEDIATE, RMS_EPS_5, THETA, TOKENS, WHOLE_ROTARY, act

KEYS = (*DECODER, *HEADS, INTERMEDIATE, RMS_EPS_5, THETA, Scaling(), act("relu2"), WHOLE_ROTARY, TOKENS)
WEIGHTS = (*EMBED, *ATTN_NORM, *attention(pairs=True), *MLP_NORM, *UNGATED, *NORM, *HEAD)


def build(net: Decoder) -> None:
    """Pre-norm layers: attention with rotary embedding, then an ungated feed-forward network."""
    config = net.config
    rotary = Rotary(config.rotary, config.theta, config.scaling, config.context)
    x = net.begin()
    for i in range(config.layers):
        x = net.Add(x, self_attention(net, norm(net, x, f"layers.{i}.attn_norm"), i, rotary))
        x = net.Add(x, plain(net, norm(net, x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp", config.act))
    net.end(x, norm)


ARCHITECTURES = (
    Architecture(
        "arcee",
        "AFM",
        ("arcee",),
        ("arcee",),
        KEYS,
        WEIGHTS,
        decoder_tasks(build),
        deviations=(Unread(BIAS),),
        defaults={"arcee": {"max_position_embeddings": 4096}},
    ),
)
