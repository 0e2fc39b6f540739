"""llama.cpp's file of the encoder and the projector (mmproj) of a multimodal model."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...models.preprocess.stated_preparation import FILES
from ...models.schema.mmproj.keys import MEAN, STD
from ...models.tokenizer.readers.locate import HELD, json_value, read, text
from ...runtime.base.errors import Error, UnsupportedError
from ...runtime.contract.architecture import GGUF, HF, Architecture, Config, weight_slots
from ...runtime.contract.mmproj import Mmproj
from ...runtime.contract.part_rows import part_config, part_weights
from ...runtime.contract.weight_binding import config_from, config_keys, list_names, unbind
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from .join import TEXT, Side, encoder, whole_config
from .projector import family_of

CODE = "E-GGUF-MMPROJ"
HINT = "Write safetensors or ONNX, which store all settings"
TYPE = "general.type"
PREFIX = f"{TEXT}."
IDLE = ("task", "projected", "projection", "labels", "model_type", "antialias", "pooled", "architectures", "seconds")
"""Ends of the names of hyper-parameters that do not change the features of an encoder."""
CONVOLUTIONS = (r"\.patch_embd\.weight(\.1)?$", r"\.conv1d\.\d\.weight$", r"mm\.patch_merger\.weight$")
"""Kernels of convolutions, which llama.cpp computes in f16 or f32."""
TRANSPOSED = r"mm\.input_projection\.weight$"
"""Matrices that llama.cpp transposes, which blocks cannot be."""
RULE_NAMES = 100
"""Names in the pattern of one rule."""


def split(graph: Graph, architecture: Architecture, config: Config, weights: Mapping[str, StoredTensor]) -> Graph:
    """The file of a model, whose weights and hyper-parameters have the names of its family.

    Raises UnsupportedError for a model that llama.cpp has no projector for, or computes something else with.
    """
    path = graph.files[0] if graph.files else None
    mmproj = next(each for each in architecture.mmproj if each.accepts(config))
    _check_weights(graph, architecture, mmproj, config, weights)
    if why := mmproj.misfit(config, weights):
        raise UnsupportedError(CODE, path, f"llama.cpp computes something else with the model: {why}", hint=HINT)
    own = mmproj.file_of(architecture)
    known = Config({**config.values, **normalization(graph, mmproj, config)})
    made = Graph(
        format=graph.format,
        weights=mmproj.numbered(unbind(own, known, weights, GGUF), config, reading=False),
        metadata={"general.architecture": own.gguf[0], TYPE: "mmproj", **config_keys(own, GGUF, known)},
        files=list(graph.files),
    )
    made.weights |= {name: _token_row(graph, weights, token) for name, token in mmproj.token_rows.items()}
    for name in FILES:
        if name in graph.attachments:
            made.metadata[HELD + name] = text(graph, name)
    _check_config(made, architecture, mmproj, config, weights)
    if effect := mmproj.approximated(config):
        made.note("W-GGUF-LLAMA-CPP", f"llama.cpp: {effect}")
    return made


def normalization(graph: Graph, mmproj: Mmproj, config: Config) -> dict[str, Any]:
    """Further keys of the file: how pictures are prepared, as the model's files say it, or else as the family does."""
    stated: dict[str, Any] = dict(mmproj.preparation(config))
    for name in FILES:
        said = json_value(graph, name, "E-CONFIG-JSON")
        if isinstance(said, Mapping):
            inner = said.get("image_processor")
            stated |= {**said, **(inner if isinstance(inner, Mapping) else {})}
    return {"preparation": stated, **{name: stated[name] for name in (MEAN, STD) if name in stated}}


