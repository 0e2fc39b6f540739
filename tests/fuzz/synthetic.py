"""Tiny models of every architecture, made from the rows that declare their weights: directories and GGUF files with a
tokenizer of letters."""

from __future__ import annotations

import functools
import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import candle_convert as cc
import numpy as np
from candle_convert.runtime.contract.architecture import GGUF, HF, TEXT_GENERATION, Config, sizes, weight_slots
from candle_convert.runtime.contract.weight_binding import architectures, config_from, config_keys, unbind
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.tests.builders.tiny_llama import COUNT, TOKENS, written

BASE = {
    "vocab_size": COUNT, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
CONFIGURATIONS = Path(__file__).with_name("configurations")
OWN = {file.stem: json.loads(file.read_text()) for file in sorted(CONFIGURATIONS.glob("*.json"))}
"""What the configuration of an architecture needs beside `BASE`, or states to have more of its parameters."""
RANK = 4
"""Of parameters that configurations leave to the weights."""


@dataclass(frozen=True)
class Synthetic:
    """A model in the names of one kind of file.

    Attributes:
        said: its config.json, or GGUF metadata.
        weights: tensors by the file's names.
    """

    said: dict[str, object]
    weights: dict[str, StoredTensor]


NAMES = tuple(each.name for each in architectures() if each.task().name == TEXT_GENERATION)


@functools.cache
def synthetic(name: str, names: str) -> Synthetic | None:
    """The model of an architecture; None where such files do not have it."""
    architecture = next(each for each in architectures() if each.name == name)
    if names == GGUF and not architecture.gguf:
        return None
    said = {"model_type": architecture.model_types[0], **BASE, **OWN.get(name, {})}
    config = config_from(architecture, HF, said)
    weights = _weights(architecture, config)
    if names == HF:
        return Synthetic(said, unbind(architecture, config, weights, HF))
    metadata = config_keys(architecture, GGUF, config)
    metadata = {key: _typed(value) for key, value in metadata.items() if value is not None}
    return Synthetic(
        {"general.architecture": architecture.gguf[0], **metadata, **_tokens()},
        unbind(architecture, config, weights, GGUF),
    )


def _weights(architecture: object, config: Config) -> dict[str, StoredTensor]:
    random, made = np.random.default_rng(0), {}
    for row, _, name in weight_slots(architecture, config):
        if row.compute is not None and (tensor := row.compute(config)) is not None:
            made[name] = tensor
        if row.shape is None or row.compute is not None or (row.optional and not name.startswith("head.weight")):
            continue
        for length in row.shape:
            if isinstance(length, str):
                config.values.update({key: RANK for key in length.split("*") if config.values.get(key, RANK) is None})
        shape = sizes(row.shape, config)
        values = random.standard_normal(shape) * 0.2 if len(shape) > 1 else 1 + 0.1 * random.standard_normal(shape)
        made[name] = StoredTensor.of((-abs(values) if name.endswith("decay") else values).astype(np.float32))
    return made


def _typed(value: object) -> object:
    if isinstance(value, list):
        return np.asarray(value)
    return (
        value if isinstance(value, bool | str) else np.float32(value) if isinstance(value, float) else np.uint32(value)
    )


@functools.cache
def _tokens() -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        metadata = cc.open(written(Path(folder) / "m.gguf")).metadata
        return {key: value for key, value in metadata.items() if key.startswith("tokenizer.")} | {
            "tokenizer.ggml.tokens": TOKENS
        }


@functools.cache
def tokenizer_files() -> dict[str, bytes]:
    """The files of a directory's tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        cc.convert(written(Path(folder) / "m.gguf"), Path(folder) / "hf", to="safetensors")
        return {path.name: path.read_bytes() for path in Path(folder, "hf").iterdir() if "token" in path.name}


@functools.cache
def directory(name: str) -> dict[str, bytes]:
    """The files of a model directory."""
    model = synthetic(name, HF)
    assert model is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        cc.save_file(replace(model).weights, path, metadata={"format": "pt"})
        return {"config.json": json.dumps(model.said).encode(), path.name: path.read_bytes(), **tokenizer_files()}
