"""Kernel API: how an operator states which kernels compute a node for given dtypes and shapes.

    @native(softmax)
    def plan_softmax(step: Step) -> Plan:
        x = step.inputs[0]
        if x.dtype != np.float32:
            return None                                    # compute() in NumPy does it
        y = step.output(0)
        return Launch(softmax_rows, step.parts(rows, 8 * x.count), x=x, y=y, rows=rows, count=length)

Arrays are contiguous. Arguments have the names of the kernel's parameters (`kernel_arguments`): buffers, passed as
addresses, ints and floats.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from ..base.dataclass import dataclass
from ..base.process_cache import PROCESS, owned, process_cache
from ..ir import registry
from ..tensor.weight_array import LazyWeight, as_array, release_pages

if TYPE_CHECKING:
    from ..ir.graph import Node
    from ..ir.op import Op

CALL, UNLESS, JUMP = 0, 1, 2
"""Instructions: call a kernel (address, arguments, parts); go to instruction `b` unless the byte is set whose address
is at `a`; go to `a`."""
ALIGNMENT = 64
MIN_PART_WORK = 40_000
"""Minimum scalar operations per part; smaller parts cost more to schedule than to run."""
PARTS_PER_THREAD = 4


@dataclass(eq=False)
class Allocation:
    """A range of the arena, a weight, or an array of a run; buffers are views of it.

    Attributes:
        nbytes: size in bytes.
        constant: the array, for weights.
        slot: index among the arrays of a run: inputs first, then outputs.
        writable: whether a run may overwrite the array of the slot (an in-place input) and return it as an output.
        first, last: positions of the first and last step that use it.
        at: byte offset in the arena, set by the planner.
    """

    nbytes: int
    constant: np.ndarray | LazyWeight | None = None
    slot: int | None = None
    writable: bool = False
    first: int = -1
    last: int = -1
    at: int = -1

    def use(self, position: int) -> None:
        """Extend the lifetime to a step's position."""
        self.first = position if self.first < 0 else min(self.first, position)
        self.last = max(self.last, position)


@dataclass(frozen=True, eq=False)
class Buffer:
    """A contiguous view of an allocation.

    Attributes:
        offset: bytes from the start of the allocation.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    allocation: Allocation
    offset: int = 0

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.count * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one index to the next along each axis."""
        found: list[int] = []
        step = 1
        for length in reversed(self.shape):
            found.insert(0, step)
            step *= length
        return tuple(found)

    def view(self, shape: Sequence[int], start: int = 0, dtype: np.dtype[Any] | None = None) -> Buffer:
        """A view from element `start` on, with another shape."""
        return Buffer(dtype or self.dtype, tuple(shape), self.allocation, self.offset + start * self.dtype.itemsize)


Argument = Buffer | int | float


class BaseLaunch:
    """One call of a kernel, on the CPU or a device.

    Attributes:
        arguments: buffers and numbers.
        output: the result, if an element-wise chain that follows can be fused.
        takes: returns a launch that also computes an element-wise chain of the output, None if it cannot.
    """

    kernel: Any
    arguments: Sequence[Argument]
    output: Buffer | None = None
    takes: Callable[[Chain, Buffer], Any] | None = None


class Launch(BaseLaunch):
    """One call of a range kernel, split into parts that any thread may compute.

    Attributes:
        arguments: words of its native block.
        copied: source and target of a launch that only copies bytes.
        in_place: pairs of buffers that it reads and writes and that may share memory: each element is read before it is
            written.
    """

    copied: tuple[Buffer, Buffer] | None = None
    in_place: Sequence[tuple[Buffer, Buffer]] = ()

    def __init__(self, kernel: Any, parts: int = 1, /, **arguments: Any) -> None:
        """Arguments are the kernel's, by name. TypeError if one is missing, unknown or of the wrong type."""
        self.kernel = kernel
        self.parts = parts
        self.arguments: tuple[Argument, ...] = kernel.parameters.block(arguments)

    def changed(self, **attributes: Any) -> Launch:
        """A copy with some attributes replaced."""
        made = copy.copy(self)
        vars(made).update(attributes)
        return made


