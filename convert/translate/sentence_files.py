"""Sentence-transformers' files and GGUF's pooling type, either made of the other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...models.pipelines.sentence_modules import CODE, SETTINGS, gguf_pooling, module_list, pooling_modes
from ...models.schema.hyperparameters import POOLING_KEY, POOLING_TYPES
from ...models.tokenizer.readers.locate import json_value
from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import FEATURE_EXTRACTION, TEXT_GENERATION
from ...runtime.ir.graph import Graph, Meta
from ...runtime.tensor.storage import Held, Storage

if TYPE_CHECKING:
    from ..load.bind import Model

CLASSES = "sentence_transformers.models."
POOLING = "1_Pooling"
NORMALIZE = "Normalize"
HINT = "Write safetensors or ONNX, which keep these files, or only the weights with --weights-only"


def pooling_key(graph: Graph, model: Model) -> dict[str, Meta]:
    """The GGUF key that says how hidden states are pooled; empty if the model's files do not say it.

    Raises UnsupportedError for modules that GGUF cannot hold.
    """
    import numpy

    listed = module_list(graph)
    if listed is None or model.task.name not in (FEATURE_EXTRACTION, TEXT_GENERATION):
        return {}
    path = graph.files[0] if graph.files else None
    kinds = [kind for kind, _ in listed[1:] if kind not in ("Pooling", "Dropout")]
    others = [kind for kind in kinds if kind != NORMALIZE]
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
    modules = (("Transformer", ""), ("Pooling", POOLING), (NORMALIZE, "2_Normalize"))
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
    contents = {"modules.json": listed, f"{POOLING}/config.json": pooling}
    return {name: Held(json.dumps(content, indent=2).encode()) for name, content in contents.items()}
