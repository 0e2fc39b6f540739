"""Folders of models: a single file becomes one and one becomes a single file; adapters of the whole, files next to the
parts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from ...models.tokenizer.readers.locate import settings
from ...runtime.contract.architecture import Architecture
from ...runtime.contract.format import Format
from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Held, Storage
from ..open import model_files
from ..open.diffusion import single_file
from ..open.diffusion.picture_lora import merge_files
from .conversion_options import Options
from .plan_checks import refuse_graphs

CONFIG = "config.json"
DIFFUSERS_STEM = "diffusion_pytorch_model"
FOLDERS = ("safetensors", "pytorch")
"""Formats of weights in which models that are made of several are written."""


def _holds_parts(graph: Graph, format: Format) -> bool:
    """Whether a model that is made of several is written in a format: as graphs, pipelines are."""
    return format.name in FOLDERS or (format.graphs and model_files.MODEL_INDEX in graph.attachments)


def laid_out(graph: Graph, format: Format, output: Path, beside: bool) -> Graph:
    """A single file as a folder of models where that is written, and a folder as a single file elsewhere.

    Args:
        beside: whether the output is a model directory.
    """
    folder = beside and _holds_parts(graph, format)
    graph = single_file.split(graph) if folder else as_file(graph, format)
    if not folder or model_files.whole_of(graph) is None:
        refuse_graphs(graph, format, output)
    return graph


def as_file(graph: Graph, format: Format) -> Graph:
    """A folder of models as the weights of a single file, where it has such a form and the format holds weights."""
    whole = model_files.MODEL_INDEX in graph.attachments and not format.graphs
    return (single_file.joined(graph) or graph) if whole else graph


def merge_whole(graph: Graph, whole: Architecture | None, options: Options) -> Options:
    """Merge adapters of all models of a folder; the options that each of the models is written with."""
    if whole is None or not options.lora:
        return options
    merge_files(graph, options.lora, offline=options.offline)
    return dataclasses.replace(options, lora=())


def stem_of(part: Graph, stem: str, format: Format) -> str:
    """The file name of a part of a folder, without suffix; diffusers has a name of its own for its models."""
    return DIFFUSERS_STEM if model_files.CLASS in settings(part, CONFIG) and not format.graphs else stem


def beside_parts(graph: Graph, whole: Architecture) -> dict[str, Storage]:
    """The files next to the parts of a model, and those that its copy has as well."""
    own = {} if whole.folder_files is None else whole.folder_files(graph)
    made = {name: Held(json.dumps(value, indent=1).encode()) for name, value in own.items()}
    return {**made, **graph.attachments}


def configs(parts: Mapping[str, Graph]) -> dict[str, Storage]:
    """The config.json of each model that has one, in the folder of its weights."""
    held = {name: graph.attachments for name, graph in parts.items()}
    return {f"{name}/{CONFIG}": attached[CONFIG] for name, attached in held.items() if CONFIG in attached}
