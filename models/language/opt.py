"""OPT (Zhang et al. 2022, arXiv:2205.01068) and Galactica (Taylor et al. 2022, arXiv:2211.09085): learned positions
that start at row 2. The 350M model has norms after each block, and token embeddings that are projected."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Key
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, flag
from ...runtime.ir.graph import Value
from ..generation.decoder_tasks import decoder_tasks
from ..layers.attention import self_attention
from ..layers.decoder import Decoder
from ..layers.linear import embedding, linear
from ..layers.mlp import plain
from ..layers.net import Net
from ..layers.norm import layer_norm
from ..schema.hyperparameters import DECODER, OWN_HEAD_DIM, act, matrix

FIRST_POSITION = 2
"""Row of the first token's position; the rows before are those of padding."""
KEYS = (
    *DECODER, Key("kv_heads", (), (), lambda config: config.heads), OWN_HEAD_DIM,
    Key("intermediate", "ffn_dim", (), kind=COUNT), act("relu", "activation_function"),
    Key("positions", (), (), lambda config: config.context + FIRST_POSITION),
    Key("embedded", "word_embed_proj_dim", (), lambda config: config.hidden, COUNT),
    Key("norm_first", "do_layer_norm_before", (), True, flag),
    Key("last_norm_removed", "_remove_final_layer_norm", (), False, flag),
    Key("eps", (), (), 1e-5, NOT_NEGATIVE),
)  # fmt: skip
HF, OURS = "model.decoder.layers.{i}.", "layers.{i}."
WEIGHTS = (
    *matrix("embed", "model.decoder.embed_tokens", None, shape=("vocab", "embedded")),
    *matrix("positions", "model.decoder.embed_positions", None, shape=("positions", "hidden")),
    *matrix("embed_in", "model.decoder.project_in", None, optional=True, shape=("hidden", "embedded")),
    *matrix(f"{OURS}attn_norm", f"{HF}self_attn_layer_norm", None, optional=True, shape=("hidden",)),
    *(
        row
        for part, theirs in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj"))
        for row in matrix(f"{OURS}attn.{part}", f"{HF}self_attn.{theirs}", None, shape=("hidden", "hidden"))
    ),
    *matrix(f"{OURS}mlp_norm", f"{HF}final_layer_norm", None, optional=True, shape=("hidden",)),
    *matrix(f"{OURS}mlp.up", f"{HF}fc1", None, shape=("intermediate", "hidden")),
    *matrix(f"{OURS}mlp.down", f"{HF}fc2", None, shape=("hidden", "intermediate")),
    *matrix("norm", "model.decoder.final_layer_norm", None, optional=True, shape=("hidden",)),
    *matrix("embed_out", "model.decoder.project_out", None, optional=True, shape=("embedded", "hidden")),
    *matrix("head", "lm_head", None, optional=True, shape=("vocab", "embedded")),
)


def build(net: Decoder) -> None:
    """Layers with norms before each block, or after it."""
    config = net.config
    first = config.norm_first
    x = net.begin()
    if config.embedded != config.hidden:
        x = linear(net, x, "embed_in")
    x = net.Add(x, embedding(net, net.Add(net.positions, net.Constant(value_int=FIRST_POSITION)), "positions"))
    for i in range(config.layers):
        name = f"layers.{i}"
        y = net.Add(x, self_attention(net, _norm(net, x, f"{name}.attn_norm") if first else x, i, None))
        y = y if first else _norm(net, y, f"{name}.attn_norm")
        x = net.Add(y, plain(net, _norm(net, y, f"{name}.mlp_norm") if first else y, f"{name}.mlp", config.act))
        x = x if first else _norm(net, x, f"{name}.mlp_norm")
    net.end(x, _last)


def _norm(net: Net, x: Value, name: str) -> Value:
    """Layer norm; Galactica's have no weights."""
    return layer_norm(net, x, name, net.config.eps, net.config.hidden)


def _last(net: Net, x: Value, name: str) -> Value:
    """The last norm, if the model has one, and the projection to the width of the embedding."""
    config = net.config
    x = _norm(net, x, name) if config.norm_first and not config.last_norm_removed else x
    return linear(net, x, "embed_out") if config.embedded != config.hidden else x


ARCHITECTURES = (
    Architecture(
        "opt",
        "OPT, Galactica",
        ("opt",),
        (),
        KEYS,
        WEIGHTS,
        decoder_tasks(build, "embedded"),
        tied=True,
        defaults={"opt": {"pad_token_id": 1}},
    ),
)
