"""Plan layout: order of launches, lifetimes of buffers, arena offsets and the peak memory of a run."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import field
from typing import Any, TypeAlias, TypeGuard

from ..base.dataclass import dataclass
from ..base.memory_check import check_memory, check_work
from ..base.units import counted
from ..ir.graph import Node, Value
from .arena import aligned, live_bytes, place
from .kernel_api import Allocation, Buffer, Chain, Launch, parts_for
from .plan import Mark, Plan, PythonStep, described, size
from .planner import Planner
from .shared_memory import moved, nested, overwriting, rewritten

Item: TypeAlias = Launch | PythonStep | Mark
Location: TypeAlias = Buffer | Value


@dataclass(eq=False)
class Layout:
    """A plan with arena offsets, before it is encoded as bytecode.

    Attributes:
        items: in the order in which they run; nodes: what asked for each.
        frees: for each item, the slots and objects that nothing uses after it.
    """

    plan: Plan
    items: list[Item]
    nodes: list[Node | None]
    frees: list[list[int | Value]] = field(default_factory=list)

    @property
    def kernels(self) -> list[Any]:
        """The kernels the plan calls."""
        return [item.kernel for item in self.items if isinstance(item, Launch)]


def ordered(planner: Planner) -> Layout:
    """The ordered launches of a finished planner, without arena offsets."""
    return Layout(planner.plan, *_nested(planner, _output_slots(planner)))


def layout_of(planner: Planner) -> Layout:
    """The layout of a finished planner. Raises LimitError if a run would exceed the memory or time limit."""
    layout = ordered(planner)
    plan, items = layout.plan, layout.items
    loops = _loops(items)
    last = len(items)
    kept: list[Location] = [*plan.outputs, *plan.live]
    scratch = [allocation for allocation, _ in planner.scratch]
    arena = _lifetimes(items, kept, loops, scratch)
    if any(allocation is planner.bailout.allocation for allocation in arena):
        plan.bailout = planner.bailout
        plan.bailout.allocation.first, plan.bailout.allocation.last = 0, last
    plan.arena, plan.min_arena = place(arena), live_bytes(arena, last)
    ends = _ends(items, kept, loops, last)
    plan.need = (
        plan.arena
        + sum(aligned(_nbytes(plan, slot)) for slot in plan.output_slots)
        + _held_by_python(planner, items, ends)
    )
    plan.largest = _largest(planner, items, layout.nodes)
    plan.weights = sum(array.nbytes for array in planner.region.weights.values())
    plan.work, plan.hardest = planner.work, planner.hardest[1]
    check(plan, planner.threads)
    layout.frees = [[] for _ in range(last + 1)]
    for thing, position in ends.items():
        layout.frees[position].append(thing)
    return layout


def check(plan: Plan, threads: int) -> None:
    """Raise LimitError if a run of the plan would exceed the memory or time limit."""
    check_memory(plan.need, plan.weights, plan.largest)
    check_work(plan.work, threads, plan.hardest)


def _nbytes(plan: Plan, slot: int) -> int:
    dtype, shape = plan.slots[slot]
    return size(shape) * dtype.itemsize


def _in_arena(location: object) -> TypeGuard[Buffer]:
    """Whether a location is in the arena (not a constant, not an array of a run)."""
    return isinstance(location, Buffer) and location.allocation.constant is None and location.allocation.slot is None


def _output_slots(planner: Planner) -> list[Item]:
    """Replace chains by launches; outputs that a launch computes get slots."""
    from .elementwise_fusion import launched as fused

    plan = planner.plan
    produced = {id(item.output.allocation) for item in planner.steps if isinstance(item, Chain)}
    produced |= {
        id(argument.allocation)
        for item in planner.steps
        if isinstance(item, Launch)
        for argument in item.arguments
        if _in_arena(argument)
    }
    for location in plan.outputs:
        if not _in_arena(location) or id(location.allocation) not in produced:
            continue
        if location.offset == 0 and location.nbytes == location.allocation.nbytes:
            location.allocation.slot = planner.slot(location.dtype, location.shape)
            plan.output_slots.append(location.allocation.slot)
    parts = functools.partial(parts_for, planner.threads)
    return [fused(item, parts) if isinstance(item, Chain) else item for item in planner.steps]


def _nested(planner: Planner, items: list[Item]) -> tuple[list[Item], list[Node | None]]:
    """Launches whose results share memory, and the node of each."""
    plan, nodes = planner.plan, planner.nodes

    def written_once(allocation: Allocation) -> bool:
        return planner.locations.sole_occupant(allocation) is not None

    for sharing in (functools.partial(nested, written_once=written_once), overwriting):
        inside = sharing(items, [*plan.outputs, *plan.live])
        plan.outputs, plan.live = (
            [moved(location, inside) for location in locations] for locations in (plan.outputs, plan.live)
        )
        pairs = [(rewritten(item, inside), node) for item, node in zip(items, nodes, strict=True)]
        items = [item for item, _ in pairs if item is not None]
        nodes = [node for item, node in pairs if item is not None]
    return items, nodes


def _locations(item: Item) -> Iterable[Location]:
    """Locations that an item reads or writes, without results of Python steps."""
    if isinstance(item, PythonStep):
        return (*(location for location in item.inputs if location is not None), *item.captured.values())
    if isinstance(item, Mark):
        return item.uses
    return (argument for argument in item.arguments if isinstance(argument, Buffer))


def _loops(items: list[Item]) -> list[tuple[int, int]]:
    """First and last positions of the loops, inner ones first."""
    found, open_ = [], []
    for position, item in enumerate(items):
        if isinstance(item, Mark) and item.kind == "loop":
            open_.append(position)
        elif isinstance(item, Mark) and item.kind == "again":
            found.append((open_.pop(), position))
    return found


def _lifetimes(
    items: list[Item], kept: list[Location], loops: list[tuple[int, int]], scratch: list[Allocation]
) -> list[Allocation]:
    """The allocations of the arena with lifetimes set; what a loop reads from outside lives until its end."""
    arena: dict[int, Allocation] = {}

    def use(location: Location, at: int) -> None:
        if _in_arena(location):
            allocation = arena.setdefault(id(location.allocation), location.allocation)
            allocation.use(at)

    for position, item in enumerate(items):
        for location in _locations(item):
            use(location, position)
    for allocation in scratch:
        allocation.last = max(allocation.last, allocation.first)
    for location in kept:
        use(location, len(items))
    allocations = list(arena.values())
    for begin, end in loops:
        for allocation in allocations:
            if allocation.first < begin <= allocation.last <= end:
                allocation.last = end
    for allocation in allocations:
        allocation.first = max(allocation.first, 0)
    return allocations


def _ends(items: list[Item], kept: list[Location], loops: list[tuple[int, int]], last: int) -> dict[int | Value, int]:
    """Position of the last use of each Python result; results that outlive the steps are left out."""
    made: dict[int | Value, int] = {}
    ends: dict[int | Value, int] = {}
    for position, item in enumerate(items):
        for location in _locations(item):
            thing = location if isinstance(location, Value) else location.allocation.slot
            if thing in made:
                ends[thing] = position
        if isinstance(item, PythonStep):
            for value, slot in zip(item.node.outputs, item.slots, strict=False):
                for thing in (value, slot):
                    if thing is not None:
                        made[thing] = ends[thing] = position
    for begin, end in loops:
        for thing, position in ends.items():
            if made[thing] < begin <= position <= end:
                ends[thing] = end
    for location in kept:
        ends.pop(
            location
            if isinstance(location, Value)
            else location.allocation.slot
            if location.allocation.slot is not None
            else -1,
            None,
        )
    return ends


def _held_by_python(planner: Planner, items: list[Item], ends: dict[int | Value, int]) -> int:
    """Peak bytes of live Python results whose shapes are known."""
    allocations = []
    for position, item in enumerate(items):
        if isinstance(item, PythonStep):
            for value, slot in zip(item.node.outputs, item.slots, strict=False):
                end = (
                    ends.get(value, len(items)) if slot is None else max(ends.get(value, 0), ends.get(slot, len(items)))
                )
                allocations.append(Allocation(planner.nbytes(value), first=position, last=end))
    return live_bytes(allocations, len(items) + 1)


def _largest(planner: Planner, items: list[Item], nodes: list[Node | None]) -> str:
    """Description of the node with the most bytes of results and scratch memory."""
    made: dict[int, int] = {}
    seen: set[int] = set()
    for position, item in enumerate(items):
        if isinstance(item, PythonStep):
            made[position] = sum(planner.nbytes(value) for value in item.node.outputs)
        else:
            buffers = [location for location in _locations(item) if isinstance(location, Buffer)]
            allocations = [
                buffer.allocation
                for buffer in buffers
                if buffer.allocation.constant is None and id(buffer.allocation) not in seen
            ]
            seen.update(id(allocation) for allocation in allocations)
            made[position] = sum(
                allocation.nbytes for allocation in {id(allocation): allocation for allocation in allocations}.values()
            )
    most = max(made, key=lambda at: made[at], default=-1)
    node = nodes[most] if most >= 0 else None
    return "" if node is None else f"{described(node)} with {counted(made[most], 'byte')}"
