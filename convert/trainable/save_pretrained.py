"""Model directories of transformers, written from modules."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Held
from ..open.open_model import CONFIG

if TYPE_CHECKING:
    from .front import PretrainedModel


def save(model: PretrainedModel, folder: str | os.PathLike[str], dtype: str | None = None) -> None:
    """Write model.safetensors, config.json and the files that came with the checkpoint.

    Args:
        dtype: of float weights, None to keep that of the parameters.
    """
    from ..write.conversion_options import Options
    from ..write.pipeline import execute
    from ..write.plan import plan_graph

    found = model.opened
    stated = dict(found.stated)
    stated.pop("quantization_config", None)
    files = {name: storage for name, storage in found.source.attachments.items() if name != CONFIG}
    files[CONFIG] = Held(json.dumps(stated, indent=2).encode() + b"\n")
    graph = Graph(
        format="safetensors",
        weights=model.arrays(),
        metadata={"format": "pt"},
        attachments=files,
        files=found.source.files,
        arch=found.architecture.name,
    )
    Path(folder).mkdir(parents=True, exist_ok=True)
    execute(plan_graph(graph, Path(folder), Options(to="safetensors", dtype=dtype, force=True)))
