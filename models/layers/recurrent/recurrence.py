"""Recurrent layers: a state updated token by token (ONNX Scan), and causal convolutions that keep their last inputs.

One graph serves prompts and single tokens: the final state of a run is the initial state of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....runtime.ir.graph import Graph, Value
from ..decoder import Decoder
from ..net import Net

Scanned = tuple[list[Value], list[Value]]
"""States and results after a token."""
Step = Callable[[Net, list[Value], list[Value]], Scanned]
"""One token's update: (net of the step, states, entries) to (states, results). It may use values of the enclosing
net."""


def scan(net: Net, states: Sequence[Value], entries: Sequence[Value], step: Step, results: int = 1) -> list[Value]:
    """Final states, then each result [batch, length, ...] of all tokens.

    Args:
        states: initial states, f32 [batch, ...].
        entries: inputs, f32 [batch, length, ...]; a step sees [batch, ...].
        results: number of results of a step.
    """
    body = Graph(parent=net.graph, name="step")
    inner = Net(body, net.config, net.weights)
    taken = [
        inner.input(net.graph.fresh(word), "f32", ()) for word in ("state",) * len(states) + ("entry",) * len(entries)
    ]
    for value in taken:
        value.shape = None
    new, given = step(inner, taken[: len(states)], taken[len(states) :])
    body.outputs = [inner.Identity(value) for value in (*new, *given)]
    axes = {"scan_input_axes": [1] * len(entries), "scan_output_axes": [1] * results}
    made: list[Value] | Value = net.Scan(
        *states, *entries, body=body, num_scan_inputs=len(entries), outputs=len(states) + results, **axes
    )
    return made if isinstance(made, list) else [made]


def token_mask(net: Decoder) -> Value:
    """Mask of this run's tokens, f32 [batch, length, 1]: 1 for tokens, 0 for padding."""
    return net.once("token_mask", lambda: net.Cast(net.Unsqueeze(net.current_mask(), [2]), to=1))


def short_conv(
    net: Decoder, x: Value, weight: Value, bias: Value | None, state: str, channels: int, taps: int
) -> Value:
    """Causal depthwise convolution of `x` [batch, length, channels] with weight [channels, 1, taps].

    Args:
        state: name of the state with the last ``taps - 1`` inputs [batch, channels, taps - 1].
    """
    past = net.past(state, (channels, taps - 1))
    whole = net.Concat(past, net.Transpose(x, perm=[0, 2, 1]), axis=2)
    net.present(state, net.Slice(whole, [1 - taps], [2**62], [2]) if taps > 1 else past)
    y = net.Conv(whole, weight, bias, group=channels)
    moved: Value = net.Transpose(y, perm=[0, 2, 1])
    return moved
