"""Gradients of RNN, GRU, LSTM and LinearAttention: formulas of one time step after another, or operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....runtime.ir.domain import CANDLE
from ....runtime.ir.op import Undecomposable
from ...attention.linear_attention import RULES, linear_attention
from ...recurrent.gru import gru
from ...recurrent.gru_steps import gru_steps
from ...recurrent.lstm import lstm
from ...recurrent.lstm_steps import lstm_steps
from ...recurrent.recurrent import ACTIVATIONS, DIRECTIONS, activated
from ...recurrent.rnn import rnn
from ...recurrent.rnn_steps import rnn_steps
from ...recurrent.steps import stacked
from ...rules.expression import Term
from ..gradient_rule import Step, differentiated, differentiated_as

Function = Callable[[Term], Term]
Cell = Callable[..., tuple[Term, ...]]
"""From what the input adds to the gates at a time [batch, gates x hidden], and the states, to the next states."""
Steps = Callable[[int, Term, Term, Sequence[Term], int], list[Term]]
"""From a direction, what its inputs add to the gates at all times, its weight of the hidden state, its first states,
and 1 if it begins with the last time, to the states of all times [times, batch, hidden]."""


class Recurrence:
    """The inputs of a recurrent node of so many gates, with the time as first axis.

    Attributes:
        names, functions: activations of all directions, one after another.
    """

    def __init__(self, step: Step, gates: int, names: Sequence[str]) -> None:
        self.step, options = step, step.attributes
        x, self.w, self.r = step.input(0), step.input(1), step.input(2)
        self.bias, self.lengths = ((*step.x, None, None)[index] for index in (3, 4))
        self.batch_first = bool(options["layout"])
        self.x = x.transposed([1, 0, 2]) if self.batch_first else x
        self.length, self.batch, _ = self.x.lengths
        count = DIRECTIONS[options["direction"]]
        self.directions = ("forward", "reverse") if count == 2 else (options["direction"],)
        self.hidden = self.r.lengths[2]
        self.gates = gates
        given = list(options["activations"] or [*names] * count)
        alphas, betas = list(options["activation_alpha"] or []), list(options["activation_beta"] or [])
        self._clip = options["clip"]

        def function(name: str) -> Function:
            if name.lower() not in ACTIVATIONS:
                raise Undecomposable(f"activation {name!r} is not known")
            _, *defaults = ACTIVATIONS[name.lower()]
            values = [
                (left.pop(0) if left else default)
                for left, default in zip((alphas, betas), defaults, strict=True)
                if default is not None
            ]
            return lambda x: activated(x, name, values)

        self.names = [name.lower() for name in given]
        self.functions = [function(name) for name in given[: len(names) * count]]

    def uses(self, names: Sequence[str]) -> bool:
        """Whether all directions have these activations."""
        return self.names == [name.lower() for name in names] * len(self.directions)

    def limited(self, x: Term) -> Term:
        """Clip inputs of activations to [-clip, clip]."""
        return x.call("Clip", x.number(-self._clip), x.number(self._clip)) if self._clip else x

    def state(self, index: int) -> Term:
        """An initial state [directions, batch, hidden], zero where it is not given."""
        given = self.step.x[index] if index < len(self.step.x) else None
        if given is not None:
            return given.transposed([1, 0, 2]) if self.batch_first else given
        shape = self.step.integers([len(self.directions), self.batch, self.hidden])
        return self.x.number(0).call("Expand", shape)

    def biases(self, direction: int) -> tuple[Term, Term] | None:
        """The biases of the input and of the recurrence."""
        if self.bias is None:
            return None
        both, wide = self.bias.entry(0, direction), self.gates * self.hidden
        return both.part(0, 0, wide), both.part(0, wide, 2 * wide)

    def projected(self, direction: int, bias: Term | None) -> Term:
        """Input contributions to the gates, [length, batch, gates x hidden]."""
        made = self.x.call("MatMul", self.w.entry(0, direction).transposed([1, 0]))
        return made if bias is None else made + bias

    def run(self, cells: Sequence[Cell], added: Sequence[Term], states: Sequence[Term]) -> list[Term | None]:
        """All hidden states, and each state after the last time."""
        outputs, last = [], []
        for direction, (cell, inputs) in enumerate(zip(cells, added, strict=True)):
            now = tuple(state.entry(0, direction) for state in states)
            found: list[Term] = [now[0]] * self.length
            forward = self.directions[direction] == "forward"
            for time in range(self.length) if forward else reversed(range(self.length)):
                then = cell(inputs.entry(0, time), *now)
                if self.lengths is None:
                    now, found[time] = then, then[0]
                else:
                    runs = (self.lengths > time).unsqueezed(1)
                    now = tuple(runs.where(new, old) for new, old in zip(then, now, strict=True))
                    found[time] = runs.where(then[0], 0)
            outputs.append(stacked(found) if found else now[0].unsqueezed(0).part(0, 0, 0))
            last.append(now)
        return self.joined(outputs, last)

    def joined(self, outputs: Sequence[Term], last: Sequence[tuple[Term, ...]]) -> list[Term | None]:
        """The operator's outputs, of hidden states [times, batch, hidden] and last states of each direction."""
        y = stacked(outputs).transposed([1, 0, 2, 3])
        finals = [stacked(each) for each in zip(*last, strict=True)]
        if self.batch_first:
            return [y.transposed([2, 0, 1, 3]), *(state.transposed([1, 0, 2]) for state in finals)]
        return [y, *finals]

    def by_steps(
        self, places: Sequence[int], biases: Sequence[Term | None], states: Sequence[Term], steps: Steps
    ) -> list[Term | None]:
        """The operator's outputs by operators of all time steps, whose gates are those at `places`, in this order.

        Args:
            biases: what is added to the products of inputs, of each direction.
            states: first states, [directions, batch, hidden].
        """
        outputs, last = [], []
        for direction, name in enumerate(self.directions):
            added = self.x.call("MatMul", self.ordered(self.w.entry(0, direction), places).transposed([1, 0]))
            bias, reverse = biases[direction], int(name == "reverse")
            if bias is not None:
                added = added + self.ordered(bias, places)
            first = [state.entry(0, direction) for state in states]
            found = steps(direction, added, self.ordered(self.r.entry(0, direction), places), first, reverse)
            end = 0 if reverse else self.length - 1
            last.append(tuple(state.entry(0, end) for state in found))
            hidden = found[0]
            if self.lengths is not None:
                times = self.lengths.constant([[time] for time in range(self.length)], "int32")
                hidden = (self.lengths > times).unsqueezed(2).where(hidden, 0)
            outputs.append(hidden)
        return self.joined(outputs, last)

    def ordered(self, gates: Term, places: Sequence[int]) -> Term:
        """Gates along the first axis in another order."""
        first, *rest = [gates.part(0, place * self.hidden, (place + 1) * self.hidden) for place in places]
        return first.concatenated(*rest, axis=0)

    def gate(self, term: Term, index: int, count: int = 1) -> Term:
        """The columns of some gates."""
        return term.part(term.axes - 1, index * self.hidden, (index + count) * self.hidden)


