"""RNN, GRU and LSTM on the device: one product for all inputs, then one time step after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...runtime.cuda.plan.kernel_api import decomposed
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node, Value
from ..rules.expression import Term
from .gru import gru
from .lstm import lstm
from .recurrent import ACTIVATIONS, DIRECTIONS, activated
from .rnn import rnn

Activation = Callable[[Term], Term]


def activations_of(node: Node, defaults: Sequence[str], count: int) -> list[Activation]:
    """The activations of so many directions."""
    attributes = {**node.op.defaults, **node.attributes}
    names = attributes["activations"] or [*defaults] * count
    left = [list(attributes["activation_alpha"] or ()), list(attributes["activation_beta"] or ())]

    def made(name: str) -> Activation:
        parameters = [
            float(given.pop(0) if given else default)
            for given, default in zip(left, ACTIVATIONS[name.lower()][1:], strict=True)
            if default is not None
        ]
        return lambda x: activated(x, name, parameters)

    return [made(name) for name in names[: len(defaults) * count]]


class Run:
    """A recurrent node under construction; everything is computed in f32 at least."""

    def __init__(self, node: Node, build: Builder, gates: int) -> None:
        self.node, self.build, self.gates = node, build, gates
        self.attributes = {**node.op.defaults, **node.attributes}
        x = node.inputs[0]
        assert x is not None
        assert x.dtype is not None
        self.narrow = x.dtype if x.dtype.bits < 32 else None
        self.batch_first = bool(self.attributes["layout"])
        found = self.wide(0)
        assert found is not None
        self.x = found.call("Transpose", perm=[1, 0, 2]) if self.batch_first else found
        shape = [length for length in x.shape or () if isinstance(length, int)]
        self.length, self.batch = (shape[1], shape[0]) if self.batch_first else (shape[0], shape[1])
        r = node.inputs[2]
        assert r is not None
        self.hidden = [length for length in r.shape or () if isinstance(length, int)][2]
        name = self.attributes["direction"]
        self.directions = ["forward", "reverse"] if DIRECTIONS[name] == 2 else [name]
        lengths = self.optional_input(4)
        self.lengths = None if lengths is None else Term(lengths, build).call("Unsqueeze", self.integers([1]))

    def integers(self, items: Sequence[int]) -> Term:
        """An i64 constant."""
        return Term(self.build.constant(list(items)), self.build)

    def optional_input(self, index: int) -> Value | None:
        """An input, None where it is absent."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def wide(self, index: int) -> Term | None:
        """An input in f32 where it is narrower."""
        value = self.optional_input(index)
        if value is None:
            return None
        return Term(value, self.build).call("Cast", to=1) if self.narrow is not None else Term(value, self.build)

    def part(self, term: Term, axis: int, start: int, stop: int) -> Term:
        """Positions from `start` to `stop` along an axis."""
        return term.call("Slice", self.integers([start]), self.integers([stop]), self.integers([axis]))

    def row(self, term: Term, index: int) -> Term:
        """Select one index of the first axis and drop the axis."""
        return self.part(term, 0, index, index + 1).call("Squeeze", self.integers([0]))

    def gate(self, term: Term, index: int, count: int = 1) -> Term:
        """Some gates of [batch, gates x hidden]."""
        return self.part(term, 1, index * self.hidden, (index + count) * self.hidden)

    def weights(self, index: int, direction: int) -> Term:
        """A weight of a direction, transposed for products from the left."""
        found = self.wide(index)
        assert found is not None
        return self.row(found, direction).call("Transpose", perm=[1, 0])

    def bias(self, direction: int, recurrent: bool) -> Term | None:
        """[gates x hidden] of a direction, None if absent."""
        found = self.wide(3)
        if found is None:
            return None
        size = self.gates * self.hidden
        return self.part(self.row(found, direction), 0, size * recurrent, size * (recurrent + 1))

    def state(self, index: int, direction: int) -> Term:
        """[batch, hidden] that a direction starts with."""
        found = self.wide(index)
        if found is None:
            assert self.x.value is not None
            zeros = np.zeros((self.batch, self.hidden), np.float64 if self._double() else np.float32)
            return Term(self.build.constant(zeros), self.build)
        return self.row(found.call("Transpose", perm=[1, 0, 2]) if self.batch_first else found, direction)

    def _double(self) -> bool:
        value = self.node.inputs[0]
        return value is not None and value.dtype is not None and value.dtype.bits == 64

    def limited(self, term: Term) -> Term:
        """Clip inputs of activations."""
        clip = self.attributes["clip"]
        return term.call("Clip", term.number(-clip), term.number(clip)) if clip else term

    def run(
        self, cell: Callable[[int, Term, list[Term]], list[Term]], added: Callable[[int], Term], states: Sequence[int]
    ) -> None:
        """Steps of all directions; `cell` takes a direction, what the input adds, and the states."""
        every: list[list[Term]] = [[] for _ in range(self.length)]
        last: list[list[Term]] = []
        for index, name in enumerate(self.directions):
            inputs, now = added(index), [self.state(place, index) for place in states]
            for time in range(self.length) if name == "forward" else reversed(range(self.length)):
                then = cell(index, self.row(inputs, time), now)
                if self.lengths is None:
                    now = then
                    every[time].append(now[0])
                else:
                    running = self.integers([time]).call("Less", self.lengths.call("Cast", to=7))
                    now = [running.where(new, old) for new, old in zip(then, now, strict=True)]
                    every[time].append(running.where(now[0], 0.0))
            last.append(now)
        self._finish(every, last)

    def _stacked(self, terms: Sequence[Term]) -> Term:
        rows = [term.call("Unsqueeze", self.integers([0])) for term in terms]
        return rows[0].call("Concat", *rows[1:], axis=0)

    def _finish(self, every: list[list[Term]], last: list[list[Term]]) -> None:
        found = [self._stacked([self._stacked(items) for items in every])]
        found += [self._stacked([states[place] for states in last]) for place in range(len(last[0]))]
        orders = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
        for value, term, order in zip(self.node.outputs, found, orders, strict=False):
            if value.name:
                made = term.call("Transpose", perm=order) if self.batch_first else term
                name, attributes = ("Identity", {}) if self.narrow is None else ("Cast", {"to": self.narrow.onnx})
                self.build.add(name, [made.value], attributes, outputs=[value])


