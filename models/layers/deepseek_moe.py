"""DeepSeek mixtures of experts: grouped routing and shared experts (DeepSeek-AI 2024, arXiv:2405.04434, 2412.19437)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.units import counted
from ...runtime.contract.architecture import HF, Config, Key, Weight
from ...runtime.contract.hyperparameter import COUNT, REAL, SIZE, Choice, ParameterError, checked, flag
from ...runtime.ir.graph import Value
from ..schema.hyperparameters import experts, matrix
from .mlp import gated
from .moe import gated_experts, top
from .net import Net

GATING = {1: "softmax", 2: "sigmoid"}
"""GGUF's numbers of the routers' gating functions."""


@dataclass(frozen=True)
class Gating:
    """Hyper-parameter: function that maps the router's logits to probabilities.

    Attributes:
        default: value if config.json does not state it.
        said: whether config.json has a key for it.
    """

    default: str
    said: bool = True
    name: str = "gating"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> str:
        if names == HF:
            return str(
                checked("scoring_func", source.get("scoring_func") or self.default, Choice(tuple(GATING.values())))
            )
        key = "expert_gating_func"
        return GATING.get(checked(key, source.get(key) or 0, SIZE), self.default)

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names == HF:
            return {"scoring_func": config.gating} if self.said else {}
        return {"expert_gating_func": next(number for number, kind in GATING.items() if kind == config.gating)}


GROUPS = Key("groups", "n_group", "expert_group_count", 1, COUNT)
GROUPS_USED = Key("groups_used", "topk_group", "expert_group_used_count", 1, COUNT)


@dataclass(frozen=True)
class GroupLimit(Key):
    """Hyper-parameter, read after the number of experts: number of equal groups of experts, or of those that a token
    uses. Both are 1 where a token uses all groups, as llama.cpp wants them."""

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        value: int = super().read(names, source, config)
        groups, used = (row.read(names, source, config) for row in (GROUPS, GROUPS_USED))
        if config.experts % groups:
            raise ParameterError(
                GROUPS.keys(names)[0],
                f"{counted(config.experts, 'expert', verb='is')} not divisible into {counted(groups, 'group')}",
            )
        return 1 if used == groups else value


def mixture_keys(normalize: bool) -> tuple[Key, ...]:
    """Hyper-parameters; `normalize` is the default of ``norm_topk_prob`` (weights sum to one)."""
    return (
        Key("experts", ("n_routed_experts", "num_experts", "num_local_experts"), "expert_count", 0),
        Key("experts_used", "num_experts_per_tok", "expert_used_count", 1, COUNT, at_most=("experts",)),
        Key("expert_intermediate", "moe_intermediate_size", "expert_feed_forward_length", 0),
        Key("shared", "n_shared_experts", "expert_shared_count", 0),
        Key(
            "dense_layers",
            "first_k_dense_replace",
            "leading_dense_block_count",
            lambda config: 0 if config.experts else config.layers,
        ),
        Key("expert_scale", "routed_scaling_factor", "expert_weights_scale", 1.0, REAL),
        Key(
            "normalize", "norm_topk_prob", "expert_weights_norm", lambda config: normalize and config.names == HF, flag
        ),
        GroupLimit(**vars(GROUPS)),
        GroupLimit(**vars(GROUPS_USED) | {"at_most": ("groups",)}),
    )


def sparse(config: Config, i: int) -> bool:
    """Whether layer `i` is a mixture of experts."""
    return i >= int(config.dense_layers)


def dense(config: Config, i: int) -> bool:
    """Whether layer `i` has a dense gated network."""
    return not sparse(config, i)


def has_shared_experts(config: Config, i: int) -> bool:
    """Whether layer `i` has shared experts."""
    return sparse(config, i) and config.shared > 0


NETWORKS, GGUF_NAMES, OURS = "model.layers.{i}.mlp.", "blk.{i}.ffn_", "layers.{i}.mlp."
INNER, OUTER = ("experts", "expert_intermediate", "hidden"), ("experts", "hidden", "expert_intermediate")
WIDE, NARROW = ("shared*expert_intermediate", "hidden"), ("hidden", "shared*expert_intermediate")
MIXTURE: tuple[Weight, ...] = (
    *matrix(f"{OURS}gate", f"{NETWORKS}gate_proj", f"{GGUF_NAMES}gate", shape=("intermediate", "hidden"), when=dense),
    *matrix(f"{OURS}up", f"{NETWORKS}up_proj", f"{GGUF_NAMES}up", shape=("intermediate", "hidden"), when=dense),
    *matrix(f"{OURS}down", f"{NETWORKS}down_proj", f"{GGUF_NAMES}down", shape=("hidden", "intermediate"), when=dense),
    Weight(
        f"{OURS}router.weight",
        f"{NETWORKS}gate.weight",
        f"{GGUF_NAMES}gate_inp.weight",
        shape=("experts", "hidden"),
        when=sparse,
    ),
    Weight(
        f"{OURS}choice.bias",
        f"{NETWORKS}gate.e_score_correction_bias",
        "blk.{i}.exp_probs_b.bias",
        shape=("experts",),
        when=sparse,
        optional=True,
    ),
    experts(
        f"{OURS}experts.gate", NETWORKS + "experts.{e}.gate_proj", f"{GGUF_NAMES}gate_exps", shape=INNER, when=sparse
    ),
    experts(f"{OURS}experts.up", NETWORKS + "experts.{e}.up_proj", f"{GGUF_NAMES}up_exps", shape=INNER, when=sparse),
    experts(
        f"{OURS}experts.down", NETWORKS + "experts.{e}.down_proj", f"{GGUF_NAMES}down_exps", shape=OUTER, when=sparse
    ),
    *matrix(
        f"{OURS}shared.gate",
        f"{NETWORKS}shared_experts.gate_proj",
        f"{GGUF_NAMES}gate_shexp",
        shape=WIDE,
        when=has_shared_experts,
    ),
    *matrix(
        f"{OURS}shared.up",
        f"{NETWORKS}shared_experts.up_proj",
        f"{GGUF_NAMES}up_shexp",
        shape=WIDE,
        when=has_shared_experts,
    ),
    *matrix(
        f"{OURS}shared.down",
        f"{NETWORKS}shared_experts.down_proj",
        f"{GGUF_NAMES}down_shexp",
        shape=NARROW,
        when=has_shared_experts,
    ),
)


def feed_forward(net: Net, x: Value, i: int) -> Value:
    """Output of layer `i`'s feed-forward part, [batch, length, hidden]: a dense gated network, or routed plus shared
    experts."""
    config, name = net.config, f"layers.{i}.mlp"
    if dense(config, i):
        return gated(net, x, name, config.act)
    y = gated_experts(
        net, x, name, lambda logits: route(net, logits, f"{name}.choice.bias"), hidden=config.hidden, act=config.act
    )
    return net.Add(y, gated(net, x, f"{name}.shared", config.act)) if has_shared_experts(config, i) else y


def route(net: Net, logits: Value, bias: str) -> tuple[Value, Value]:
    """Weights [tokens, k] and experts [tokens, k] from logits [tokens, experts].

    Experts are chosen from the best groups only. A group's score is its best expert's, or, if the model has the weight
    `bias` [experts], the sum of its two best. The bias influences the choice but not the weights.
    """
    config = net.config
    scores = net.Softmax(logits, axis=-1) if config.gating == "softmax" else net.Sigmoid(logits)
    choice = net.Add(scores, net.vector(bias)) if net.has(bias) else scores
    if config.groups > 1:
        grouped = net.Reshape(choice, [0, config.groups, -1])
        best = (
            net.ReduceSum(top(net, grouped, 2)[0], [2], keepdims=0)
            if net.has(bias)
            else net.ReduceMax(grouped, [2], keepdims=0)
        )
        places = top(net, best, config.groups_used)[1]
        chosen = net.ReduceMax(
            net.OneHot(places, net.constant([config.groups], "int64"), net.constant([0.0, 1.0], "float32")),
            [1],
            keepdims=0,
        )
        kept = net.Greater(net.Unsqueeze(chosen, [2]), 0.5)
        choice = net.Reshape(net.Where(kept, grouped, float("-inf") if net.has(bias) else 0.0), net.Shape(logits))
    ids = top(net, choice, config.experts_used)[1]
    weights = net.GatherElements(scores, ids, axis=1)
    if config.normalize:
        weights = net.Div(weights, net.Add(net.ReduceSum(weights, [1]), 1e-20))
    return (net.Mul(weights, config.expert_scale) if config.expert_scale != 1.0 else weights), ids
