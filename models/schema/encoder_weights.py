"""Weight bindings that text encoders share: embeddings, layers and heads as transformers' BERT names them."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.contract.architecture import SAME, Config, Layout, Stored, Weight
from .hyperparameters import matrix


def norm(
    name: str, hf: str | tuple[str, ...], gguf: str | None = None, *, shape: str = "hidden"
) -> tuple[Weight, Weight]:
    """Bindings of a layer norm, by any of Hugging Face's names; checkpoints converted from TensorFlow name its tensors
    ``gamma`` and ``beta``. `gguf` is None if GGUF files do not store it."""
    names = (hf,) if isinstance(hf, str) else hf
    scales, shifts = (
        tuple(f"{each}.{kind}" for each in names for kind in kinds) for kinds in (("weight", "gamma"), ("bias", "beta"))
    )
    stored = ((), ()) if gguf is None else (f"{gguf}.weight", f"{gguf}.bias")
    return (
        Weight(f"{name}.weight", scales, stored[0], shape=(shape,)),
        Weight(f"{name}.bias", shifts, stored[1], shape=(shape,)),
    )


def embeddings(prefix: str, *, width: str = "hidden", gguf_positions: Layout = SAME) -> tuple[Weight, ...]:
    """Bindings of token, position and segment embeddings, and of the norm after their sum.

    Args:
        prefix: of Hugging Face's names, such as ``bert.``.
        width: the hyper-parameter that says how wide embeddings are.
        gguf_positions: how GGUF files store the position embedding.
    """
    hf = f"{prefix}embeddings."
    return (
        Weight("embed.weight", f"{hf}word_embeddings.weight", "token_embd.weight", shape=("vocab", width)),
        Weight(
            "positions.weight",
            f"{hf}position_embeddings.weight",
            Stored(("position_embd.weight",), gguf_positions),
            shape=("context", width),
            optional=True,
        ),
        Weight(
            "types.weight",
            f"{hf}token_type_embeddings.weight",
            "token_types.weight",
            shape=("types", width),
            optional=True,
        ),
        *norm("embed_norm", f"{hf}LayerNorm", "token_embd_norm", shape=width),
    )


def bert_layers(prefix: str) -> tuple[Weight, ...]:
    """Bindings of the layers; `prefix` of Hugging Face's names, such as ``bert.``."""
    hf, gguf, name = f"{prefix}encoder.layer.{{i}}.", "blk.{i}.", "layers.{i}."
    square = ("hidden", "hidden")
    return (
        *matrix(f"{name}attn.q", f"{hf}attention.self.query", f"{gguf}attn_q", shape=square),
        *matrix(f"{name}attn.k", f"{hf}attention.self.key", f"{gguf}attn_k", shape=square),
        *matrix(f"{name}attn.v", f"{hf}attention.self.value", f"{gguf}attn_v", shape=square),
        *matrix(f"{name}attn.o", f"{hf}attention.output.dense", f"{gguf}attn_output", shape=square),
        *norm(f"{name}attn_norm", f"{hf}attention.output.LayerNorm", f"{gguf}attn_output_norm"),
        *matrix(f"{name}mlp.up", f"{hf}intermediate.dense", f"{gguf}ffn_up", shape=("intermediate", "hidden")),
        *matrix(f"{name}mlp.down", f"{hf}output.dense", f"{gguf}ffn_down", shape=("hidden", "intermediate")),
        *norm(f"{name}mlp_norm", f"{hf}output.LayerNorm", f"{gguf}layer_output_norm"),
    )


def pooler(hf: str, gguf: str | None = None) -> tuple[Weight, ...]:
    """Bindings of the layer that summarizes a text by its first token."""
    return matrix("pooler", hf, gguf, shape=("hidden", "hidden"), optional=True)


def own_head(hf: str, width: str = "hidden", when: Callable[[Config, int], bool] | None = None) -> Weight:
    """Binding of the matrix that predicts masked tokens where it is not the embedding."""
    shape = ("vocab", width)
    return Weight("lm.head.weight", hf, shape=shape, optional=True, when=when, repeats="embed.weight")


def masked_lm_head(
    dense: str | tuple[str, ...],
    norm_name: str | tuple[str, ...],
    bias: tuple[str, ...],
    own: str,
    *,
    width: str = "hidden",
    when: Callable[[Config, int], bool] | None = None,
) -> tuple[Weight, ...]:
    """Bindings of the head that predicts masked tokens: a dense layer, a norm, and the embedding, or a matrix of the
    head's own, with a bias.

    Args:
        dense, norm_name, bias, own: Hugging Face's names; `bias`, and `own` of the matrix, in full.
        width: the hyper-parameter that says how wide embeddings are.
        when: whether a model may have a matrix of the head's own.
    """
    return (
        *matrix("lm.dense", dense, None, shape=(width, "hidden")),
        *norm("lm.norm", norm_name, shape=width),
        own_head(own, width, when),
        Weight("lm.bias", bias, shape=("vocab",), optional=True),
        Weight(
            "lm.head.bias",
            f"{own.removesuffix('.weight')}.bias",
            shape=("vocab",),
            when=when,
            optional=True,
            repeats="lm.bias",
        ),
    )


def classifier(hf: str = "classifier") -> tuple[Weight, ...]:
    """Bindings of the layer that gives a score to each label."""
    return matrix("classifier", hf, None, shape=("labels", "hidden"))


CLASSIFIER = classifier()
DENSE_CLASSIFIER = (
    *matrix("classifier_dense", "classifier.dense", None, shape=("hidden", "hidden")),
    *classifier("classifier.out_proj"),
)
"""A classifier with a hidden layer on the first token."""
GGUF_CLASSIFIER = matrix("classifier", (), "cls.output", shape=("labels", "hidden"), optional=True)
"""The classifier in GGUF files, which do not state the task."""
SPANS = matrix("spans", "qa_outputs", None, shape=(2, "hidden"))
"""The layer that scores each token as start and as end of an answer."""
