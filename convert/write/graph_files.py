"""Files of a model with several graphs: one for each, called as Optimum and Transformers.js call them."""

from __future__ import annotations

from ...runtime.contract.architecture import MODEL

STEMS = {
    MODEL: "model",
    "encoder": "encoder_model",
    "decoder": "decoder_model",
    "decoder_with_past": "decoder_with_past_model",
    "text": "text_model",
    "vision": "vision_model",
}
"""File names, without suffix, of graphs that Optimum does not call as we do; others have the graph's own name, such as
``vision_encoder``, ``embed_tokens``, ``text_encoder`` and ``vae_decoder``."""


def stem(name: str) -> str:
    """The name, without suffix, of the file that holds a graph of a model."""
    return STEMS.get(name, name)
