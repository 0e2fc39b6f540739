"""The language model inside multimodal models, as a part that all of them have, and the linear projector before it."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.contract.architecture import Below, Part, Weight
from .hyperparameters import matrix

PREFIXES = (
    "model.language_model.", "model.text_model.", "language_model.model.", "language_model.", "embedding_model.",
)  # fmt: skip
"""Prefixes of its weights in place of ``model.``; files of transformers 5 have the first one."""
PLAIN = ("model.embed_tokens.", "model.layers.", "model.norm.")
"""Prefixes of other weights where the language model keeps its own names, as in Qwen2-VL."""
HEADS = ("lm_head.", "score.", "latent_attention_model.")
"""Prefixes of weights outside ``model.``."""
PROJECTORS = ("multi_modal_projector", "model.multi_modal_projector")
"""Prefixes of its weights in files of transformers."""
HIDDEN = "text.hidden"
"""The hyper-parameter for the width of its result."""
LANGUAGE_MODEL = Part(
    None,
    "text_config",
    (
        *(Below(name, name) for name in HEADS),
        *(Below(prefix + name, name) for prefix in PREFIXES for name in HEADS),
        *(Below(prefix, "model.") for prefix in PREFIXES),
        *(Below(name, name) for name in PLAIN),
    ),
)
"""A language model whose configuration is an object of config.json, and names its architecture."""


def language_model_below(prefix: str) -> Part:
    """The language model, whose weights are written below one of `PREFIXES`."""
    first = Below(prefix, "model.")
    others = tuple(below for below in LANGUAGE_MODEL.weights if below != first)
    return replace(LANGUAGE_MODEL, weights=(first, *others))


def linear_projector(width: str, gguf: str | None = None) -> tuple[Weight, ...]:
    """``projector.linear_1`` and ``projector.linear_2``, from an encoder's features to embeddings (LLaVA, Mistral 3,
    Voxtral).

    Args:
        width: the hyper-parameter for the width of the features.
        gguf: prefix of the layers in GGUF files of the model, None where these do not store them.
    """
    return tuple(
        row
        for layer, size in (("linear_1", width), ("linear_2", HIDDEN))
        for row in matrix(
            f"projector.{layer}",
            tuple(f"{prefix}.{layer}" for prefix in PROJECTORS),
            None if gguf is None else f"{gguf}.{layer}",
            shape=(HIDDEN, size),
        )
    )
