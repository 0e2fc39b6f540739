"""Mixtures of experts (Shazeer et al. 2017, arXiv:1701.06538): each token is routed to a few feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.ir.graph import Value
from .linear import linear
from .mlp import ACTIVATIONS, gated
from .net import Net


def matmul_experts(net: Net, x: Value, name: str, ids: Value, *, each: bool) -> Value:
    """Rows of `x` times ``NAME.weight`` [experts, out, in] of the experts `ids` [tokens, k], plus ``NAME.bias``
    [experts, out]."""
    y: Value = net.MatMulExperts(x, net.matrix(f"{name}.weight"), ids, domain="candle", each=int(each))
    return net.Add(y, net.Gather(net.vector(f"{name}.bias"), ids)) if net.has(f"{name}.bias") else y


def top(net: Net, scores: Value, count: int) -> tuple[Value, Value]:
    """The largest `count` elements of each row and their indices."""
    values, places = net.TopK(scores, [count], outputs=2)
    return values, places


def softmax_router(net: Net, logits: Value, count: int, *, normalize: bool) -> tuple[Value, Value]:
    """Weights and experts [tokens, k]: the k most probable; weights sum to one if `normalize`."""
    weights, ids = top(net, net.Softmax(logits, axis=-1), count)
    return (net.Div(weights, net.ReduceSum(weights, [1])) if normalize else weights), ids


def gated_experts(
    net: Net,
    x: Value,
    name: str,
    route: Callable[[Value], tuple[Value, Value]],
    *,
    hidden: int,
    act: str = "silu",
    scaled_inputs: bool = False,
    judged: Value | None = None,
) -> Value:
    """Sum over the routed experts of weight times down(act(gate(x)) * up(x)).

    Args:
        x: [batch, length, hidden].
        name: prefix of ``NAME.router`` [experts, hidden] and ``NAME.experts.{gate,up,down}`` [experts, out, in].
        route: returns weights and experts [tokens, k] for router logits [tokens, experts].
        scaled_inputs: whether weights multiply the inputs of the experts, not their outputs.
        judged: what the router reads, of the shape of `x`; None for `x`.
    """
    tokens = net.Reshape(x, [-1, hidden])
    read = tokens if judged is None else net.Reshape(judged, [-1, hidden])
    weights, ids = route(linear(net, read, f"{name}.router"))
    weights = net.Unsqueeze(weights, [2])
    if scaled_inputs:
        tokens = net.Mul(net.Unsqueeze(tokens, [1]), weights)
    gate, up = (
        matmul_experts(net, tokens, f"{name}.experts.{part}", ids, each=scaled_inputs) for part in ("gate", "up")
    )
    down = matmul_experts(net, net.Mul(ACTIVATIONS[act](net, gate), up), f"{name}.experts.down", ids, each=True)
    mixed = net.ReduceSum(down if scaled_inputs else net.Mul(down, weights), [1], keepdims=0)
    return net.Reshape(mixed, net.Shape(x))


def softmax_mixture(net: Net, x: Value, name: str) -> Value:
    """Sum of the routed experts, and of the gated shared expert if the model has one."""
    config = net.config

    def route(logits: Value) -> tuple[Value, Value]:
        return softmax_router(net, logits, config.experts_used, normalize=config.normalize)

    y = gated_experts(net, x, name, route, hidden=config.hidden, act=config.act)
    if not net.has(f"{name}.shared.up.weight"):
        return y
    everybody = net.Mul(net.Sigmoid(linear(net, x, f"{name}.shared_gate")), gated(net, x, f"{name}.shared", config.act))
    return net.Add(y, everybody)
