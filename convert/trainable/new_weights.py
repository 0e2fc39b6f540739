"""Models from a configuration alone: the files that a checkpoint with new weights would have."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.base.errors import FormatError, UnsupportedError, UsageError
from ...runtime.base.system_error import read_error
from ...runtime.contract.architecture import HF, Config, Stored, Weight, sizes, weight_slots
from ...runtime.contract.weight_binding import TIED, architectures, config_from, find_architecture
from ...runtime.ir.graph import Graph
from ...runtime.tensor.storage import Held, Storage
from ...runtime.tensor.stored_tensor import StoredTensor
from ...tensors.operations.random import GENERATOR
from ..open.prequantized import CONFIG
from .class_names import AUTO, ClassName

INITIAL = 0.02
"""Standard deviation of new weights, where config.json has no ``initializer_range``."""

ENCODER = r"positions\.weight|types\.weight|layers\..*\.bias"
FAMILIES = {
    "bert": ENCODER,
    "roberta": ENCODER,
    "distilbert": r"positions\.weight|layers\..*\.bias",
    "llama": r"head\.weight",
    "qwen2": r"head\.weight|layers\..*\.attn\.[qkv]\.bias",
    "gpt2": r"layers\..*\.bias|norm\.bias",
}
"""Architectures that a configuration tells all weights of, with those that checkpoints of others may lack."""
POOLER = r"pooler\..*"
"""Parts of classes without a head; other classes get them with their head."""
BIASES = {"attention_bias": r"layers\..*\.attn\..*\.bias", "mlp_bias": r"layers\..*\.mlp\..*\.bias"}
"""Keys of config.json that say which biases there are."""


def new_model(config: Any, name: ClassName) -> Graph:
    """A model directory with new weights, as it would be opened.

    Args:
        config: a dictionary of the keys of config.json, its path or that of its directory, or an object whose
            ``to_dict()`` gives the dictionary.

    Raises UsageError for a configuration of another family, UnsupportedError for families whose weights the
    configuration does not tell.
    """
    stated = _stated(config, name)
    architecture = find_architecture(HF, stated)
    if not name.fits(architecture):
        why = f"the configuration is of {architecture.title}, not of the class {name}"
        raise UsageError("E-MODEL-CLASS", None, why, hint=f"Use {ClassName(AUTO, name.end)}")
    if architecture.name not in FAMILIES:
        why = f"{architecture.title} models cannot be made from a configuration alone"
        hint, expected = "Open a checkpoint with from_pretrained()", ", ".join(FAMILIES)
        raise UnsupportedError("E-MODEL-CONFIG", None, why, hint=hint, expected=expected)
    labels = stated.get("num_labels") or len(stated.get("id2label") or (0, 1))
    settings = config_from(architecture, HF, {**stated, "num_labels": labels})
    settings.values["task"] = name.task
    biases = [pattern for key, pattern in BIASES.items() if stated.get(key)]
    wanted = "|".join([FAMILIES[architecture.name], *biases, *([POOLER] if name.is_base else [])])
    has_head = not name.is_base and not stated.get(TIED, architecture.tied)
    deviation = float(stated.get("initializer_range") or INITIAL)
    weights: dict[str, StoredTensor] = {}
    for row, layer, own in weight_slots(architecture, settings):
        ways = row.stored(HF)
        if not ways or row.compute is not None or (own == "head.weight" and not has_head):
            continue
        if row.optional and not re.fullmatch(wanted, own):
            continue
        weights.update(_drawn(row, ways[0], layer, settings, deviation))
    files: dict[str, Storage] = {CONFIG: Held(json.dumps(stated).encode())}
    return Graph(format="safetensors", weights=weights, attachments=files, arch=architecture.name)


def _stated(config: Any, name: ClassName) -> dict[str, Any]:
    """The keys and values of a configuration; those that say the family are added where a dictionary lacks them."""
    if isinstance(config, str | os.PathLike):
        path = Path(config)
        path = path / CONFIG if path.is_dir() else path
        try:
            config = json.loads(path.read_bytes())
        except OSError as error:
            raise read_error(path, error, "E-IO-OPEN") from error
        except ValueError as error:
            raise FormatError("E-CONFIG-JSON", path, f"is not JSON: {error}") from error
    elif hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        why = f"a model is not made from an object of type {type(config).__name__}"
        expected = "a dictionary of the keys of config.json, or its path"
        raise UsageError("E-MODEL-CONFIG", None, why, expected=expected, hint="Open checkpoints with from_pretrained()")
    stated = {**config, "architectures": [str(name)]}
    if not stated.get("model_type"):
        kinds = [kind for each in architectures() if name.fits(each) for kind in each.model_types]
        stated["model_type"] = kinds[0] if kinds and name.stem != AUTO else None
    return stated


def _drawn(row: Weight, way: Stored, layer: int, config: Config, deviation: float) -> list[tuple[str, StoredTensor]]:
    """The tensors of a file that store a new weight, as transformers initializes it: normal numbers for matrices, ones
    for norms, zeros for biases."""
    shape = sizes(row.shape or (), config, layer)
    names = list(way.expanded(config, layer))
    if len(shape) < 2:
        array = (np.zeros if row.name.endswith("bias") else np.ones)(shape, np.float32)
    else:
        with GENERATOR.lock():
            drawn = GENERATOR.normal(int(np.prod(shape)), np.dtype(np.float32))
        array = (drawn.reshape(shape) * np.float32(deviation)).astype(np.float32)
    parts = way.layout.split(StoredTensor.of(array), config, len(names))
    return [(each, part) for each, part in zip(names, parts, strict=True) if part.count]