def _summed(biases: tuple[Term, Term] | None) -> Term | None:
    return None if biases is None else biases[0] + biases[1]


@differentiated_as(rnn)
def _rnn(step: Step) -> list[Term | None]:
    run = Recurrence(step, 1, ("Tanh",))
    count = range(len(run.directions))
    if set(run.names[: len(count)]) <= {"tanh", "relu"} and run.length and not step.attributes["clip"]:

        def steps(direction: int, added: Term, r: Term, states: Sequence[Term], reverse: int) -> list[Term]:
            options = {"activation": run.names[direction].title(), "reverse": reverse}
            return added.calls("RNNSteps", r, *states, run.lengths, domain=CANDLE, **options)

        return run.by_steps((0,), [_summed(run.biases(each)) for each in count], [run.state(5)], steps)

    def cell(direction: int) -> Cell:
        weights, f = run.r.entry(0, direction).transposed([1, 0]), run.functions[direction]
        return lambda added, h: (f(run.limited(added + h.call("MatMul", weights))),)

    return run.run(
        [cell(each) for each in count],
        [run.projected(each, _summed(run.biases(each))) for each in count],
        [run.state(5)],
    )


@differentiated_as(gru)
def _gru(step: Step) -> list[Term | None]:
    usual = ("Sigmoid", "Tanh")
    run, linear = Recurrence(step, 3, usual), step.attributes["linear_before_reset"]
    if linear and run.uses(usual) and run.length and not step.attributes["clip"]:
        return _usual_gru(run)

    def projected(direction: int) -> Term:
        biases = run.biases(direction)
        if biases is None:
            return run.projected(direction, None)
        inner = biases[1] if not linear else run.gate(biases[1], 0, 2).concatenated(run.gate(biases[1], 2) * 0, axis=0)
        return run.projected(direction, biases[0] + inner)

    def cell(direction: int) -> Cell:
        weights, biases = run.r.entry(0, direction).transposed([1, 0]), run.biases(direction)
        gates, candidate = run.gate(weights, 0, 2), run.gate(weights, 2)
        f, g = run.functions[2 * direction : 2 * direction + 2]

        def next_state(added: Term, h: Term) -> tuple[Term]:
            opened = f(run.limited(run.gate(added, 0, 2) + h.call("MatMul", gates)))
            update, reset = run.gate(opened, 0), run.gate(opened, 1)
            if linear:
                inner = h.call("MatMul", candidate)
                inner = reset * (inner if biases is None else inner + run.gate(biases[1], 2))
            else:
                inner = (reset * h).call("MatMul", candidate)
            return ((1 - update) * g(run.limited(run.gate(added, 2) + inner)) + update * h,)

        return next_state

    count = range(len(run.directions))
    return run.run([cell(each) for each in count], [projected(each) for each in count], [run.state(5)])