@dataclass(frozen=True)
class Apply:
    """One operator of a chain.

    Attributes:
        key: key of its scalar function, in `elementwise_fusion.FUNCTIONS` or for a device in `element.SCALARS`.
        operands: buffers; None stands for the result of the previous operator, or of an earlier one.
        attributes: scalar arguments after the elements.
        compute: dtype of literals in the function.
        result: dtype that the function's value is rounded to.
        earlier: positions in the chain of the operators that the operands None stand for; empty for the previous one.
    """

    key: str
    operands: tuple[Buffer | None, ...]
    attributes: tuple[float, ...]
    compute: np.dtype[Any]
    result: np.dtype[Any]
    earlier: tuple[int, ...] = ()


@dataclass(frozen=True)
class Chain:
    """Operators that run one after another on each element of `output`, to which all operands broadcast."""

    steps: tuple[Apply, ...]
    output: Buffer

    @property
    def operands(self) -> list[Buffer]:
        """The buffers it reads, in order."""
        return [operand for step in self.steps for operand in step.operands if operand is not None]


def fuse(first: Chain | BaseLaunch, then: Chain, longest: int) -> Any:
    """A chain or launch that computes both; None unless the first operator of `then` reads the output of `first` once,
    element by element, and the result has at most `longest` operators."""
    made, head = first.output, then.steps[0]
    fed = [operand for operand in then.operands if made is not None and operand.allocation is made.allocation]
    if made is None or len(fed) != 1 or fed[0] not in head.operands:
        return None
    if (fed[0].shape, fed[0].dtype) != (made.shape, made.dtype) or made.shape != then.output.shape:
        return None
    if isinstance(first, BaseLaunch):
        return None if first.takes is None else first.takes(then, fed[0])
    if len(first.steps) + len(then.steps) > longest:
        return None
    joined = replace(head, operands=tuple(None if operand is fed[0] else operand for operand in head.operands))
    return Chain((*first.steps, joined, *then.steps[1:]), then.output)


MOST_READ = 8
"""Buffers of more than one element that a joined chain reads: for more, loops are not vectorized."""


def join(first: Chain, then: Chain, longest: int) -> Chain | None:
    """A chain that computes both, where any operators of `then` read all of the output of `first` element by element;
    None where the result has more than `longest` operators or reads too much."""
    made, place = first.output, len(first.steps)
    fed = [operand for operand in then.operands if operand.allocation is made.allocation]
    same = all((item.offset, item.shape, item.dtype) == (made.offset, made.shape, made.dtype) for item in fed)
    if not fed or not same or made.shape != then.output.shape or place + len(then.steps) > longest:
        return None

    steps = []
    for position, step in enumerate(then.steps):
        earlier, behind = [], iter(step.earlier or (position - 1,) * len(step.operands))
        for operand in step.operands:
            if operand is None:
                earlier.append(place + next(behind))
            elif operand.allocation is made.allocation:
                earlier.append(place - 1)
        operands = (
            None if operand is None or operand.allocation is made.allocation else operand for operand in step.operands
        )
        steps.append(replace(step, operands=tuple(operands), earlier=tuple(earlier)))
    both = Chain((*first.steps, *steps), then.output)
    read = {(id(operand.allocation), operand.offset) for operand in both.operands if operand.count > 1}
    return both if len(read) <= MOST_READ else None


@dataclass(frozen=True)
class View:
    """The output is a view of an existing buffer; nothing is computed."""

    buffer: Buffer


Planned: TypeAlias = Launch | View | Chain | list[Launch] | list[Chain] | None


