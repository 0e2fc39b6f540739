"""Model directories of transformers, written from modules."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Held
from ...runtime.tensor.stored_tensor import StoredTensor
from ..console.atomic_replace import make_folder
from ..open.open_model import CONFIG
from .pretrained_weights import Pretrained


def save(
    found: Pretrained, tensors: Mapping[str, StoredTensor], folder: str | os.PathLike[str], dtype: str | None = None
) -> list[str]:
    """Write model.safetensors, config.json and the files that came with the checkpoint; the paths.

    Args:
        tensors: by their names.
        dtype: of float weights, None to keep that of the parameters.
    """
    from ..write.conversion_options import Options
    from ..write.pipeline import execute
    from ..write.plan import plan_graph

    stated = dict(found.stated)
    stated.pop("quantization_config", None)
    files = {name: storage for name, storage in found.source.attachments.items() if name != CONFIG}
    files[CONFIG] = Held(json.dumps(stated, indent=2).encode() + b"\n")
    graph = Graph(
        format="safetensors",
        weights={name: each if each.qtype is None else each.dequantize() for name, each in tensors.items()},
        metadata={"format": "pt"},
        attachments=files,
        files=found.source.files,
        arch=found.architecture.name,
    )
    make_folder(folder)
    return execute(plan_graph(graph, Path(folder), Options(to="safetensors", dtype=dtype, force=True))).outputs