@differentiated_as(lstm)
def _lstm(step: Step) -> list[Term | None]:
    usual = ("Sigmoid", "Tanh", "Tanh")
    run, coupled = Recurrence(step, 4, usual), step.attributes["input_forget"]
    peepholes = step.x[7] if len(step.x) > 7 else None
    if run.uses(usual) and run.length and not (coupled or step.attributes["clip"]) and peepholes is None:
        return _usual_lstm(run)

    def cell(direction: int) -> Cell:
        weights = run.r.entry(0, direction).transposed([1, 0])
        f, g, h_of = run.functions[3 * direction : 3 * direction + 3]
        peep = None if peepholes is None else peepholes.entry(0, direction)

        def seen(gates: Term, index: int, place: int, state: Term) -> Term:
            gate = run.gate(gates, index)
            return f(run.limited(gate if peep is None else gate + run.gate(peep, place) * state))

        def next_states(added: Term, h: Term, c: Term) -> tuple[Term, Term]:
            gates = added + h.call("MatMul", weights)
            taken = seen(gates, 0, 0, c)
            kept = 1 - taken if coupled else seen(gates, 2, 2, c)
            state = kept * c + taken * g(run.limited(run.gate(gates, 3)))
            return seen(gates, 1, 1, state) * h_of(state), state

        return next_states

    count = range(len(run.directions))
    added = [run.projected(each, _summed(run.biases(each))) for each in count]
    return run.run([cell(each) for each in count], added, [run.state(5), run.state(6)])


def _usual_gru(run: Recurrence) -> list[Term | None]:
    biases, order = [run.biases(direction) for direction in range(len(run.directions))], (1, 0, 2)

    def steps(direction: int, added: Term, r: Term, states: Sequence[Term], reverse: int) -> list[Term]:
        both = biases[direction]
        inputs = r, *states, None if both is None else run.ordered(both[1], order), run.lengths
        return added.calls("GRUSteps", *inputs, domain=CANDLE, outputs=2, reverse=reverse)[:1]

    return run.by_steps(order, [None if both is None else both[0] for both in biases], [run.state(5)], steps)


def _usual_lstm(run: Recurrence) -> list[Term | None]:
    def steps(direction: int, added: Term, r: Term, states: Sequence[Term], reverse: int) -> list[Term]:
        return added.calls("LSTMSteps", r, *states, run.lengths, domain=CANDLE, outputs=3, reverse=reverse)[:2]

    biases = [_summed(run.biases(direction)) for direction in range(len(run.directions))]
    return run.by_steps((0, 2, 3, 1), biases, [run.state(5), run.state(6)], steps)


@differentiated(lstm_steps)
def _lstm_steps(step: Step) -> list[Term | None]:
    r, h, c = (step.input(index) for index in (1, 2, 3))
    lengths, projection = (*step.x, None, None)[4:6]
    hidden, cells, gates = (step.output(index) for index in range(3))
    by_hidden, by_cells, by_gates = (*step.g, None, None)[:3]
    by_added, by_h, by_c, *by_states = gates.calls(
        "LSTMStepsGrad",
        *(cells, c, r, hidden.filled(0) if by_hidden is None else by_hidden, by_cells, by_gates, lengths, projection),
        domain=CANDLE,
        outputs=3 if projection is None else 4,
        reverse=step.attributes["reverse"],
    )
    by_r = _matrix_gradient(r, by_added, _states_before(step, hidden, h))
    by_projection = None
    if projection is not None:
        width = c.lengths[1]
        let = gates.part(2, 3 * width, 4 * width) * cells.call("Tanh")
        by_projection = _matrix_gradient(projection, by_states[0], let)
    return [by_added, by_r, by_h, by_c, None, by_projection]


