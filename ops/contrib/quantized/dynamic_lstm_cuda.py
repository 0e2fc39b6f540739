"""DynamicQuantizeLSTM on the device, decomposed into other operators; hidden states of a step share one scale, as on
the CPU."""

from __future__ import annotations

import numpy as np

from ....runtime.cuda.plan.kernel_api import decomposed
from ....runtime.ir.domain import MICROSOFT
from ....runtime.tensor.dtype import I64
from ...recurrent.recurrent import DIRECTIONS
from ...recurrent.recurrent_cuda import activations_of
from ...rules.decompose_cuda import Form, forms
from ...rules.expression import Term
from .dynamic_lstm import dynamic_quantize_lstm


class _Direction:
    """One set of weights under construction."""

    def __init__(self, form: Form, at: int, backwards: bool) -> None:
        self.form, self.at, self.backwards = form, at, backwards
        self.x = form.input(0)
        self.length, self.batch, _ = self.x.lengths
        self.hidden = form.input(2).lengths[1]
        ends = form.optional_input(4)
        self.ends = None if ends is None else ends.cast(I64)
        self.applied = activations_of(form.node, ["Sigmoid", "Tanh", "Tanh"], DIRECTIONS[form.attributes["direction"]])[
            3 * at : 3 * at + 3
        ]

    def own(self, index: int) -> Term | None:
        """An input's part for this direction."""
        found = self.form.optional_input(index)
        return None if found is None else found.part(0, self.at, self.at + 1).call("Squeeze", self.form.constant([0]))

    def product(self, a: Term, index: int, scale: int) -> Term:
        """With the weights of an input, of which the scale and the zero point are others."""
        return self.form.node_of(
            "DynamicQuantizeMatMul", [a, self.own(index), self.own(scale), self.own(scale + 1)], 1, MICROSOFT
        )[0]

    def time_reversed(self, term: Term) -> Term:
        """[length, batch, ...] from the last time of each sequence to its first, for a direction that goes
        backwards."""
        if not self.backwards:
            return term
        if self.ends is None:
            return term.part(0, -1, -self.length - 1, -1)
        return term.call("ReverseSequence", self.ends, batch_axis=1, time_axis=0)

    def state(self, index: int) -> Term:
        """The initial state, [batch, hidden]."""
        found = self.own(index)
        return self.form.constant(np.zeros((self.batch, self.hidden)), "float32") if found is None else found

    def gate(self, term: Term, place: int) -> Term:
        """One of four parts of the last axis."""
        return term.part(-1, place * self.hidden, (place + 1) * self.hidden)

    def cell(self, gates: Term, c: Term, bias: Term | None, peepholes: Term | None) -> tuple[Term, Term]:
        """The next hidden and cell states."""
        (f, g, h_of), clip = self.applied, self.form.attributes["clip"]

        def made(place: int, state: Term | None) -> Term:
            found = self.gate(gates, place)
            if peepholes is not None and state is not None:
                found = found + self.gate(peepholes, place) * state
            found = found if bias is None else found + self.gate(bias, place)
            return found.call("Clip", found.number(-clip), found.number(clip)) if clip else found

        taken = f(made(0, c))
        kept = 1 - taken if self.form.attributes["input_forget"] else f(made(2, c))
        state = kept * c + taken * g(made(3, None))
        return f(made(1, state)) * h_of(state), state

    def run(self) -> tuple[Term, Term, Term]:
        """All hidden states [length, batch, hidden], the last ones, and the last cell states."""
        added, h, c = self.time_reversed(self.product(self.x, 1, 8)), self.state(5), self.state(6)
        both, seen, every = self.own(3), h, []
        width = 4 * self.hidden
        bias = None if both is None else both.part(0, 0, width) + both.part(0, width, 2 * width)
        for turn in range(self.length):
            gates = added.part(0, turn, turn + 1).call("Squeeze", self.form.constant([0])) + self.product(seen, 2, 10)
            then_h, then_c = self.cell(gates, c, bias, self.own(7))
            if self.ends is None:
                h, c = then_h, then_c
                seen = h
            else:
                running = self.form.constant([turn]).call("Less", self.ends).call("Unsqueeze", self.form.constant([1]))
                h, c = running.where(then_h, h), running.where(then_c, c)
                seen = running.where(h, h.number(0))
            every.append(seen.call("Unsqueeze", self.form.constant([0])))
        return self.time_reversed(every[0].call("Concat", *every[1:], axis=0)), h, c


def _lstm(form: Form) -> None:
    name = form.attributes["direction"]
    ways = ["forward", "reverse"] if DIRECTIONS[name] == 2 else [name]
    found = [_Direction(form, at, way == "reverse").run() for at, way in enumerate(ways)]
    for index, axis in enumerate((1, 0, 0)):
        parts = [direction[index].call("Unsqueeze", form.constant([axis])) for direction in found]
        form.give(index, parts[0].call("Concat", *parts[1:], axis=axis))


decomposed(dynamic_quantize_lstm)(forms(_lstm))
