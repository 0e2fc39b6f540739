"""Plans of expressions: operators in order, run in NumPy at first and by a session once that pays."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ops.elementwise import declare
from ...ops.rules import precision
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError, UsageError
from ...runtime.ir.call import Call
from ...runtime.ir.cost import operations
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.registry import candle, onnx
from ...runtime.tensor.weight_array import Blocks, as_array
from .expression import Expression, Signature, TensorType, held_tensor
from .idle_memory import IdleMemory

if TYPE_CHECKING:
    from ...runtime.execute.replay import Replay
    from ...runtime.session import Session

MIN_COMPILED_ELEMENTS, MIN_COMPILED_STEPS = 1 << 14, 32
"""Elements that a run computes, or steps, from which kernels are worth their compilation."""
MAX_FUNCTION_STEPS = 512
"""Steps up to which a plan becomes one Python function."""
COMPILED_AFTER = 1 << 27
"""Multiplications, one for each element at least, that runs of a plan make in NumPy before it is compiled. It depends
on nothing but the program, so that results are the same each time the program runs."""


class _Threads:
    """How many threads compute what is planned from now on; None for one a core."""

    count: int | None = None


THREADS = _Threads()


@dataclass(frozen=True)
class Step:
    """One operator of a plan.

    Attributes:
        first: slot of its first output; further outputs follow.
        frees: slots that no later step reads.
    """

    signature: Signature
    compute: Callable[..., Any]
    inputs: tuple[int | None, ...]
    first: int
    frees: tuple[int, ...]


IDLE_MEMORY = IdleMemory()


class StepError(Exception):
    """A step failed; its cause says why."""

    def __init__(self, step: Step) -> None:
        super().__init__(step)
        self.step = step


class Plan:
    """Computes some of the expressions of one structure.

    Args:
        steps: signature, input slots and first output slot of each operator.
        slots: number of slots.
        constants: arrays that the structure itself contains, by slot.
        feeds: slots of the arrays of a run, with their types.
        wanted: slots of the results.
    """

    def __init__(
        self,
        steps: Sequence[tuple[Signature, tuple[int | None, ...], int]],
        slots: int,
        constants: dict[int, Expression],
        feeds: Mapping[int, TensorType],
        wanted: Sequence[int],
    ) -> None:
        self.feeds = tuple(feeds)
        self._names = [f"x{slot}" for slot in self.feeds]
        self._types = dict(feeds)
        self.wanted = tuple(wanted)
        self._constants = {slot: item.type.array for slot, item in constants.items()}
        self._empty: list[Any] = [None] * slots
        for slot, array in self._constants.items():
            self._empty[slot] = array
        self.steps = _steps(steps, {*wanted, *self._constants})
        outputs = [kind for step in self.steps for kind in step.signature.outputs]
        self._elements = sum(int(np.prod(kind.shape)) for kind in outputs)
        self._compiles = self._elements >= MIN_COMPILED_ELEMENTS or len(self.steps) >= MIN_COMPILED_STEPS
        self._computed = 0.0
        self._session: Session | None = None
        self._function: Callable[..., list[np.ndarray]] | None = None

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The wanted arrays; they share no memory with anything. StepError if an operator does not take its inputs."""
        if self._session is not None:
            IDLE_MEMORY.used(self)
            try:
                return self._session.run(
                    None, {f"x{slot}": each for slot, each in zip(self.feeds, arrays, strict=True)}
                )
            except UsageError:
                self._in_numpy(arrays)  # says which step failed
                raise
        if self._compiles:
            self._computed += self._multiplications
            if self._computed > COMPILED_AFTER:
                self.compile()
                if self._session is not None:
                    return self.run(arrays)
        return self._in_numpy(arrays)

    @functools.cached_property
    def _multiplications(self) -> float:
        return sum(_multiplications(step.signature) for step in self.steps)

    def compile(self) -> None:
        """Make a session of the plan, which later runs use, if it is large enough."""
        from ...runtime.session import Session

        if not self._compiles:
            return
        self._compiles = False
        try:
            self._session = Session(self.graph(), THREADS.count, native=True)
        except UnsupportedError:
            self._session = None

    @property
    def idle(self) -> int:
        """Bytes that its session keeps between runs."""
        return 0 if self._session is None else self._session.program.idle

    def release(self) -> None:
        """Free them."""
        if self._session is not None:
            self._session.program.release()

    def replay(self, arrays: Sequence[np.ndarray]) -> Replay | None:
        """Runs on arrays that stay, in the order of `feeds` and `wanted`; None where that is not possible."""
        return None if self._session is None else self._session.replay(arrays)

    def _in_numpy(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            if self._function is None:
                found = self._step_by_step(arrays)
            else:
                try:
                    found = self._function(*arrays)
                except Exception:
                    found = self._step_by_step(arrays)
        fed = set(map(id, arrays))
        return [result.copy() if result.base is not None or id(result) in fed else result for result in found]

    def _step_by_step(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the steps; make a function of them."""
        values = self._empty.copy()
        for slot, array in zip(self.feeds, arrays, strict=True):
            values[slot] = array
        tuples = []
        for step in self.steps:
            try:
                found = step.compute(*[None if slot is None else values[slot] for slot in step.inputs])
            except Exception as error:
                raise StepError(step) from error
            several = isinstance(found, tuple)
            tuples.append(several)
            for offset, result in enumerate(found[: len(step.signature.outputs)] if several else (found,)):
                values[step.first + offset] = result if isinstance(result, np.ndarray) else np.asarray(result)
            for slot in step.frees:
                values[slot] = None
        if len(self.steps) <= MAX_FUNCTION_STEPS:
            self._function = self._python(tuples)
        return [values[slot] for slot in self.wanted]

    def _python(self, tuples: Sequence[bool]) -> Callable[..., list[np.ndarray]]:
        """The steps as a Python function of the arrays that are fed, which is faster than a loop over them.

        Args:
            tuples: whether each step returns a tuple.
        """
        names: dict[str, Any] = {"ndarray": np.ndarray, "asarray": np.asarray}
        names |= {f"x{slot}": array for slot, array in self._constants.items()}
        lines = [f"def run({', '.join(f'x{slot}' for slot in self.feeds)}):"]
        for number, (step, several) in enumerate(zip(self.steps, tuples, strict=True)):
            names[f"f{number}"] = step.compute
            call = f"f{number}({', '.join('None' if slot is None else f'x{slot}' for slot in step.inputs)})"
            slots = range(step.first, step.first + len(step.signature.outputs))
            if several:
                lines.append(f"t = {call}")
                lines += [f"x{slot} = t[{index}]" for index, slot in enumerate(slots)]
            else:
                lines.append(f"x{step.first} = {call}")
            lines += [f"if type(x{slot}) is not ndarray: x{slot} = asarray(x{slot})" for slot in slots]
            if step.frees:
                lines.append(f"{' = '.join(f'x{slot}' for slot in step.frees)} = None")
        lines.append(f"return [{', '.join(f'x{slot}' for slot in self.wanted)}]")
        exec("\n    ".join(lines), names)
        function: Callable[..., list[np.ndarray]] = names["run"]
        return function

    def graph(self) -> Graph:
        """The plan as a graph; inputs and values are called ``x`` and their slot."""
        graph = Graph()
        values: dict[int, Value] = {}
        for slot, array in self._constants.items():
            assert array is not None
            graph.weights[f"x{slot}"] = held = held_tensor(array)
            values[slot] = Value(f"x{slot}", held.dtype, held.shape)
        for slot, kind in self._types.items():
            values[slot] = Value(f"x{slot}", kind.dtype, kind.shape)
            graph.inputs.append(values[slot])
        for step in self.steps:
            signature = step.signature
            outputs = [
                Value(f"x{step.first + index}", kind.dtype, kind.shape) for index, kind in enumerate(signature.outputs)
            ]
            inputs = [None if slot is None else values[slot] for slot in step.inputs]
            node = Node(signature.op, inputs, outputs, dict(signature.attributes))
            for index, value in enumerate(outputs):
                value.producer = node
                values[step.first + index] = value
            graph.nodes.append(node)
        graph.values.update((value.name, value) for value in values.values())
        graph.outputs = [values[slot] for slot in self.wanted]
        return graph


def _steps(steps: Sequence[tuple[Signature, tuple[int | None, ...], int]], kept: set[int]) -> list[Step]:
    """The steps, each with the slots that it is the last to read."""
    made, seen = [], set(kept)
    for signature, inputs, first in reversed(steps):
        slots = [*(slot for slot in inputs if slot is not None), *range(first, first + len(signature.outputs))]
        last = tuple(dict.fromkeys(slot for slot in slots if slot not in seen))
        seen.update(slots)
        made.append(Step(signature, _compute(signature), inputs, first, last))
    return made[::-1]


_CONVERTING = (vars(precision), vars(declare))
"""Modules whose decorators widen 16-bit floats, silence warnings, and say which shapes do not fit: none of that is
needed for wider dtypes and shapes that were inferred."""


def _compute(signature: Signature) -> Callable[..., Any]:
    """A function of the inputs alone."""
    op, attributes = signature.op, signature.attributes
    assert op.compute is not None
    if op.asks:
        outputs = [Value(f"y{index}") for index in range(len(signature.outputs))]
        node = Node(op, [], outputs, attributes)
        attributes = {**attributes, "call": Call(node, (True,) * len(outputs), _without_subgraphs)}
    compute = op.compute
    if all(kind is None or kind.dtype.bits >= 32 or kind.dtype.kind != "float" for kind in signature.inputs):
        compute = inspect.unwrap(compute, stop=lambda each: each.__globals__ not in _CONVERTING)
    if not op.stored and any(kind is not None and isinstance(kind.array, Blocks) for kind in signature.inputs):
        compute = _decoding(compute)
    return functools.partial(compute, **attributes) if attributes else compute


def _multiplications(signature: Signature) -> float:
    """Of one run in NumPy."""
    if signature.op in (onnx.MatMul, onnx.Gemm, candle.Linear):  # multiplied by BLAS: only the results' elements count
        return float(sum(math.prod(kind.shape) for kind in signature.outputs))
    outputs = [Value("", kind.dtype, kind.shape) for kind in signature.outputs]
    inputs = [None if kind is None else Value("", kind.dtype, kind.shape) for kind in signature.inputs]
    return operations(Node(signature.op, inputs, outputs, signature.attributes))


def _decoding(compute: Callable[..., Any]) -> Callable[..., Any]:
    """The function with quantized weights decoded for each call."""

    def decoded(*inputs: Any, **attributes: Any) -> Any:
        return compute(*map(as_array, inputs), **attributes)

    return decoded


def _without_subgraphs(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    raise UnsupportedError("E-TENSOR-SUBGRAPH", None, "operators with subgraphs are not expressions")