@differentiated(gru_steps)
def _gru_steps(step: Step) -> list[Term | None]:
    r, h = step.input(1), step.input(2)
    bias, lengths = (*step.x, None, None)[3:5]
    hidden, gates = step.output(0), step.output(1)
    by_hidden, by_gates = (*step.g, None)[:2]
    by_added, by_product, by_h = gates.calls(
        "GRUStepsGrad",
        *(hidden, h, r, hidden.filled(0) if by_hidden is None else by_hidden, by_gates, lengths),
        domain=CANDLE,
        outputs=3,
        reverse=step.attributes["reverse"],
    )
    by_bias = None if bias is None else by_product.summed_to(bias)
    return [by_added, _matrix_gradient(r, by_product, _states_before(step, hidden, h)), by_h, by_bias]


@differentiated(rnn_steps)
def _rnn_steps(step: Step) -> list[Term | None]:
    r, h, hidden = step.input(1), step.input(2), step.output(0)
    inputs = r, step.grad, (*step.x, None)[3]
    options = {name: step.attributes[name] for name in ("activation", "reverse")}
    by_added, by_h = hidden.calls("RNNStepsGrad", *inputs, domain=CANDLE, outputs=2, **options)
    return [by_added, _matrix_gradient(r, by_added, _states_before(step, hidden, h)), by_h]


def _states_before(step: Step, hidden: Term, first: Term) -> Term:
    """The hidden state [times, batch, size] that each time begins with."""
    times, first = hidden.lengths[0], first.unsqueezed(0)
    if step.attributes["reverse"]:
        return hidden.part(0, 1, times).concatenated(first, axis=0)
    return first.concatenated(hidden.part(0, 0, times - 1), axis=0)


def _matrix_gradient(matrix: Term, grads: Term, factors: Term) -> Term:
    """The gradient of a matrix [columns, size] that factors [times, batch, size] were multiplied by at all times, of
    the gradients [times, batch, columns] of these products."""
    columns, size = matrix.lengths
    return grads.reshaped(-1, columns).transposed([1, 0]).call("MatMul", factors.reshaped(-1, size))


@differentiated_as(linear_attention)
def _linear_attention(step: Step) -> list[Term | None]:
    query, key, value, past, decay, beta = (*step.x, None, None, None)[:6]
    assert query is not None
    assert key is not None
    assert value is not None
    heads, groups = step.attributes["q_num_heads"], step.attributes["kv_num_heads"]
    gated, corrected = RULES[step.attributes["update_rule"]]
    batch, length, _ = query.lengths
    if not length:
        raise Undecomposable("of no tokens")

    def split(term: Term, count: int) -> Term:
        """[batch, count, length, size]"""
        return term.reshaped(batch, length, count, term.lengths[2] // count).transposed([0, 2, 1, 3])

    q, k, v = split(query, heads), split(key, groups), split(value, groups)
    depth, wide = k.lengths[3], v.lengths[3]
    q = q.reshaped(batch, groups, heads // groups, length, depth)
    if past is None:
        past = query.number(0).call("Expand", step.integers([batch, groups, depth, wide]))
    state = past.call("CastLike", query)
    kept = None if decay is None or not gated else split(decay, groups).call("Exp")
    rate = None if beta is None or not corrected else split(beta, groups if beta.lengths[2] == groups else 1)
    scale = step.attributes["scale"] or depth**-0.5
    outputs = []
    for token in range(length):
        at, write = k.part(2, token, token + 1), v.part(2, token, token + 1)
        if kept is not None:
            state = state * kept.part(2, token, token + 1).transposed([0, 1, 3, 2])
        if rate is not None:
            write = rate.part(2, token, token + 1) * (write - at.call("MatMul", state))
        state = state + at.transposed([0, 1, 3, 2]).call("MatMul", write)
        outputs.append(q.entry(3, token).call("MatMul", state).unsqueezed(0))
    first, *rest = outputs
    y = first.concatenated(*rest, axis=0) * scale
    return [y.transposed([1, 0, 2, 3, 4]).reshaped(batch, length, heads * wide), state]
