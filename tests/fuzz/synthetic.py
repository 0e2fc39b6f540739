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
from candle_convert.runtime.tensor.tensor import Tensor
from candle_convert.tests.builders.tiny_llama import COUNT, TOKENS, written

BASE = {
    "vocab_size": COUNT, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
GROUPS = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LONG = {"type": "longrope", "long_factor": [1.0, 2.0, 3.0, 4.0], "short_factor": [1.0, 1.1, 1.2, 1.3]}
STATES = {"state_size": 8, "intermediate_size": 64, "conv_kernel": 4, "expand": 2}
OWN = {
    "llama": {"rope_scaling": LLAMA3},
    "qwen2": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "rope_scaling": YARN},
    "gemma2": {"head_dim": 16, "sliding_window": 8},
    "gemma3": {"head_dim": 16, "sliding_window": 8, "sliding_window_pattern": 2},
    "mixtral": EXPERTS,
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 32},
    "qwen3_moe": EXPERTS,
    "granitemoe": EXPERTS,
    "gpt_oss": {**EXPERTS, "sliding_window": 8, "rope_scaling": YARN},
    "olmo3": {"sliding_window": 8},
    "phi3": {"original_max_position_embeddings": 32, "rope_scaling": LONG, "sliding_window": 8},
    "phi_msft": {"rotary_dim": 4},
    "deepseek_v2": {**GROUPS, "q_lora_rank": 16, "rope_scaling": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}},
    "deepseek_v3": GROUPS,
    "glm4_moe": {**GROUPS, "head_dim": 8},
    "cohere2": {"sliding_window": 8, "head_dim": 8, "sliding_window_pattern": 2},
    "ministral3": {"rope_parameters": {**YARN, "rope_theta": 1e6, "llama_4_scaling_beta": 0.1}},
    "falcon": {"alibi": True},
    "chatglm": {
        "padded_vocab_size": COUNT,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "ffn_hidden_size": 64,
        "num_layers": 2,
    },
    "mpt": {
        "d_model": 32,
        "n_layers": 2,
        "n_heads": 4,
        "max_seq_len": 64,
        "attn_config": {"alibi": True, "clip_qkv": 2.0},
    },
    "mamba": {**STATES, "time_step_rank": 4},
    "falcon_mamba": {**STATES, "time_step_rank": 4},
    "mamba2": {**STATES, "num_heads": 8, "head_dim": 8, "n_groups": 2, "time_step_limit": [0.0, 0.6]},
    "lfm2": {"full_attn_idxs": [1], "block_auto_adjust_ff_dim": False},
    "recurrent_gemma": {"attention_window_size": 8, "block_types": ["recurrent", "attention"]},
    "rwkv5": {"head_size": 8, "rescale_every": 6},
    "rwkv6": {"head_size": 8},
    "rwkv7": {"head_size": 8},
}
"""What a configuration needs beside `BASE`, or says to have more of the architecture's parameters."""
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
    weights: dict[str, Tensor]


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


def _weights(architecture: object, config: Config) -> dict[str, Tensor]:
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
        made[name] = Tensor.of((-abs(values) if name.endswith("decay") else values).astype(np.float32))
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
