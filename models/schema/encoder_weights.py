"""Weight bindings that text encoders share: embeddings, layers and heads as transformers' BERT names them."""

from __future__ import annotations

from ...runtime.contract.architecture import Weight
from .hyperparameters import matrix


def norm(name: str, hf: str | tuple[str, ...], *, shape: str = "hidden") -> tuple[Weight, Weight]:
    """Bindings of a layer norm, by any of Hugging Face's names; checkpoints converted from TensorFlow name its tensors
    ``gamma`` and ``beta``."""
    names = (hf,) if isinstance(hf, str) else hf
    scales, shifts = (
        tuple(f"{each}.{kind}" for each in names for kind in kinds) for kinds in (("weight", "gamma"), ("bias", "beta"))
    )
    return Weight(f"{name}.weight", scales, shape=(shape,)), Weight(f"{name}.bias", shifts, shape=(shape,))


def embeddings(prefix: str, *, width: str = "hidden") -> tuple[Weight, ...]:
    """Bindings of token, position and segment embeddings, and of the norm behind their sum.

    Args:
        prefix: of Hugging Face's names, such as ``bert.``.
        width: the hyper-parameter that says how wide embeddings are.
    """
    hf = f"{prefix}embeddings."
    return (
        Weight("embed.weight", f"{hf}word_embeddings.weight", shape=("vocab", width)),
        Weight("positions.weight", f"{hf}position_embeddings.weight", shape=("context", width), optional=True),
        Weight("types.weight", f"{hf}token_type_embeddings.weight", shape=("types", width), optional=True),
        *norm("embed_norm", f"{hf}LayerNorm", shape=width),
    )


def bert_layers(prefix: str) -> tuple[Weight, ...]:
    """Bindings of the layers; `prefix` of Hugging Face's names, such as ``bert.``."""
    hf, name = f"{prefix}encoder.layer.{{i}}.", "layers.{i}."
    square = ("hidden", "hidden")
    return (
        *matrix(f"{name}attn.q", f"{hf}attention.self.query", None, shape=square),
        *matrix(f"{name}attn.k", f"{hf}attention.self.key", None, shape=square),
        *matrix(f"{name}attn.v", f"{hf}attention.self.value", None, shape=square),
        *matrix(f"{name}attn.o", f"{hf}attention.output.dense", None, shape=square),
        *norm(f"{name}attn_norm", f"{hf}attention.output.LayerNorm"),
        *matrix(f"{name}mlp.up", f"{hf}intermediate.dense", None, shape=("intermediate", "hidden")),
        *matrix(f"{name}mlp.down", f"{hf}output.dense", None, shape=("hidden", "intermediate")),
        *norm(f"{name}mlp_norm", f"{hf}output.LayerNorm"),
    )


def pooler(hf: str) -> tuple[Weight, ...]:
    """Bindings of the layer that summarizes a text by its first token."""
    return matrix("pooler", hf, None, shape=("hidden", "hidden"), optional=True)


def masked_lm_head(
    dense: str | tuple[str, ...], norm_name: str | tuple[str, ...], bias: tuple[str, ...], *, width: str = "hidden"
) -> tuple[Weight, ...]:
    """Bindings of the head that predicts masked tokens: a dense layer, a norm, and the tied embedding with a bias.

    Args:
        dense, norm_name, bias: Hugging Face's names; `bias` in full.
        width: the hyper-parameter that says how wide embeddings are.
    """
    return (
        *matrix("lm.dense", dense, None, shape=(width, "hidden")),
        *norm("lm.norm", norm_name, shape=width),
        Weight("lm.bias", bias, shape=("vocab",), optional=True),
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
SPANS = matrix("spans", "qa_outputs", None, shape=(2, "hidden"))
"""The layer that scores each token as start and as end of an answer."""
