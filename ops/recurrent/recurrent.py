"""Shared parts of RNN, GRU and LSTM: directions, sequence lengths, layouts and the loop over time steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Node
from ...runtime.ir.op import Undecomposable
from ...runtime.ir.shape_inference import Inference
from ..elementwise.exponential_activation import sigmoid_of
from ..rules.expression import Term
from ..rules.output_limit import allowed
from ..rules.shape_rules import shape_error

Activation = Callable[[np.ndarray], np.ndarray]
Cell = Callable[..., tuple[np.ndarray, ...]]

ACTIVATIONS: dict[str, tuple[Callable[..., np.ndarray], float | None, float | None]] = {
    "relu": (lambda x: np.maximum(x, 0), None, None),
    "tanh": (np.tanh, None, None),
    "sigmoid": (sigmoid_of, None, None),
    "softsign": (lambda x: x / (1 + np.abs(x)), None, None),
    "softplus": (lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), None, None),
    "affine": (lambda x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "scaledtanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), 0.2, 0.5),
    "leakyrelu": (lambda x, alpha: np.where(x < 0, alpha * x, x), 0.01, None),
    "thresholdedrelu": (lambda x, alpha: np.where(x > alpha, x, 0), 1.0, None),
    "elu": (lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x), 1.0, None),
}
"""Each activation by its name in lower case, with the defaults of its alpha and beta, None if it has no default."""

OPERATORS = {
    "relu": "Relu",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "softsign": "Softsign",
    "softplus": "Softplus",
    "hardsigmoid": "HardSigmoid",
    "leakyrelu": "LeakyRelu",
    "thresholdedrelu": "ThresholdedRelu",
    "elu": "Elu",
}
"""Operators of these names; the others are formulas."""

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def functions(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None, count: int, what: str
) -> list[Activation]:
    """The first `count` activations; alphas and betas go in order to those that take one."""
    if len(names) < count:
        raise shape_error(what, f"{counted(count, 'activation', verb='is')} needed, {len(names)} are given")
    left = [list(alphas or ()), list(betas or ())]

    def made(name: str) -> Activation:
        if name.lower() not in ACTIVATIONS:
            raise shape_error(what, f"activation {name!r} is not known")
        function, *defaults = ACTIVATIONS[name.lower()]
        values = [
            np.float32(given.pop(0) if given else default)
            for given, default in zip(left, defaults, strict=True)
            if default is not None
        ]
        return lambda x: function(x, *values).astype(x.dtype, copy=False)

    return [made(name) for name in names[:count]]


def activated(x: Term, name: str, parameters: Sequence[float]) -> Term:
    """An activation as terms, with its parameters in order; Undecomposable where it is not known."""
    key = name.lower()
    if key not in ACTIVATIONS:
        raise Undecomposable(f"activation {name!r} is not known")
    needed = [default for default in ACTIVATIONS[key][1:] if default is not None]
    values = [*parameters, *needed[len(parameters) :]][: len(needed)]
    if key == "affine":
        return x * values[0] + values[1]
    if key == "scaledtanh":
        return (x * values[1]).call("Tanh") * values[0]
    return x.call(OPERATORS[key], **dict(zip(("alpha", "beta"), values, strict=False)))


@dataclass(frozen=True)
class Sequences:
    """The sequences that a recurrence runs over.

    Attributes:
        x: [length, batch, input size].
        lengths: of each sequence, None where all are whole.
        directions: "forward" or "reverse" for each set of weights.
        batch_first: whether outputs have the batch as their first axis.
    """

    what: str
    x: np.ndarray
    lengths: np.ndarray | None
    directions: tuple[str, ...]
    batch_first: bool

    def state(self, given: np.ndarray | None, hidden: int) -> np.ndarray:
        """Initial states as [directions, batch, hidden], zero where none are given."""
        shape = (len(self.directions), self.x.shape[1], hidden)
        if given is None:
            return np.zeros(shape, self.x.dtype)
        found = given.transpose(1, 0, 2) if self.batch_first and given.ndim == 3 else given
        if found.shape != shape:
            raise shape_error(self.what, f"initial states of shape {given.shape} where {shape} is needed")
        return found

    def run(
        self, cells: Sequence[Cell], projected: Callable[[int], np.ndarray], states: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, ...]:
        """All hidden states, and each state after the last time.

        Args:
            cells: for each direction, from what the input adds at a time [batch, gates x hidden] and the states to the
                next states, the hidden one first.
            projected: for a direction, what the inputs add at every time.
            states: each [directions, batch, hidden].
        """
        length, batch = self.x.shape[:2]
        hidden = states[0].shape[2]
        y = np.zeros(allowed((length, len(cells), batch, hidden), self.x.itemsize, self.what), self.x.dtype)
        last = [state.copy() for state in states]
        for index, cell in enumerate(cells):
            inputs, now = projected(index), tuple(state[index] for state in states)
            for time in range(length) if self.directions[index] == "forward" else reversed(range(length)):
                then = cell(inputs[time], *now)
                if self.lengths is None:
                    now = then
                    y[time, index] = now[0]
                else:
                    running = (time < self.lengths)[:, None]
                    now = tuple(np.where(running, new, old) for new, old in zip(then, now, strict=True))
                    np.copyto(y[time, index], now[0], where=running)
            for state, value in zip(last, now, strict=True):
                state[index] = value
        if not self.batch_first:
            return (y, *last)
        return (y.transpose(2, 0, 1, 3), *(state.transpose(1, 0, 2) for state in last))


@dataclass(frozen=True)
class RecurrentAttributes:
    """The operator `what`, whose cells have so many gates, with the attributes of its node."""

    what: str
    gates: int
    direction: str
    hidden_size: int | None
    layout: int


def sequences(
    attributes: RecurrentAttributes,
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None,
    lengths: np.ndarray | None,
) -> Sequences:
    """The sequences of a node; FormatError where its inputs do not fit together.

    Args:
        x: [length, batch, input size], or with layout 1 [batch, length, input size].
        w, r: [directions, gates x hidden, input size] and [directions, gates x hidden, hidden].
        b: [directions, 2 x gates x hidden], those of the input and of the recurrence.
        lengths: of each sequence [batch], None where all are whole.
    """
    what, gates, direction, hidden_size = (
        attributes.what,
        attributes.gates,
        attributes.direction,
        attributes.hidden_size,
    )
    if direction not in DIRECTIONS:
        raise shape_error(what, f"direction {direction!r} is not one of {', '.join(DIRECTIONS)}")
    count, hidden = DIRECTIONS[direction], r.shape[-1] if r.ndim else 0
    fits = x.ndim == 3 and w.shape == (count, gates * hidden, x.shape[2]) and r.shape == (count, gates * hidden, hidden)
    if not fits or hidden_size not in (None, hidden) or (b is not None and b.shape != (count, 2 * gates * hidden)):
        raise shape_error(
            what,
            f"an input of shape {x.shape} and weights of shapes {w.shape} and {r.shape} do not fit {count} "
            "direction(s)",
        )
    rows = x.transpose(1, 0, 2) if attributes.layout else x
    if lengths is not None:
        if lengths.shape != rows.shape[1:2] or (lengths.size and not 0 <= lengths.min() <= lengths.max() <= len(rows)):
            raise shape_error(
                what, f"sequence_lens {lengths.tolist()[:8]} do not fit {rows.shape[1]} sequences of length {len(rows)}"
            )
        lengths = None if (lengths == len(rows)).all() else lengths
    return Sequences(
        what, rows, lengths, ("forward", "reverse") if count == 2 else (direction,), bool(attributes.layout)
    )


def halves(b: np.ndarray | None, like: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The biases of the input and of the recurrence, [directions, gates x hidden] each, zero if absent."""
    if b is None:
        return np.zeros(like.shape[:2], like.dtype), np.zeros(like.shape[:2], like.dtype)
    return b[:, : like.shape[1]], b[:, like.shape[1] :]