def _plus(term: Term, *others: Term | None) -> Term:
    for other in others:
        term = term if other is None else term + other
    return term


@decomposed(rnn)
def rnn_of_others(node: Node, build: Builder) -> None:
    """h = f(x W + h R + b)."""
    run = Run(node, build, 1)
    applied = activations_of(node, ["Tanh"], len(run.directions))
    transposed = [run.weights(2, index) for index in range(len(run.directions))]
    run.run(
        lambda index, added, states: [applied[index](run.limited(added + states[0].call("MatMul", transposed[index])))],
        lambda index: _plus(run.x.call("MatMul", run.weights(1, index)), run.bias(index, False), run.bias(index, True)),
        [5],
    )


@decomposed(gru)
def gru_of_others(node: Node, build: Builder) -> None:
    """Update and reset gates, then the candidate."""
    run = Run(node, build, 3)
    applied = activations_of(node, ["Sigmoid", "Tanh"], len(run.directions))
    late = bool(run.attributes["linear_before_reset"])
    transposed = [run.weights(2, index) for index in range(len(run.directions))]
    gates, candidates = ([run.gate(item, *place) for item in transposed] for place in ((0, 2), (2, 1)))
    biases = [run.bias(index, True) for index in range(len(run.directions))]

    def third(term: Term | None) -> Term | None:
        return None if term is None else run.part(term, 0, 2 * run.hidden, 3 * run.hidden)

    def cell(index: int, added: Term, states: list[Term]) -> list[Term]:
        (h,), (f, g) = states, applied[2 * index : 2 * index + 2]
        opened = f(run.limited(run.gate(added, 0, 2) + h.call("MatMul", gates[index])))
        update, reset = run.gate(opened, 0), run.gate(opened, 1)
        if late:
            inner = reset * _plus(h.call("MatMul", candidates[index]), third(biases[index]))
        else:
            inner = _plus((reset * h).call("MatMul", candidates[index]), third(biases[index]))
        return [(1 - update) * g(run.limited(run.gate(added, 2) + inner)) + update * h]

    def added(index: int) -> Term:
        made = _plus(run.x.call("MatMul", run.weights(1, index)), run.bias(index, False))
        bias = biases[index]
        if bias is None:
            return made
        last = third(bias)
        assert last is not None
        return made + run.part(bias, 0, 0, 2 * run.hidden).call("Concat", last * 0.0, axis=0)

    run.run(cell, added, [5])


@decomposed(lstm)
def lstm_of_others(node: Node, build: Builder) -> None:
    """Input, output and forget gates, and the cell state."""
    run = Run(node, build, 4)
    applied = activations_of(node, ["Sigmoid", "Tanh", "Tanh"], len(run.directions))
    transposed = [run.weights(2, index) for index in range(len(run.directions))]
    peepholes = run.wide(7)

    def cell(index: int, added: Term, states: list[Term]) -> list[Term]:
        (h, c), (f, g, h_of) = states, applied[3 * index : 3 * index + 3]
        whole = added + h.call("MatMul", transposed[index])

        def gate(place: int, peephole: int, state: Term) -> Term:
            values = run.gate(whole, place)
            if peepholes is not None:
                row = run.row(peepholes, index)
                values = values + run.part(row, 0, peephole * run.hidden, (peephole + 1) * run.hidden) * state
            return f(run.limited(values))

        taken = gate(0, 0, c)
        kept = 1 - taken if run.attributes["input_forget"] else gate(2, 2, c)
        state = kept * c + taken * g(run.limited(run.gate(whole, 3)))
        return [gate(1, 1, state) * h_of(state), state]

    run.run(
        cell,
        lambda index: _plus(run.x.call("MatMul", run.weights(1, index)), run.bias(index, False), run.bias(index, True)),
        [5, 6],
    )