def parts_for(threads: int, limit: int, work: float, finer: int = 1) -> int:
    """Number of parts for a step of `limit` rows and `work` scalar operations; `finer` multiplies the number."""
    least = MIN_PART_WORK // finer
    if threads == 1 or work < 2 * least or limit < 2:
        return 1
    wanted = int(min(limit, work // least, finer * PARTS_PER_THREAD * threads))
    return max(1, wanted if wanted < threads else wanted // threads * threads)


def constant_of(array: np.ndarray) -> Buffer:
    """A buffer that holds the elements of `array`, which is copied unless it is contiguous."""
    plain = array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(array.shape)
    return Buffer(plain.dtype, plain.shape, Allocation(plain.nbytes, constant=plain))


@dataclass(eq=False)
class BaseStep:
    """A node as its planner sees it, on the CPU or a device.

    Attributes:
        inputs: buffers, None for an absent optional input.
        attributes: all attributes, defaults filled in.
        results: dtype and shape of each output, None if it is unused.
        cache: arrays made of constants, shared by all plans of a session.
        may_overwrite: whether only this step uses the memory of an input, so that an output may overwrite it.
        outputs: the buffers of outputs, as the planner asks for them.
        allocations: of these and of scratch buffers.
    """

    node: Node
    inputs: list[Buffer | None]
    attributes: dict[str, Any]
    results: list[tuple[np.dtype[Any], tuple[int, ...]] | None]
    cache: dict[Any, Any]
    may_overwrite: Callable[[Buffer], bool] = lambda buffer: False
    outputs: dict[int, Buffer] = field(default_factory=dict)
    allocations: list[Allocation] = field(default_factory=list)

    def input(self, index: int) -> Buffer:
        """A required input."""
        found = self.inputs[index]
        assert found is not None
        return found

    def optional_input(self, index: int) -> Buffer | None:
        """An optional input, None if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int = 0) -> Buffer:
        """The buffer of a used output."""
        if index not in self.outputs:
            result = self.results[index]
            assert result is not None
            self.outputs[index] = self.temporary(*result)
        return self.outputs[index]

    def is_used(self, index: int) -> bool:
        """Whether output `index` is used."""
        return index < len(self.results) and self.results[index] is not None

    def temporary(self, dtype: np.dtype[Any] | type, shape: Sequence[int]) -> Buffer:
        """Scratch memory for the launches of this step."""
        kind = np.dtype(dtype)
        allocation = Allocation(math.prod(shape) * kind.itemsize)
        self.allocations.append(allocation)
        return Buffer(kind, tuple(shape), allocation)

    def constant(self, index: int) -> np.ndarray | None:
        """The array of a constant input, None for others."""
        buffer = self.optional_input(index)
        return (
            None
            if buffer is None or buffer.allocation.constant is None
            else _part(buffer, as_array(buffer.allocation.constant))
        )

    def is_constant(self, index: int) -> bool:
        """Whether an input is a constant; does not read it."""
        buffer = self.optional_input(index)
        return buffer is not None and buffer.allocation.constant is not None

    def constant_buffer(self, array: np.ndarray) -> Buffer:
        """A buffer that holds the elements of `array`."""
        return constant_of(array)


@dataclass(eq=False)
class Step(BaseStep):
    """A node as its CPU planner sees it.

    Attributes:
        threads: number of threads that run the plan.
        cache: packed constants by id and layout, which holds the constants, so that their ids stay valid.
        bailout: an int64 flag that a kernel sets when it meets values that it does not compute, such as an index out
            of range. The run is then repeated in NumPy, which computes them or raises. The kernel must stay within its
            buffers all the same.
        decodes: whether the session has in-place inputs, which are KV caches: it runs on few rows too, for which
            weights are read as they are stored, and a second layout of them would double their memory.
        readers: how many nodes read an input of the run that stays as it is; 0 for other buffers.
        copies: what earlier launches of the plan have copied such inputs to.
    """

    threads: int = 1
    bailout: Buffer = field(default_factory=lambda: bailout_flag())
    decodes: bool = False
    readers: Callable[[Buffer], int] = lambda buffer: 0
    copies: dict[Any, Buffer] = field(default_factory=dict)

    def scratch(self, nbytes: int) -> Buffer:
        """Scratch memory of this step, uint8."""
        return self.temporary(np.uint8, (nbytes,))

    def packed(self, index: int, layout: Any, pack: Callable[..., np.ndarray], further: Sequence[int] = ()) -> Buffer:
        """A constant input in another layout, packed once per session; `pack` also gets `further` constant inputs."""
        return self.constant_buffer(self.derived_constant(index, layout, pack, further))

    def packed_16bit(self, index: int, layout: Any, pack: Callable[[np.ndarray], np.ndarray]) -> Buffer | None:
        """As `packed`, for kernels that widen f16 or bf16 weights as they read them; None for other weights."""
        return None

    def stored_input(self, index: int) -> Buffer | None:
        """An input in the dtype that it is stored in, None if it is absent."""
        return self.optional_input(index)

    def derived_constant(
        self, index: int, kind: Any, make: Callable[..., np.ndarray], further: Sequence[int] = ()
    ) -> np.ndarray:
        """The result of `make` for a constant input, and for `further` ones as they are stored, None for absent ones;
        computed once per session. The inputs are not cached."""
        buffers = [self.inputs[index], *map(self.stored_input, further)]
        constants = [None if buffer is None else buffer.allocation.constant for buffer in buffers]
        places = (
            (at, id(constants[at]), buffer.offset, buffer.shape)
            for at, buffer in enumerate(buffers)
            if buffer is not None
        )
        key = (*places, kind)
        if key not in self.cache:
            array, *others = (None if buffer is None else without_caching(buffer) for buffer in buffers)
            assert array is not None
            made = make(array, *others)
            self.cache[key] = (
                made.copy() if np.may_share_memory(made, array) and isinstance(constants[0], LazyWeight) else made,
                constants,
            )
            if not np.may_share_memory(self.cache[key][0], array):
                release_pages(array)
        found: np.ndarray = self.cache[key][0]
        return found

    def parts(self, limit: int, work: float, finer: int = 1) -> int:
        """Number of parts for `limit` rows and `work` scalar operations; see `parts_for`."""
        return parts_for(self.threads, limit, work, finer)


def without_caching(buffer: Buffer) -> np.ndarray:
    """The elements of a constant buffer, read without caching them."""
    constant = buffer.allocation.constant
    assert constant is not None
    return _part(buffer, constant.without_caching() if isinstance(constant, LazyWeight) else constant)


def _part(buffer: Buffer, array: np.ndarray) -> np.ndarray:
    """The elements of a buffer in the constant of its allocation."""
    whole = array.reshape(-1).view(np.uint8)[buffer.offset : buffer.offset + buffer.nbytes]
    return whole.view(buffer.dtype).reshape(buffer.shape)


def bailout_flag() -> Buffer:
    """A new flag that kernels set to have the run repeated in NumPy."""
    return Buffer(np.dtype(np.int64), (1,), Allocation(8))


Planner = Callable[[Step], Planned]

P = TypeVar("P", bound=Callable[..., Any])


class Planners(dict["Op", P]):
    """The planner of each operator that has kernels.

    Attributes:
        by_element: the planner of operators that have a scalar function and no planner of their own.
        by_rows: that of operators that have a description of rows.
    """

    by_element: P | None = None
    by_rows: P | None = None

    def of(self, operator: Op) -> P | None:
        """The planner of an operator, None if it has no kernels."""
        general = self.by_rows if operator.rows else self.by_element if operator.scalar else None
        return self.get(operator) or general


PLANNERS: Planners[Planner] = Planners()
ACCEPTS_EMPTY: set[Op] = owned(set(), PROCESS)
"""Operators whose planners accept inputs without elements."""


def native(*operators: Op, empty: bool = False) -> Callable[[Planner], Planner]:
    """Register the planner of operators; with `empty` it also gets inputs without elements."""

    def registered(planner: Planner) -> Planner:
        PLANNERS.update(dict.fromkeys(operators, planner))
        ACCEPTS_EMPTY.update(operators if empty else ())
        return planner

    return registered


def native_by_element(planner: Planner) -> Planner:
    """Register the planner of operators that have a scalar function but no planner."""
    PLANNERS.by_element = planner
    return planner


def native_by_rows(planner: Planner) -> Planner:
    """Register the planner of operators that have a description of rows but no planner."""
    PLANNERS.by_rows = planner
    return planner


def planner_of(operator: Op) -> Planner | None:
    """The planner of an operator, None if it has no native kernels."""
    _load_planners_of(operator)
    return PLANNERS.of(operator)


def accepts_empty(operator: Op) -> bool:
    """Whether the planner of an operator accepts inputs without elements."""
    return operator in ACCEPTS_EMPTY or operator.rows is not None


def load_planners() -> None:
    """Load every module that registers a planner."""
    registry.load(registry.registering(native, native_by_element, native_by_rows))


@process_cache
def _load_planners_of(operator: Op) -> None:
    """Load the modules that may register a planner for an operator."""
    registry.load(registry.registering(native, operator=operator))
    if operator.scalar is not None:
        registry.load(registry.registering(native_by_element))
    if operator.rows is not None:
        registry.load(registry.registering(native_by_rows))


def cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
