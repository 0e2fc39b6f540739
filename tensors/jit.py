"""jit: a function is traced once for each structure of its arguments; later calls run the plan of the trace."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..runtime.base.dataclass import dataclass
from ..runtime.base.errors import UsageError
from ..runtime.ir.graph import Graph
from .core.autocast import AUTOCAST
from .core.expression import Expression, TensorType, apply, leaf, op_named, placeholder
from .core.grad_mode import GRAD_MODE
from .core.nested import count, flattened, restored
from .core.plan import Plan, StepError
from .core.realize import Structure, collected, located, realize, trim
from .core.resident_state import ResidentState
from .core.tensor import Tensor
from .core.trace import TRACE, Changes

MAX_TRACES, MAX_STEPS = 256, 1 << 17
"""Structures of arguments whose traces a function keeps, and steps of their plans; the oldest are dropped when there
are more."""


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is traced when it is first called with tensors of these dtypes and shapes, and other arguments of
    these values; later calls run the plan of the trace.

    What the function does to tensors besides returning them is part of the plan: values that it reads from outside are
    read at each call, and changed values and gradients, as of an optimizer, are written; random numbers are drawn
    again. Everything else in the function happens while it is traced only. Results have no gradient history.

    Raises UsageError if the function needs values while it is traced.
    """
    traces: dict[Any, list[Trace]] = {}
    latest: list[Trace] = []

    def run(trace: Trace, tensors: Sequence[Tensor]) -> Any:
        """The result of a trace; only the latest one keeps arrays."""
        for other in latest:
            if other is not trace:
                other.release()
        latest[:] = [trace]
        return trace.run(tensors)

    @functools.wraps(function)
    def traced(*arguments: Any, **options: Any) -> Any:
        if TRACE.changes is not None:
            return function(*arguments, **options)
        tensors: list[Tensor] = []
        structure = flattened((arguments, options), tensors)
        types = [(tensor.expression.type, tensor.expression.needs_grad) for tensor in tensors]
        key = (structure, tuple(types), GRAD_MODE.enabled, AUTOCAST.dtype)
        try:
            known = traces.get(key)
        except TypeError as error:
            why = f"an argument of {function.__name__} under jit is neither a tensor nor hashable ({error})"
            raise UsageError("E-TENSOR-TRACE", None, why, hint="Pass tensors, numbers and strings") from error
        for trace in known or ():
            if trace.applies():
                return run(trace, tensors)
        trace = Trace(function, structure, tensors)
        result = run(trace, tensors)
        traces[key] = [*traces.pop(key, ()), trace]
        trim(traces, [sum(each.steps for each in made) for made in traces.values()], MAX_TRACES, MAX_STEPS)
        return result

    return traced


@dataclass(frozen=True)
class Source:
    """The source of an input of a trace's plan.

    Attributes:
        array: gives the elements for a run whose arguments are these tensors.
        place: number of the argument, None for anything else.
        tensor: from outside of the function, whose values are read at each run.
        draw: makes new elements for each run, as of random numbers.
    """

    array: Callable[[Sequence[Tensor]], np.ndarray]
    place: int | None = None
    tensor: Tensor | None = None
    draw: Callable[[], np.ndarray] | None = None