def _token_row(graph: Graph, weights: Mapping[str, StoredTensor], token: str) -> StoredTensor:
    """The embedding of a token. UnsupportedError for a tokenizer without it."""
    texts = read(graph).vocabulary.texts
    if token not in texts:
        path = graph.files[0] if graph.files else None
        why = f"the tokenizer has no token {token}, whose embedding llama.cpp takes from the file"
        raise UnsupportedError(CODE, path, why, hint=HINT)
    row, embedding = texts.index(token), weights[f"{PREFIX}embed.weight"]
    part = embedding[row : row + 1]
    return StoredTensor(part.dtype, part.shape[1:], part.storage)


def full_precision(file: Graph) -> list[tuple[str, str]]:
    """Rules for dtypes, as pairs of a pattern and a dtype: the tensors that llama.cpp takes in f32 alone, and kernels
    of convolutions, which have no bf16."""
    always = family_of(file)[1].full
    small = [
        name for name, tensor in file.weights.items()
        if len(tensor.shape) < 2 or any(re.search(pattern, name) for pattern in always)
    ]  # fmt: skip
    small += [
        name for name, tensor in file.weights.items()
        if tensor.dtype.name == "bf16" and any(re.search(pattern, name) for pattern in CONVOLUTIONS)
    ]  # fmt: skip
    groups = [small[start : start + RULE_NAMES] for start in range(0, len(small), RULE_NAMES)]
    return [(rf"^(?:{'|'.join(map(re.escape, group))})\Z", "f32") for group in groups]


def _check_weights(
    graph: Graph, architecture: Architecture, mmproj: Mmproj, config: Config, weights: Mapping[str, StoredTensor]
) -> None:
    """UnsupportedError for weights that the file cannot hold; those that change no feature are noted."""
    placed = {name for _, _, name in weight_slots(mmproj.file_of(architecture), config)}
    lost = [name for name in weights if name not in placed and not name.startswith(PREFIX)]
    left = [name for name in lost if name.startswith(mmproj.left_out)] if mmproj.left_out else []
    if refused := [name for name in lost if name not in left]:
        path = graph.files[0] if graph.files else None
        why = f"llama.cpp has no place for {list_names(refused)} of {architecture.title} models"
        raise UnsupportedError(CODE, path, why, hint=HINT)
    if left:
        graph.event("W-GGUF-MMPROJ", f"{list_names(left)} are left out: the features of pictures do not depend on them")


def _check_config(
    made: Graph, architecture: Architecture, mmproj: Mmproj, config: Config, weights: Mapping[str, StoredTensor]
) -> None:
    """UnsupportedError for hyper-parameters that the file says otherwise when it is read."""
    own = architecture.parts[TEXT].architecture
    assert isinstance(own, Architecture)
    side = Side(own, part_config(config, TEXT), part_weights(weights, TEXT))
    path = made.files[0] if made.files else None
    try:
        other = encoder(made, architecture, mmproj, config.values[f"{PREFIX}hidden"])
        further = {name: config.values[name] for name in mmproj.tokens}
        further |= mmproj.text_values(mmproj.text_keys(config, weights))
        said = whole_config(architecture, mmproj, side, other, further)
        values = config_from(architecture, HF, said).values
    except Error as error:
        raise UnsupportedError(CODE, path, f"the file could not be read: {error.why}", hint=HINT) from error
    lost = list(_differing(architecture, mmproj, config, values))
    if lost:
        why = "; ".join(f"{name} is {ours!r}, but the file implies {theirs!r}" for name, ours, theirs in lost)
        raise UnsupportedError(CODE, path, f"mmproj files lack a key for some of its settings: {why}", hint=HINT)


def _differing(
    architecture: Architecture, mmproj: Mmproj, config: Config, values: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    for row in architecture.keys:
        name = row.name
        if name.startswith(PREFIX) or name in mmproj.tokens or name.rpartition(".")[2] in IDLE:
            continue
        ours, theirs = config.values.get(name), values.get(name)
        if not _same(ours, theirs):
            yield name, ours, theirs


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-12)
    return bool(one == other or {str(one), str(other)} == {"gelu", "gelu_tanh"})
