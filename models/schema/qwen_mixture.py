"""Weights of Qwen's mixtures of experts: which layers have one, routed experts, and a shared expert."""

from __future__ import annotations

from ...runtime.contract.architecture import Config, Stored, Weight
from .decoder_weights import mixture
from .hyperparameters import matrix
from .weight_layout import Flat


def sparse(config: Config, i: int) -> bool:
    """Whether layer `i` is a mixture of experts."""
    return i not in config.dense_layers and config.experts > 0 and (i + 1) % config.sparse_step == 0


def dense(config: Config, i: int) -> bool:
    """Whether layer `i` has a dense gated network."""
    return not sparse(config, i)


HF, GGUF, OURS = "model.layers.{i}.mlp.", "blk.{i}.ffn_", "layers.{i}.mlp."
MIXTURE = (
    *matrix(f"{OURS}gate", f"{HF}gate_proj", f"{GGUF}gate", shape=("intermediate", "hidden"), when=dense),
    *matrix(f"{OURS}up", f"{HF}up_proj", f"{GGUF}up", shape=("intermediate", "hidden"), when=dense),
    *matrix(f"{OURS}down", f"{HF}down_proj", f"{GGUF}down", shape=("hidden", "intermediate"), when=dense),
    *mixture(f"{HF}gate", HF + "experts.{e}", width="expert_intermediate", when=sparse),
)
SHARED = (
    *matrix(
        f"{OURS}shared.gate",
        f"{HF}shared_expert.gate_proj",
        f"{GGUF}gate_shexp",
        shape=("shared_intermediate", "hidden"),
        when=sparse,
    ),
    *matrix(
        f"{OURS}shared.up",
        f"{HF}shared_expert.up_proj",
        f"{GGUF}up_shexp",
        shape=("shared_intermediate", "hidden"),
        when=sparse,
    ),
    *matrix(
        f"{OURS}shared.down",
        f"{HF}shared_expert.down_proj",
        f"{GGUF}down_shexp",
        shape=("hidden", "shared_intermediate"),
        when=sparse,
    ),
    Weight(
        f"{OURS}shared_gate.weight",
        f"{HF}shared_expert_gate.weight",
        Stored((f"{GGUF}gate_inp_shexp.weight",), Flat()),
        shape=(1, "hidden"),
        when=sparse,
    ),
)
