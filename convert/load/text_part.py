"""The text part of a multimodal checkpoint: the weights of its language model, and the configuration of these.

config.json of such a checkpoint has the language model's in the object ``text_config``. Its weights stand below a
prefix, besides those of encoders of images and audio, which are left out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from typing import Any

from ...models.schema.language_part import HEADS, LANGUAGE_MODEL
from ...runtime.base.units import counted
from ...runtime.contract.architecture import Architecture
from ...runtime.contract.part_binding import inner_names
from ...runtime.contract.weight_binding import TIED, is_tied, named_model_type
from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Held
from ..open.prequantized import CONFIG, NESTED, configuration

FLAT = {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text"}
"""Models whose older files state the language model's configuration without an object of its own: its `model_type`."""
OUTER = (
    "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype", "dtype", "is_causal",
    "latent_attention_config", "is_mask_instruction",
)  # fmt: skip
"""Keys of the whole model that hold for the language model, unless its own configuration has them."""
OWN_CLASSES = ("ForSequenceClassification", "Model")
"""Ends of classes, other than those that generate text, that the language model has in common with the whole."""


def text_part(graph: Graph, *, text_only: bool = False) -> Graph:
    """The language model of a multimodal checkpoint as a graph of its own, with a note of what is left out; `graph`
    itself for every other model, and for multimodal ones that an architecture describes whole.

    Args:
        text_only: whether the text part is wanted of these too, unless GGUF has names for the whole.
    """
    stated = None if graph.nodes else configuration(graph)
    nested = _language_model(stated or {})
    whole = _known((stated or {}).get("model_type"), stated)
    described = whole is not None and bool((whole.gguf and not whole.mmproj) or not text_only)
    if stated is None or not isinstance(nested, Mapping) or described:
        return graph
    kind = nested.get("model_type")
    names = inner_names(LANGUAGE_MODEL, graph.weights)
    architecture = _known(kind)
    if architecture is None or all(name.startswith(HEADS) for name in names):
        return graph
    made = dataclasses.replace(
        graph,
        weights={inner: graph.weights[name] for name, inner in names.items()},
        attachments=dict(graph.attachments),
        notes=list(graph.notes),
    )
    config = {**_outer(stated), **architecture.completed(nested, nested=True)}
    if TIED in stated or whole is not None:
        config[TIED] = is_tied(stated, nested, False if whole is None else whole.tied)
    made.attachments[CONFIG] = Held(json.dumps(config, indent=2, ensure_ascii=False).encode())
    left = [name for name in graph.weights if name not in names]
    if left:
        made.note("W-ARCH-TEXT", _told(stated, graph, left))
    return made


def _language_model(stated: Mapping[str, Any]) -> Any:
    """The configuration of the language model, None if it is not stated."""
    kind = stated.get("model_type")
    if NESTED in stated or kind not in FLAT:
        return stated.get(NESTED)
    return {**{key: value for key, value in stated.items() if key != "architectures"}, "model_type": FLAT[kind]}


def outer_names(names: Collection[str]) -> dict[str, str]:
    """The names in a multimodal checkpoint, by those that `text_part` gives."""
    return {inner: name for name, inner in inner_names(LANGUAGE_MODEL, names).items()}


def _known(kind: Any, source: Mapping[str, Any] | None = None) -> Architecture | None:
    return named_model_type(kind, source) if isinstance(kind, str) else None


def _outer(stated: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: stated[key] for key in OUTER if key in stated}
    classes = stated.get("architectures")
    if isinstance(classes, list) and classes and str(classes[0]).endswith(OWN_CLASSES):
        found["architectures"] = classes
    return found


def _told(stated: Mapping[str, Any], graph: Graph, left: list[str]) -> str:
    nbytes = sum(graph.weights[name].nbytes for name in left)
    parts = sorted({name.removeprefix("model.").split(".")[0] for name in left})
    what = f"{counted(len(left), 'weight')} of {', '.join(parts)} ({counted(nbytes, 'byte')}) are skipped"
    return f"only the text part of {stated.get('model_type')} is used; {what}"