class Trace:
    """A traced call: the plan of its values, and where the plan's inputs come from.

    Attributes:
        sources: what the inputs of its graph are.
        counting: what counts the runs, as an optimizer its steps.
    """

    def __init__(self, function: Callable[..., Any], structure: Any, tensors: Sequence[Tensor]) -> None:
        realize([tensor.expression for tensor in tensors])
        given = [_argument(tensor) for tensor in tensors]
        start = given[0].expression.order if given else placeholder(_NOTHING).order
        changes = Changes()
        try:
            TRACE.changes = changes
            arguments, options = restored(structure, iter(given))
            result = function(*arguments, **options)
            results: list[Tensor] = []
            self._structure = flattened(result, results)
            outputs = [each.expression for each in results]
            values = [(value, value.expression) for value in changes.values]
            grads = [(grad, grad.grad) for grad in changes.grads]
        except BaseException:
            changes.restore_counts()
            raise
        finally:
            try:
                _end(changes)
            except KeyboardInterrupt:
                _end(changes)
                raise
        del result, results, arguments, options
        _forget_local(changes, values, grads)
        values = [(each, now) for each, now in values if now is not changes.values[each]]
        written = {each for each, _ in values}
        values = [(each, now) for each, now in values if not _follows(each, written)]
        grads = [(each, now) for each, now in grads if now is not changes.grads[each]]
        self._changed = [(each, now.needs_grad) for each, now in values]
        self._grads = [(each, now is not None) for each, now in grads]
        outputs += [now for _, now in values]
        outputs += [now.expression for _, now in grads if now is not None]
        outputs = [apply(op_named("Identity"), [output]) if output.signature is None else output for output in outputs]
        self._arguments = {each: index for index, each in enumerate(given)}
        self._settings = changes.settings
        self._before = [
            (each, before is None)
            for each, before in changes.grads.items()
            if each in changes.reads and each not in self._arguments
        ]
        self.counting, self._guards = [each for each, _ in changes.counting], changes.guards
        self._counts: list[Any] | None = [counts for _, counts in changes.counting]
        self._runs, self._fed, self._reads_grads = 0, list[int](), False
        self._resident: ResidentState | None = None
        try:
            self._plan_outputs(outputs, start, changes, {each.expression: n for n, each in enumerate(given)})
        except BaseException:
            changes.restore_counts()
            raise

    def _plan_outputs(
        self, outputs: list[Expression], start: int, changes: Changes, places: dict[Expression, int]
    ) -> None:
        """Plan the outputs; find out what each array that the plan is fed is at a later call."""
        outside = [item for item in collected(outputs) if item.order < start and item.data is None]
        realize([item for item in outside if item.inputs])
        owners: dict[Expression, Callable[[], Tensor | None]] = {}
        for tensor, before in changes.values.items():
            if before.order < start or not before.inputs:
                owners[before] = functools.partial(_itself, tensor)
        for tensor, before in changes.grads.items():
            if before is not None:
                owners[before.expression] = functools.partial(_grad_of, tensor)
        grads = {before.expression for before in changes.grads.values() if before is not None}
        order = collected(outputs)
        for item in places:
            item.data = _UNKNOWN
        structure = Structure(order, set(outputs))
        structure.wanted = sorted({structure.slots[item] for item in outputs})
        for item in places:
            item.data = None
        self._plan: Plan = structure.plan()
        self._lines = structure.lines
        self._plan.compile()
        by_slot = {slot: item for item, slot in structure.slots.items() if item.data is not None or item in places}
        self.sources: list[Source] = []
        self._expected: list[tuple[Callable[[], Tensor | None], TensorType, bool]] = []
        for slot in structure.feeds:
            item = by_slot[slot]
            array = item.data
            while item not in owners and item not in places and not _is_held(item, start) and item.inputs:
                assert item.inputs[0] is not None
                item = item.inputs[0]
            if item in places:
                self.sources.append(Source(functools.partial(_argument_array, places[item]), place=places[item]))
            elif item in changes.draws:
                draw = changes.draws[item]
                self.sources.append(Source(functools.partial(_drawn_array, draw, [item.data]), draw=draw))
            elif item in owners or _is_held(item, start):
                assert item.holder is not None or item in owners
                owner = owners.get(item) or functools.partial(_itself, item.holder())  # type: ignore[misc]
                self.sources.append(Source(functools.partial(_owned_array, owner), tensor=owner()))
                self._reads_grads = self._reads_grads or item in grads
                self._expected.append((owner, item.type, item.needs_grad))
            else:
                assert array is not None
                self.sources.append(Source(functools.partial(_same_array, array)))
        where = {slot: index for index, slot in enumerate(self._plan.wanted)}
        self._places = [where[structure.slots[item]] for item in outputs]

    def applies(self) -> bool:
        """Whether the tensors and settings that the function reads from outside are as they were when it was traced."""
        for (item, name), value in self._settings.items():
            if getattr(item, name) != value:
                return False
        for tensor, was_none in self._before:
            if (tensor.grad is None) != was_none:
                return False
        for owner, type, needs_grad in self._expected:
            tensor = owner()
            if tensor is None or tensor.expression.type is not type or tensor.expression.needs_grad != needs_grad:
                return False
        return all(guard() for guard in self._guards)

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """The result for these arguments; changes of other tensors are made."""
        counts, self._counts = self._counts, None
        is_first = counts is not None
        if counts is None:
            counts = [each.counts() for each in self.counting]
        self._is_settled = False
        try:
            if not is_first:
                for each in self.counting:
                    each.advance()
            return self._computed(tensors)
        except BaseException:
            if not self._is_settled:
                for each, before in zip(self.counting, counts, strict=True):
                    each.restore(before)
            raise

    def _computed(self, tensors: Sequence[Tensor]) -> Any:
        """As `run`, of a call that is counted."""
        if self._resident is not None:
            fed = [(index, self.sources[index].array(tensors)) for index in self._fed]
            try:
                found = self._resident.run(fed, self._places[: count(self._structure)])
            finally:
                self._is_settled = self._resident.is_settled
            if found is not None:
                return restored(self._structure, iter([Tensor(leaf(each)) for each in found]))
            drawn = dict(fed)
        else:
            drawn = {}
        arrays = [
            drawn[index] if index in drawn else source.array(tensors) for index, source in enumerate(self.sources)
        ]
        result = self._run_plan(arrays, tensors)
        if self._runs == 1:
            self._keep(arrays)
        self._runs += 1
        return result

    def _run_plan(self, given: Sequence[np.ndarray], tensors: Sequence[Tensor]) -> Any:
        """The result for these arrays of the sources; changed tensors get new arrays."""
        try:
            found = self._plan.run(given)
        except StepError as error:
            raise located(error, self._lines[error.step.first]) from error.__cause__
        arrays = iter([found[index] for index in self._places])
        results = iter([Tensor(leaf(next(arrays))) for _ in range(count(self._structure))])
        values: list[tuple[Tensor, Expression]] = []
        for target, needs_grad in self._changed:
            changed = leaf(next(arrays))
            changed.needs_grad = needs_grad
            values.append((self._target(target, tensors), changed))
        grads: list[tuple[Tensor, Tensor | None]] = []
        for target, has_grad in self._grads:
            tensor = self._target(target, tensors)
            grad = Tensor(leaf(next(arrays))) if has_grad else None
            added = grad is not None and tensor is not target and tensor.grad is not None
            grads.append((tensor, tensor.grad + grad if added else grad))  # type: ignore[operator]
        try:
            self._is_settled = True
            _settle(values, grads)
        except KeyboardInterrupt:
            _settle(values, grads)
            raise
        return restored(self._structure, results)

    def _keep(self, arrays: Sequence[np.ndarray]) -> None:
        """Keep the arrays of what each call changes, if these are tensors that it reads and gradients that it does not
        read; `arrays` are those of a run."""
        places: dict[Tensor, list[int]] = {}
        for place, source in enumerate(self.sources):
            if source.tensor is not None:
                places.setdefault(source.tensor, []).append(place)
        targets = iter(self._places[count(self._structure) :])
        states = [(each, places.get(each, ()), next(targets)) for each, _ in self._changed]
        grads = [(each, next(targets)) for each, has_grad in self._grads if has_grad]
        simple = (
            all(held for _, held, _ in states)
            and len(grads) == len(self._grads)
            and not self._reads_grads
            and not any(each in self._arguments for each, *_ in (*states, *grads))
            and len(set(self._places)) == len(self._places) == len(self._plan.wanted)
        )
        replay = self._plan.replay(arrays) if states and simple else None
        if replay is not None:
            resident = ResidentState(replay, states, grads)
            kept = {place for _, held, _ in states for place in held}
            self._fed = [place for place in range(len(self.sources)) if place not in kept]
            self._plan.release()  # it runs on the arrays of the resident state from now on
            self._resident = resident  # last: an interrupt before leaves nothing that is half made

    def release(self) -> None:
        """Let go of the arrays that are kept between runs; the tensors keep their values."""
        self._resident, self._runs = None, 0
        self._plan.release()

    @property
    def steps(self) -> int:
        """Number of steps of its plan."""
        return len(self._plan.steps)

    @property
    def changed(self) -> list[Tensor]:
        """The tensors to which the function gives other values."""
        return [tensor for tensor, _ in self._changed]

    def graph(self) -> Graph:
        """The plan as a graph: inputs are those of `sources`, outputs the results, then the values of `changed`."""
        graph = self._plan.graph()
        outputs = count(self._structure) + len(self._changed)
        graph.outputs = [graph.outputs[index] for index in self._places[:outputs]]
        return graph

    def _target(self, tensor: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """The tensor that is changed: the argument for which another one stood in."""
        place = self._arguments.get(tensor)
        return tensor if place is None else tensors[place]


def _end(changes: Changes) -> None:
    """Let a trace be over, and what it changed be as before; a second call does nothing more."""
    TRACE.changes = None
    for tensor, value in changes.values.items():
        tensor.set_expression(value)
    for tensor, grad in changes.grads.items():
        tensor.grad = grad


def _follows(tensor: Tensor, written: set[Tensor]) -> bool:
    """Whether a tensor is a view of one that is written, with which it changes."""
    return any(step.source() in written for step in getattr(tensor, "origin", ()))


def _forget_local(changes: Changes, values: list[Any], grads: list[Any]) -> None:
    """Leave out the tensors that the function made and nobody else refers to: each call makes its own.

    Args:
        values, grads: pairs of the changed tensors and what they have at the end.
    """
    befores: list[dict[Any, Any]] = [changes.values, changes.grads]
    tables = [[(weakref.ref(each), item) for each, item in table.items()] for table in befores]
    pairs = [[(weakref.ref(each), item) for each, item in listed] for listed in (values, grads)]
    reads = [weakref.ref(each) for each in changes.reads]
    changes.reads.clear()
    for listed in (values, grads):
        listed.clear()
    for table in befores:
        table.clear()
    for table, kept in zip(befores, tables, strict=True):
        table.update((each, item) for reference, item in kept if (each := reference()) is not None)
    for listed, kept in zip((values, grads), pairs, strict=True):
        listed.extend((each, item) for reference, item in kept if (each := reference()) is not None)
    changes.reads.update(each for reference in reads if (each := reference()) is not None)


def _settle(values: Sequence[tuple[Tensor, Expression]], grads: Sequence[tuple[Tensor, Tensor | None]]) -> None:
    """Give tensors their next values and gradients; a second call does nothing more."""
    for tensor, value in values:
        tensor.move_to(value)
    for tensor, _ in values:
        if hasattr(tensor, "alias_set"):
            tensor.update_views()
    for tensor, grad in grads:
        tensor.grad = grad


_NOTHING = leaf(np.zeros(0)).type
_UNKNOWN = np.zeros(0)


def _is_held(item: Expression, start: int) -> bool:
    """Whether a tensor from before the trace has this expression."""
    return item.order < start and item.holder is not None and item.holder() is not None


def _argument(tensor: Tensor) -> Tensor:
    """A tensor of an unknown array, as a stand-in for an argument."""
    found = placeholder(tensor.expression.type)
    found.needs_grad = tensor.expression.needs_grad
    return Tensor(found)


def _argument_array(place: int, tensors: Sequence[Tensor]) -> np.ndarray:
    return tensors[place].array()


def _drawn_array(draw: Callable[[], np.ndarray], traced: list[Any], tensors: Sequence[Tensor]) -> np.ndarray:
    """The random numbers drawn while tracing, for the first run; later runs draw anew."""
    found: np.ndarray = traced.pop() if traced else draw()
    return found


def _owned_array(owner: Callable[[], Tensor | None], tensors: Sequence[Tensor]) -> np.ndarray:
    tensor = owner()
    assert tensor is not None
    return tensor.array()


def _same_array(array: np.ndarray, tensors: Sequence[Tensor]) -> np.ndarray:
    return array


def _itself(tensor: Tensor | None) -> Tensor | None:
    return tensor


def _grad_of(tensor: Tensor) -> Tensor | None:
    return tensor.grad
