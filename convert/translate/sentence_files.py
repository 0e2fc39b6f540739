"""Sentence-transformers' files and GGUF's pooling type, either made of the other."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import TYPE_CHECKING, Any

from ...models.pipelines.sentence_modules import (
    CODE,
    GGUF_DENSE,
    SETTINGS,
    dense_folders,
    dense_settings,
    gguf_dense,
    gguf_pooling,
    module_list,
    module_matrix,
    module_weights,
    pooling_modes,
)
from ...models.schema.hyperparameters import POOLING_KEY, POOLING_TYPES
from ...models.tokenizer.readers.locate import json_value
from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import FEATURE_EXTRACTION, TEXT_GENERATION
from ...runtime.ir.graph import Graph, Meta
from ...runtime.tensor.dtype import F32
from ...runtime.tensor.storage import Held, Storage
from ..open.companion import companion_weights, safetensors_file

if TYPE_CHECKING:
    from ..load.bind import Model

CLASSES = "sentence_transformers.models."
POOLING = "1_Pooling"
DENSE, NORMALIZE = "Dense", "Normalize"
LINEAR, IDENTITY = "linear.weight", "torch.nn.modules.linear.Identity"
HINT = "Write safetensors or ONNX, which keep these files, or only the weights with --weights-only"


def with_dense_modules(graph: Graph, model: Model) -> Model:
    """The model with the matrices after its pooling among its weights, if GGUF files of its architecture store them; as
    it is for modules with biases or activations, or that change the width of the vectors."""
    kinds = [kind for kind, _ in module_list(graph) or () if kind in ("Pooling", DENSE, NORMALIZE)]
    folders = [folder for kind, folder in module_list(graph) or () if kind == DENSE]
    names = GGUF_DENSE[: len(folders)]
    if not folders or kinds[: 1 + len(folders)] != ["Pooling", *[DENSE] * len(folders)]:
        return model
    stated = [dense_settings(graph, folder) for folder in folders]
    widths = [model.config.hidden, *(each.outer for each in stated)]
    fits = widths[-1] == widths[0] and widths[:-1] == [each.inner for each in stated]
    placed = len(names) == len(folders) and {*names} <= {row.name for row in model.architecture.weights}
    if not (placed and fits and all(each.linear for each in stated)):
        return model
    companion = functools.partial(companion_weights, graph)
    weights = {
        name: module_matrix(module_weights(graph, companion, folder), LINEAR, (each.outer, each.inner), folder)
        for name, folder, each in zip(names, folders, stated, strict=True)
    }
    sizes = {
        f"{name.partition('.')[0]}_{side}": size
        for name, each in zip(names, stated, strict=True)
        for side, size in (("in", each.inner), ("out", each.outer))
    }
    return dataclasses.replace(model, weights={**model.weights, **weights}).with_settings(sizes)


def pooling_key(graph: Graph, model: Model) -> dict[str, Meta]:
    """The GGUF key that says how hidden states are pooled; empty if the model's files do not say it.

    Raises UnsupportedError for modules that GGUF cannot hold.
    """
    import numpy

    listed = module_list(graph)
    if model.task.name not in (FEATURE_EXTRACTION, TEXT_GENERATION):
        return {}
    path = graph.files[0] if graph.files else None
    if listed is None:
        if folders := dense_folders(graph):
            raise UnsupportedError("E-OUT-ARCH", path, f"GGUF has no place for {', '.join(folders)}", hint=HINT)
        return {}
    kinds = [kind for kind, _ in listed[1:] if kind not in ("Pooling", "Dropout")]
    held = {NORMALIZE, DENSE} if GGUF_DENSE[0] in model.weights else {NORMALIZE}
    others = [kind for kind in kinds if kind not in held]
    modes = [mode for kind, folder in listed if kind == "Pooling" for mode in pooling_modes(graph, folder)[0]]
    types = [number for number, mode in POOLING_TYPES.items() if modes == [mode]]
    if others or not types:
        what = f"the modules {', '.join(others)}" if others else f"the pooling {' and '.join(modes)}"
        raise UnsupportedError("E-OUT-ARCH", path, f"GGUF has no place for {what}", hint=HINT)
    if NORMALIZE not in kinds:
        graph.note("W-GGUF-POOLING", "programs normalize the vectors of GGUF files; this model does not")
    said = json_value(graph, SETTINGS, CODE)
    if isinstance(said, dict) and any((said.get("prompts") or {}).values()):
        graph.note("W-GGUF-POOLING", f"GGUF has no place for the prompts in {SETTINGS}")
    if isinstance(said, dict) and said.get("truncate_dim") is not None:
        graph.note("W-GGUF-POOLING", f"GGUF has no place for truncate_dim in {SETTINGS}: vectors keep all dimensions")
    return {f"{model.architecture.gguf[0]}.{POOLING_KEY}": numpy.uint32(types[0])}


def files_of_pooling(graph: Graph, model: Model) -> dict[str, Storage]:
    """The files that sentence-transformers reads, for a GGUF file with a pooling type."""
    mode = gguf_pooling(graph)
    if not mode or model.task.name != FEATURE_EXTRACTION:
        return {}
    matrices = gguf_dense(model.weights, graph.files[0] if graph.files else None)
    kinds = ["Transformer", "Pooling", *[DENSE] * len(matrices), NORMALIZE]
    modules = [(kind, f"{index}_{kind}" if index else "") for index, kind in enumerate(kinds)]
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"{CLASSES}{kind}"}
        for index, (kind, path) in enumerate(modules)
    ]
    pooling = {
        "word_embedding_dimension": model.config.hidden,
        "pooling_mode_cls_token": mode == "cls",
        "pooling_mode_mean_tokens": mode == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_lasttoken": mode == "lasttoken",
    }
    contents: dict[str, Any] = {"modules.json": listed, f"{POOLING}/config.json": pooling}
    dense = [path for kind, path in modules if kind == DENSE]
    files: dict[str, Storage] = {}
    for path, tensor in zip(dense, matrices, strict=True):
        outer, inner = tensor.shape
        contents[f"{path}/config.json"] = {
            "in_features": inner,
            "out_features": outer,
            "bias": False,
            "activation_function": IDENTITY,
        }
        files[f"{path}/model.safetensors"] = safetensors_file({LINEAR: tensor.dequantize().cast(F32)})
    return files | {name: Held(json.dumps(content, indent=2).encode()) for name, content in contents.items()}
