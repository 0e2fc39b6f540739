"""Gradients of RNN, GRU, LSTM and LinearAttention: formulas of one time step after another, or operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...runtime.ir.op import Undecomposable
from ..attention.linear_attention import RULES, linear_attention
from ..recurrent.gru import gru
from ..recurrent.lstm import lstm
from ..recurrent.lstm_steps import lstm_steps, stacked
from ..recurrent.recurrent import ACTIVATIONS, DIRECTIONS, activated
from ..recurrent.rnn import rnn
from ..rules.domain import CANDLE
from ..rules.expression import Term
from .gradient_rule import Step, differentiated, differentiated_as

Function = Callable[[Term], Term]
Cell = Callable[..., tuple[Term, ...]]
"""From what the input adds to the gates at a time [batch, gates x hidden], and the states, to the next states."""


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

    def limited(self, x: Term) -> Term:
        """What goes into activations, in [-clip, clip]."""
        return x.call("Clip", x.number(-self._clip), x.number(self._clip)) if self._clip else x

    def state(self, index: int) -> Term:
        """An initial state [directions, batch, hidden], zero where it is not given."""
        given = self.step.x[index] if index < len(self.step.x) else None
        if given is not None:
            return given.transposed([1, 0, 2]) if self.batch_first else given
        shape = self.step.integers([len(self.directions), self.batch, self.hidden])
        return self.x.number(0).call("Expand", shape)

    def biases(self, direction: int) -> tuple[Term, Term] | None:
        """Those of the input and of the recurrence."""
        if self.bias is None:
            return None
        both, wide = self.bias.entry(0, direction), self.gates * self.hidden
        return both.part(0, 0, wide), both.part(0, wide, 2 * wide)

    def projected(self, direction: int, bias: Term | None) -> Term:
        """What the inputs add to the gates, [length, batch, gates x hidden]."""
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

    def gate(self, term: Term, index: int, count: int = 1) -> Term:
        """The columns of some gates."""
        return term.part(term.axes - 1, index * self.hidden, (index + count) * self.hidden)


def _summed(biases: tuple[Term, Term] | None) -> Term | None:
    return None if biases is None else biases[0] + biases[1]


@differentiated_as(rnn)
def _rnn(step: Step) -> list[Term | None]:
    run = Recurrence(step, 1, ("Tanh",))

    def cell(direction: int) -> Cell:
        weights, f = run.r.entry(0, direction).transposed([1, 0]), run.functions[direction]
        return lambda added, h: (f(run.limited(added + h.call("MatMul", weights))),)

    count = range(len(run.directions))
    return run.run(
        [cell(each) for each in count],
        [run.projected(each, _summed(run.biases(each))) for each in count],
        [run.state(5)],
    )


@differentiated_as(gru)
def _gru(step: Step) -> list[Term | None]:
    run, linear = Recurrence(step, 3, ("Sigmoid", "Tanh")), step.attributes["linear_before_reset"]

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
    same = run.names == [name.lower() for name in usual] * len(run.directions)
    if same and run.length and not (coupled or step.attributes["clip"]) and peepholes is None:
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


def _usual_lstm(run: Recurrence) -> list[Term | None]:
    """By LSTMSteps, whose gates are in another order."""

    def ordered(gates: Term) -> Term:
        first, *rest = [gates.part(0, place * run.hidden, (place + 1) * run.hidden) for place in (0, 2, 3, 1)]
        return first.concatenated(*rest, axis=0)

    outputs, last = [], []
    for direction, name in enumerate(run.directions):
        bias = _summed(run.biases(direction))
        added = run.x.call("MatMul", ordered(run.w.entry(0, direction)).transposed([1, 0]))
        if bias is not None:
            added = added + ordered(bias)
        inputs = ordered(run.r.entry(0, direction)), *(run.state(index).entry(0, direction) for index in (5, 6))
        reverse = int(name == "reverse")
        hidden, cells, _ = added.calls("LSTMSteps", *inputs, run.lengths, domain=CANDLE, outputs=3, reverse=reverse)
        end = 0 if reverse else run.length - 1
        last.append((hidden.entry(0, end), cells.entry(0, end)))
        if run.lengths is not None:
            times = run.lengths.constant([[time] for time in range(run.length)], "int32")
            hidden = (run.lengths > times).unsqueezed(2).where(hidden, 0)
        outputs.append(hidden)
    return run.joined(outputs, last)


@differentiated(lstm_steps)
def _lstm_steps(step: Step) -> list[Term | None]:
    r, h, c = (step.input(index) for index in (1, 2, 3))
    lengths, reverse = (*step.x, None)[4], step.attributes["reverse"]
    hidden, cells, gates = (step.output(index) for index in range(3))
    by_hidden, by_cells, by_gates = (*step.g, None, None)[:3]
    by_added, by_h, by_c = gates.calls(
        "LSTMStepsGrad",
        *(cells, c, r, hidden.filled(0) if by_hidden is None else by_hidden, by_cells, by_gates, lengths),
        domain=CANDLE,
        outputs=3,
        reverse=reverse,
    )
    times, batch, width = step.input(0).lengths
    first = h.unsqueezed(0)
    if reverse:
        before = hidden.part(0, 1, times).concatenated(first, axis=0)
    else:
        before = first.concatenated(hidden.part(0, 0, times - 1), axis=0)
    grads = by_added.reshaped(times * batch, width).transposed([1, 0])
    return [by_added, grads.call("MatMul", before.reshaped(times * batch, width // 4)), by_h, by_c]


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
