"""Recurrences: tokens one after another with a state, as a Scan, and short causal convolutions that carry their last inputs.

One graph serves whole texts and single tokens: the state of a run is where the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...runtime.graph import Graph, Value
from .decoder import Decoder
from .net import Net

Step = Callable[[Net, list[Value], list[Value]], tuple[list[Value], list[Value]]]
"""What happens at one token: (net of the step, states, entries) to (states, results). It may use values of the net around it."""


def scan(net: Net, states: Sequence[Value], entries: Sequence[Value], step: Step, results: int = 1) -> list[Value]:
    """The states after the last token, then each result [batch, length, ...] of all tokens.

    Args:
        states: f32 [batch, ...], before the first token.
        entries: f32 [batch, length, ...]; a step sees them without the length.
        results: number of results of a step.
    """
    body = Graph(parent=net.graph, name="step")
    inner = Net(body, net.config, net.weights)
    taken = [inner.input(net.graph.fresh(word), "f32", ()) for word in ("state",) * len(states) + ("entry",) * len(entries)]
    for value in taken:
        value.shape = None
    new, given = step(inner, taken[: len(states)], taken[len(states) :])
    body.outputs = [inner.Identity(value) for value in (*new, *given)]
    axes = {"scan_input_axes": [1] * len(entries), "scan_output_axes": [1] * results}
    made: list[Value] | Value = net.Scan(*states, *entries, body=body, num_scan_inputs=len(entries), outputs=len(states) + results, **axes)
    return made if isinstance(made, list) else [made]


def own_mask(net: Decoder) -> Value:
    """f32 [batch, length, 1]: 1 for tokens of this run, 0 for padding."""
    return net.once("own mask", lambda: net.Cast(net.Unsqueeze(net.own(), [2]), to=1))


def short_conv(net: Decoder, x: Value, weight: Value, bias: Value | None, state: str, channels: int, taps: int) -> Value:
    """Each channel of `x` [batch, length, channels] under its kernel [channels, 1, taps], of the token and those before it.

    Args:
        state: name of the last ``taps - 1`` inputs [batch, channels, taps - 1].
    """
    past = net.past(state, (channels, taps - 1))
    whole = net.Concat(past, net.Transpose(x, perm=[0, 2, 1]), axis=2)
    net.present(state, net.Slice(whole, [1 - taps], [2**62], [2]) if taps > 1 else past)
    y = net.Conv(whole, weight, bias, group=channels)
    moved: Value = net.Transpose(y, perm=[0, 2, 1])
    return moved
