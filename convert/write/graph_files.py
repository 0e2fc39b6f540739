"""Files of a model with several graphs: one for each, called as Optimum and Transformers.js call them."""

from __future__ import annotations

from ...runtime.contract.architecture import MODEL
from ...runtime.ir.graph import Graph

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


SWITCH, MERGED = "use_cache_branch", "_merged"
"""The input of a decoder that computes with and without a cache, and what Optimum appends to the name of its file."""


def stem(name: str, graph: Graph) -> str:
    """The name, without suffix, of the file that holds a graph of a model.

    Args:
        name: of the graph in its task.
        graph: with its nodes.
    """
    merged = any(value.name == SWITCH for value in graph.inputs)
    return f"{STEMS.get(name, name)}{MERGED if merged else ''}"