def clipper(clip: float | None) -> Activation:
    """Limits what goes into activations to [-clip, clip]."""
    return (lambda x: x) if not clip else lambda x: np.clip(x, -clip, clip)


def infer_recurrent(node: Inference) -> None:
    """Y is [length, directions, batch, hidden], states [directions, batch, hidden]; with layout 1 the batch comes
    first."""
    x, r = node.shape(0), node.shape(2)
    if x is not None and len(x) != 3:
        node.fail(f"the input has shape {x}; it is of rank 3")
    direction = node.attributes["direction"]
    if direction not in DIRECTIONS:
        node.fail(f"direction {direction!r} is not one of {', '.join(DIRECTIONS)}")
    hidden: Dim = node.attributes["hidden_size"] or (r[2] if r is not None and len(r) == 3 else None)
    length, batch = (
        (x[1], x[0]) if x is not None and node.attributes["layout"] else (x[0], x[1]) if x is not None else (None, None)
    )
    count = DIRECTIONS[direction]
    layout = node.attributes["layout"]
    node.set(0, node.dtype(0), (batch, length, count, hidden) if layout else (length, count, batch, hidden))
    for index in (1, 2):
        node.set(index, node.dtype(0), (batch, count, hidden) if layout else (count, batch, hidden))


def plain_outputs(node: Node, build: Builder) -> None:
    """Before opset 7 an attribute said whether all hidden states are an output, which the output's name says; GRU-1's
    default direction was misspelt."""
    node.attributes.pop("output_sequence", None)
    if node.attributes.get("direction") == "foward":
        node.attributes["direction"] = "forward"
