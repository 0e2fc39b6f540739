"""Linear projector: two linear layers from an encoder's features to the embeddings of a language model (LLaVA, Mistral
3, Voxtral)."""

from __future__ import annotations

from ...runtime.contract.architecture import Weight
from .hyperparameters import matrix

PROJECTORS = ("multi_modal_projector", "model.multi_modal_projector")
"""Prefixes of its weights in files of transformers."""
HIDDEN = "text.hidden"
"""The hyper-parameter for the width of its result."""


def linear_projector(width: str, gguf: str | None = None) -> tuple[Weight, ...]:
    """``projector.linear_1`` and ``projector.linear_2``.

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
