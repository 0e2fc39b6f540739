"""Multimodal language models in ONNX files, as Transformers.js has them: the rules of prompts are those of the family
that config.json names."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....runtime.base.errors import UsageError
from ....runtime.contract.architecture import HF, RunOptions
from ....runtime.contract.composition import architecture_of, with_part
from ....runtime.contract.graph_files import GraphFiles, Signature
from ....runtime.contract.part_rows import stated_of
from ....runtime.contract.weight_binding import find_architecture
from ....runtime.ir.graph import Graph
from ..labels import configured
from .multimodal_tasks import IMAGE_TEXT, MultimodalRunner

PIXELS, IDS, EMBEDS = frozenset({"pixel_values"}), frozenset({"input_ids"}), frozenset({"inputs_embeds"})
DEEPSTACK = "deepstack_features."
"""Prefix of the names of features that are added after layers of the decoder."""
COUNTED = frozenset({"attention_mask", "position_ids", "input_ids"})


def run_exported(graphs: Mapping[str, Graph], options: RunOptions, *, kind: type[Any], task: str) -> Any:
    """The graphs as a model. UsageError if config.json is not of a family that makes such prompts.

    Args:
        kind: the class that runs the first task of such families.
        task: its name.
    """
    source = configured(options)
    if "model_type" not in source:
        hint = "Put the model's config.json into the folder"
        raise UsageError("E-CONFIG-NONE", None, "no config.json: the model's placeholders are unknown", hint=hint)
    path = options.source.files[0] if options.source is not None and options.source.files else None
    architecture = find_architecture(HF, source, path)
    for name, part in architecture.parts.items():
        own = architecture_of(part) or find_architecture(HF, stated_of(part, HF, source), path)
        architecture = with_part(architecture, name, replace(part, architecture=own), None)
    run = architecture.tasks[0].run if architecture.tasks else None
    if not isinstance(run, kind):
        why = f"the graphs are of a model for {task}, and {architecture.title} is none"
        raise UsageError("E-ARCH-TASK", path, why, hint="Check that config.json belongs to the model")
    config = architecture.config(HF, source, path)
    return run(graphs, replace(options, config=config, task=task))


GRAPH_FILES = GraphFiles(
    IMAGE_TEXT,
    {
        "vision_encoder": Signature(PIXELS, frozenset(), frozenset({"grid_thw", "image_grid_thw"})),
        "embed_tokens": Signature(IDS, EMBEDS),
        "decoder_model_merged": Signature(EMBEDS, frozenset({"logits"}), COUNTED, ("past_", DEEPSTACK)),
    },
    functools.partial(run_exported, kind=MultimodalRunner, task=IMAGE_TEXT),
)
